"""Scans a bundle before its import: what looks like an instruction to agents is imported with a label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from weftline.exchange.transfer.bundle_format import BundleRecord, BundleSession
from weftline.exchange.transfer.validate_bundle import entries_with_content, open_bundle
from weftline.records.model import ContextItem
from weftline.safety.trust.model import INJECTION, SECRET, Source, Trust, TrustLabel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from weftline.exchange.transfer.validate_bundle import BundleReport, EntryWithContent
    from weftline.safety.injection.model import Detection
    from weftline.safety.trust.scanner import ContentScanner, Verdict

# Longer strings are texts, even without a space.
_MAX_NAME = 100
# Fields of records that hold ids, times and digests rather than text.
_WITHOUT_TEXT = ("_id", "_ref", "_refs", "_at", "digest", "hash", "uri", "type", "schema_version")


def scan_bundle(file: BinaryIO, report: BundleReport, scanner: ContentScanner) -> None:
    """Scan every entry of a bundle, and note in its report what was found.

    Run it in a thread, before the transaction of the import.
    """
    labels: dict[int, TrustLabel] = {}
    detections: list[Detection] = []
    for piece in entries_with_content(open_bundle(file)):
        for text in _texts(piece):
            verdict = scanner.verdict(text, data=True)
            detections.append(verdict.detection)
            if verdict.detection.flagged or verdict.secrets:
                labels[piece.line.number] = _label(labels.get(piece.line.number), verdict)
    report.labels = labels
    report.is_attack = any(detection.is_rare_among(len(detections)) for detection in detections)


def _label(known: TrustLabel | None, verdict: Verdict) -> TrustLabel:
    found = verdict.detection.flagged
    reasons = (
        *(() if known is None else known.reasons),
        *((INJECTION,) if found else ()),
        *(f"{SECRET}: {kind}" for kind in verdict.secrets),
    )
    was_suspicious = known is not None and known.trust is Trust.SUSPICIOUS
    return TrustLabel(
        source=Source.IMPORT,
        trust=Trust.SUSPICIOUS if found or was_suspicious else Trust.UNTRUSTED,
        score=round(verdict.detection.score, 2) if found else None,
        reasons=tuple(dict.fromkeys(reasons)),
    )


def _texts(piece: EntryWithContent) -> Iterator[str]:
    """Yield the texts of an entry that somebody may read: original content, and the other texts of its record."""
    entry, record = piece.entry, piece.line.record
    if isinstance(entry, BundleSession):
        yield "\n".join(_strings("", [entry.purpose, entry.metadata]))
    if not isinstance(entry, BundleRecord) or record is None:
        return
    if piece.text is not None:
        yield piece.text
    elif piece.content is not None:
        yield piece.content.decode("utf-8", "replace")
    fields = msgspec.to_builtins(record)
    if isinstance(record, ContextItem) and piece.text is not None:
        fields.pop("content", None)
    others = "\n".join(_strings("", fields))
    if others:
        yield others


def _strings(name: str, value: Any) -> Iterator[str]:  # noqa: ANN401 - JSON of any shape
    if isinstance(value, str):
        is_text = " " in value or not value.isascii() or len(value) > _MAX_NAME
        if is_text and not name.endswith(_WITHOUT_TEXT):
            yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _strings(key, inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _strings(name, inner)
