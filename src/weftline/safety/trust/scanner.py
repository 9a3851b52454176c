"""Scans texts for injected instructions, secrets and personal data.

A scan takes time in proportion to the text, so it runs before the transaction that stores the text: ``prepare`` scans
the texts of a request, long ones in a thread, and very long ones in slices: a pattern lets no other thread run while it
searches, and other callers get their turn between two slices. The gate finds their verdicts in the call, or in the
cache; it scans only what was not prepared.
"""

from __future__ import annotations

import hashlib
import json
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from weftline.kernel.thread_pools import ThreadPool
from weftline.safety.injection.model import HARMLESS, Detection
from weftline.safety.redaction.detector import Scanner
from weftline.safety.redaction.masker import DETECTORS, Masker
from weftline.safety.trust.precheck import EVERYTHING, MAX_CHARS, precheck

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from weftline.kernel.identity import Actor
    from weftline.kernel.operation import SubmittedText
    from weftline.kernel.ports import ValueCache
    from weftline.safety.injection.model import InjectionDetector
    from weftline.safety.redaction.masker import DetectorCategory

# Longer texts are scanned in a thread.
_INLINE_CHARS = MAX_CHARS
# Longer texts are scanned in slices, each with the beginning of the next one.
_SLICE_CHARS, _OVERLAP_CHARS = 8_192, 1_024
_CACHE_WEIGHT = 400
# One tenant takes one of them: the other thread is free for others.
_GATE_THREADS = ThreadPool("gate", 2)
_JSON_STARTS = ("{", "[", '"')


class Verdict(NamedTuple):
    """What was found in a text: the detector's result, and the labels of secrets and personal data."""

    detection: Detection = HARMLESS
    secrets: tuple[str, ...] = ()
    # None: not looked for.
    pii: tuple[str, ...] | None = None


CLEAN = Verdict()
# Verdicts of the texts of one call.
Verdicts = dict[tuple[str, bool], Verdict]


class ContentScanner:
    """Scans texts. Each caller has its own verdicts, so that none can tell by the time what another one stored."""

    def __init__(self, detector: InjectionDetector, cache: ValueCache) -> None:
        self._detector = detector
        self._cache = cache
        self._scanners: dict[DetectorCategory, Scanner] = {
            category: Scanner(detectors) for category, detectors in DETECTORS.items()
        }

    async def prepare(self, actor: Actor, texts: Iterable[SubmittedText]) -> Verdicts:
        """Scan the texts of a request before its transaction; return their verdicts."""
        verdicts: Verdicts = {}
        characters = 0
        for text, data in texts:
            known = verdicts.get((text, data)) or self._known(actor, text, data=data)
            if known is not None:
                verdicts[text, data] = known
            else:
                # Also many short texts together would keep other calls waiting.
                characters += len(text)
                if characters <= _INLINE_CHARS:
                    verdicts[text, data] = self.scan(actor, text, data=data)
                else:
                    verdicts[text, data] = await self._scan_in_thread(actor, text, data=data)
        return verdicts

    def _known(self, actor: Actor, text: str, *, data: bool) -> Verdict | None:
        """Return the verdict on a text that was scanned before; short texts of callers are checked as fast."""
        if not data and len(text) <= _INLINE_CHARS:
            return None
        known: Verdict | None = self._cache.get(_key(actor, text, data=data))
        return known

    def scan(self, actor: Actor, text: str, *, data: bool) -> Verdict:
        """Return what is in a text; ``data`` if an instruction is out of place in it."""
        suspicion = EVERYTHING if data else precheck(text)
        if not suspicion.injection:
            return Verdict(secrets=self._labels("secrets", plain_text(text))) if suspicion.secrets else CLEAN
        key = _key(actor, text, data=data)
        verdict: Verdict | None = self._cache.get(key)
        if verdict is None:
            verdict = self._scan(text, data=data)
            self._cache.put(key, verdict, _CACHE_WEIGHT)
        return verdict

    async def _scan_in_thread(self, actor: Actor, text: str, *, data: bool) -> Verdict:
        flow = actor.tenant, actor.path
        if len(text) <= _SLICE_CHARS:
            return await _GATE_THREADS.run_for(flow, partial(self.scan, actor, text, data=data))
        shown = await _GATE_THREADS.run_for(flow, partial(plain_text, text))
        scans = (partial(self._scan_slice, each, data=data, pii=True) for each in _slices(shown))
        verdict = _joined([await _GATE_THREADS.run_for(flow, scan) for scan in scans])
        self._cache.put(_key(actor, text, data=data), verdict, _CACHE_WEIGHT)
        return verdict

    def verdict(self, text: str, *, data: bool) -> Verdict:
        """Return what is in a text without use of the cache, for documents, which would fill it. CPU-bound."""
        return self._scan(text, data=data)

    def _scan(self, text: str, *, data: bool) -> Verdict:
        pii = len(text) > _INLINE_CHARS
        return _joined([self._scan_slice(each, data=data, pii=pii) for each in _slices(plain_text(text))])

    def _scan_slice(self, text: str, *, data: bool, pii: bool) -> Verdict:
        found = self._labels("pii", text) if pii else None
        return Verdict(self._detector.detect(text, data=data), self._labels("secrets", text), found)

    def pii(self, text: str, verdict: Verdict) -> tuple[str, ...]:
        """Return the kinds of personal data in a text; in a short one, they are looked for only where it matters."""
        return self._labels("pii", plain_text(text)) if verdict.pii is None else verdict.pii

    def _labels(self, category: DetectorCategory, text: str) -> tuple[str, ...]:
        return tuple(sorted({span.label for span in self._scanners[category].spans(text)}))


