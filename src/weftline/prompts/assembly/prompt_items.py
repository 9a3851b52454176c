"""The items of a prompt with their tokens and texts, to compare them with the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.kernel.thread_pools import short_turns
from weftline.models.language_models.rendering import plain_text
from weftline.prompts.efficiency.estimate import estimated
from weftline.prompts.efficiency.model import PromptItem, ScoredPrompt
from weftline.prompts.efficiency.parts import shares
from weftline.records.item_refs import ItemRef
from weftline.state.layers.data_elements import WORD_MARK, contents

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from weftline.models.language_models.model import ConversationMessage, ToolDefinition
    from weftline.prompts.assembly.model import PlannedBlock
    from weftline.prompts.assembly.receipts import Receipt, ReceiptBlock
    from weftline.prompts.assembly.stored_prompts import StoredPrompt
    from weftline.prompts.efficiency.model import Efficiency

_REQUIRED = frozenset({"layer", "task"})
_TOOL = "tool:"


def item_tokens(block: PlannedBlock | ReceiptBlock) -> dict[str, int]:
    """Return the tokens of each item of a block, in proportion to their texts; headings belong to what they head."""
    if not block.spans:
        refs = list(block.items) or list(block.covers)
        return {refs[0] if len(refs) == 1 else block.block_id: block.tokens}
    lengths = {ref: end - start for ref, (start, end) in block.spans.items()}
    return _shared(block.tokens, lengths)


def prompt_items(receipt: Receipt, blocks: Sequence[PlannedBlock], tools: Sequence[ToolDefinition]) -> list[PromptItem]:
    """Return the items of a prompt with their texts; tools have none."""
    return [
        item
        if block is None or item.is_required
        else item._replace(text=_text(block, item.ref), name=_name(receipt.documents.get(item.ref, item.ref)))
        for block, item in _items(receipt, blocks, tools)
    ]


def scored_prompt(found: StoredPrompt) -> ScoredPrompt:
    """Return a stored prompt as it is compared with its answer."""
    receipt = found.receipt
    with short_turns():
        items = prompt_items(receipt, found.blocks, found.tools)
        return ScoredPrompt(items, task_text(found.blocks), receipt.tokens, receipt.limits.window_tokens)


def expected_use(receipt: Receipt, blocks: Sequence[PlannedBlock], tools: Sequence[ToolDefinition]) -> Efficiency:
    """Return the expected efficiency of a prompt whose answer is not known."""
    scores = {each.ref: each.score for each in receipt.candidates if each.score is not None}
    items = (item for _, item in _items(receipt, blocks, tools))
    return estimated(items, scores, sent=receipt.tokens, capacity=receipt.limits.window_tokens)


def task_text(blocks: Sequence[PlannedBlock]) -> str:
    """Return the task of a prompt: its block, else the newest message of the user."""
    task = next((block for block in reversed(blocks) if block.kind == "task"), None) or _newest_question(blocks)
    return "" if task is None else _joined(task.messages)


def _items(
    receipt: Receipt, blocks: Sequence[PlannedBlock], tools: Sequence[ToolDefinition]
) -> Iterator[tuple[PlannedBlock | None, PromptItem]]:
    """Yield the items of a prompt, each with its block. Layers, system messages and the task are required.

    A task that repeats the newest message of the user is not in the prompt a second time: then that message is it.
    """
    asked = None if any(block.kind == "task" for block in blocks) else _newest_question(blocks)
    for block in blocks:
        is_required = block.kind in _REQUIRED or block is asked or _is_system(block)
        for ref, tokens in item_tokens(block).items():
            yield block, PromptItem(ref, block.kind, tokens, is_required=is_required)
    sizes = {each.ref: each.tokens for each in receipt.candidates if each.kind == "tool"}
    refs = [f"{_TOOL}{tool.name}" for tool in tools]
    for ref, tokens in _shared(receipt.tools_tokens, {ref: sizes.get(ref, 1) for ref in refs}).items():
        yield None, PromptItem(ref, "tool", tokens)


def _newest_question(blocks: Sequence[PlannedBlock]) -> PlannedBlock | None:
    return next((each for each in reversed(blocks) if each.kind == "conversation" and _has_role(each, "user")), None)


def _is_system(block: PlannedBlock) -> bool:
    return block.kind == "conversation" and _has_role(block, "system")


def _has_role(block: PlannedBlock, role: str) -> bool:
    return any(message.role == role for message in block.messages)


def _text(block: PlannedBlock, ref: str) -> str:
    """Return the text of an item of a block, without marks between words."""
    span = block.spans.get(ref)
    if span is None:
        return _joined(block.messages)
    return block.messages[0].content[span[0] : span[1]].replace(WORD_MARK, " ")


def _name(ref: str) -> str:
    """Return what an answer may call an item: the id of its document, or its key."""
    parsed = ItemRef.parse(ref)
    return (ref if parsed is None else parsed.item).rpartition("/")[2]


def _joined(messages: Iterable[ConversationMessage]) -> str:
    """Return everything that messages say: texts without their data elements, and arguments of calls."""
    parts: list[str] = []
    for message in messages:
        text = plain_text(message)
        parts += contents(text) or [text]
        parts += [f"{call.name} {call.arguments}" for call in message.tool_calls]
    return "\n".join(parts).replace(WORD_MARK, " ")


def _shared(tokens: int, weights: Mapping[str, int]) -> dict[str, int]:
    return dict(zip(weights, shares(tokens, weights.values()), strict=True))
