"""Threat: an agent whose connection is bound to one session reads or changes another one of its sessions.

Every operation and resource is called on a bound connection, by callers who are members of both sessions, with every id
that the other session has. Secrets are planted in all of its parts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from test_bad_input import OPERATIONS, VALID

from support.approvals import Asking, approval_of
from support.compactions import apply_view, summary_of
from support.world import SESSION, Caller, outcome, refused
from weftline.app.dispatch import CallContext, works_in_session
from weftline.jobs.session_indexing import INDEX
from weftline.kernel.errors import WeftlineError
from weftline.kernel.identity import HoldReason
from weftline.kernel.operation import Audience, SessionUse
from weftline.safety.approvals.model import HeldCall
from weftline.safety.approvals.sql import ApprovalStore
from weftline.storage.sql.database import Scope
from weftline.transports.resources import TEMPLATES, parse_uri, read_resource
from weftline.windows.compaction.model import CompactedView

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from support.world import World
    from weftline.settings import Settings

pytestmark = [pytest.mark.req("WX-05"), pytest.mark.req("CE-V", part="isolation")]
OTHER = "hidden_room"
CANARY = "canary"
LINE_FIELDS = ("context_id", "from_context_id", "other_context_id")


class Undone(Exception):
    """Carries the result of a transaction that is rolled back."""

    def __init__(self, result: object) -> None:
        self.result = result


@dataclass
class Planted:
    """The other session: ids of what it has, by request field; and what calls tried to change in it."""

    ids: dict[str, list[str]] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)
    callers: dict[str, Caller] = field(default_factory=dict)


@pytest.fixture
async def planted(world: World, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Planted:
    del settings
    admin, dana = world.admin, await world.admin.create_agent("dana", kind="human", clearance=5)
    await admin.call("agent.update", agent_id="dana", permissions=["read", "write"])
    await world.planner.call(
        "session.create", session_id=OTHER, purpose=f"{CANARY} purpose", members=["tree:planner", "dana"]
    )
    await world.planner.admit("dana")
    other = world.planner.in_session(OTHER)
    for each in (world.planner, other):
        await each.write("goal", "ship" if each is world.planner else f"{CANARY} value")
        await each.snapshot("mark")
    await other.write(f"{CANARY}_key", "x")
    await other.snapshot(f"{CANARY}_label")
    await other.call("history.snapshot", context_id=f"board:{OTHER}", label=f"{CANARY}_tag")
    review_id = await opened_review(other)
    await other.say(f"{CANARY} message", metadata={"about": CANARY})
    await other.say(f"{CANARY} to you", recipient_id="analysis")
    for caller in (world.planner, world.analysis, admin, dana):
        await caller.remember(f"{CANARY}_memory", f"{CANARY} remembered", session_id=OTHER)
        await caller.remember("note", "of no session")
    await other.call("context.ingest", session_id=OTHER, events=[{"event_id": "e1", "content": f"{CANARY} event"}])
    await other.call("window.checkpoint", session_id=OTHER, label=f"{CANARY}_point")
    compaction_id = await apply_view(
        world, CompactedView(summaries=(summary_of(["e1"], f"{CANARY} summary"),)), agent="planner", session=OTHER
    )
    gap = await other.call("missing.report", session_id=OTHER, question=f"Which {CANARY}?")
    prompt = await other.call("context.assemble", session_id=OTHER, task_description=f"Ask the {CANARY}.")
    await world.app.database.write(Scope(world.tenant), lambda tx: ApprovalStore(tx).add(held_elsewhere()))
    await admin.call("webhook.create", url="https://receiver.invalid/hook", session_id=OTHER)
    await world.index_sessions()
    found = Planted(
        {
            "session_id": [OTHER],
            **{name: [f"board:{OTHER}", f"board:{OTHER}@try"] for name in LINE_FIELDS},
            "review_id": [review_id],
            "compaction_id": [compaction_id],
            "missing_id": [gap["missing_id"]],
            "receipt_id": [prompt["receipt_id"]],
            "approval_id": ["approval_elsewhere"],
            "record_id": [f"board:{OTHER}/goal/1.1", gap["missing_id"]],
            "item_id": [f"board:{OTHER}/goal/1.1"],
            "item": [f"board:{OTHER}/goal"],
            "source_id": [f"board:{OTHER}/goal/1.1"],
            "ref": [f"board:{OTHER}/goal", f"message:{OTHER}/1"],
        },
        callers={"planner": world.planner, "analysis": world.analysis, "admin": admin, "dana": dana},
    )
    found.ids["context_id"] += [f"window:{OTHER}:planner", f"memory:planner:{OTHER}"]
    undo_writes(world, found, monkeypatch)
    return found


def held_elsewhere() -> HeldCall:
    return HeldCall(
        approval_id="approval_elsewhere",
        caller_id="planner",
        caller="orchestrator:planner",
        session_id=OTHER,
        operation="board.write",
        request=f'{{"session_id":"{OTHER}","key":"goal","value":"{CANARY} held"}}',
        digest=b"x" * 32,
        hold="approval",
        reason=HoldReason(check="x", text=f"{CANARY} reason"),
        created_at=0,
        expires_at=4 * 10**15,
        due_at=4 * 10**15,
    )


def undo_writes(world: World, planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Roll back every write after it was made, and note what it changed in the other session."""
    write = world.app.database.write

    async def write_and_undo(scope: Any, work: Callable[[Any], Awaitable[Any]]) -> Any:
        async def undo(tx: Any) -> None:
            result = await work(tx)
            planted.changes += [event.type for event in tx.published if OTHER in (event.session_id, event.subject)]
            raise Undone(result)

        try:
            await write(scope, undo)
        except Undone as undone:
            return undone.result

    monkeypatch.setattr(world.app.database, "write", write_and_undo)