def is_long(texts: Iterable[SubmittedText]) -> bool:
    """Tell whether a scan of texts takes so long that their sizes should be checked first."""
    return sum(len(text) for text, _ in texts) > _SLICE_CHARS


def _slices(text: str) -> Iterator[str]:
    """Yield a text in slices that overlap; a short text, also an empty one, is one slice."""
    for start in range(0, max(1, len(text)), _SLICE_CHARS):
        yield text[start : start + _SLICE_CHARS + _OVERLAP_CHARS]


def _joined(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict on a text from those on its slices: the highest score, and all that was found."""
    if len(verdicts) == 1:
        return verdicts[0]
    secrets = {label for each in verdicts for label in each.secrets}
    pii = None if verdicts[0].pii is None else tuple(sorted({label for each in verdicts for label in each.pii or ()}))
    detection = max((each.detection for each in verdicts), key=lambda each: (each.strict, each.flagged, each.score))
    return Verdict(detection, tuple(sorted(secrets)), pii)


def masked(text: str, categories: Iterable[DetectorCategory], *, is_json: bool = False) -> str:
    """Return a text with the secrets or personal data in it replaced by placeholders. JSON stays JSON."""
    masker = Masker(categories)
    return masker.json(text) if is_json else masker.text(text)


def plain_text(text: str) -> str:
    """Return the strings of a JSON document, one per line, without its escapes; any other text as it is."""
    if not text.startswith(_JSON_STARTS):
        return text
    try:
        shown = "\n".join(_strings(json.loads(text, object_pairs_hook=_Members)))
        # Half of a surrogate pair, which an escape can hide, is no text.
        return shown.encode("utf-8", "replace").decode()
    except (ValueError, RecursionError):
        return text


class _Members(list[tuple[str, Any]]):
    """Names and values of a JSON object. A name may occur twice; readers of the text see both values."""


def _strings(value: Any) -> Iterator[str]:  # noqa: ANN401 - JSON of any shape
    if isinstance(value, str):
        yield value
    elif isinstance(value, _Members):
        for name, inner in value:
            # A name is the label of its value, as in ``password``.
            yield f"{name}: {inner}" if isinstance(inner, str) else name
            if not isinstance(inner, str):
                yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)
    elif value is not None:
        yield str(value)


def _key(actor: Actor, text: str, *, data: bool) -> tuple[str, str, bytes, bool]:
    return actor.tenant, actor.principal_id, hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest(), data
