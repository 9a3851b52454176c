"""The prompt inspector: every candidate, why it is in or out, what it cost, and the prompt again."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from weftline.kernel.errors import WeftlineError
from weftline.kernel.thread_pools import TEXT_THREADS
from weftline.transports.console.prompt_inspection import (
    PromptChanges,
    block_texts,
    budget_rows,
    compared_blocks,
    cost_bars,
    judged_candidates,
    kind_totals,
    limits_of,
    outcomes_of,
    prompt_bar,
    signed_layers,
)
from weftline.transports.console.view import Page

if TYPE_CHECKING:
    from starlette.responses import Response

    from weftline.capabilities.assembly.receipt_operations import PromptReplayed, ReceiptShown
    from weftline.transports.console.view import PageView

_CANDIDATES = 100
_BLOCKS = 50


async def prompts(view: PageView) -> Response:
    listed = await view.call("receipt.list", limit=50, cursor=view.query("cursor"), agent_id=view.query("agent"))
    return view.render(
        "prompts.html",
        receipts=view.arranged(
            listed.receipts, "agent_id", "session_id", "model", "created_at", "tokens", "savings_ratio", "efficiency"
        ),
        next_cursor=listed.next_cursor,
    )


async def inspector(view: PageView) -> Response:
    receipt: ReceiptShown = await view.call("receipt.show", receipt_id=view.part("receipt_id"), candidates=True)
    replay = await _replayed(view, receipt.receipt_id)
    previous = await _previous(view, receipt.previous_id)
    judged = judged_candidates(receipt)
    chosen = [
        each
        for each in judged
        if view.query("outcome") in {None, each.outcome} and view.query("kind") in {None, each.kind}
    ]
    arranged = view.arranged(chosen, "ref", "kind", "tokens", "score", "outcome", "use")
    texts = await _block_texts(receipt, replay)
    return await view.render_long(
        "inspector.html",
        receipt=receipt,
        replay=replay,
        refused=replay if isinstance(replay, WeftlineError) else None,
        bar=prompt_bar(receipt),
        kinds=kind_totals(receipt),
        costs=cost_bars(receipt),
        limits=limits_of(receipt),
        budgets=budget_rows(receipt),
        layers=signed_layers(receipt, texts),
        texts=texts,
        blocks=view.page_of(receipt.blocks, _BLOCKS, "blocks"),
        candidates=view.page_of(arranged, _CANDIDATES),
        outcomes=outcomes_of(judged),
        candidate_kinds=Counter(each.kind for each in judged),
        changes=None if previous is None else PromptChanges.of(previous, receipt),
        previous=previous,
    )


async def replayed(view: PageView) -> Response:
    receipt_id = view.part("receipt_id")
    receipt = await view.call("receipt.show", receipt_id=receipt_id, candidates=False)
    prompt = await view.call("receipt.replay", receipt_id=receipt_id, form=view.query("form"))
    return await view.render_long(
        "replay.html", receipt=receipt, prompt=prompt, same=prompt.prompt_hash == receipt.prompt_hash
    )


async def compared(view: PageView) -> Response:
    """Show which blocks changed since the previous prompt of the agent, with their texts."""
    receipt = await view.call("receipt.show", receipt_id=view.part("receipt_id"), candidates=False)
    previous = await _previous(view, receipt.previous_id)
    changes = PromptChanges.of(previous, receipt)
    blocks = view.page_of(changes.blocks, _BLOCKS)
    before = {} if previous is None else await _texts(view, previous)
    diffs = await compared_blocks(blocks.rows, before, await _texts(view, receipt))
    return await view.render_long(
        "prompt_changes.html", receipt=receipt, previous=previous, changes=changes, blocks=blocks, diffs=diffs
    )


async def _texts(view: PageView, receipt: ReceiptShown) -> dict[str, str]:
    return await _block_texts(receipt, await _replayed(view, receipt.receipt_id))


async def _block_texts(receipt: ReceiptShown, replay: PromptReplayed | WeftlineError) -> dict[str, str]:
    # Prompts can be long, and each of their messages is hashed.
    return await TEXT_THREADS.run(block_texts, receipt.blocks, _messages(replay))


async def _replayed(view: PageView, receipt_id: str) -> PromptReplayed | WeftlineError:
    """Return the prompt again, or why it cannot be shown; the receipt is shown in both cases."""
    try:
        prompt: PromptReplayed = await view.call("receipt.replay", receipt_id=receipt_id)
    except WeftlineError as error:
        return error
    return prompt


def _messages(replay: PromptReplayed | WeftlineError) -> list[dict[str, Any]]:
    return [] if isinstance(replay, WeftlineError) else replay.body["messages"]


async def _previous(view: PageView, receipt_id: str | None) -> ReceiptShown | None:
    """Return the previous receipt; None if there is none, or its time of storage is over."""
    if receipt_id is None:
        return None
    try:
        previous: ReceiptShown = await view.call("receipt.show", receipt_id=receipt_id, candidates=False)
    except WeftlineError:
        return None
    return previous


PROMPTS = (
    Page("/prompts", prompts, "receipt.list", "Prompts", "p"),
    Page("/prompts/{receipt_id}", inspector, "receipt.show"),
    Page("/prompts/{receipt_id}/replay", replayed, "receipt.replay"),
    Page("/prompts/{receipt_id}/changes", compared, "receipt.show"),
)
