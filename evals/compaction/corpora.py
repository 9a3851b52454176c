"""Conversations with facts of the evaluation data, and the score of a compacted text.

A fact is retained if the tokens of each of its probe groups occur within 600 characters of each other, or any of its
answers does. Only strict facts count: those that the whole text contains.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

SETS = ("ami", "locomo", "bfcl_memory")
_WINDOW = 600
_DAY = 86_400_000_000
_BEGIN = 1_700_000_000_000_000
_ONES = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SMALL_NUMBER = re.compile(r"(?<![a-z0-9])\d{1,2}(?![a-z0-9])")


class Message(NamedTuple):
    """One message: its id in the data set, who said it, what, and when in microseconds."""

    message_id: str
    speaker: str
    text: str
    at: int


class Fact(NamedTuple):
    """A fact: groups of (message, tokens) that must be found together, or answers of which one must be found."""

    kind: str
    groups: Sequence[tuple[str, Sequence[str]]]
    answers: Sequence[str]
    is_strict: bool


class Conversation(NamedTuple):
    """A conversation with its facts."""

    name: str
    messages: Sequence[Message]
    facts: Sequence[Fact]

    @property
    def strict_facts(self) -> list[Fact]:
        return [fact for fact in self.facts if fact.is_strict]

    @property
    def text(self) -> str:
        """The whole conversation, the text whose tokens shares are of."""
        return "\n".join(f"{message.speaker}: {message.text}" for message in self.messages)


def read_set(folder: Path, name: str) -> list[Conversation]:
    """Read the conversations of a set that have facts."""
    facts: dict[str, list[Fact]] = {}
    for line in _lines(folder / "compaction" / f"{name}_facts.jsonl"):
        groups = [(group["evidence_id"], group["tokens"]) for group in line["probe_groups"]]
        fact = Fact(line["kind"], groups, [str(each) for each in line.get("answers", ())], line["strict"])
        facts.setdefault(line["conv"], []).append(fact)
    return [
        Conversation(
            line["conv"],
            [
                Message(each["id"], each["speaker"], each["text"], _time(each) + number)
                for number, each in enumerate(line["messages"])
            ],
            facts[line["conv"]],
        )
        for line in _lines(folder / "compaction" / f"{name}_conversations.jsonl")
        if line["conv"] in facts
    ]


def _time(message: dict[str, Any]) -> int:
    """Return when a message was written; sessions without a time are a day apart."""
    if "time_s" in message:
        return _BEGIN + int(message["time_s"] * 1_000_000)
    if "time" in message:
        time = datetime.strptime(message["time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        return int(time.timestamp()) * 1_000_000
    return _BEGIN + int(message.get("session", 0)) * _DAY


def _lines(path: Path) -> Iterable[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def normalise(text: str) -> str:
    """Lower case, with numbers below 100 as words."""
    return _SMALL_NUMBER.sub(_number_words, text.lower())


def _number_words(match: re.Match[str]) -> str:
    number = int(match[0])
    if number < len(_ONES):
        return _ONES[number]
    tens = _TENS[number // 10 - 2]
    return f"{tens} {_ONES[number % 10]}" if number % 10 else tens


@cache
def _pattern(wanted: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![a-z0-9]){re.escape(wanted)}(?![a-z0-9])")


def retained_facts(text: str, facts: Sequence[Fact]) -> list[bool]:
    """Return which facts a text retains."""
    normal = normalise(text)
    found: dict[str, list[int]] = {}

    def places(token: str) -> list[int]:
        wanted = normalise(token)
        if wanted not in found:
            found[wanted] = [match.start() for match in _pattern(wanted).finditer(normal)] if wanted in normal else []
        return found[wanted]

    return [
        any(map(places, fact.answers))
        if fact.answers
        else bool(fact.groups) and all(_together([places(token) for token in tokens]) for _, tokens in fact.groups)
        for fact in facts
    ]


def _together(places: Sequence[Sequence[int]]) -> bool:
    """Tell whether there is a window with one place of each list."""
    merged = sorted((place, number) for number, each in enumerate(places) for place in each)
    counts = [0] * len(places)
    first = 0
    for place, number in merged:
        counts[number] += 1
        while merged[first][0] < place - _WINDOW:
            counts[merged[first][1]] -= 1
            first += 1
        if all(counts):
            return True
    return False
