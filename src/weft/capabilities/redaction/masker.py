"""Masking: secrets and personal data give way to words that say what stood there, and nothing else is touched.

It knows them by their form and by what stands before them, without asking any model: it is quick and always answers
the same, and what has neither a form nor a name passes. The same value has the same words throughout one export.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from weft.capabilities.redaction.pii_detectors import PERSONAL
from weft.capabilities.redaction.secret_detectors import SECRETS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft.capabilities.redaction.detector import DetectedSpan, SignFinder

Sort = Literal["secrets", "pii"]
EVERYTHING: tuple[Sort, ...] = ("secrets", "pii")
# Numbering more values than this would take more memory than an export should.
_MOST_NUMBERED = 100_000
_MOST_REMEMBERED = 1_000
_FEWEST_DIGITS = 7
# A document as the pieces that can hold something: names and texts, numbers, and where objects and lists begin and end.
_JSON = re.compile(r'"(?P<text>(?:[^"\\]|\\.)*)"(?P<names>\s*:)?|(?P<number>-?[0-9][0-9.eE+-]*)|(?P<edge>[{}\]])')
_NO_NAME = re.compile(r"[^A-Za-z0-9_]+")
_LONGEST_NAME = 100
_encode = msgspec.json.Encoder().encode
_text = msgspec.json.Decoder(str)


_FINDERS: dict[Sort, tuple[SignFinder, ...]] = {"secrets": SECRETS, "pii": PERSONAL}


class Masker:
    """Masks texts and JSON of one export. ``found`` counts what was masked, by what it was."""

    def __init__(self, sorts: Iterable[Sort] = EVERYTHING) -> None:
        wanted = set(sorts)
        self._finders = [finder for sort in EVERYTHING if sort in wanted for finder in _FINDERS[sort]]
        self._hints = [(hint, place) for place, finder in enumerate(self._finders) for hint in finder.hints]
        self._numbers: dict[bytes, int] = {}
        self._last: Counter[str] = Counter()
        self._harmless: set[str] = set()
        self.found: Counter[str] = Counter()

    def text(self, text: str) -> str:
        """Return a text without what must not leave. A JSON document stays one."""
        if not self._finders:
            return text
        return self._document(text) if _is_document(text) else self._plain(text)

    def value(self, value: Any, name: str = "") -> Any:  # noqa: ANN401 - JSON of any shape
        """Return JSON without what must not leave; what is behind a name may be known by that name."""
        if isinstance(value, str):
            return self._named(name, value)
        if isinstance(value, dict):
            return {self.text(str(key)): self.value(inner, str(key)) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self.value(inner, name) for inner in value)
        if isinstance(value, msgspec.Raw):
            return msgspec.Raw(self.text(bytes(value).decode()).encode())
        return self._number(name, value) if type(value) is int else value

    def repeated(self, text: str) -> str:
        """Return the same as for any text, and remember what holds nothing: it is likely said again and again."""
        if text in self._harmless:
            return text
        masked = self.text(text)
        if masked == text and len(self._harmless) < _MOST_REMEMBERED:
            self._harmless.add(text)
        return masked

    def name(self, name: str) -> str:
        """Return a name without what must not leave; what stands there instead can be a name as well."""
        masked = self.repeated(name)
        return name if masked == name else _NO_NAME.sub("-", masked).strip("-_")[:_LONGEST_NAME]

    def _number(self, name: str, number: int) -> int | str:
        masked = self._named(name, str(number))
        return number if masked == str(number) else masked

    def _plain(self, text: str) -> str:
        return self._replaced(text, self._spans(text))

    def _named(self, name: str, text: str) -> str:
        """Return a text without what must not leave, also by what its name says it is."""
        if not name or not self._finders or _is_document(text):
            return self.text(text)
        before = f'{name}: "'
        inside = [
            span._replace(start=span.start - len(before), end=min(span.end - len(before), len(text)))
            for span in self._spans(f'{before}{text}"')
            if span.start >= len(before)
        ]
        return self._replaced(text, inside)

    def _document(self, document: str) -> str:
        """Mask the texts and numbers of a JSON document, and leave everything between them as it is."""
        name = ""

        def masked(match: re.Match[str]) -> str:
            nonlocal name
            if match["edge"]:
                name = ""
            elif match["names"] is not None:
                name = _text.decode(f'"{match["text"]}"')
                return self._masked_json(match["text"], "") + match["names"]
            elif match["text"] is not None:
                return self._masked_json(match["text"], name)
            elif len(match["number"]) >= _FEWEST_DIGITS:
                told = self._named(name, match["number"])
                return match["number"] if told == match["number"] else f'"{told}"'
            return match.group()

        return _JSON.sub(masked, document)

    def _masked_json(self, written: str, name: str) -> str:
        text = _text.decode(f'"{written}"')
        masked = self._named(name, text)
        return f'"{written}"' if masked == text else _encode(masked).decode()

    def _spans(self, text: str) -> list[DetectedSpan]:
        """Return what must not leave, in order. Of two that overlap, the one whose sign stands first is kept."""
        found = [span for finder in self._near(text) for span in finder.spans(text)]
        if len(found) < 2:  # noqa: PLR2004 - two are needed to overlap
            return found
        taken = bytearray(len(text))
        kept = []
        for span in found:
            if taken.find(1, span.start, span.end) < 0:
                taken[span.start : span.end] = b"\1" * (span.end - span.start)
                kept.append(span)
        return sorted(kept)

    def _near(self, text: str) -> list[SignFinder]:
        """Return those who may find something: most texts have no sign of most things."""
        small = text.lower()
        hinted = sorted({place for hint, place in self._hints if hint in small})
        digits = sum(map(text.count, "0123456789"))
        return [finder for finder in map(self._finders.__getitem__, hinted) if finder.fewest_digits <= digits]

    def _replaced(self, text: str, spans: list[DetectedSpan]) -> str:
        if not spans:
            return text
        pieces, place = [], 0
        for span in spans:
            pieces += [text[place : span.start], self._words_for(span)]
            place = span.end
        return "".join((*pieces, text[place:]))

    def _words_for(self, span: DetectedSpan) -> str:
        self.found[span.label] += 1
        # Not the value itself: what must not leave has no place in memory either, for longer than it takes.
        same = hashlib.blake2b(f"{span.label}\n{span.same}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
        number = self._numbers.get(same)
        if number is None:
            if len(self._numbers) >= _MOST_NUMBERED:
                return f"[{span.label}]"
            self._last[span.label] += 1
            number = self._numbers[same] = self._last[span.label]
        return f"[{span.label} {number}]"


def _is_document(text: str) -> bool:
    """Tell whether a text is a JSON document that holds more than a plain text would."""
    if text.lstrip()[:1] not in {"{", "[", '"'}:
        return False
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return False
    return True
