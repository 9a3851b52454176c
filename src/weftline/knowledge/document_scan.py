"""Scans a document for injected instructions before anything of it is indexed.

The more passages a document has, the likelier one of them looks suspicious by chance: the bar rises with their number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weftline.knowledge.model import FlaggedPassage
from weftline.safety.trust.model import INJECTION, PII, SECRET, Source, Trust, TrustLabel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weftline.knowledge.document_text import ChunkLayout
    from weftline.knowledge.model import Document
    from weftline.safety.injection import Detection
    from weftline.safety.trust.model import ContentAction, TrustPolicy
    from weftline.safety.trust.scanner import ContentScanner

# An instruction may begin in one chunk and end in the next.
_OVERLAP_CHARS = 300
# Passages that are kept for the reviewer, and the length of their excerpts.
_MAX_PASSAGES = 10
_MAX_EXCERPT = 300


class DocumentScan(NamedTuple):
    """What was found in a document: passages above the bar, most suspicious first, and kinds of sensitive values.

    ``values``: such as ``secret: password``.
    """

    flagged: tuple[FlaggedPassage, ...] = ()
    values: tuple[str, ...] = ()

    @property
    def shown(self) -> tuple[FlaggedPassage, ...]:
        """Return the passages that a reviewer sees."""
        return self.flagged[:_MAX_PASSAGES]

    def label(self, policy: TrustPolicy, approved_by: str | None) -> TrustLabel | None:
        """Return the label of a document that is indexed although something was found; None if nothing was."""
        allowed = tuple(kind for kind, action in _write_actions(policy) if action == "allow")
        values = tuple(value for value in self.values if not value.startswith(allowed))
        if not self.flagged and not values:
            return None
        suspicious = bool(self.flagged) and approved_by is None
        return TrustLabel(
            source=Source.DOCUMENT,
            trust=Trust.SUSPICIOUS if suspicious else Trust.UNTRUSTED,
            score=round(self.flagged[0].score, 2) if self.flagged else None,
            reasons=(*((INJECTION,) if self.flagged else ()), *values),
            approved_by=approved_by if self.flagged else None,
        )


def scan_document(scanner: ContentScanner, document: Document, layout: ChunkLayout) -> DocumentScan:
    """Scan id, title, metadata and every chunk of a document. Run it in a thread: the text may be megabytes."""
    found: list[FlaggedPassage] = []
    values: set[str] = set()
    texts = list(_texts(document, layout))
    for start, end, text in texts:
        verdict = scanner.verdict(text, data=True)
        values.update(f"{SECRET}: {kind}" for kind in verdict.secrets)
        values.update(f"{PII}: {kind}" for kind in scanner.pii(text, verdict))
        if verdict.detection.is_rare_among(len(texts)):
            found.append(_passage(start, end, verdict.detection))
    found.sort(key=lambda passage: -passage.score)
    return DocumentScan(tuple(found), tuple(sorted(values)))


def _texts(document: Document, layout: ChunkLayout) -> Iterator[tuple[int, int, str]]:
    """Yield all that a reader of a search result sees, as ranges of the text; attributes are at its beginning."""
    metadata = msgspec.json.decode(document.metadata)
    values = (f"{name}: {value}" for name, value in metadata.items())
    for attribute in filter(None, (document.document_id, layout.title, *values)):
        yield 0, 0, attribute
    for piece in layout.pieces:
        yield piece.start, piece.end, layout.text[piece.start : piece.end + _OVERLAP_CHARS]


def _passage(start: int, end: int, detection: Detection) -> FlaggedPassage:
    return FlaggedPassage(start, end, round(detection.score, 2), detection.excerpt[:_MAX_EXCERPT])


def blocked_reason(policy: TrustPolicy, scan: DocumentScan) -> str | None:
    """Return why the policy forbids a document; None if it does not."""
    if scan.flagged and policy.injection.of(Source.DOCUMENT) == "block":
        return (
            "It looks like an attempt to give agents instructions, which the policy of this tenant forbids. "
            "Remove the instruction and add it again."
        )
    for kind, action in _write_actions(policy):
        found = [value for value in scan.values if value.startswith(kind)]
        if found and action == "block":
            return (
                f"It contains {', '.join(found)}, which the policy of this tenant forbids. Remove it and add it again."
            )
    return None


def needs_review(policy: TrustPolicy, scan: DocumentScan, document: Document) -> bool:
    """Tell whether a human has to release a document before anyone else reads it."""
    return bool(scan.flagged) and not document.is_released and policy.injection.of(Source.DOCUMENT) == "quarantine"


def _write_actions(policy: TrustPolicy) -> tuple[tuple[str, ContentAction], ...]:
    return (SECRET, policy.secrets.write), (PII, policy.pii.write)
