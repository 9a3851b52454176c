"""The prompt of a plan, with its cache points."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.models.language_models.model import Prompt, PromptBlock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.models.language_models.model import ToolDefinition
    from weftline.prompts.assembly.model import Plan, PlannedBlock
    from weftline.prompts.assembly.receipts import ReceiptBlock

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
