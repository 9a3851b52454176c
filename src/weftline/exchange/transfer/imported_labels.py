"""Trust labels of imported items. What another installation says may lower the trust of an item, never raise it."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from weftline.history.board_lines import line_of
from weftline.records.item_refs import ItemRef, LineKey
from weftline.records.record_ids import MessageItemId
from weftline.safety.trust.model import INJECTION, PII, SECRET, Source, Trust, TrustLabel, lowest_trust

_MAX_LISTED = 50
_MAX_TEXT = 500
# Readers see reasons, so that no other text may come with them.
_REASON = re.compile(rf"(?:{INJECTION}|{SECRET}|{PII}|derived)(?:: [a-z0-9_ -]{{1,40}})?\Z")
_AGENTS = ("orchestrator", "subagent:")

_Texts = Annotated[tuple[Annotated[str, msgspec.Meta(max_length=_MAX_TEXT)], ...], msgspec.Meta(max_length=_MAX_LISTED)]


class ExportedLabel(msgspec.Struct, frozen=True):
    """A label as a bundle has it."""

    source: Source
    trust: Trust
    score: float | None = None
    reasons: _Texts = ()
    derived_from: _Texts = ()
    approved_by: Annotated[str, msgspec.Meta(max_length=_MAX_TEXT)] | None = None


def imported_label(given: ExportedLabel | None, author: str, session_id: str) -> TrustLabel | None:
    """Return the label of an imported item; None for an unlabelled one of an agent, which is not trusted anyway."""
    if given is None:
        return None if author.startswith(_AGENTS) else TrustLabel(Source.IMPORT, Trust.UNTRUSTED)
    return TrustLabel(
        source=Source.IMPORT,
        trust=lowest_trust([given.trust], Trust.UNTRUSTED),
        score=given.score,
        reasons=tuple(reason for reason in given.reasons if _REASON.match(reason)),
        derived_from=tuple(ref for ref in given.derived_from if _is_in(ref, session_id)),
    )


def _is_in(reference: str, session_id: str) -> bool:
    """Tell whether a reference names an item of the imported session itself."""
    ref = ItemRef.parse(reference)
    if ref is None:
        return False
    message, key = MessageItemId.parse(ref.item), LineKey.parse(ref.item)
    if message is not None:
        return message.session_id == session_id
    return key is not None and key.line_id == line_of(session_id)
