"""Prompts of receipts, as they were assembled, for who may read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from weftline.history.signed_lists import LayerViolation
from weftline.kernel.errors import Forbidden, NotFound, PermissionDenied
from weftline.models.language_models.rendering import RenderOptions
from weftline.models.language_models.wire_forms import (
    MESSAGES_FIELDS,
    OUTSIDE_FIELDS,
    SYSTEM_FIELDS,
    parse_body,
    render,
)
from weftline.prompts.assembly.prompt import cache_points_of, prompt_with
from weftline.prompts.assembly.receipts import (
    ReceiptPruned,
    blocks_with_texts,
    decode_messages,
    no_receipt,
    prompt_hash,
)
from weftline.prompts.assembly.records import item_id
from weftline.prompts.assembly.validation import validate_message
from weftline.records.model import ContextSummary
from weftline.state.layers.prefix import check_prefix, imitates, is_data, texts_of
from weftline.windows.line_events import redacted_items, redactions_of_items

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.kernel.identity import Actor
    from weftline.models.language_models.catalog import Catalog
    from weftline.models.language_models.content import ConversationMessage, Prompt, PromptForm, ToolDefinition
    from weftline.prompts.assembly.receipts import PlannedBlock, Receipt, StoredReceipt
    from weftline.prompts.assembly.sql import ReceiptStore
    from weftline.records.sql import RecordStore
    from weftline.state.layers.model import Layer
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


# Compares the prompt that a runtime is about to send with the one that was assembled for it.

# Fields that are compared with the assembled ones; others, such as the schema of an answer, are parameters. Their texts
# are scanned: some of them reach the model.
_PARSED = frozenset({*MESSAGES_FIELDS, *SYSTEM_FIELDS, "tools"})


class AddedParts(NamedTuple):
    """What was not assembled: messages at the end of a prompt, the place of the first of them, and other fields."""

    first: int
    added: Sequence[ConversationMessage]
    fields: Mapping[str, Any]


class PromptAltered(Forbidden):
    """The prompt is not the one that was assembled."""

    code = "PROMPT_ALTERED"
    hint = (
        "Send the body of the assembled prompt as it is. Add new messages and tool results with `context.ingest` and "
        "assemble again."
    )
    severity = "critical"
    violation = "tampering"
    related = ("assemble_context", "ingest_event")


def check_sent(
    form: PromptForm, given: dict[str, Any], assembled: dict[str, Any], layers: Sequence[Layer]
) -> AddedParts:
    """Raise LayerViolation or PromptAltered unless a body is the assembled one; return what was added to it.

    The runtime may add turns of user and assistant at the end, leave out tools, and set parameters and cache marks.
    """
    # What was assembled would not be the whole prompt.
    outside = next((name for name in OUTSIDE_FIELDS if given.get(name)), None)
    if outside is not None:
        raise PromptAltered(f"The field {outside} adds content that was not assembled.", problem="outside")
    fields = {name: value for name, value in given.items() if name not in _PARSED and assembled.get(name) != value}
    if any(map(imitates, texts_of(fields))):
        raise LayerViolation("A parameter of the prompt has a tag of Weftline.", problem="imitated")
    expected, found = parse_body(form, assembled), parse_body(form, given)
    _check_system(expected.messages, found.messages, layers)
    position = _first_difference(expected.messages, found.messages)
    if position is not None:
        raise _altered(position, found.messages)
    added = found.messages[len(expected.messages) :]
    for message in added:
        if message.role == "tool" and not is_data(message.content):
            raise PromptAltered("A tool result was added that is not marked as data.", problem="unmarked")
        validate_message(message, must_be_data=message.role == "tool")
    _check_tools(expected.tools, found.tools)
    return AddedParts(len(expected.messages), added, fields)


def _check_system(
    expected: Sequence[ConversationMessage], found: Sequence[ConversationMessage], layers: Sequence[Layer]
) -> None:
    """Raise LayerViolation unless the system prompt is the assembled one."""
    ours, theirs = ([message for message in each if message.role == "system"] for each in (expected, found))
    if theirs == ours:
        return
    if theirs[: len(ours)] != ours:
        check_prefix("\n".join(message.content for message in theirs), layers)
    raise LayerViolation("The system prompt is not the assembled one.", problem="added")


def _first_difference(expected: Sequence[ConversationMessage], found: Sequence[ConversationMessage]) -> int | None:
    places = range(len(expected))
    return next((place for place in places if found[place : place + 1] != [expected[place]]), None)


def _altered(position: int, found: Sequence[ConversationMessage]) -> PromptAltered:
    problem = "altered" if position < len(found) else "missing"
    return PromptAltered(
        f"Message {position} of the prompt is {'not as it was assembled' if problem == 'altered' else problem}.",
        problem=problem,
        position=position,
    )


def _check_tools(expected: Sequence[ToolDefinition], found: Sequence[ToolDefinition]) -> None:
    """Raise unless the tools are among those of the prompt: no gate has seen the definition of any other."""
    known = {tool.name: tool for tool in expected}
    for tool in found:
        if known.get(tool.name) != tool:
            raise PromptAltered(
                f"The tool '{tool.name[:100]}' is not as it was assembled.",
                hint="Give all tools to `context.assemble` in `tools`, and send those of the assembled body.",
                problem="tools",
            )
