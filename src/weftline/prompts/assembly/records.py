"""Records of Agent Context derived from receipts: surface, selection, budget, window, assembly and injection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from weftline.access.grants import may_read_as_admin
from weftline.access.sql import AccessStore
from weftline.kernel.clock import from_micros
from weftline.kernel.identity import PRINCIPAL, Actor
from weftline.prompts.assembly.receipts import decode_messages, digest_of
from weftline.prompts.assembly.sql import ReceiptStore
from weftline.records import model as records
from weftline.records.record_ids import ReceiptOrigin
from weftline.records.refs import Link, ModelApiMapping
from weftline.records.vocabulary import SCHEMA_VERSION
from weftline.sessions.recorder import session_envelope

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from weftline.prompts.assembly.receipts import Receipt, ReportedUsage
    from weftline.records.model import Record
    from weftline.sessions.model import Session

# Maximum length of a text in a record.
_MAX_TEXT = 100_000


class ReceiptRecordReader(msgspec.Struct, frozen=True):
    """Reads the records of receipts for one caller."""

    actor: Actor
    receipts: ReceiptStore
    access: AccessStore

    async def of_receipt(self, receipt_id: str, session_id: str | None) -> Mapping[str, Record]:
        found = await self.receipts.find(receipt_id)
        if found is None or session_id not in (None, found.receipt.session_id):
            return {}
        # The derived records name private items, so they are for who asked for the prompt, and for admins.
        if not await self._is_for_caller(found.receipt):
            return {}
        task = await self._task(found.receipt)
        return {record.type: record for record in records_of(found.receipt, task, found.usage)}

    async def _is_for_caller(self, receipt: Receipt) -> bool:
        if self.actor.principal_id == receipt.requested_by:
            return True
        requester = await self.access.principal(receipt.requested_by)
        return requester is not None and may_read_as_admin(self.actor, requester)

    async def _task(self, receipt: Receipt) -> str | None:
        """Return the task of a prompt; None if it is an event of the conversation, too long, or was removed."""
        digests = [block.digest for block in receipt.blocks if block.kind == "task"]
        texts = await self.receipts.texts(receipt.session_id, digests) if digests else {}
        tasks = [message.content for text in texts.values() for message in decode_messages(text)]
        return next((task for task in tasks if _is_task(task, receipt)), None)


def records_of(receipt: Receipt, task: str | None = None, usage: ReportedUsage | None = None) -> tuple[Record, ...]:
    """Return the records of a receipt; ``task`` is its text if known, ``usage`` what was reported of its call."""
    at = from_micros(receipt.created_at)
    return (
        _surface(receipt, at),
        _selection(receipt, at, task),
        _budget(receipt, at),
        _window(receipt, at),
        _assembly(receipt, at),
        _injection(receipt, at, usage),
    )


def turn_envelope(receipt: Receipt, session: Session, actor: Actor) -> records.ContextEnvelope:
    """Return the envelope of a prompt: what was sent, and the records that say why."""
    return session_envelope(
        "turn",
        session,
        actor,
        from_micros(receipt.created_at),
        (item_id(*item) for block in receipt.blocks for item in block.sources.items()),
        lifecycle="assembled",
        selection_refs=(_id(receipt, "selection"),),
        budget_ref=_id(receipt, "budget"),
        assembly_refs=(_id(receipt, "assembly"),),
        injection_refs=(_id(receipt, "injection"),),
    )


def item_id(ref: str, version: str) -> str:
    """Return the item id of a candidate in a version."""
    return f"{ref}/{version}" if version else ref


def _id(receipt: Receipt, part: str) -> str:
    return str(ReceiptOrigin(receipt.receipt_id, part))


def _visibility(receipt: Receipt) -> tuple[str, ...]:
    return (f"{PRINCIPAL}{receipt.agent_id}",)


def _item_ids(receipt: Receipt) -> dict[str, str]:
    """Return the item ids of the candidates, by ref."""
    return {each.ref: item_id(each.ref, each.version) for each in receipt.candidates}


def _surface(receipt: Receipt, at: datetime) -> records.ContextSurface:
    return records.ContextSurface(
        schema_version=SCHEMA_VERSION,
        surface_id=_id(receipt, "surface"),
        scope="turn",
        surface_kind="weftline_assembly",
        available_item_refs=tuple(_item_ids(receipt).values()),
        visibility=_visibility(receipt),
        created_at=at,
    )


def _is_task(text: str, receipt: Receipt) -> bool:
    return len(text) <= _MAX_TEXT and digest_of(text).hex() == receipt.task_digest


def _selection(receipt: Receipt, at: datetime, task: str | None) -> records.ContextSelection:
    item_ids = _item_ids(receipt)
    included = {ref: version for block in receipt.blocks for ref, version in block.sources.items()}
    return records.ContextSelection(
        schema_version=SCHEMA_VERSION,
        selection_id=_id(receipt, "selection"),
        surface_id=_id(receipt, "surface"),
        query=task or msgspec.UNSET,
        candidate_item_refs=tuple(item_ids.values()),
        selected_item_refs=tuple(item_id(ref, version) for ref, version in included.items()),
        omitted_item_refs=tuple(
            records.Omission(
                item_ref=item_ids.get(each.ref, each.ref),
                reason=each.reason,
                detail=msgspec.UNSET if each.detail is None else each.detail,
            )
            for each in receipt.omitted
        ),
        ranking_signals={
            "score": {item_ids[each.ref]: each.score for each in receipt.candidates if each.score is not None},
            "confidence": receipt.confidence.confidence,
        },
        selection_policy={"widened": receipt.confidence.widened, "fallback": receipt.confidence.fallback},
        budget_ref=_id(receipt, "budget"),
        rationale=receipt.reason,
        actor_ref=f"{PRINCIPAL}{receipt.agent_id}",
        model_ref=receipt.model or msgspec.UNSET,
        created_at=at,
    )


def _segments(receipt: Receipt) -> tuple[records.WindowSegment, ...]:
    kinds = dict.fromkeys(block.kind for block in receipt.blocks)
    prompt = [
        records.WindowSegment(
            name=kind,
            actual_tokens=sum(block.tokens for block in receipt.blocks if block.kind == kind),
            item_refs=tuple(
                item_id(*item) for block in receipt.blocks if block.kind == kind for item in block.sources.items()
            ),
        )
        for kind in kinds
    ]
    tools = records.WindowSegment(name="tools", actual_tokens=receipt.tools_tokens)
    return (*([tools] if receipt.tools_tokens else []), *prompt)


def _budget(receipt: Receipt, at: datetime) -> records.ContextBudget:
    limits, item_ids = receipt.limits, _item_ids(receipt)
    return records.ContextBudget(
        schema_version=SCHEMA_VERSION,
        budget_id=_id(receipt, "budget"),
        target=receipt.model or receipt.agent_id,
        max_tokens=limits.limit,
        reserved_tokens=min(limits.limit, _reserved(receipt)),
        actual_tokens=receipt.tokens,
        actual_items=len({ref for block in receipt.blocks for ref in block.sources}),
        overflow_strategy="defer_to_retrieval",
        truncation_records=tuple(
            records.Truncation(
                item_ref=item_ids.get(each.ref, each.ref),
                strategy="summarize_oldest" if each.compacted else "truncate_middle",
                original_tokens=each.original_tokens,
                kept_tokens=each.kept_tokens,
            )
            for each in receipt.shortened
        ),
        window_segments=_segments(receipt),
        visibility=_visibility(receipt),
        created_at=at,
    )


def _reserved(receipt: Receipt) -> int:
    """Return the tokens that are never given away: layers, tools and pins."""
    fixed = sum(block.tokens for block in receipt.blocks if block.kind in {"layer", "pins"})
    return fixed + receipt.tools_tokens


def _window(receipt: Receipt, at: datetime) -> records.ContextWindow:
    limits = receipt.limits
    return records.ContextWindow(
        schema_version=SCHEMA_VERSION,
        window_id=_id(receipt, "window"),
        target=receipt.model or receipt.agent_id,
        segments=tuple(
            records.WindowSegment(
                name=category, max_tokens=budget, actual_tokens=receipt.window_tokens.get(category, 0)
            )
            for category, budget in receipt.window_budgets.items()
        ),
        max_tokens=limits.model_tokens,
        reserved_tokens=min(limits.reserved_output_tokens, limits.model_tokens),
        budget_ref=_id(receipt, "budget"),
        model_ref=receipt.model or msgspec.UNSET,
        created_at=at,
    )


def _assembly(receipt: Receipt, at: datetime) -> records.ContextAssembly:
    layers = "Layers are in weftline:layer elements" if receipt.has_platform else "Layers have no tags"
    return records.ContextAssembly(
        schema_version=SCHEMA_VERSION,
        assembly_id=_id(receipt, "assembly"),
        target=receipt.model or receipt.agent_id,
        ordered_blocks=tuple(
            records.Block(
                block_id=block.block_id,
                kind=block.kind,
                item_refs=tuple(item_id(*item) for item in block.sources.items()),
                content_ref=Link(kind="receipt_text", id=block.digest, digest=f"sha256:{block.digest}"),
                token_estimate=block.tokens,
            )
            for block in receipt.blocks
        ),
        wrapping_policy=f"{layers}, texts of others in weftline:data elements.",
        separator_policy="Each block is one or more messages.",
        visibility=_visibility(receipt),
        budget_ref=_id(receipt, "budget"),
        source_item_refs=tuple(
            dict.fromkeys(item_id(*item) for block in receipt.blocks for item in block.sources.items())
        ),
        redaction_state="none",
        created_at=at,
        metadata={"weftline": {"receipt_id": receipt.receipt_id, "mode": receipt.mode}},
    )


def _injection(receipt: Receipt, at: datetime, usage: ReportedUsage | None) -> records.ContextInjection:
    response_id = UNSET if usage is None or usage.response_id is None else usage.response_id
    return records.ContextInjection(
        schema_version=SCHEMA_VERSION,
        injection_id=_id(receipt, "injection"),
        assembly_id=_id(receipt, "assembly"),
        target=receipt.model or receipt.agent_id,
        injection_point="message_history",
        visibility=_visibility(receipt),
        final_ref=Link(kind="receipt", id=receipt.receipt_id),
        hash=receipt.prompt_hash,
        created_at=at,
        native_id=response_id,
        external_mappings=() if usage is None or response_id is UNSET else (_model_api(usage),),
    )


def _model_api(usage: ReportedUsage) -> ModelApiMapping:
    return ModelApiMapping(
        response_id=usage.response_id or UNSET,
        input_tokens=usage.input_tokens,
        cached_input_tokens=usage.cache_read_tokens,
    )
