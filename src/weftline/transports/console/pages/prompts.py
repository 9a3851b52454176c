"""Prompts: what the model saw and answered, why it was made so, and what other settings would make of it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from weftline.kernel.errors import WeftlineError
from weftline.kernel.thread_pools import TEXT_THREADS
from weftline.models.language_models.content import PROMPT_FORMS
from weftline.transports.console.prompt_inspection import (
    PromptChanges,
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
from weftline.transports.console.prompt_reading import (
    answer_in,
    block_messages,
    block_texts,
    item_texts,
    readable,
    speaker_of,
    tried_items,
    turns_of,
)
from weftline.transports.console.view import Page

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from starlette.responses import Response

    from weftline.prompts.assembly.receipt_operations import PromptReplayed, ReceiptShown, ReceiptSummary
    from weftline.transports.console.prompt_reading import Messages, PromptAnswer
    from weftline.transports.console.view import PageView

_CANDIDATES = 100
_BLOCKS = 50
_EVENTS = 200
# Events that are read for the answer to one prompt.
_NEXT_EVENTS = 20
# As many of the agent's last calls can be planned again.
_TRIED_CALLS = 200
# Windows whose answers a list of prompts shows.
_WINDOWS = 8


class ListedPrompt(NamedTuple):
    """A prompt in a list, with the answer that followed if it is in the conversation, and what its session is for."""

    receipt: ReceiptSummary
    answer: PromptAnswer | None
    purpose: str | None


async def prompts(view: PageView) -> Response:
    listed = await view.call("receipt.list", limit=50, cursor=view.query("cursor"), agent_id=view.query("agent"))
    receipts = view.arranged(
        listed.receipts, "task", "agent_id", "session_id", "model", "created_at", "tokens", "savings_ratio"
    )
    return view.render("prompts.html", prompts=await with_answers(view, receipts), next_cursor=listed.next_cursor)


async def with_answers(view: PageView, receipts: Sequence[ReceiptSummary]) -> list[ListedPrompt]:
    """Return prompts with their answers, as the latest events of a few windows have them."""
    windows = list(dict.fromkeys((each.session_id, each.agent_id) for each in receipts))[:_WINDOWS]
    answers: dict[str, PromptAnswer | None] = {}
    for session_id, agent_id in windows:
        events = await _latest_events(view, session_id, agent_id)
        following = None
        here = (each for each in receipts if (each.session_id, each.agent_id) == (session_id, agent_id))
        for each in sorted(here, key=lambda receipt: receipt.created_at, reverse=True):
            answers[each.receipt_id] = answer_in(events, each.created_at, following)
            following = each.created_at
    purposes = await purposes_of(view, (session_id for session_id, _ in windows))
    return [ListedPrompt(each, answers.get(each.receipt_id), purposes.get(each.session_id)) for each in receipts]


async def purposes_of(view: PageView, session_ids: Iterable[str]) -> dict[str, str]:
    """Return what sessions are for, by id; those that the caller may not see are left out."""
    purposes = {}
    for session_id in dict.fromkeys(session_ids):
        try:
            purposes[session_id] = (await view.call("session.get", session_id=session_id)).session.purpose
        except WeftlineError:
            continue
    return purposes


async def _latest_events(view: PageView, session_id: str, agent_id: str) -> Sequence[Any]:
    """Return the latest events of a window; none if the caller may not open it."""
    window = {"session_id": session_id, "agent_id": agent_id, "limit": _EVENTS}
    try:
        read = await view.call("window.events", **window)
        if read.has_more:
            read = await view.call("window.events", **window, offset=read.total_count - _EVENTS)
    except WeftlineError:
        return ()
    return read.events  # type: ignore[no-any-return] # the operation's response


async def prompt(view: PageView) -> Response:
    """Show what the model saw as a conversation, and what it answered."""
    read = await _read(view, candidates=True)
    receipt = read.receipt
    blocks = view.page_of(receipt.blocks, _BLOCKS, "blocks")
    kept = 0 if read.previous is None else PromptChanges.of(read.previous, receipt).kept
    turns = turns_of(receipt, read.messages, kept, blocks.start, blocks.start + _BLOCKS)
    return await view.render_long(
        "prompt.html", **read.values, turns=turns, blocks=blocks, answer=await _answer(view, receipt), tab="prompt"
    )


async def _answer(view: PageView, receipt: ReceiptShown) -> PromptAnswer | None:
    """Return what the agent said next, from the events of its window behind those that the receipt knows."""
    known = sum(each.kind == "event" for each in receipt.candidates)
    try:
        read = await view.call(
            "window.events",
            session_id=receipt.session_id,
            agent_id=receipt.agent_id,
            offset=max(0, known - _NEXT_EVENTS // 2),
            limit=_NEXT_EVENTS,
        )
    except WeftlineError:
        return None
    return answer_in(read.events, receipt.created_at)


async def inspector(view: PageView) -> Response:
    read = await _read(view, candidates=True)
    receipt = read.receipt
    judged = judged_candidates(receipt)
    chosen = [
        each
        for each in judged
        if view.query("outcome") in {None, each.outcome} and view.query("kind") in {None, each.kind}
    ]
    arranged = view.arranged(chosen, "ref", "kind", "tokens", "score", "outcome", "use")
    texts = block_texts(read.messages)
    turns = turns_of(receipt, read.messages, 0, 0, len(receipt.blocks))
    return await view.render_long(
        "inspector.html",
        **read.values,
        bar=prompt_bar(receipt),
        kinds=kind_totals(receipt),
        costs=cost_bars(receipt),
        limits=limits_of(receipt),
        budgets=budget_rows(receipt),
        layers=signed_layers(receipt, texts),
        texts=texts,
        speakers={each.block.block_id: each.speaker for each in turns},
        item_texts=item_texts(turns),
        blocks=view.page_of(receipt.blocks, _BLOCKS, "blocks"),
        candidates=view.page_of(arranged, _CANDIDATES),
        outcomes=outcomes_of(judged),
        candidate_kinds=Counter(each.kind for each in judged),
        changes=None if read.previous is None else PromptChanges.of(read.previous, receipt),
        previous=read.previous,
        tab="receipt",
    )


async def replayed(view: PageView) -> Response:
    receipt_id = view.part("receipt_id")
    receipt = await view.call("receipt.show", receipt_id=receipt_id, candidates=False)
    purposes = await purposes_of(view, [receipt.session_id])
    body = await view.call("receipt.replay", receipt_id=receipt_id, form=view.query("form"))
    return await view.render_long(
        "replay.html",
        receipt=receipt,
        purpose=purposes.get(receipt.session_id),
        prompt=body,
        forms=PROMPT_FORMS,
        same=body.prompt_hash == receipt.prompt_hash,
        tab="raw",
    )


async def compared(view: PageView) -> Response:
    """Show which blocks changed since the previous prompt of the agent, with their texts."""
    read = await _read(view)
    changes = PromptChanges.of(read.previous, read.receipt)
    blocks = view.page_of(changes.blocks, _BLOCKS)
    before = {} if read.previous is None else await _messages_of(read.previous, await _replayed(view, read.previous))
    texts = _readable(before), _readable(read.messages)
    diffs = await compared_blocks([each for each in blocks.rows if each.change == "changed"], *texts)
    return await view.render_long(
        "prompt_changes.html",
        **read.values,
        previous=read.previous,
        changes=changes,
        blocks=blocks,
        diffs=diffs,
        before=texts[0],
        after=texts[1],
        speakers={each.block.block_id: speaker_of(each.block, {**before, **read.messages}) for each in blocks.rows},
        tab="changes",
    )


def _readable(found: Mapping[str, Messages]) -> dict[str, str]:
    return {block_id: readable(text) for block_id, text in block_texts(found).items()}


async def tried(view: PageView) -> Response:
    """Plan the prompt again with the settings of the query, and compare it with the one that was sent."""
    read = await _read(view, with_previous=False)
    receipt = read.receipt
    names = ("token_budget", "min_score", "model")
    settings = {name: text for name in names if (text := view.query(name)) is not None}
    call, problem = None, None
    if settings:
        asked = {"agent_id": receipt.agent_id, "receipt_id": receipt.receipt_id, "calls": _TRIED_CALLS}
        try:
            call = next(iter((await view.call("advise.try", settings=settings, **asked)).tried), None)
        except WeftlineError as error:
            problem = error
    turns = turns_of(receipt, read.messages, 0, 0, len(receipt.blocks))
    return await view.render_long(
        "prompt_try.html",
        **read.values,
        settings=settings,
        call=call,
        problem=problem,
        items=[] if call is None else tried_items(turns, call.removed, call.gained),
        tab="try",
    )


class _ReadPrompt(NamedTuple):
    """A receipt with the messages of its prompt by block, or why they cannot be shown."""

    receipt: ReceiptShown
    replay: PromptReplayed | WeftlineError
    messages: Mapping[str, Messages]
    previous: ReceiptShown | None
    purpose: str | None

    @property
    def values(self) -> dict[str, Any]:
        refused = self.replay if isinstance(self.replay, WeftlineError) else None
        return {"receipt": self.receipt, "refused": refused, "purpose": self.purpose}


async def _read(view: PageView, *, candidates: bool = False, with_previous: bool = True) -> _ReadPrompt:
    receipt: ReceiptShown = await view.call("receipt.show", receipt_id=view.part("receipt_id"), candidates=candidates)
    replay = await _replayed(view, receipt)
    previous = await _previous(view, receipt.previous_id) if with_previous else None
    purposes = await purposes_of(view, [receipt.session_id])
    messages = await _messages_of(receipt, replay)
    return _ReadPrompt(receipt, replay, messages, previous, purposes.get(receipt.session_id))


async def _messages_of(receipt: ReceiptShown, replay: PromptReplayed | WeftlineError) -> dict[str, Messages]:
    messages = [] if isinstance(replay, WeftlineError) else replay.body["messages"]
    # Prompts can be long, and each of their messages is hashed.
    return await TEXT_THREADS.run(block_messages, receipt.blocks, messages)


async def _replayed(view: PageView, receipt: ReceiptShown) -> PromptReplayed | WeftlineError:
    """Return the prompt, or why it cannot be shown; the receipt is shown in both cases."""
    try:
        body: PromptReplayed = await view.call("receipt.replay", receipt_id=receipt.receipt_id)
    except WeftlineError as error:
        return error
    return body


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
    Page("/prompts/{receipt_id}", prompt, "receipt.replay"),
    Page("/prompts/{receipt_id}/receipt", inspector, "receipt.show"),
    Page("/prompts/{receipt_id}/changes", compared, "receipt.show"),
    Page("/prompts/{receipt_id}/try", tried, "advise.try"),
    Page("/prompts/{receipt_id}/replay", replayed, "receipt.replay"),
)
