"""Segments of a normalised text: sentences, lines and pieces of code."""

from __future__ import annotations

import re

# Longer segments are cut.
_MAX_WORDS = 40
# So are those of few words that are very long.
_MAX_CHARACTERS = 800
# Every segment costs the same, so a text of many short ones, such as one letter in each line, is cut into longer ones.
_MANY_SEGMENTS = 150
_SHORT_CHARACTERS = 20
_JOINED_CHARACTERS = 120

_FENCE = re.compile(r"^\s*```")
# A quoted text is a sentence of its own: "The page says: ..." does not excuse what the page says.
_REPORTING_VERBS = ("says", "said", "wrote", "writes", "returned", "reads", "states", "replied", "reports")
_QUOTED = "|".join(f"(?<={verb}:)" for verb in _REPORTING_VERBS)
_SENTENCE_END = re.compile(
    rf"(?<=[.!?\u2026])[\"')\]]?\s+|(?:{_QUOTED})\s+|(?<=[\u3002\uff01\uff1f])|(?<=[a-z0-9)][.!?])(?=[A-Z][a-z])"
)
# Without one before the end, there is only one sentence.
_MARK = re.compile(r"[.!?:\u2026\u3002\uff01\uff1f]")
# A sentence inside a piece of code, such as a request that was put there.
_PROSE_START = re.compile(r"[A-Z][a-z']+(?: [A-Za-z',-]+){4}")
_CODE_CHARACTER = re.compile(r"[=;{}()\[\]]")
_OPEN_END = re.compile(r"[\w,)\]'\"-]\Z")
_CONTINUED = re.compile(r"[a-z(\"']")


def segments(text: str) -> list[str]:
    """Cut a normalised text into sentences, lines and pieces of code."""
    cutter = _Cutter()
    for line in text.split("\n"):
        cutter.add(line)
    cutter.end_paragraph()
    cutter.end_code()
    return _joined([segment for segment in cutter.found if any(map(str.isalpha, segment))])


def _joined(found: list[str]) -> list[str]:
    """Join the segments of a text that has many and, on average, short ones."""
    if len(found) <= _MANY_SEGMENTS or sum(map(len, found)) >= _SHORT_CHARACTERS * len(found):
        return found
    joined = [""]
    for segment in found:
        if len(joined[-1]) >= _JOINED_CHARACTERS:
            joined.append(segment)
        else:
            joined[-1] = f"{joined[-1]} {segment}".lstrip()
    return joined


class _Cutter:
    """Collects the lines of paragraphs and of fenced code."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._paragraph: list[str] = []
        self._code: list[str] = []
        self._is_fenced = False

    def add(self, line: str) -> None:
        if _FENCE.match(line):
            self.end_paragraph()
            self.end_code()
            self._is_fenced = not self._is_fenced
        elif self._is_fenced:
            self._add_code(line.strip())
        else:
            self._add_prose(line.strip())

    def _add_code(self, line: str) -> None:
        if _is_prose(line):
            self.end_code()
            self.found += _sentences(line)
        else:
            self._code.append(line)

    def _add_prose(self, line: str) -> None:
        """Add a line; one that starts in lower case continues the sentence of the line before, if that is open."""
        if not (self._paragraph and _CONTINUED.match(line) and _OPEN_END.search(self._paragraph[-1][-1:])):
            self.end_paragraph()
        if line:
            self._paragraph.append(line)

    def end_paragraph(self) -> None:
        if self._paragraph:
            self.found += _sentences(" ".join(self._paragraph))
            self._paragraph = []

    def end_code(self) -> None:
        if self._code:
            self.found += _pieces(" \n ".join(self._code).split(" "))
            self._code = []


def _is_prose(line: str) -> bool:
    start = _PROSE_START.match(line)
    return start is not None and line[-1] in ".:!?" and not _CODE_CHARACTER.search(line, start.end())


def _sentences(paragraph: str) -> list[str]:
    if not _MARK.search(paragraph, 0, len(paragraph) - 1):
        return _pieces(paragraph.split())
    return [piece for sentence in _SENTENCE_END.split(paragraph) if sentence for piece in _pieces(sentence.split())]


def _pieces(words: list[str]) -> list[str]:
    """Return segments of equal size and at most ``_MAX_WORDS`` words; parts of longer ones than allowed."""
    number = max(1, -(-len(words) // _MAX_WORDS))
    size = -(-len(words) // number)
    pieces = [" ".join(words[start : start + size]) for start in range(0, len(words), size or 1)]
    return [
        piece[start : start + _MAX_CHARACTERS] for piece in pieces for start in range(0, len(piece), _MAX_CHARACTERS)
    ]
