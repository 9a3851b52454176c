"""ValidatePrompt: the check of a finished prompt before it is returned or sent.

The layers are present, in order and unaltered, and the only thing in the system prompt that Weftline adds; other system
text is an event of the window that those above the agent wrote; every block of others is in data elements that nothing
inside them closes; nothing else imitates a tag of Weftline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from weftline.exchange.record_log.lookup import RecordFinder
from weftline.history.item_ids import VersionId
from weftline.history.signed_lists import LayerViolation
from weftline.models.language_models.wire_forms import message_parts
from weftline.prompts.assembly.records import item_id
from weftline.records.record_ids import StoredRecordId, parse_item_id
from weftline.search.passages import readable_chunks
from weftline.search.persistent_memory import SearchStores, current_refs, memory_place
from weftline.state.layers.prefix import check_prefix, check_sections, imitated_tag, imitates, is_data, texts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from weftline.models.language_models.content import ConversationMessage, ToolDefinition
    from weftline.prompts.assembly.receipts import PlannedBlock
    from weftline.state.agent_context.sql import PinnedContext
    from weftline.state.layers.model import Layer


def validate_prompt(
    blocks: Sequence[PlannedBlock],
    tools: Iterable[ToolDefinition],
    layers: Sequence[Layer],
    instructions: AbstractSet[str],
) -> None:
    """Raise LayerViolation unless a prompt begins with these layers and everything else in it keeps its place.

    ``instructions``: refs of the events that those above the agent wrote; no other event is system text.
    """
    check_prefix(prefix_of(blocks), layers)
    _validate_rest(blocks, tools)
    if not system_refs(blocks) <= instructions:
        raise LayerViolation("The prompt has system text that nobody above the agent wrote.", problem="added")


def validate_earlier(
    blocks: Sequence[PlannedBlock], tools: Iterable[ToolDefinition], *, has_platform: bool = True
) -> None:
    """Raise LayerViolation unless a prompt of an earlier call is well-formed; its layers may be other ones by now.

    Without the layer of the platform they have no tags, so that only imitated ones can be found.
    """
    if has_platform:
        check_sections(prefix_of(blocks))
    elif imitates(prefix_of(blocks)):
        raise imitated_tag()
    _validate_rest(blocks, tools)


def system_refs(blocks: Sequence[PlannedBlock]) -> set[str]:
    """Return the refs of the events that are system text in a prompt."""
    system = (block for block in _after_layers(blocks) if any(message.role == "system" for message in block.messages))
    return {ref for block in system for ref in (*block.items, *block.covers)}


def prefix_of(blocks: Sequence[PlannedBlock]) -> str:
    """Return the text of the layers that a prompt begins with."""
    first = blocks[0] if blocks else None
    return "\n".join(message.content for message in first.messages) if first and first.kind == "layer" else ""


def _after_layers(blocks: Sequence[PlannedBlock]) -> Sequence[PlannedBlock]:
    """Return the blocks after that of the layers, which a prompt without any layer does not have."""
    return blocks[1:] if blocks and blocks[0].kind == "layer" else blocks


def _validate_rest(blocks: Sequence[PlannedBlock], tools: Iterable[ToolDefinition]) -> None:
    for block in _after_layers(blocks):
        validate_block(block)
    if any(imitates(text) for tool in tools for text in texts_of(msgspec.to_builtins(tool))):
        raise imitated_tag()


def validate_block(block: PlannedBlock) -> None:
    """Raise LayerViolation if a block after the layers imitates a tag, or is of others and not marked as data."""
    if block.kind == "layer":
        raise LayerViolation("The prompt has layers in two places.", problem="order")
    for message in block.messages:
        validate_message(message, must_be_data=block.is_data)


def validate_message(message: ConversationMessage, *, must_be_data: bool) -> None:
    """Raise LayerViolation if a message imitates a tag, or is to be data and is not marked as such."""
    if not must_be_data:
        if any(map(imitates, _texts(message))):
            raise imitated_tag()
        return
    shown = [message.content, *(part for part in message_parts(message) if isinstance(part, str))]
    if message.role == "system" or not all(is_data(text) for text in shown if text):
        raise LayerViolation("A text of others is not marked as data.", problem="unmarked")
    if any(imitates(text) and not is_data(text) for text in _texts(message)):
        raise imitated_tag()


def _texts(message: ConversationMessage) -> Iterable[str]:
    yield message.content
    if message.name is not None or message.tool_calls or message.native is not None:
        fields: Any = (message.name or "", msgspec.to_builtins(message.tool_calls), message.native)
        yield from texts_of(fields)


# Checks that the content of an earlier prompt may still be sent: it exists, unchanged, and the caller may read it.

_CHECKED = ("retrieved", "pins")


class ValidityStores(msgspec.Struct, frozen=True):
    """Stores in which the items of a prompt are looked up."""

    search: SearchStores
    finder: RecordFinder


def to_check(blocks: Iterable[PlannedBlock], current: Mapping[str, str]) -> dict[str, str]:
    """Return the passages in blocks that the current search has not just read, by ref."""
    items = {ref: version for block in blocks if block.kind in _CHECKED for ref, version in block.items.items()}
    return {ref: version for ref, version in items.items() if current.get(ref) != version}


async def invalid_items(items: Mapping[str, str], held: PinnedContext | None, stores: ValidityStores) -> frozenset[str]:
    """Return the items that were removed, changed or redacted, or that the caller may not read any more.

    ``held`` is the snapshot of the session: entries of memory that are not in it, after a pull, are not valid.
    """
    chunks = {ref: key for ref in items if (key := _chunk_key(ref)) is not None}
    readable = await readable_chunks(chunks.values(), stores.search) if chunks else set[tuple[str, int]]()
    others = {ref: parse_item_id(item_id(ref, version)) for ref, version in items.items() if ref not in chunks}
    named = {ref: each for ref, each in others.items() if not isinstance(each.origin, StoredRecordId)}
    found = await (await stores.finder.look(None)).records(list(named.values())) if named else []
    valid = {ref for ref, key in chunks.items() if key in readable}
    valid |= {ref for ref, record in zip(named, found, strict=True) if record is not None and record.redaction is None}
    memories = {ref: name for ref in valid if (name := _memory_entry(ref, items[ref])) is not None}
    valid -= memories.keys() - await current_refs(memories, stores.search, held)
    return frozenset(ref for ref in items if ref not in valid)


def _memory_entry(ref: str, version: str) -> VersionId | None:
    """Return the version of an entry of persistent memory; None if the item is something else."""
    name = VersionId.parse(item_id(ref, version))
    return None if name is None or memory_place(name.line_id) is None else name


def _chunk_key(ref: str) -> tuple[str, int] | None:
    """Return collection and number of a chunk's ref, such as domain:handbook/42; None if it names an item."""
    collection, _, number = ref.rpartition("/")
    return (collection, int(number)) if collection.startswith("domain:") and number.isdecimal() else None
