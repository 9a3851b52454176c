"""Query parser: splits long queries into parts and detects a named speaker."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from weftline.indexing.text_analysis import MAX_WORD_LENGTH

if TYPE_CHECKING:
    from collections.abc import Collection

# Longer queries are tasks of several steps: each sentence is searched separately.
_MAX_SINGLE_PART_WORDS = 60
_MIN_SENTENCE_WORDS = 3
# Role names do not identify a speaker.
_ROLES = frozenset({"user", "assistant", "system", "tool", "agent", "human", "ai", "bot", "customer", "speaker"})

_SENTENCE_END = re.compile(r"(?<=[.!?;:])\s+|\n+|\s+-\s+|\*\*")
_BEFORE_NAME = re.compile(r"^\W+")
_AFTER_NAME = re.compile(r"(['\u2019]s|s['\u2019])?\W*$")


class ParsedQuery(NamedTuple):
    """Query parts, each searched separately, and the speaker if the query names exactly one.

    The name is removed from the query: it filters by speaker and rarely occurs in the speaker's own messages.
    """

    parts: list[str]
    speaker: str | None


def parse_query(text: str, speakers: Collection[str]) -> ParsedQuery:
    """Parse a query against the speakers of a conversation."""
    rest, named = _without_names(_shortened(text), {name.casefold() for name in speakers} - _ROLES)
    return ParsedQuery(_parts(rest), named.pop() if len(named) == 1 else None)


def _parts(text: str) -> list[str]:
    if len(text.split()) <= _MAX_SINGLE_PART_WORDS:
        return [text]
    sentences = [sentence.strip(" *#-\t") for sentence in _SENTENCE_END.split(text) if sentence]
    return list(dict.fromkeys(each for each in sentences if len(each.split()) >= _MIN_SENTENCE_WORDS)) or [text]


def _shortened(text: str) -> str:
    return "\n".join(" ".join(word[:MAX_WORD_LENGTH] for word in line.split(" ")) for line in text.split("\n"))


def _without_names(text: str, names: set[str]) -> tuple[str, set[str]]:
    """Remove names from a query, unless nothing else is left."""
    found: set[str] = set()
    kept = []
    for word in re.split(r"(\s+)", text) if names else ():
        bare = _AFTER_NAME.sub("", _BEFORE_NAME.sub("", word)).casefold()
        if bare in names:
            found.add(bare)
        else:
            kept.append(word)
    rest = "".join(kept).strip()
    return (rest if found and rest else text), found
