"""A held call is performed once, when a human approves it, as its caller; its caller gets the answer."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from support.approvals import CHECK, QUESTION, Asking, Suspicious, approval_of, pending
from support.jobs import pause_jobs
from support.world import SESSION, outcome, refused
from weftline.app.approved_calls import ADVANCE
from weftline.app.dispatch import CallContext
from weftline.app.held_calls import MAX_WAITING_OF_TENANT
from weftline.kernel.guards import Guard
from weftline.safety.approvals import model, service

if TYPE_CHECKING:
    from support.world import Caller, World
    from weftline.kernel.guards import GuardedCall
    from weftline.settings import Settings

TIMEOUT = 60


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, approval_wait_seconds=TIMEOUT)


@pytest.fixture(autouse=True)
def _advances_when_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    pause_jobs(monkeypatch, ADVANCE)


@pytest.fixture
async def rule(world: World) -> Asking:
    """A rule that asks before a key of the board is deleted; the board has a key."""
    asking = Asking()
    world.app.guards.install(asking)
    await world.planner.write("goal")
    return asking


@pytest.fixture
async def approver(world: World) -> Caller:
    return await world.admin.create_agent("approver", kind="human", clearance=3, permissions=["read", "write"])


async def advance(world: World, seconds: float = 0) -> None:
    """Let time pass, and run the job that expires and takes over."""
    world.clock.advance(seconds=seconds)
    await world.app.scheduler.drain(ADVANCE)


def answer_at_once(world: World) -> None:
    world.app.held_calls._wait_seconds = 0


async def hold_delete(world: World, caller: Caller | None = None) -> str:
    """Make a call that is held without waiting, and return its approval."""
    answer_at_once(world)
    with refused("APPROVAL_PENDING") as caught:
        await (caller or world.planner).delete("goal")
    return caught.value.context["approval_id"]


async def test_a_waiting_caller_gets_the_answer_of_its_approved_call(
    world: World, rule: Asking, approver: Caller
) -> None:
    waiting = asyncio.create_task(world.planner.delete("goal"))
    [held] = await pending(approver)
    assert held["operation"] == "board.delete"
    assert held["agent_id"] == "planner"
    assert held["check"] == CHECK
    assert held["reason"] == QUESTION
    assert "request" not in held
    assert await world.planner.keys() == ["goal"]
    decided = await approver.call("approval.approve", approval_id=held["approval_id"], reason="it is outdated")
    assert decided["state"] == "performed"
    answer = await asyncio.wait_for(waiting, TIMEOUT)
    assert answer["deleted"] == "goal"
    assert await world.planner.keys() == []
    assert [approval.approved_by for approval in rule.approvals if approval] == ["human:approver"]
    assert world.app.held_calls.decisions.count == 0


async def test_a_caller_in_another_process_gets_the_answer(world: World, rule: Asking, approver: Caller) -> None:
    del rule
    elsewhere = await world.another_app()
    elsewhere.guards.install(Asking())
    waiting = asyncio.create_task(world.planner.at(elsewhere).delete("goal"))
    await approver.call("approval.approve", approval_id=await approval_of(approver))
    assert (await asyncio.wait_for(waiting, TIMEOUT))["deleted"] == "goal"


@pytest.mark.usefixtures("rule")
async def test_a_rejected_call_is_never_performed(world: World, approver: Caller) -> None:
    waiting = asyncio.create_task(world.planner.delete("goal"))
    refusal = await approver.call("approval.reject", approval_id=await approval_of(approver), reason="still needed")
    assert refusal["state"] == "rejected"
    with refused("APPROVAL_REJECTED") as caught:
        await asyncio.wait_for(waiting, TIMEOUT)
    assert caught.value.message == "human:approver rejected this call: still needed"
    with refused("APPROVAL_REJECTED"):
        await world.planner.delete("goal")
    assert await world.planner.keys() == ["goal"]
    world.clock.advance(seconds=86_400)
    answer_at_once(world)
    with refused("APPROVAL_PENDING"):
        await world.planner.delete("goal")


@pytest.mark.usefixtures("rule")
async def test_an_identical_retry_shares_the_approval_and_gets_the_answer_once(world: World, approver: Caller) -> None:
    approval_id = await hold_delete(world)
    assert await hold_delete(world) == approval_id
    with refused("APPROVAL_PENDING") as caught:
        await world.review.call("board.delete", session_id=SESSION, key="goal")
    assert caught.value.context["approval_id"] != approval_id
    await approver.call("approval.approve", approval_id=approval_id)
    first = await world.planner.delete("goal")
    assert await world.planner.delete("goal") == first
    shown = await world.planner.call("approval.show", approval_id=approval_id)
    assert shown["answer"] == first
    world.clock.advance(seconds=61)
    with refused("APPROVAL_PENDING") as caught:
        await world.planner.delete("goal")
    assert caught.value.context["approval_id"] != approval_id


@pytest.mark.usefixtures("rule")
async def test_the_answer_of_a_failed_call_is_its_error(world: World, approver: Caller) -> None:
    answer_at_once(world)
    with refused("APPROVAL_PENDING"):
        await world.planner.delete("missing")
    decided = await approver.call("approval.approve", approval_id=await approval_of(approver))
    assert decided["failed_with"]["code"] == "KEY_NOT_FOUND"
    with refused("KEY_NOT_FOUND") as caught:
        await world.planner.delete("missing")
    assert caught.value.http_status == 404
    assert "missing" in caught.value.message


@pytest.mark.usefixtures("rule")
async def test_a_call_is_performed_with_the_rights_of_its_caller_at_that_time(world: World, approver: Caller) -> None:
    approval_id = await hold_delete(world)
    await world.admin.call("agent.update", agent_id="planner", permissions=["read"])
    decided = await approver.call("approval.approve", approval_id=approval_id)
    assert decided["failed_with"]["code"] == "PERMISSION_DENIED"
    assert await world.admin.keys() == ["goal"]


@pytest.mark.usefixtures("rule")
async def test_a_call_with_a_narrow_token_is_not_performed_with_more(world: World, approver: Caller) -> None:
    token = await world.admin.with_token("admin", requested_permissions=["read", "write"])
    world.app.guards.install(Asking("agent.create", "board.write", checks=("rule:more",)))
    answer_at_once(world)
    with refused("APPROVAL_PENDING") as caught:
        await token.write("goal", "new")
    approval_id = caught.value.context["approval_id"]
    await world.sql("UPDATE approvals SET operation = 'agent.create', request = $1", b'{"agent_id":"spy"}')
    decided = await approver.call("approval.approve", approval_id=approval_id)
    assert decided["failed_with"]["code"] == "PERMISSION_DENIED"


@pytest.mark.usefixtures("rule")
async def test_a_call_with_a_revoked_token_is_not_performed(world: World, approver: Caller) -> None:
    token = await world.planner.with_token("planner", "planning")
    approval_id = await hold_delete(world, token)
    await token.call("token.revoke")
    decided = await approver.call("approval.approve", approval_id=approval_id)
    assert decided["failed_with"]["code"] == "AUTHENTICATION_ERROR"
    assert await world.planner.keys() == ["goal"]


@pytest.mark.usefixtures("rule")
async def test_a_call_with_a_revoked_key_is_not_performed(world: World, approver: Caller) -> None:
    made = await world.admin.call("key.create", agent_id="planner")
    approval_id = await hold_delete(world, world.planner.with_credential(made["api_key"]))
    await world.admin.call("key.revoke", key_id=made["key_id"])
    decided = await approver.call("approval.approve", approval_id=approval_id)
    assert decided["failed_with"]["code"] == "AUTHENTICATION_ERROR"
    assert await world.planner.keys() == ["goal"]


async def test_calls_inside_and_outside_of_a_step_share_no_approval(world: World, approver: Caller) -> None:
    """Otherwise a caller in a step would get the answer of a call outside of it: a key that is bound to no step."""
    await world.admin.call("step.define", name="review", tools=["create_api_key"])
    made = await world.admin.call("key.create", agent_id="planner", step="review")
    world.app.guards.install(Asking("key.create"))
    answer_at_once(world)
    with refused("APPROVAL_PENDING") as caught:
        await world.planner.call("key.create", agent_id="analysis")
    await approver.call("approval.approve", approval_id=caught.value.context["approval_id"])
    with refused("APPROVAL_PENDING"):
        await world.planner.with_credential(made["api_key"]).call("key.create", agent_id="analysis")
    assert (await world.planner.call("key.create", agent_id="analysis")).get("step") is None


@pytest.mark.usefixtures("rule")
async def test_the_call_of_a_disabled_agent_is_not_performed(world: World, approver: Caller) -> None:
    approval_id = await hold_delete(world)
    await world.admin.call("agent.update", agent_id="planner", disabled=True)
    decided = await approver.call("approval.approve", approval_id=approval_id)
    assert decided["failed_with"]["code"] == "AUTHENTICATION_ERROR"
    assert await world.admin.keys() == ["goal"]


async def test_an_approval_covers_only_the_check_that_held_the_call(world: World, approver: Caller) -> None:
    world.app.guards.install(Asking(checks=("rule:first", "rule:second")))
    await world.planner.write("goal")
    approval_id = await hold_delete(world)
    decided = await approver.call("approval.approve", approval_id=approval_id)
    assert decided["state"] == "pending"
    assert decided["reason"] == QUESTION
    [held] = await pending(approver)
    assert (held["approval_id"], held["check"]) == (approval_id, "rule:second")
    assert await world.planner.keys() == ["goal"]
    assert (await approver.call("approval.approve", approval_id=approval_id))["state"] == "performed"
    assert await world.planner.keys() == []


async def test_quarantine_answers_at_once_and_a_retry_gets_the_answer(world: World, approver: Caller) -> None:
    world.app.guards.install(Asking("board.write", error=Suspicious))
    with refused("TEST_SUSPICIOUS") as caught:
        await world.planner.write("notes", "meet at noon")
    approval_id = caught.value.context["approval_id"]
    assert await world.planner.keys() == []
    shown = await approver.call("approval.show", approval_id=approval_id)
    assert shown["request"]["value"] == "meet at noon"
    assert shown["details"] == {"excerpt": "suspicious words"}
    await approver.call("approval.approve", approval_id=approval_id)
    assert await world.planner.value("notes") == "meet at noon"
    assert (await world.planner.write("notes", "meet at noon"))["version"] == 1


@pytest.mark.usefixtures("rule")
async def test_nobody_decides_about_their_own_call_and_no_agent_decides(world: World, approver: Caller) -> None:
    answer_at_once(world)
    for caller in (world.admin, world.planner):
        with refused("APPROVAL_PENDING"):
            await caller.delete("goal")
    of_admin = (await world.admin.call("approval.list"))["approvals"]
    own = next(held["approval_id"] for held in of_admin if held["agent_id"] == "admin")
    for decision in ("approval.approve", "approval.reject"):
        with refused("PERMISSION_DENIED"):
            await world.admin.call(decision, approval_id=own)
        for agent in (world.planner, world.review):
            with refused("PERMISSION_DENIED"):
                await agent.call(decision, approval_id=own)
    assert (await approver.call("approval.approve", approval_id=own))["state"] == "performed"


@pytest.mark.usefixtures("rule")
async def test_held_calls_are_hidden_from_others(world: World) -> None:
    approval_id = await hold_delete(world)
    junior = await world.admin.create_agent("junior", kind="human", clearance=2, permissions=["read", "write"])
    boss = await world.admin.create_agent("boss", clearance=5, permissions=["read", "write", "admin"])
    for caller in (junior, world.review, boss, world.stranger):
        assert (await caller.call("approval.list"))["approvals"] == []
        with refused("APPROVAL_NOT_FOUND"):
            await caller.call("approval.show", approval_id=approval_id)
    for human in (junior, world.stranger):
        for decision in ("approval.approve", "approval.reject"):
            with refused("APPROVAL_NOT_FOUND"):
                await human.call(decision, approval_id=approval_id)
    [own] = (await world.planner.call("approval.list"))["approvals"]
    assert own["approval_id"] == approval_id
    shown = await world.planner.call("approval.show", approval_id=approval_id)
    assert "details" not in shown
    assert shown["request"]["key"] == "goal"


@pytest.mark.usefixtures("rule")
async def test_views_and_decisions_are_audited_without_values(world: World, approver: Caller) -> None:
    approval_id = await hold_delete(world)
    await world.planner.call("approval.show", approval_id=approval_id)
    await approver.call("approval.show", approval_id=approval_id)
    await approver.call("approval.approve", approval_id=approval_id)
    rows = [row for row in await world.admin.audit() if row["target"] == approval_id]
    assert [(row["action"], row["outcome"], row["actor"]) for row in reversed(rows)] == [
        ("board.delete", "held", "orchestrator:planner"),
        ("approval.show", "done", "human:approver"),
        ("approval.approve", "done", "human:approver"),
    ]
    assert await world.admin.audit(outcome="held") == [rows[-1]]
    assert "goal" not in str(rows)


async def test_an_audited_call_names_its_approval(world: World, approver: Caller) -> None:
    world.app.guards.install(Asking("agent.create"))
    answer_at_once(world)
    with refused("APPROVAL_PENDING"):
        await world.admin.call("agent.create", agent_id="new")
    approval_id = await approval_of(approver)
    await approver.call("approval.approve", approval_id=approval_id)
    row = next(row for row in await world.admin.audit() if row["action"] == "agent.create")
    assert row["actor"] == "human:admin"
    assert row["detail"]["approval"] == approval_id
    assert row["detail"]["approved_by"] == "human:approver"


@pytest.mark.usefixtures("rule")
async def test_events_are_for_approvers_and_the_caller(world: World, approver: Caller) -> None:
    start = await world.last_event()
    approval_id = await hold_delete(world)
    await approver.call("approval.approve", approval_id=approval_id)
    boss = await world.admin.create_agent("boss", clearance=5, permissions=["read", "admin"])
    junior = await world.admin.create_agent("junior", kind="human", clearance=2)

    async def seen(caller: Caller) -> list[tuple[str, Any]]:
        events = (await caller.events(after=start))["events"]
        return [
            (event["type"], event["data"].get("decision"))
            for event in events
            if event["type"].startswith("approval.") and event["subject"] == approval_id
        ]

    everything = [("approval.requested", None), ("approval.decided", "approved"), ("approval.performed", None)]
    assert await seen(approver) == await seen(world.admin) == await seen(world.planner) == everything
    for other in (boss, junior):
        assert await seen(other) == []


@pytest.mark.usefixtures("rule")
async def test_an_approval_expires(world: World, approver: Caller) -> None:
    approval_id = await hold_delete(world)
    world.clock.advance(seconds=86_401)
    with refused("APPROVAL_CLOSED") as caught:
        await approver.call("approval.approve", approval_id=approval_id)
    assert "expired" in caught.value.message
    await advance(world)
    assert (await approver.call("approval.show", approval_id=approval_id))["state"] == "expired"
    assert await hold_delete(world) != approval_id
    assert await world.planner.keys() == ["goal"]


@pytest.mark.usefixtures("rule")
async def test_a_waiting_caller_is_told_that_its_approval_expired(world: World, approver: Caller) -> None:
    waiting = asyncio.create_task(world.planner.delete("goal"))
    await pending(approver)
    await advance(world, 86_401)
    with refused("APPROVAL_EXPIRED"):
        await asyncio.wait_for(waiting, TIMEOUT)


@pytest.mark.parametrize("collected", [True, False])
async def test_answers_are_deleted_when_they_are_not_given_any_more(
    world: World, approver: Caller, *, collected: bool
) -> None:
    """The answer may hold a new API key."""
    world.app.guards.install(Asking("agent.create"))
    answer_at_once(world)
    with refused("APPROVAL_PENDING") as caught:
        await world.admin.call("agent.create", agent_id="new")
    approval_id = caught.value.context["approval_id"]
    await approver.call("approval.approve", approval_id=approval_id)
    await advance(world)
    if collected:
        assert (await world.admin.call("agent.create", agent_id="new"))["api_key"]
    await advance(world, 61 if collected else 86_401)
    rows = await world.rows("SELECT state, outcome FROM approvals WHERE tenant = $1", world.tenant)
    assert [tuple(row) for row in rows] == [("performed", None)]
    assert "answer" not in await world.admin.call("approval.show", approval_id=approval_id)
    assert await outcome(world.admin.call("agent.create", agent_id="new")) == "APPROVAL_PENDING"


@pytest.mark.usefixtures("rule")
async def test_decided_calls_are_deleted_after_a_month(world: World, approver: Caller) -> None:
    approval_id = await hold_delete(world)
    await approver.call("approval.approve", approval_id=approval_id)
    await advance(world, 30 * 86_400)
    assert (await approver.call("approval.show", approval_id=approval_id))["state"] == "performed"
    await advance(world, 2 * 86_400)
    with refused("APPROVAL_NOT_FOUND"):
        await approver.call("approval.show", approval_id=approval_id)


@pytest.mark.usefixtures("rule")
async def test_of_many_decisions_at_once_one_is_made(world: World, approver: Caller) -> None:
    other = await world.another_app()
    other.guards.install(Asking())
    for _ in range(5):
        await world.planner.write("goal")
        approval_id = await hold_delete(world)
        deciding = [
            caller.call(decision, approval_id=approval_id)
            for caller in (approver, world.admin.at(other))
            for decision in ("approval.approve", "approval.reject", "approval.approve")
        ]
        outcomes = await asyncio.gather(*map(outcome, deciding))
        assert sorted(outcomes) == ["APPROVAL_CLOSED"] * 5 + ["ok"]
        state = (await approver.call("approval.show", approval_id=approval_id))["state"]
        assert (await world.planner.keys() == []) == (state == "performed")
        world.clock.advance(seconds=86_401)


@pytest.mark.usefixtures("rule")
async def test_approving_and_expiring_at_once_does_one_of_them(world: World, approver: Caller) -> None:
    approval_id = await hold_delete(world)
    world.clock.advance(seconds=86_399.9)
    tasks = [asyncio.create_task(outcome(approver.call("approval.approve", approval_id=approval_id)))]
    world.clock.advance(seconds=0.2)
    await asyncio.gather(world.app.scheduler.drain(ADVANCE), *tasks)
    state = (await approver.call("approval.show", approval_id=approval_id))["state"]
    assert (state, tasks[0].result()) in {("performed", "ok"), ("expired", "APPROVAL_CLOSED")}
    assert (await world.planner.keys() == []) == (state == "performed")


async def test_identical_calls_at_once_are_performed_once(world: World, approver: Caller) -> None:
    world.app.guards.install(Asking("message.add"))
    waiting = [asyncio.create_task(world.planner.say("deploy now")) for _ in range(8)]
    [held] = await pending(approver)
    assert len((await approver.call("approval.list"))["approvals"]) == 1
    await approver.call("approval.approve", approval_id=held["approval_id"])
    assert len({await asyncio.wait_for(task, TIMEOUT) for task in waiting}) == 1
    assert await world.planner.message_texts() == ["deploy now"]


@pytest.mark.usefixtures("rule")
async def test_the_number_of_pending_calls_is_limited(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_at_once(world)
    monkeypatch.setattr(service, "MAX_PENDING_OF_CALLER", 2)
    monkeypatch.setattr(service, "MAX_PENDING", 3)
    for key in ("a", "b"):
        assert await outcome(world.planner.delete(key)) == "APPROVAL_PENDING"
    assert await outcome(world.planner.delete("c")) == "APPROVAL_LIMIT"
    assert await outcome(world.planner.delete("a")) == "APPROVAL_PENDING"
    assert await outcome(world.analysis.delete("c")) == "APPROVAL_PENDING"
    assert await outcome(world.analysis.delete("d")) == "APPROVAL_LIMIT"
    monkeypatch.setattr(service, "MAX_PENDING", 100)
    monkeypatch.setattr(service, "MAX_PENDING_BYTES", 200)
    assert await outcome(world.analysis.delete("d")) == "APPROVAL_LIMIT"


@pytest.mark.usefixtures("rule")
async def test_large_calls_of_one_caller_leave_room_for_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_at_once(world)
    monkeypatch.setattr(service, "MAX_PENDING_BYTES_OF_CALLER", 200)
    large = [{"key": name * 100} for name in "abc"]
    assert [await outcome(world.planner.call("board.delete", session_id="s1", **each)) for each in large] == [
        *("APPROVAL_PENDING", "APPROVAL_LIMIT", "APPROVAL_LIMIT")
    ]
    assert await outcome(world.analysis.delete("d")) == "APPROVAL_PENDING"


@pytest.mark.usefixtures("rule")
async def test_too_many_waiting_calls_are_answered_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_WAITING_OF_TENANT >= 10
    monkeypatch.setattr("weftline.app.held_calls.MAX_WAITING_OF_TENANT", 1)
    waiting = asyncio.create_task(outcome(world.planner.delete("goal")))
    await pending(world.admin)
    async with asyncio.timeout(TIMEOUT / 2):
        assert await outcome(world.planner.delete("other")) == "APPROVAL_PENDING"
    waiting.cancel()


@pytest.mark.usefixtures("rule")
async def test_waiting_calls_are_answered_when_the_process_shuts_down(world: World, approver: Caller) -> None:
    app = await world.another_app()
    app.guards.install(Asking())
    waiting = asyncio.create_task(outcome(world.planner.at(app).delete("goal")))
    [held] = await pending(approver)
    async with asyncio.timeout(TIMEOUT / 2):
        app.held_calls.decisions.end_all()
        assert await waiting == "APPROVAL_PENDING"
        await world.close_app(app)
    await approver.call("approval.approve", approval_id=held["approval_id"])
    assert (await world.planner.delete("goal"))["deleted"] == "goal"


@pytest.mark.usefixtures("rule")
async def test_a_caller_that_loses_its_access_while_waiting_gets_no_answer(world: World, approver: Caller) -> None:
    waiting = asyncio.create_task(outcome(world.review.delete("goal")))
    approval_id = await approval_of(approver)
    await world.admin.call("agent.update", agent_id="review-2", disabled=True)
    await approver.call("approval.approve", approval_id=approval_id)
    assert await asyncio.wait_for(waiting, TIMEOUT) == "AUTHENTICATION_ERROR"


class Redacting(Guard):
    """Changes the answer of board.delete."""

    async def after(self, call: GuardedCall, answer: Any) -> Any:
        return structs.replace(answer, deleted="***") if call.operation.name == "board.delete" else answer


@pytest.mark.usefixtures("rule")
async def test_guards_see_the_answer_before_it_is_stored(world: World, approver: Caller) -> None:
    world.app.guards.install(Redacting())
    approval_id = await hold_delete(world)
    await approver.call("approval.approve", approval_id=approval_id)
    assert (await world.planner.delete("goal"))["deleted"] == "***"
    assert "goal" not in str((await world.planner.call("approval.show", approval_id=approval_id))["answer"])


async def test_operations_with_their_own_transactions_can_be_held(world: World, approver: Caller) -> None:
    world.app.guards.install(Asking("knowledge.add_document", "message.search", "events.read"))
    answer_at_once(world)
    await world.admin.call("knowledge.create_domain", domain="handbook")
    calls = (
        lambda: world.admin.call("knowledge.add_document", domain="handbook", document_id="a", content="text"),
        lambda: world.planner.search("anything"),
        lambda: world.planner.call("events.read", after=0),
    )
    for call in calls:
        assert await outcome(call()) == "APPROVAL_PENDING"
        decided = await approver.call("approval.approve", approval_id=await approval_of(approver))
        assert (decided["state"], decided.get("failed_with")) == ("performed", None)
        await call()


@pytest.mark.usefixtures("rule")
async def test_content_that_streams_cannot_be_held(world: World) -> None:
    world.app.guards.install(Asking("knowledge.add_document"))
    await world.admin.call("knowledge.create_domain", domain="handbook")

    async def pieces() -> Any:
        yield b"text"

    raw = {"domain": "handbook", "document_id": "a"}
    with refused("APPROVAL_NOT_POSSIBLE"):
        await world.app.uploads.receive(raw, CallContext(world.admin.credential), pieces())


async def test_a_decision_is_never_held(world: World, approver: Caller) -> None:
    asking = Asking("board.delete", "approval.approve")
    world.app.guards.install(asking)
    await world.planner.write("goal")
    approval_id = await hold_delete(world)
    with refused("APPROVAL_NOT_POSSIBLE"):
        await approver.call("approval.approve", approval_id=approval_id)


@pytest.mark.usefixtures("rule")
async def test_deleting_a_session_deletes_its_held_calls(world: World, approver: Caller) -> None:
    approval_id = await hold_delete(world)
    world.app.guards.install(Asking("session.delete", checks=("rule:sessions",)))
    await world.planner.call("session.archive", session_id=SESSION)
    with refused("APPROVAL_PENDING") as caught:
        await world.planner.call("session.delete", session_id=SESSION)
    decided = await approver.call("approval.approve", approval_id=caught.value.context["approval_id"])
    assert (decided["state"], decided.get("failed_with")) == ("performed", None)
    with refused("APPROVAL_NOT_FOUND"):
        await approver.call("approval.show", approval_id=approval_id)


@pytest.mark.usefixtures("rule")
async def test_lists_are_paged_and_filtered(world: World, approver: Caller) -> None:
    answer_at_once(world)
    for key in ("a", "b", "c"):
        await outcome(world.planner.delete(key))
    first = await approver.call("approval.list", limit=2)
    rest = await approver.call("approval.list", limit=2, cursor=first["next_cursor"])
    ids = [held["approval_id"] for held in (*first["approvals"], *rest["approvals"])]
    assert ids == sorted(ids, reverse=True)
    assert len(ids) == 3
    assert "next_cursor" not in rest
    await approver.call("approval.reject", approval_id=ids[0])
    assert [held["approval_id"] for held in await pending(approver)] == ids[1:]
    refusals = (await approver.call("approval.list", state="rejected"))["approvals"]
    assert [held["approval_id"] for held in refusals] == ids[:1]
    with refused("INVALID_INPUT_FORMAT"):
        await approver.call("approval.list", cursor="elsewhere")


def test_answers_are_given_for_less_time_than_calls_are_kept() -> None:
    assert 30 * 86_400 * 1_000_000 + model.RETRY_MICROS < model.KEEP_MICROS
