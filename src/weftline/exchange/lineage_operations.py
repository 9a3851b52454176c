"""Operations trust.trace and trust.forget."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import structs

from weftline.exchange.lineage import (
    REMOVALS,
    Derived,
    Done,
    Erased,
    ForgottenItem,
    ItemNotFound,
    Reference,
    SourceRemoval,
    Trace,
    TracedItem,
    Tracer,
    no_item,
    removal_calls,
)
from weftline.history.line_kinds import check_may_forget
from weftline.kernel.clock import optional_datetime
from weftline.kernel.errors import PermissionDenied
from weftline.kernel.fields import ShortText
from weftline.kernel.guards import CheckedCalls, ImpliedCall
from weftline.kernel.identity import Actor, Permission
from weftline.kernel.operation import Audience, Effect, RateClass, Request, Response, SessionUse, operation
from weftline.kernel.ports import Transactions
from weftline.safety.guardrails.guard import GuardrailGuard
from weftline.safety.trust.gate import GATE_ERRORS

# Operations trust.trace and trust.forget.

_MAX_ITEMS = 1_000

Steps = Annotated[int, msgspec.Meta(ge=1, le=20, description="Follow derivations this many steps.")]


class TraceItem(Request):
    """The item to trace, and how far."""

    item: Reference
    steps: Steps = 5
    possible: Annotated[bool, msgspec.Meta(description="Also what was written after a prompt that contained it.")] = (
        True
    )
    limit: Annotated[int, msgspec.Meta(ge=1, le=_MAX_ITEMS, description="Maximum items.")] = 100


class DerivedItem(Response):
    """A derived item.

    ``how``: declared (it names ``via``), copy (it has the content of ``via``) or possible (its author wrote it after
    the prompt ``via``, before the next one).
    """

    item: str
    how: Derived
    via: str
    steps: int
    at: datetime | None
    version: str = ""


class ItemTraced(Response, omit_defaults=False):
    """What was derived from an item, of what you may read; ``complete`` is false if a limit was reached.

    ``hidden``: further items that you may not read; only admins are told.
    """

    item: str
    derived: list[DerivedItem]
    prompts: int
    complete: bool
    hidden: int | None


class ForgetItem(Request):
    """The source to forget, and what to do with what was derived from it."""

    item: Reference
    reason: Annotated[ShortText, msgspec.Meta(min_length=1, description="Why. Recorded in history and audit log.")]
    mode: Annotated[
        Literal["delete", "flag"],
        msgspec.Meta(description="delete: the source, its copies and what declares it; flag: label them suspicious."),
    ] = "delete"
    possible: Annotated[
        Literal["flag", "keep"],
        msgspec.Meta(description="What was written after a prompt with the source in it: label it suspicious or not."),
    ] = "flag"
    erase: Annotated[
        bool,
        msgspec.Meta(description="With delete: also remove the text from old versions, stored prompts and records."),
    ] = True
    steps: Steps = 5
    dry_run: Annotated[bool, msgspec.Meta(description="Only show what would be done.")] = True


class ForgottenEntry(Response):
    """What was done with an item, or would be; ``problem``: why it was not."""

    item: str
    how: Derived
    done: Done
    problem: str | None = None


class ItemForgotten(Response, omit_defaults=False):
    """What was done, or in a dry run would be done.

    ``complete`` is false if a limit ended the search: call again. ``hidden`` items, which you may not read, are
    included in what is done. ``versions`` and ``prompts``: old versions and blocks of prompts whose text was removed.
    """

    on_record = ("deleted", "flagged", "skipped", "dry_run")

    item: str
    dry_run: bool
    items: list[ForgottenEntry]
    hidden: int
    deleted: int
    flagged: int
    skipped: int
    versions: int
    prompts: int
    complete: bool


@operation(
    "trust.trace",
    tool="trust",
    action="trace",
    http="GET /v1/trust/trace",
    permission=Permission.READ,
    rate=RateClass.SEARCH,
    effect=Effect.READ,
    heavy=True,
    errors=(ItemNotFound,),
    session=SessionUse.OUTSIDE,
)
async def trace_item(request: TraceItem, tracer: Tracer) -> ItemTraced:
    """Show what was derived from an item, such as a poisoned document: by declaration, by copy, through prompts.

    Admins trace through the prompts of all agents, others through their own.
    """
    trace = await tracer.trace(request.item, request.steps, request.limit)
    await _check_readable(trace, tracer, request.item)
    derived = [item for item in _derived(trace) if request.possible or item.is_certain]
    shown = await tracer.readable(derived)
    return ItemTraced(
        item=request.item,
        derived=[
            DerivedItem(
                item=each.item,
                how=each.how,
                via=each.via,
                steps=each.steps,
                at=optional_datetime(each.at or None),
                version=each.version,
            )
            for each in shown
        ],
        prompts=len(trace.receipts),
        complete=trace.complete,
        hidden=len(derived) - len(shown) if tracer.actor.is_admin else None,
    )


async def check_rules(
    request: ForgetItem, actor: Actor, transactions: Transactions[Tracer], implied: GuardrailGuard
) -> CheckedCalls:
    """Refuse or hold a removal that deletes what the caller may not delete by itself; return what was checked."""
    if request.dry_run or request.mode == "flag" or not await implied.check(actor, (), REMOVALS):
        return CheckedCalls()

    async def trace(tracer: Tracer) -> Trace:
        return await tracer.trace(request.item, request.steps, _MAX_ITEMS)

    calls = _removals(await transactions.read(actor, trace, heavy=True))
    await implied.check(actor, calls, REMOVALS)
    return CheckedCalls.of(calls)


def _removals(trace: Trace) -> list[ImpliedCall]:
    certain = (item.item for item in trace.items.values() if item.is_certain and not item.is_summary)
    return [call for item in certain for call in removal_calls(item)]


@operation(
    "trust.forget",
    prepare=check_rules,
    tool="trust",
    action="forget",
    http="POST /v1/trust/forget",
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    destructive=True,
    requires=check_may_forget,
    errors=(ItemNotFound, PermissionDenied, *GATE_ERRORS),
    session=SessionUse.OUTSIDE,
)
async def forget_item(
    request: ForgetItem, tracer: Tracer, removal: SourceRemoval, *, checked: CheckedCalls
) -> ItemForgotten:
    """Delete or flag a source and everything derived from it. By default a dry run, which only shows what to do.

    Needs clearance 4. What was surely derived is deleted or flagged as the source is; what may have been is flagged.
    """
    trace = await tracer.trace(request.item, request.steps, _MAX_ITEMS)
    checked.confirm(_removals(trace))
    reason = await removal.gate.admit_note("reason", request.reason) or request.reason
    request = structs.replace(request, reason=reason)
    certain = [item for item in trace.items.values() if item.is_certain]
    possible = [item for item in trace.items.values() if not item.is_certain]
    shown = {item.item for item in await tracer.readable(list(trace.items.values()))}
    if request.dry_run:
        done = _planned(request, certain, possible)
    else:
        done = await _done(request, certain, possible, removal)
    erased = Erased()
    if request.mode == "delete" and request.erase and not request.dry_run:
        erased = await removal.erase(certain, trace, request.reason)
    return ItemForgotten(
        item=request.item,
        dry_run=request.dry_run,
        items=[
            ForgottenEntry(item=each.item.item, how=each.item.how, done=each.done, problem=each.problem)
            for each in done
            # The source itself was named by the caller; it may be gone now.
            if each.item.item in shown or each.item.how == "source"
        ],
        hidden=sum(each.item.item not in shown and each.item.how != "source" for each in done),
        **{word: sum(each.done == word for each in done) for word in ("deleted", "flagged", "skipped")},
        versions=erased.versions,
        prompts=erased.prompts,
        complete=trace.complete,
    )


async def _done(
    request: ForgetItem, certain: list[TracedItem], possible: list[TracedItem], removal: SourceRemoval
) -> list[ForgottenItem]:
    if request.mode == "delete":
        done = await removal.delete(certain, request.reason)
    else:
        done = await removal.flag(certain, request.item, request.reason)
    if request.possible == "flag":
        return done + await removal.flag(possible, request.item, request.reason)
    return done + [ForgottenItem(item, "kept") for item in possible]


def _planned(request: ForgetItem, certain: list[TracedItem], possible: list[TracedItem]) -> list[ForgottenItem]:
    first: Done = "deleted" if request.mode == "delete" else "flagged"
    then: Done = "flagged" if request.possible == "flag" else "kept"
    return [*(ForgottenItem(item, first) for item in certain), *(ForgottenItem(item, then) for item in possible)]


async def _check_readable(trace: Trace, tracer: Tracer, reference: str) -> None:
    """Raise ItemNotFound if the caller may not read the traced item itself."""
    source = [item for item in trace.items.values() if item.how == "source"]
    if not await tracer.readable(source):
        raise no_item(reference)


def _derived(trace: Trace) -> list[TracedItem]:
    found = [item for item in trace.items.values() if item.how != "source"]
    return sorted(found, key=lambda item: (item.steps, not item.is_certain, item.at, item.item))
