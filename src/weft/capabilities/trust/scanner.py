"""Scans texts for injected instructions, secrets and personal data; verdicts are cached by content hash."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from weft.capabilities.injection.model import HARMLESS, Detection
from weft.capabilities.redaction.detector import Scanner
from weft.capabilities.redaction.masker import DETECTORS, Masker
from weft.kernel.thread_pools import ThreadPool

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from weft.capabilities.injection.model import InjectionDetector
    from weft.capabilities.redaction.masker import DetectorCategory
    from weft.kernel.ports import ValueCache

# Longer texts are scanned in a thread.
_INLINE_CHARS = 1_000
_CACHE_WEIGHT = 400
_GATE_THREADS = ThreadPool("gate", 2)
_JSON_STARTS = ("{", "[", '"')


class Verdict(NamedTuple):
    """What was found in a text: the detector's result, and the labels of secrets and personal data."""

    detection: Detection = HARMLESS
    secrets: tuple[str, ...] = ()
    pii: tuple[str, ...] = ()


CLEAN = Verdict()


class ContentScanner:
    """Scans texts. Each tenant has its own verdicts, so that none can tell by the time what another one stored."""

    def __init__(self, detector: InjectionDetector, cache: ValueCache) -> None:
        self._detector = detector
        self._cache = cache
        self._scanners: dict[DetectorCategory, Scanner] = {
            category: Scanner(detectors) for category, detectors in DETECTORS.items()
        }

    async def scan(self, tenant: str, text: str, *, data: bool, pii: bool) -> Verdict:
        """Return what is in a text; ``data`` if an instruction is out of place in it, ``pii`` to look for it too."""
        key = (tenant, hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest(), data, pii)
        verdict: Verdict | None = self._cache.get(key)
        if verdict is None:
            if len(text) > _INLINE_CHARS:
                verdict = await _GATE_THREADS.run(self._scan, text, data=data, pii=pii)
            else:
                verdict = self._scan(text, data=data, pii=pii)
            self._cache.put(key, verdict, _CACHE_WEIGHT)
        return verdict

    def _scan(self, text: str, *, data: bool, pii: bool) -> Verdict:
        shown = plain_text(text)
        return Verdict(
            self._detector.detect(shown, data=data),
            self._labels("secrets", shown),
            self._labels("pii", shown) if pii else (),
        )

    def _labels(self, category: DetectorCategory, text: str) -> tuple[str, ...]:
        return tuple(sorted({span.label for span in self._scanners[category].spans(text)}))


def masked(text: str, categories: Iterable[DetectorCategory]) -> str:
    """Return a text with the secrets or personal data in it replaced by placeholders."""
    return Masker(categories).text(text)


def plain_text(text: str) -> str:
    """Return the strings of a JSON document, one per line, without its escapes; any other text as it is."""
    if not text.startswith(_JSON_STARTS):
        return text
    try:
        return "\n".join(_strings(msgspec.json.decode(text)))
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return text


def _strings(value: Any) -> Iterator[str]:  # noqa: ANN401 - JSON of any shape
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            # A name is the label of its value, as in ``password``.
            yield f"{name}: {inner}" if isinstance(inner, str) else name
            if not isinstance(inner, str):
                yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)
    elif value is not None:
        yield str(value)
