"""Conversations in which statements of others stand among talk, and whether a statement is still in a prompt.

The packaged sample is part of lists whose authors saw neither the code of Weftline nor another list.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Content words of a statement that stand further apart than this do not tell it.
_PASSAGE = 600
_CONTENT = re.compile(r"[^\W_]*\d[^\W_]*|[^\W\d_]{4,}")


def content_words(text: str) -> list[str]:
    """Return the words of four letters or more, and those with digits."""
    return _CONTENT.findall(text.casefold())


class Said(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message of a list; ``statement`` is the part of it that must survive, empty for mere talk."""

    message: str
    role: str = "user"
    type: str = "statement"
    kind: str = "nothing"
    lang: str = ""
    field: str = ""
    statement: str = ""


class Material(NamedTuple):
    """What a validation draws from: the packaged sample, or own messages, by a number that the user may change."""

    random_seed: int = 0
    own: Sequence[Said] = ()

    def draw(self, purpose: object = "") -> random.Random:
        return random.Random(f"{self.random_seed} {purpose}")  # noqa: S311 - drawn again by the same number


@cache
def packaged() -> list[Said]:
    """Return the packaged statements and talk."""
    lines = (files("weftline.validation") / "statements.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Said) for line in lines]


def spread(statements: Sequence[Said], talk: Sequence[Said], draw: random.Random) -> list[Said]:
    """Put statements in random order at random places of talk, which keeps its order."""
    places = sorted(draw.sample(range(len(statements) + len(talk)), len(statements)))
    said = list(talk)
    for place, statement in zip(places, draw.sample(statements, len(statements)), strict=True):
        said.insert(place, statement)
    return said


def as_events(said: Iterable[Said], first: int = 1) -> Iterator[dict[str, Any]]:
    """Yield messages as events of a window; the result of a tool follows its call."""
    for number, each in enumerate(said, first):
        event = {"event_id": f"e{number}", "role": each.role, "content": each.message}
        if each.role == "tool":
            call = {"call_id": f"call-{number}", "name": "lookup", "arguments": "{}"}
            yield {"event_id": f"c{number}", "role": "assistant", "tool_calls": [call]}
            event["tool_call_id"] = f"call-{number}"
        yield event


class Passages:
    """The words of a prompt's messages, to look for statements in them."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = [[(each.start(), each.group()) for each in _CONTENT.finditer(text.casefold())] for text in texts]
        self._words = [{word for _, word in text} for text in self._texts]

    def have(self, statement: str) -> bool:
        """Tell whether all content words of a statement stand within one passage of a message."""
        wanted = set(content_words(statement))
        length = max(_PASSAGE, len(statement))
        return any(
            wanted <= words and _is_near(wanted, text, length)
            for text, words in zip(self._texts, self._words, strict=True)
        )


def _is_near(wanted: set[str], text: Sequence[tuple[int, str]], length: int) -> bool:
    last: dict[str, int] = {}
    for start, word in text:
        if word in wanted:
            last[word] = start
            if len(last) == len(wanted) and start + len(word) - min(last.values()) <= length:
                return True
    return not wanted