def requests(name: str, planted: Planted) -> Iterator[dict[str, Any]]:
    """Return a request of an operation that names no session, and for each id of the other session one with it."""
    valid = {key: value for key, value in VALID[name].items() if value != SESSION}
    valid = {key: "board" if value == f"board:{SESSION}" else value for key, value in valid.items()}
    yield valid
    if name == "events.read":
        valid = {"after": 0}
        yield valid
    fields = OPERATIONS[name].request.__struct_fields__
    for named in planted.ids.keys() & set(fields):
        yield from ({**valid, named: each} for each in planted.ids[named])
    if "session_id" in fields:
        yield {**valid, "session_id": "all"}


async def answer(caller: Caller, name: str, raw: dict[str, Any], session_id: str | None = SESSION) -> str:
    """Return what a caller is told on a connection that is bound to a session."""
    context = CallContext(caller.credential, session_id=session_id)
    try:
        response = await caller.app.call(OPERATIONS[name], raw, context)
    except WeftlineError as error:
        if error.code == "INTERNAL_ERROR":
            raise
        return msgspec.json.encode([error.message, error.hint, error.context], enc_hook=str).decode()
    return msgspec.json.encode(response).decode()


def test_every_operation_says_how_it_uses_sessions() -> None:
    undeclared = []
    for operation in OPERATIONS.values():
        try:
            assert operation.session is not None
        except LookupError:
            undeclared.append(operation.name)
    assert undeclared == []


def test_operations_that_use_no_session_name_none() -> None:
    """Fields that can name something in a session belong to operations that say so."""
    naming = {"session_id", "context_id", "from_context_id", "other_context_id", "review_id", "receipt_id"}
    naming |= {"compaction_id", "missing_id", "record_id", "approval_id", "alert_id"}
    wrong = [
        operation.name
        for operation in OPERATIONS.values()
        if operation.session is SessionUse.NONE and naming & set(operation.request.__struct_fields__)
    ]
    assert wrong == []


@pytest.mark.parametrize("group", sorted({operation.group for operation in OPERATIONS.values()}))
async def test_no_operation_reaches_another_session(world: World, planted: Planted, group: str) -> None:
    del world
    seen = []
    for name in (each.name for each in OPERATIONS.values() if each.group == group):
        for raw in requests(name, planted):
            for who, caller in planted.callers.items():
                told = await answer(caller, name, raw)
                named = CANARY in str(raw) or OTHER in str(raw)
                if (CANARY in told and CANARY not in str(raw)) or (OTHER in told and not named):
                    seen.append((name, who, raw, told[:600]))
    assert seen == []
    assert planted.changes == []


async def test_the_canaries_are_seen_without_a_binding(world: World, planted: Planted) -> None:
    """What the walk looks for is there: the same callers see it on connections that are not bound."""
    del world
    seen = set()
    for name, operation in OPERATIONS.items():
        for raw in requests(name, planted) if operation.audience is not Audience.ANONYMOUS else ():
            for caller in planted.callers.values():
                if CANARY in await answer(caller, name, raw, session_id=None):
                    seen.add(name)
    assert {
        *("session.list", "history.reviews", "history.review", "history.snapshots", "history.context_snapshots"),
        *("memory.list", "memory.overview", "memory.inspect", "approval.list", "approval.show", "compaction.show"),
        *("receipt.show", "board.read", "message.list", "records.show", "search.query", "message.inbox"),
        *("window.events", "missing.list", "bundle.export", "session.get", "history.state", "events.read"),
    } <= seen


async def test_no_resource_shows_another_session(world: World, planted: Planted) -> None:
    del planted
    for caller, principal_id in ((world.planner, "planner"), (world.analysis, "analysis"), (world.admin, "admin")):
        context = CallContext(caller.credential, session_id=SESSION)
        shown = await read_resource(world.app, parse_uri(f"agent://{principal_id}/memory"), context)
        assert b"of no session" in shown
        assert CANARY.encode() not in shown
        assert CANARY.encode() not in await read_resource(world.app, parse_uri("inbox://me"), context)
        for template in TEMPLATES:
            if "{session_id}" not in template.uri:
                continue
            uri = template.uri.format(session_id=OTHER, key="goal")
            with refused("SESSION_NOT_FOUND") as caught:
                await read_resource(world.app, parse_uri(uri), context)
            assert caught.value.context["uri"] == uri
    with refused("BOUND_TO_SESSION"):
        context = CallContext(world.admin.credential, session_id=SESSION)
        await read_resource(world.app, parse_uri("performance://metrics"), context)


