"""The prompt of a plan, with its cache points."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.history.item_ids import ItemRef
from weftline.kernel.thread_pools import short_turns
from weftline.models.language_models.answer_usage import Usage
from weftline.models.language_models.content import Prompt, PromptBlock
from weftline.models.language_models.wire_forms import plain_text
from weftline.models.metering import savings_ratio
from weftline.prompts.assembly.receipts import Savings
from weftline.prompts.efficiency import PromptItem, ScoredPrompt, estimated, shares
from weftline.state.layers.prefix import WORD_MARK, contents

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from weftline.models.language_models.catalog import Rates
    from weftline.models.language_models.content import ConversationMessage, ToolDefinition
    from weftline.prompts.assembly.receipts import Plan, PlannedBlock, Receipt, ReceiptBlock
    from weftline.prompts.assembly.stored_prompts import StoredPrompt
    from weftline.prompts.efficiency import Efficiency


_STABLE = ("layer", "pins")


def prompt_of(
    plan: Plan, sent: frozenset[int], tools: tuple[ToolDefinition, ...], model: str | None, max_output_tokens: int
) -> tuple[Prompt, frozenset[int]]:
    """Return the prompt, and the places of the blocks after which a cache should end.

    ``sent`` are those places in the previous prompt: some providers find a cache only at the marks it was written with.
    """
    kept = frozenset(place for place in sent if place < plan.reused)
    points = kept | cache_points(plan.blocks)
    return prompt_with(plan.blocks, points, tools, model, max_output_tokens), points


def prompt_with(
    blocks: Sequence[PlannedBlock],
    points: frozenset[int],
    tools: tuple[ToolDefinition, ...],
    model: str | None,
    max_output_tokens: int,
) -> Prompt:
    rendered = tuple(
        PromptBlock(block_id=block.block_id, kind=block.kind, messages=block.messages, cache_point=place in points)
        for place, block in enumerate(blocks)
    )
    return Prompt(model=model, tools=tools, blocks=rendered, max_output_tokens=max_output_tokens)


def cache_points(blocks: Sequence[PlannedBlock]) -> frozenset[int]:
    """Return where caches should end: after the layers, after the pins, after the summaries, and at the end.

    Prompts of other sessions and agents share the first; the next call reads up to the last, and a prompt that is
    rebuilt reads the summaries that stayed.
    """
    kinds = [block.kind for block in blocks]
    front = next((place for place, kind in enumerate(kinds) if kind not in _STABLE), len(kinds))
    summaries = max((place for place, kind in enumerate(kinds) if kind == "summary"), default=-1)
    points = {kinds[:front].count("layer") - 1, front - 1, summaries, len(kinds) - 1}
    return frozenset(point for point in points if point >= 0)


def cache_points_of(blocks: Sequence[ReceiptBlock]) -> frozenset[int]:
    """Return the cache points of a prompt that was sent."""
    return frozenset(place for place, block in enumerate(blocks) if block.cache_point)


# The items of a prompt with their tokens and texts, to compare them with the answer.

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


# Savings of a prompt against the naive baseline, in tokens and money, with prompt caches taken into account.
#
# The naive baseline is the prompt that an agent without Weftline would send: its layers, every tool definition, the
# task and every event of its window in full. It is appended to from call to call, so its cache works as well as ours:
# what the previous one had is cached as long as the cache lives. Documents count apart, whole, and only those of which
# evidence is in the prompt: what retrieval finds without need must not look like savings.


def savings_of(
    naive: int, documents: int, tokens: int, cached: int, previous: Receipt | None, rates: Rates | None, *, warm: bool
) -> Savings:
    """Return the savings of a prompt; ``previous`` is the receipt of the call before, ``warm`` if its cache lives.

    ``naive`` are the tokens of the conversation alone, ``documents`` those of whole documents with evidence.
    """
    reusable = previous.savings.naive_baseline_tokens if previous is not None and warm else 0
    naive_cached = min(naive, reusable)
    cached = cached if warm else 0
    return Savings(
        naive_baseline_tokens=naive,
        document_tokens=documents,
        engine_assembled_tokens=tokens,
        savings_ratio=savings_ratio(naive, tokens),
        savings_ratio_with_documents=savings_ratio(naive + documents, tokens),
        cached_tokens=cached,
        naive_cached_tokens=naive_cached,
        cost=None if rates is None else _cost(rates, tokens, cached),
        naive_cost=None if rates is None else _cost(rates, naive, naive_cached),
    )


def _cost(rates: Rates, tokens: int, cached: int) -> float:
    """Return the price of a prompt: cached tokens are read from the cache, all others written to it."""
    usage = Usage(input_tokens=tokens, output_tokens=0, cache_read_tokens=cached, cache_write_tokens=tokens - cached)
    return float(rates.cost(usage))
