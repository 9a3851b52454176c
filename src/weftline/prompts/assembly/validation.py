"""ValidatePrompt: the check of a finished prompt before it is returned or sent.

The layers are present, in order and unaltered, and the only thing in the system prompt that Weftline adds; other system
text is an event of the window that those above the agent wrote; every block of others is in data elements that nothing
inside them closes; nothing else imitates a tag of Weftline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from weftline.models.language_models.rendering import message_parts
from weftline.state.layers.data_elements import is_data
from weftline.state.layers.model import LayerViolation
from weftline.state.layers.prefix import check_prefix, check_sections, imitated_tag
from weftline.state.layers.tags import imitates, texts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from weftline.models.language_models.model import ConversationMessage, ToolDefinition
    from weftline.prompts.assembly.model import PlannedBlock
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
