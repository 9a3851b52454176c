"""What a question asks: in which parts, and of whom."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from weft.capabilities.indexing.text_analysis import MAX_WORD_LENGTH

if TYPE_CHECKING:
    from collections.abc import Collection

# A longer question is a task of several steps: each of its sentences is looked for by itself.
_LONG_WORDS = 60
_SHORTEST_SENTENCE_WORDS = 3
# Names that anyone may have who takes part in a conversation say nothing about whose words are meant.
_ROLES = frozenset({"user", "assistant", "system", "tool", "agent", "human", "ai", "bot", "customer", "speaker"})

_SENTENCE_END = re.compile(r"(?<=[.!?;:])\s+|\n+|\s+-\s+|\*\*")
_BEFORE_NAME = re.compile(r"^\W+")
_BEHIND_NAME = re.compile(r"(['\u2019]s|s['\u2019])?\W*$")


class Understood(NamedTuple):
    """The parts of a question, each looked for by itself, and the speaker whose words are meant, if it names just one.

    A name tells whose words are meant and not what they say: it is not part of what is looked for.
    """

    parts: list[str]
    speaker: str | None


def parse_query(text: str, speakers: Collection[str]) -> Understood:
    """Return what a question asks, in a conversation of these speakers (or in none)."""
    asked, named = _without_names(_shortened(text), {name.casefold() for name in speakers} - _ROLES)
    return Understood(_parts(asked), named.pop() if len(named) == 1 else None)


def _parts(text: str) -> list[str]:
    if len(text.split()) <= _LONG_WORDS:
        return [text]
    sentences = [sentence.strip(" *#-\t") for sentence in _SENTENCE_END.split(text) if sentence]
    return [each for each in sentences if len(each.split()) >= _SHORTEST_SENTENCE_WORDS] or [text]


def _shortened(text: str) -> str:
    return "\n".join(" ".join(word[:MAX_WORD_LENGTH] for word in line.split(" ")) for line in text.split("\n"))


def _without_names(text: str, names: set[str]) -> tuple[str, set[str]]:
    """Take names out of a text; leave it as it is if nothing else is in it."""
    found: set[str] = set()
    kept = []
    for word in re.split(r"(\s+)", text) if names else ():
        bare = _BEHIND_NAME.sub("", _BEFORE_NAME.sub("", word)).casefold()
        if bare in names:
            found.add(bare)
        else:
            kept.append(word)
    rest = "".join(kept).strip()
    return (rest if found and rest else text), found
