"""A sign: how something that must not leave is recognised in a text.

Every pattern here runs over texts that anyone may have written, so none may look far ahead from every place: what it
repeats is bounded, or cannot begin inside a run of its own letters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator


class DetectedSpan(NamedTuple):
    """A part of a text that must not leave: what it is, and what makes two of them the same."""

    start: int
    end: int
    label: str
    same: str


class SignFinder(Protocol):
    """Finds one sort of thing in a text: where any of its ``hints`` stands, and so many digits as that takes.

    Hints are in small letters.
    """

    @property
    def hints(self) -> tuple[str, ...]: ...

    @property
    def fewest_digits(self) -> int: ...

    def spans(self, text: str) -> Iterator[DetectedSpan]: ...


class Detector(NamedTuple):
    """A pattern whose group ``value`` is what must not leave, if what is found ``holds``.

    ``same`` is what is left of a value when it does not matter how it is written.
    """

    label: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    holds: Callable[[re.Match[str]], bool] = lambda _: True
    same: Callable[[str], str] = str
    fewest_digits: int = 0

    def spans(self, text: str) -> Iterator[DetectedSpan]:
        for match in self.pattern.finditer(text):
            if self.holds(match):
                start, end = match.span("value")
                yield DetectedSpan(start, end, self.label, self.same(text[start:end]))


def not_behind(letters: str) -> str:
    """Return what a pattern begins with that may not begin behind some letters, a class of them without brackets.

    A line break that was written as an escape ends in a letter, and is a break all the same.
    """
    return rf"(?:(?<![\\{letters}])|(?<=\\[nrt]))"


def digits_of(text: str) -> str:
    return "".join(character for character in text if character.isdigit())
