"""Options that a text enumerates: numbered or bulleted lines, numbers within a line, or a list of words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAX_CHARACTERS = 8_000
_MIN_OPTIONS, _MAX_OPTIONS = 2, 20
_LABELLED = "option|plan|variant|choice"
_LINE = re.compile(
    rf"\s{{0,12}}(?:(\d{{1,2}})[.):]|\(?([A-H])[.):]|([-*\u2022])|(?:{_LABELLED}) (\w{{1,3}})[:.)]?(?: -)?)\s+(\S.*)",
    re.IGNORECASE,
)
_INLINE = re.compile(
    r"(?:(?<=\s)|(?<=^)|(?<=\())\(?(?:(\d{1,2})[.):]|([A-Ha-h])\))\s+"
    rf"|\b(?:{_LABELLED}) (\d{{1,2}}|[A-H])(?:\s*[:,=]|\s+(?:is|would be|means)(?: to)?)\s+",
    re.IGNORECASE,
)
_INTRODUCTIONS = (
    "(?:options|choices|alternatives|candidates)(?: are)?|(?:choose|decide|choice) between|either|"
    "could (?:use|take|go with|try)|can (?:use|take|go with)|whether to use|"
    r"(?:options|choices|alternatives|ways|approaches|possibilities)[^.?!:\n]{1,40}(?=:)"
)
_WORDS = re.compile(rf"\b(?:{_INTRODUCTIONS})\b:?\s+([^.?!\n]{{3,300}})", re.IGNORECASE)
_COMMAS = re.compile(r",\s*(?:or|and)\s+|,\s+|\s+or\s+|;\s*(?:or|and)?\s*")
_AND = re.compile(r"\s+and\s+")
_SENTENCE = re.compile(r"([^.?!\n:]{3,300})([.?!\n:]?)")
_OR = re.compile(r",? or ", re.IGNORECASE)
_MAX_WORDS = 8
_EDGES = " .;,:*_"
# Before the last mark of a numbered list: (a) this, or (b) that.
_LAST_WORD = re.compile(r"(?:^|[,;]|(?<=\s))\s*(?:and|or)$", re.IGNORECASE)


def options_in(text: str) -> list[str]:
    """Return the options of the last enumeration in a text, in their order; none if there is no enumeration."""
    text = text[:_MAX_CHARACTERS]
    return _lines(text) or _inline(text) or _listed(text) or _alternatives(text)


def _lines(text: str) -> list[str]:
    """Return the options of the last block of numbered or bulleted lines."""
    blocks: list[list[tuple[int | None, str]]] = [[]]
    for line in text.split("\n"):
        match = _LINE.match(line)
        if match is not None:
            label = _number(match[1] or match[2] or (match[4] or ""))
            if label == 1 and blocks[-1]:
                blocks.append([])
            blocks[-1].append((label, match[5].strip(_EDGES)))
        elif line.strip() and not line.startswith((" ", "\t")):
            blocks.append([])
    return next((options for block in reversed(blocks) if (options := _ordered(block))), [])


def _inline(text: str) -> list[str]:
    """Return the options that are numbered within a paragraph."""
    for paragraph in reversed(text.split("\n\n")):
        marks = [
            (match.start(), match.end(), _number(match[1] or match[2] or match[3]))
            for match in _INLINE.finditer(paragraph)
        ]
        for first in reversed([index for index, mark in enumerate(marks) if mark[2] == 1]):
            block = []
            for number, index in enumerate(range(first, len(marks)), start=1):
                if marks[index][2] != number:
                    break
                end = marks[index + 1][0] if index + 1 < len(marks) else _sentence_end(paragraph, marks[index][1])
                text_of_option = paragraph[marks[index][1] : end].strip(_EDGES)
                block.append((number, _LAST_WORD.sub("", text_of_option).strip(_EDGES)))
            if options := _ordered(block):
                return options
    return []


def _listed(text: str) -> list[str]:
    """Return the options of a list of words, such as: we could use A, B or C."""
    for match in reversed(list(_WORDS.finditer(text))):
        *first, last = _COMMAS.split(match[1])
        parts = [*first, *_AND.split(last)]
        options = [part.strip(_EDGES) for part in parts]
        if _MIN_OPTIONS <= len(options) <= _MAX_OPTIONS and all(
            0 < len(each.split()) <= _MAX_WORDS for each in options
        ):
            return options
    return []


def _alternatives(text: str) -> list[str]:
    """Return what the last question, or what follows a colon, lets choose from: three and more, with an "or".

    Where the first begins and the last ends is not marked, so they get as many words as the longest of the others.
    """
    for match in reversed(list(_SENTENCE.finditer(text))):
        if match[2] != "?" and text[max(0, match.start() - 1) : match.start()] != ":":
            continue
        before, *last = _OR.split(" ".join(match[1].split()))
        first, *others = before.split(", ")
        if len(last) != 1 or not others:
            continue
        longest = max(len(each.split()) for each in others)
        parts = [" ".join(first.split()[-longest:]), *others, " ".join(last[0].split()[:longest])]
        options = [part.strip(_EDGES) for part in parts]
        if longest <= _MAX_WORDS and len(options) <= _MAX_OPTIONS and all(options):
            return options
    return []


def _ordered(block: Sequence[tuple[int | None, str]]) -> list[str]:
    """Return the texts of a block that counts from one, or has no numbers."""
    numbers = [number for number, _ in block]
    is_counted = numbers == list(range(1, len(block) + 1))
    if not _MIN_OPTIONS <= len(block) <= _MAX_OPTIONS or not (is_counted or set(numbers) == {None}):
        return []
    return [text for _, text in block]


def _number(label: str) -> int | None:
    if label.isdigit():
        return int(label)
    return ord(label.lower()) - ord("a") + 1 if len(label) == 1 else None


def _sentence_end(text: str, start: int) -> int:
    """Return where the last option of a paragraph ends: at the end of its sentence."""
    found = [at for mark in (". ", "? ", "! ", "\n") if (at := text.find(mark, start)) >= 0]
    return min(found, default=len(text))
