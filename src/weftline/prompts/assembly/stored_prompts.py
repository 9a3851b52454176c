"""Prompts of receipts, as they were assembled, for who may read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from weftline.kernel.errors import NotFound, PermissionDenied
from weftline.models.language_models.rendering import RenderOptions
from weftline.models.language_models.wire import PromptForm, render
from weftline.prompts.assembly.prompt import cache_points_of, prompt_with
from weftline.prompts.assembly.receipts import (
    ReceiptPruned,
    blocks_with_texts,
    decode_messages,
    no_receipt,
    prompt_hash,
)
from weftline.prompts.assembly.records import item_id
from weftline.records.model import ContextSummary
from weftline.windows.redacted_events import redacted_items, redactions_of_items

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.kernel.identity import Actor
    from weftline.models.language_models.catalog import Catalog
    from weftline.models.language_models.model import Prompt, ToolDefinition
    from weftline.prompts.assembly.model import PlannedBlock
    from weftline.prompts.assembly.receipts import Receipt, StoredReceipt
    from weftline.prompts.assembly.sql import ReceiptStore
    from weftline.records.sql import RecordStore
    from weftline.windows.service import Windows

_MEMORY = "memory:"
_TASK_CHARACTERS = 500


class StoredPrompt(NamedTuple):
    """The prompt of a receipt: its blocks and tools, and the whole."""

    receipt: Receipt
    blocks: tuple[PlannedBlock, ...]
    tools: tuple[ToolDefinition, ...]
    prompt: Prompt

    @property
    def layer_versions(self) -> dict[str, str]:
        return next((block.items for block in self.blocks if block.kind == "layer"), {})

    def body(self, form: PromptForm, catalog: Catalog) -> dict[str, Any]:
        """Return the body of the request in a wire form."""
        info, ttl = catalog.find(self.receipt.model), self.receipt.cache_ttl
        # The catalog may have changed since.
        return render(form, self.prompt, info, RenderOptions(ttl=ttl if ttl in info.cache.ttl_seconds else None))


class StoredPrompts(NamedTuple):
    """Finds prompts for one caller."""

    receipts: ReceiptStore
    windows: Windows
    records: RecordStore
    catalog: Catalog

    async def find(self, receipt_id: str) -> StoredPrompt:
        """Return the prompt of a receipt; raises ReceiptPruned if content of it was removed or is damaged."""
        return await self._prompt((await find_receipt(receipt_id, self.receipts, self.windows)).receipt)

    async def of(self, found: StoredReceipt) -> StoredPrompt:
        """Return the prompt of a receipt that was read already; raises as ``find`` does."""
        await _check_reader(found.receipt, self.windows)
        return await self._prompt(found.receipt)

    async def _prompt(self, receipt: Receipt) -> StoredPrompt:
        _check_memory(receipt, self.windows.actor)
        await check_redactions(receipt, self.records)
        digests = [receipt.tools_digest, *(block.digest for block in receipt.blocks)]
        blocks, tools = blocks_with_texts(receipt, await self.receipts.texts(receipt.session_id, digests))
        points = cache_points_of(receipt.blocks)
        prompt = prompt_with(blocks, points, tools, receipt.model, receipt.max_output_tokens)
        if prompt_hash(prompt) != receipt.prompt_hash:
            raise ReceiptPruned("The stored texts of this prompt are damaged: their hash is another.")
        return StoredPrompt(receipt, blocks, tools, prompt)


async def find_receipt(receipt_id: str, receipts: ReceiptStore, windows: Windows) -> StoredReceipt:
    """Return a receipt of an agent whose window the caller may open, as may be that of who asked for the prompt.

    A prompt contains what its requester may read. For an agent, its ancestor may have asked, who may read more.
    """
    found = await receipts.find(receipt_id)
    if found is None:
        raise no_receipt(receipt_id)
    await _check_reader(found.receipt, windows)
    return found


async def tasks_of(
    found: Sequence[Receipt], receipts: ReceiptStore, windows: Windows, records: RecordStore
) -> dict[str, str]:
    """Return what each prompt was made for, by receipt id, as the message that ends it says; at most 500 characters.

    None of prompts of which the caller may not read the text, and none that was removed or redacted.
    """
    ends = {each.receipt_id: each.blocks[-1] for each in await _readable(found, windows) if each.blocks}
    items = {name: [item_id(*item) for item in end.sources.items()] for name, end in ends.items()}
    redactions = await redactions_of_items(set[str]().union(*items.values()), records)
    tasks: dict[str, str] = {}
    for session_id in sorted({each.session_id for each in found}):
        here = [each.receipt_id for each in found if each.session_id == session_id and each.receipt_id in ends]
        texts = await receipts.texts(session_id, [ends[name].digest for name in here])
        for name in here:
            text = texts.get(ends[name].digest)
            if text is None or redacted_items(items[name], redactions):
                continue
            said = [message.content for message in decode_messages(text) if message.role == "user"]
            if said and said[-1]:
                tasks[name] = said[-1][:_TASK_CHARACTERS]
    return tasks


async def _readable(found: Sequence[Receipt], windows: Windows) -> list[Receipt]:
    """Return the receipts whose prompts the caller may read, as ``check_requester`` tells."""
    allowed: dict[str, bool] = {}
    for each in found:
        if each.requested_by not in allowed:
            try:
                await check_requester(each, windows)
                allowed[each.requested_by] = True
            except PermissionDenied:
                allowed[each.requested_by] = False
    return [each for each in found if allowed[each.requested_by]]


async def _check_reader(receipt: Receipt, windows: Windows) -> None:
    """Refuse a receipt as if it did not exist."""
    try:
        await windows.open(receipt.session_id, receipt.agent_id)
        await check_requester(receipt, windows)
    except (NotFound, PermissionDenied):
        error = no_receipt(receipt.receipt_id)
        error.denial = True
        raise error from None


async def check_requester(receipt: Receipt, windows: Windows) -> None:
    """Refuse a receipt to whom the window of the one who asked for the prompt is not open."""
    if windows.actor.principal_id == receipt.requested_by:
        return
    requester = await windows.access.principal(receipt.requested_by)
    if requester is None or not await windows.may_open(requester):
        raise PermissionDenied(
            "A receipt is open to who asked for the prompt, and to its ancestors and admins up to their clearance."
        )


def _check_memory(receipt: Receipt, actor: Actor) -> None:
    """Refuse to show private memory to anyone but its owner, who asked for the prompt, and who may inspect it.

    As `memory.inspect`, it is open to admins, but not to sub-agents; the reader's clearance was checked before.
    """
    if actor.principal_id == receipt.requested_by or (actor.is_admin and not actor.is_subagent):
        return
    if any(ref.startswith(_MEMORY) for block in receipt.blocks for ref in block.items):
        raise PermissionDenied(
            f"The prompt contains private memory of '{receipt.requested_by}'.",
            hint="The receipt itself shows which items the prompt had; `receipt.show` lists them.",
            related=("receipts",),
        )


async def check_redactions(receipt: Receipt, records: RecordStore) -> None:
    """Refuse to show content that was redacted since."""
    redacted = (await redacted_since([receipt], records)).get(receipt.receipt_id)
    if redacted:
        raise ReceiptPruned(f"{len(redacted)} items of this prompt were redacted.", items=redacted)


async def redacted_since(receipts: Sequence[Receipt], records: RecordStore) -> dict[str, list[str]]:
    """Return what was redacted of the prompts of one session, by receipt, without those of which nothing was."""
    items = {each.receipt_id: _item_ids(each) for each in receipts}
    summaries = {each.receipt_id: [b.block_id for b in each.blocks if b.kind == "summary"] for each in receipts}
    elsewhere = await records.redactions(sorted(set[str]().union(*items.values())))
    here = await records.redactions_in(receipts[0].session_id) if receipts else {}
    shown = sorted(set[str]().union(*summaries.values()))
    hidden = await records.redactions(shown, ContextSummary.type) if shown else {}
    redactions = {**elsewhere, **here}
    found = {
        name: [*redacted_items(items[name], redactions), *(each for each in summaries[name] if each in hidden)]
        for name in items
    }
    return {name: redacted for name, redacted in found.items() if redacted}


def _item_ids(receipt: Receipt) -> list[str]:
    return sorted({item_id(*item) for block in receipt.blocks for item in block.sources.items()})