async def test_a_bound_connection_is_not_offered_what_it_is_refused(world: World) -> None:
    bound = await world.app.identify(CallContext(world.admin.credential, session_id=SESSION))
    listed = {view.name for view in world.app.toolbox.listed(bound, "full", in_session=True)}
    assert "list_sessions" in listed
    assert listed.isdisjoint({"create_session", "import_context", "webhooks", "get_audit_log", "trust"})


async def test_a_refusal_is_on_the_audit_log(world: World) -> None:
    context = CallContext(world.planner.credential, session_id=SESSION)
    await world.planner.create_session(OTHER)
    with refused("SESSION_NOT_FOUND"):
        await world.app.call(OPERATIONS["board.read"], {"session_id": OTHER, "key": "goal"}, context)
    with refused("BOUND_TO_SESSION"):
        await world.app.call(OPERATIONS["session.create"], {"purpose": "x"}, context)
    rows = await world.admin.audit(outcome="denied")
    assert {"board.read", "session.create"} <= {row["action"] for row in rows}


async def test_the_session_is_filled_in(world: World) -> None:
    context = CallContext(world.planner.credential, session_id=SESSION)
    assert works_in_session(OPERATIONS["board.write"])
    await world.app.call(OPERATIONS["board.write"], {"key": "goal", "value": "ship"}, context)
    log = await world.app.call(OPERATIONS["history.log"], {"context_id": "board"}, context)
    assert log.context_id == f"board:{SESSION}"
    (listed,) = (await world.app.call(OPERATIONS["session.list"], {}, context)).sessions
    assert listed.id == SESSION


async def test_a_held_call_stays_in_the_session_of_its_connection(world: World) -> None:
    """A call that names an id of another session is performed as it was made: bound."""
    world.app.held_calls._wait_seconds = 0
    world.app.guards.install(Asking("history.close_review"))
    approver = await world.admin.create_agent("approver", kind="human", clearance=3, permissions=["read", "write"])
    other = await world.planner.create_session(OTHER)
    review_id = await opened_review(other)
    raw, bound = {"review_id": review_id}, CallContext(world.planner.credential, session_id=SESSION)
    with refused("APPROVAL_PENDING"):
        await world.app.call(OPERATIONS["history.close_review"], raw, bound)
    decided = await approver.call("approval.approve", approval_id=await approval_of(approver))
    assert decided["failed_with"]["code"] == "REVIEW_NOT_FOUND"
    with refused("APPROVAL_PENDING") as unbound:
        await other.call("history.close_review", review_id=review_id)
    approval_id = unbound.value.context["approval_id"]
    assert (await approver.call("approval.approve", approval_id=approval_id))["state"] == "performed"
    with refused("REVIEW_NOT_FOUND"):
        await world.app.call(OPERATIONS["history.close_review"], raw, bound)


async def opened_review(caller: Caller) -> str:
    """Merge a branch with a conflict, and return the review of it."""
    line_id = f"board:{caller.session}"
    await caller.write("goal", "base")
    await caller.call("history.branch", context_id=line_id, branch="try")
    await caller.write("goal", f"{CANARY} theirs", branch="try")
    await caller.write("goal", f"{CANARY} ours", branch="main")
    merged = await caller.call("history.merge", context_id=line_id, from_context_id=f"{line_id}@try")
    return merged["review_id"]


async def test_a_sub_agent_lists_nothing_of_a_session_that_it_does_not_name(world: World) -> None:
    """It is a member of all sessions of its orchestrator, and works in those that it was given."""
    other = await world.planner.create_session(OTHER)
    review_id = await opened_review(other)
    await other.snapshot(f"{CANARY}_label")
    for name in ("history.reviews", "history.snapshots"):
        told = await world.analysis.call(name)
        assert OTHER not in str(told)
        assert OTHER in str(await world.planner.call(name))
        assert OTHER in str(await world.analysis.call(name, context_id=f"board:{OTHER}"))
    assert (await world.analysis.call("history.review", review_id=review_id))["review_id"] == review_id
    await other.write("plan", f"{CANARY} of another session")
    await world.app.scheduler.drain(INDEX)
    assert OTHER in str(await world.planner.call("search.query", query=CANARY))
    assert OTHER not in str(await world.analysis.call("search.query", query=CANARY))
    assert (await world.analysis.call("search.query", query=CANARY, session_id=OTHER))["results"]
    denied = world.analysis.call("search.query", query=CANARY, sources=["board"])
    assert await outcome(denied) == "PERMISSION_DENIED"
    in_session = CallContext(world.analysis.credential, session_id=OTHER)
    assert len((await world.app.call(OPERATIONS["history.reviews"], {}, in_session)).reviews) == 1
