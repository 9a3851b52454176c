"""Masking: replaces secrets and personal data by numbered placeholders and leaves everything else unchanged.

Detection is deterministic and needs no model: it goes by a value's format and the label before it. The same value gets
the same placeholder throughout one export.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from weftline.safety.redaction.detector import Scanner
from weftline.safety.redaction.pii_detectors import PII_DETECTORS
from weftline.safety.redaction.secret_detectors import SECRET_DETECTORS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weftline.safety.redaction.detector import DetectedSpan, Detector

DetectorCategory = Literal["secrets", "pii"]
DETECTORS: dict[DetectorCategory, tuple[Detector, ...]] = {"secrets": SECRET_DETECTORS, "pii": PII_DETECTORS}
ALL_CATEGORIES: tuple[DetectorCategory, ...] = tuple(DETECTORS)
# Bounds the memory of one export; further values get a placeholder without a number.
_MAX_NUMBERED = 100_000
_MAX_CACHED = 1_000
# No detector matches a shorter JSON number.
_MIN_NUMBER_DIGITS = 7
# The tokens of a JSON document that matter here: keys and strings, numbers, and the ends of objects and arrays.
_JSON = re.compile(r'"(?P<text>(?:[^"\\]|\\.)*)"(?P<colon>\s*:)?|(?P<number>-?[0-9][0-9.eE+-]*)|(?P<edge>[{}\]])')
# Shorter values are found in unrelated words.
_MIN_KNOWN_LENGTH = 5
_PLACEHOLDER = re.compile(r"\[[^\[\]\n]{1,80} [0-9]{1,6}\]")
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_]+")
_MAX_NAME = 100
_encode = msgspec.json.Encoder().encode
_text = msgspec.json.Decoder(str)


class Masker:
    """Masks the texts and JSON values of one export. ``found`` counts the masked values by label.

    A reversible masker keeps what it masked in memory, so that ``restore`` can put it back.
    """

    def __init__(self, categories: Iterable[DetectorCategory] = ALL_CATEGORIES, *, reversible: bool = False) -> None:
        enabled = set(categories)
        self._scanner = Scanner(
            each for category in ALL_CATEGORIES if category in enabled for each in DETECTORS[category]
        )
        self._numbers: dict[bytes, int] = {}
        self._last_number: Counter[str] = Counter()
        self._clean: set[str] = set()
        self.found: Counter[str] = Counter()
        self._originals: dict[str, str] | None = {} if reversible else None

    @property
    def placeholders(self) -> frozenset[str]:
        """Return the placeholders that a reversible masker has used."""
        return frozenset(self._originals or ())

    def mask_known(self, text: str) -> str:
        """Mask what a reversible masker has masked before, also where nothing around it says what it is."""
        known = self._originals or {}
        for placeholder, original in known.items():
            # A value that is part of a placeholder would break those in the text.
            if len(original) >= _MIN_KNOWN_LENGTH and not any(original in each for each in known):
                text = text.replace(original, placeholder)
        return text

    def restore(self, text: str) -> str:
        """Return a text with what a reversible masker masked in the places of the placeholders."""
        if not self._originals or "[" not in text:
            return text
        return _PLACEHOLDER.sub(lambda found: (self._originals or {}).get(found[0], found[0]), text)

    def text(self, text: str) -> str:
        """Mask a text. A JSON document stays a JSON document."""
        if self._scanner.is_empty:
            return text
        return self._document(text) if _is_document(text) else self._replaced(text, self._scanner.spans(text))

    def json(self, document: str) -> str:
        """Mask JSON: what ``text`` would leave as text, a masked number, becomes a JSON string."""
        masked = self.text(document)
        return masked if masked == document or _is_document(document) else _encode(masked).decode()

    def value(self, value: Any, key: str = "") -> Any:  # noqa: ANN401 - JSON of any shape
        """Mask a JSON value. The ``key`` it belongs to serves as its label, as in ``password``."""
        if isinstance(value, str):
            return self._labelled(key, value)
        if isinstance(value, dict):
            return {self.text(str(name)): self.value(inner, str(name)) for name, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self.value(inner, key) for inner in value)
        if isinstance(value, msgspec.Raw):
            return msgspec.Raw(self.json(bytes(value).decode()).encode())
        return self._number(key, value) if type(value) is int else value

    def repeated(self, text: str) -> str:
        """Mask a text that is likely to occur often: texts without findings are cached."""
        if text in self._clean:
            return text
        masked = self.text(text)
        if masked == text and len(self._clean) < _MAX_CACHED:
            self._clean.add(text)
        return masked

    def name(self, name: str) -> str:
        """Mask an identifier; the result is a valid identifier too."""
        masked = self.repeated(name)
        return name if masked == name else _NOT_IN_NAME.sub("-", masked).strip("-_")[:_MAX_NAME]

    def _number(self, key: str, number: int) -> int | str:
        masked = self._labelled(key, str(number))
        return number if masked == str(number) else masked

    def _labelled(self, key: str, text: str) -> str:
        """Mask a text as if it were written as ``key: "text"``."""
        if not key or self._scanner.is_empty or _is_document(text):
            return self.text(text)
        label = f'{key}: "'
        inside = [
            span._replace(start=span.start - len(label), end=min(span.end - len(label), len(text)))
            for span in self._scanner.spans(f'{label}{text}"')
            if span.start >= len(label)
        ]
        return self._replaced(text, inside)

    def _document(self, document: str) -> str:
        """Mask the strings and numbers of a JSON document; every other byte stays."""
        key = ""

        def masked(match: re.Match[str]) -> str:
            nonlocal key
            if match["edge"]:
                key = ""
            elif match["colon"] is not None:
                key = _text.decode(f'"{match["text"]}"')
                return self._masked_json(match["text"], "") + match["colon"]
            elif match["text"] is not None:
                return self._masked_json(match["text"], key)
            elif len(match["number"]) >= _MIN_NUMBER_DIGITS:
                number = self._labelled(key, match["number"])
                return match["number"] if number == match["number"] else f'"{number}"'
            return match.group()

        return _JSON.sub(masked, document)

    def _masked_json(self, encoded: str, key: str) -> str:
        text = _text.decode(f'"{encoded}"')
        masked = self._labelled(key, text)
        return f'"{encoded}"' if masked == text else _encode(masked).decode()

    def _replaced(self, text: str, spans: list[DetectedSpan]) -> str:
        if not spans:
            return text
        pieces, end = [], 0
        for span in spans:
            placeholder = self._placeholder(span)
            pieces += [text[end : span.start], placeholder]
            if self._originals is not None:
                self._originals.setdefault(placeholder, text[span.start : span.end])
            end = span.end
        return "".join((*pieces, text[end:]))

    def _placeholder(self, span: DetectedSpan) -> str:
        self.found[span.label] += 1
        # A hash, so that no secret stays in memory longer than needed.
        identity = f"{span.label}\n{span.identity}".encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(identity, digest_size=16).digest()
        number = self._numbers.get(digest)
        if number is None:
            if len(self._numbers) >= _MAX_NUMBERED:
                return f"[{span.label}]"
            self._last_number[span.label] += 1
            number = self._numbers[digest] = self._last_number[span.label]
        return f"[{span.label} {number}]"


def _is_document(text: str) -> bool:
    """Tell whether a text is a JSON object, array or string."""
    if text.lstrip()[:1] not in {"{", "[", '"'}:
        return False
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return False
    return True
