"""The prompt inspector: every candidate, why it is in or out, what it cost, and the prompt again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from weft.kernel.errors import WeftError
from weft.transports.console.view import Page

if TYPE_CHECKING:
    from starlette.responses import Response

    from weft.transports.console.view import PageView


class JudgedCandidate(NamedTuple):
    """Something that could have been in the prompt, and what became of it."""

    ref: str
    kind: str
    tokens: int
    score: float | None
    outcome: str
    detail: str


class BlockChange(NamedTuple):
    """A block of this prompt or of the previous one, and whether it is new, the same or gone."""

    block: Any
    change: str


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
    receipt_id = view.part("receipt_id")
    receipt = await view.call("receipt.show", receipt_id=receipt_id, candidates=True)
    judged = judged_candidates(receipt)
    return view.render(
        "inspector.html",
        receipt=receipt,
        candidates=view.arranged(judged, "ref", "kind", "tokens", "score", "outcome"),
        outcomes=_counted(judged),
        previous=await _previous(view, receipt.previous_id),
    )


async def replayed(view: PageView) -> Response:
    receipt_id = view.part("receipt_id")
    receipt = await view.call("receipt.show", receipt_id=receipt_id)
    prompt = await view.call("receipt.replay", receipt_id=receipt_id, form=view.query("form"))
    return view.render("replay.html", receipt=receipt, prompt=prompt, same=prompt.prompt_hash == receipt.prompt_hash)


async def compared(view: PageView) -> Response:
    """Show which blocks changed since the previous prompt of the agent."""
    receipt = await view.call("receipt.show", receipt_id=view.part("receipt_id"))
    previous = await _previous(view, receipt.previous_id)
    changes = block_changes(previous.blocks if previous else (), receipt.blocks)
    return view.render("prompt_changes.html", receipt=receipt, previous=previous, changes=changes)


def judged_candidates(receipt: Any) -> list[JudgedCandidate]:  # noqa: ANN401 - the response of receipt.show
    omitted = {each.ref: each for each in receipt.omitted}
    shortened = {each.ref for each in receipt.shortened}
    judged = []
    for candidate in receipt.candidates or ():
        out = omitted.get(candidate.ref)
        outcome = out.reason if out else "shortened" if candidate.ref in shortened else "in the prompt"
        judged.append(
            JudgedCandidate(
                candidate.ref,
                candidate.kind,
                candidate.tokens,
                getattr(candidate, "score", None),
                outcome,
                (out.detail or "") if out else "",
            )
        )
    return judged


def block_changes(before: Any, after: Any) -> list[BlockChange]:  # noqa: ANN401 - blocks of receipts
    """Return the blocks in the order of the later prompt, then those that are gone."""
    known = {block.block_id: block.digest for block in before}
    changes = [
        BlockChange(
            block,
            "new" if block.block_id not in known else "same" if known[block.block_id] == block.digest else "changed",
        )
        for block in after
    ]
    kept = {block.block_id for block in after}
    return changes + [BlockChange(block, "gone") for block in before if block.block_id not in kept]


async def _previous(view: PageView, receipt_id: str | None) -> Any:  # noqa: ANN401 - the response of receipt.show
    """Return the previous receipt; None if there is none, or its time of storage is over."""
    if receipt_id is None:
        return None
    try:
        return await view.call("receipt.show", receipt_id=receipt_id)
    except WeftError:
        return None


def _counted(judged: list[JudgedCandidate]) -> dict[str, tuple[int, int]]:
    """Return how many candidates had each outcome, and their tokens."""
    counted: dict[str, tuple[int, int]] = {}
    for each in judged:
        number, tokens = counted.get(each.outcome, (0, 0))
        counted[each.outcome] = number + 1, tokens + each.tokens
    return dict(sorted(counted.items(), key=lambda entry: -entry[1][0]))


PROMPTS = (
    Page("/prompts", prompts, "receipt.list", "Prompts", "p"),
    Page("/prompts/{receipt_id}", inspector, "receipt.show"),
    Page("/prompts/{receipt_id}/replay", replayed, "receipt.replay"),
    Page("/prompts/{receipt_id}/changes", compared, "receipt.show"),
)
