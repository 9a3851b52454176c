"""Webhooks: signed, ordered, retried with backoff, dead-lettered and replayed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from standardwebhooks import Webhook as Verifier
from standardwebhooks.webhooks import WebhookVerificationError

from support.alerts import called
from support.bundles import exported, imported
from support.webhook_receiver import Receiver, receiver
from support.webhooks import advance_clock, deliveries, hook, parsed, poll_at_once, wait_until, webhook_state
from support.world import refused
from weftline.app.diagnostics.checks import CheckStatus, check_database
from weftline.sessions.events.webhooks import RETRY_AFTER_SECONDS
from weftline.testing.clock import FrozenClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from support.world import World
    from weftline.settings import Settings

pytestmark = pytest.mark.req("AC-13")
CLOSED = "http://127.0.0.1:9/hook"


@pytest.fixture
def clock() -> FrozenClock:
    # Receivers check the age of a signature by the system clock.
    return FrozenClock(datetime.now(UTC))


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, webhook_private_hosts="127.0.0.1 localhost")


@pytest.fixture(autouse=True)
def _poll_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    poll_at_once(monkeypatch)


@pytest.fixture(autouse=True)
async def _delete_webhooks(world: World) -> AsyncIterator[None]:
    yield
    # Tenants share a database: the next test's worker would call these webhooks.
    await world.sql("DELETE FROM webhooks WHERE tenant = $1", world.tenant)


@pytest.fixture
async def endpoint() -> AsyncIterator[Receiver]:
    async with receiver() as endpoint:
        yield endpoint


async def failed_delivery(world: World, made: Any, attempts: int) -> Any:
    """Wait until a webhook's only delivery has had that many attempts, and return it."""

    async def look() -> Any:
        found = (await deliveries(world.admin, made))["deliveries"]
        return found and found[0]["attempts"] == attempts and found[0]

    return await wait_until(look)


async def test_an_event_is_delivered_as_a_cloudevent_with_a_valid_signature(world: World, endpoint: Receiver) -> None:
    made = await hook(world.admin, endpoint.url)
    await world.planner.write("goal", "ship it")
    (call,) = await endpoint.wait_for_calls(1)
    assert call.headers["content-type"].startswith("application/cloudevents+json")
    event = parsed(call)
    assert (event.get_type(), event.get_subject()) == ("context.item.added", "goal")
    assert event.get_data()["data"]["type"] == "board.written"
    assert (event.get_extension("actor"), event.get_extension("agentid")) == ("orchestrator:planner", "planner")
    assert b"ship it" not in call.body
    verifier = Verifier(made["secret"])
    assert verifier.verify(call.body, call.headers)["id"] == event.get_id()
    with pytest.raises(WebhookVerificationError):
        verifier.verify(call.body + b" ", call.headers)
    with pytest.raises(WebhookVerificationError):
        Verifier("whsec_" + "QUJD" * 8).verify(call.body, call.headers)


@pytest.mark.req("CE-F46")
async def test_each_state_of_an_alert_is_delivered_once(world: World, endpoint: Receiver) -> None:
    await hook(world.admin, endpoint.url, types=["alert.*"])
    for _ in range(2):
        await called(world, "analysis", count=20, fill=0.3, useful=0.005)
    (alert,) = (await world.admin.call("alerts.list"))["alerts"]
    for operation in ("alerts.acknowledge", "alerts.acknowledge", "alerts.resolve", "alerts.resolve"):
        await world.admin.call(operation, alert_id=alert["alert_id"])
    delivered = [parsed(call) for call in await endpoint.wait_for_calls(3)]
    assert [each.get_type() for each in delivered] == [
        f"weftline.alert.{state}" for state in ("opened", "acknowledged", "resolved")
    ]
    assert {each.get_subject() for each in delivered} == {alert["alert_id"]}
    assert delivered[0].get_data()["efficiency"] == 0.005
    assert len(endpoint.calls) == 3


async def test_a_given_secret_is_used_for_signatures(world: World, endpoint: Receiver) -> None:
    secret = "whsec_" + "QUJD" * 8
    assert (await hook(world.admin, endpoint.url, secret=secret))["secret"] == secret
    await world.planner.write("goal")
    (call,) = await endpoint.wait_for_calls(1)
    assert Verifier(secret).verify(call.body, call.headers)
    for bad in ("whsec_short", "QUJD" * 8, "whsec_" + "QUJD" * 7 + "Q===", "whsec_" + "A" * 33):
        with refused("INVALID_INPUT_FORMAT"):
            await hook(world.admin, endpoint.url, secret=bad)


async def test_every_event_is_delivered_once_and_in_order(world: World, endpoint: Receiver) -> None:
    made = await hook(world.admin, endpoint.url, types=["board.*"])
    for number in range(250):
        await world.planner.write(f"k{number % 7}", str(number))
    await endpoint.wait_for_calls(250)
    seen = await wait_until(lambda: _state_if_delivered(world, made, 250))
    assert (seen["pending"], seen["dead"], seen["enabled"]) == (0, 0, True)
    assert endpoint.seqs == sorted(endpoint.seqs)
    assert set(endpoint.times.values()) == {1}
    assert len(endpoint.calls) == 250


async def _state_if_delivered(world: World, made: Any, delivered: int) -> Any:
    seen = await webhook_state(world.admin, made)
    return seen["delivered"] == delivered and seen


async def test_two_processes_deliver_each_event_once(world: World, endpoint: Receiver) -> None:
    await world.another_app()
    await world.another_app()
    for _ in range(5):
        await hook(world.admin, endpoint.url, types=["board.*"])
    await asyncio.gather(*(world.planner.write(f"k{number}", "x") for number in range(40)))
    await endpoint.wait_for_calls(200)
    await asyncio.gather(*(world.planner.write(f"k{number}", "y") for number in range(40)))
    await endpoint.wait_for_calls(400)
    assert len(endpoint.calls) == 400
    assert set(endpoint.times.values()) == {1}


async def test_only_events_of_the_filter_are_sent(world: World) -> None:
    other = await world.planner.create_session("other")
    async with receiver() as by_class, receiver() as by_type, receiver() as by_session:
        await hook(world.admin, by_class.url, types=["context.item.removed"])
        await hook(world.admin, by_type.url, types=["message.*"])
        await hook(world.admin, by_session.url, session_id="other")
        await world.planner.write("goal")
        await world.planner.say("hello")
        await world.planner.delete("goal")
        await other.write("elsewhere")
        await world.planner.call("session.archive", session_id="s1")
        await other.write("last")
        await by_session.wait_for_calls(2)
        await asyncio.gather(by_class.wait_for_calls(1), by_type.wait_for_calls(1))
        assert by_class.types == ["context.item.removed"]
        assert [call.event["data"]["data"]["type"] for call in by_type.calls] == ["message.added"]
        assert [call.event["subject"] for call in by_session.calls] == ["elsewhere", "last"]
    with refused("SESSION_NOT_FOUND"):
        await hook(world.admin, CLOSED, session_id="nowhere")


async def test_events_hidden_from_the_owner_are_not_sent(world: World, endpoint: Receiver) -> None:
    await hook(world.admin, endpoint.url)
    await world.planner.write("closed", readable_by=["orchestrator"])
    await world.planner.say("between us", visibility="private")
    await world.planner.remember("diary")
    await world.stranger.create_session("away")
    await world.planner.write("open")
    await endpoint.wait_for_calls(1)
    await world.planner.write("open", "again")
    await endpoint.wait_for_calls(2)
    assert [call.event["subject"] for call in endpoint.calls] == ["open", "open"]


async def test_an_event_hidden_before_its_delivery_is_not_sent(world: World, endpoint: Receiver) -> None:
    endpoint.status = 500
    made = await hook(world.admin, endpoint.url, types=["message.added"])
    number = await world.planner.say("not for all, on second thought")
    await failed_delivery(world, made, 1)
    await world.admin.call("message.set_visibility", session_id="s1", message_id=number, visibility="private")
    endpoint.status = 200
    await advance_clock(world, seconds=10)

    async def none_pending() -> bool:
        return (await webhook_state(world.admin, made))["pending"] == 0

    await wait_until(none_pending)
    assert len(endpoint.calls) == 1


def _delivery_metric(world: World, outcome: str) -> float:
    name = f'weftline_webhook_deliveries_total{{outcome="{outcome}"}} '.encode()
    return next(float(line.removeprefix(name)) for line in world.app.metrics.exposition().splitlines() if name in line)


async def test_a_failed_delivery_is_retried_and_then_dead_lettered(world: World, endpoint: Receiver) -> None:
    endpoint.status = 500
    made = await hook(world.admin, endpoint.url)
    await world.planner.write("goal")
    for attempts, seconds in enumerate(RETRY_AFTER_SECONDS, 1):
        tried = await failed_delivery(world, made, attempts)
        assert (tried["state"], tried["last_status"], tried["last_error"]) == ("pending", 500, "refused")
        wait = (datetime.fromisoformat(tried["next_attempt_at"]) - world.clock.now()).total_seconds()
        assert 0.8 * seconds <= wait <= 1.2 * seconds
        await advance_clock(world, seconds=seconds * 1.2)
    given_up = await failed_delivery(world, made, 9)
    assert (given_up["state"], given_up["next_attempt_at"]) == ("dead", None)
    assert given_up["delivery_id"] == endpoint.calls[0].id
    assert endpoint.times == {endpoint.calls[0].id: 9}
    assert (await webhook_state(world.admin, made))["dead"] == 1
    # Deliveries of other tenants in the same database count too.
    assert _delivery_metric(world, "dead") >= 1
    assert _delivery_metric(world, "failed") >= 9


async def test_dead_letters_can_be_replayed(world: World, endpoint: Receiver) -> None:
    made = await hook(world.admin, endpoint.url, types=["board.*"])
    seqs = [(await make_dead_letter(world, endpoint, made, key))["seq"] for key in ("one", "two", "three")]
    assert [dead["seq"] for dead in (await deliveries(world.admin, made, state="dead"))["deliveries"]] == seqs
    endpoint.calls.clear()
    replay = {"webhook_id": made["webhook_id"]}
    assert (await world.admin.call("webhook.replay", seqs=seqs[1:2], **replay))["revived"] == 1
    await endpoint.wait_for_calls(1)
    assert (await world.admin.call("webhook.replay", dead=True, **replay))["revived"] == 2
    await endpoint.wait_for_calls(3)
    assert endpoint.seqs == [seqs[1], seqs[0], seqs[2]]
    assert await wait_until(lambda: _state_if_delivered(world, made, 3))
    for wrong in ({}, {"dead": True, "from_seq": 1}, {"seqs": [1], "dead": True}):
        with refused("INVALID_INPUT_FORMAT"):
            await world.admin.call("webhook.replay", **wrong, **replay)


async def test_the_doctor_reports_dead_letters(world: World, endpoint: Receiver) -> None:
    made = await hook(world.admin, endpoint.url, types=["board.*"])
    await make_dead_letter(world, endpoint, made, "goal")
    found = {finding.check: finding for finding in await check_database(world.settings, world.clock)}
    assert found["Webhooks"].state is CheckStatus.WARNING
    assert "weftline webhook replay" in found["Webhooks"].next_step
    await world.admin.call("webhook.delete", webhook_id=made["webhook_id"])


async def make_dead_letter(world: World, endpoint: Receiver, made: Any, key: str) -> Any:
    """Write a key and let its delivery become a dead letter."""
    endpoint.status = 500
    await world.planner.write(key)
    seq = await world.last_event()

    async def dead() -> Any:
        found = (await deliveries(world.admin, made, after=seq - 1))["deliveries"]
        await advance_clock(world, days=1)
        return found and found[0]["state"] == "dead" and found[0]

    given_up = await wait_until(dead)
    endpoint.status = 200
    return given_up


async def test_events_can_be_replayed_from_any_sequence_number(world: World, endpoint: Receiver) -> None:
    before = await world.last_event()
    await world.planner.write("early")
    made = await hook(world.admin, endpoint.url, types=["board.*"])
    for key in ("one", "two", "three"):
        await world.planner.write(key)
    await endpoint.wait_for_calls(3)
    second = endpoint.calls[1]
    await wait_until(lambda: _state_if_delivered(world, made, 3))
    await world.admin.call("webhook.replay", webhook_id=made["webhook_id"], from_seq=second.seq)
    await endpoint.wait_for_calls(5)
    assert [call.id for call in endpoint.calls[3:]] == [call.id for call in endpoint.calls[1:3]]
    await wait_until(lambda: _state_if_delivered(world, made, 5))
    await world.admin.call("webhook.replay", webhook_id=made["webhook_id"], from_seq=before + 1)
    await endpoint.wait_for_calls(9)
    assert [call.event["subject"] for call in endpoint.calls[5:]] == ["early", "one", "two", "three"]


async def test_a_receiver_that_answers_410_is_disabled(world: World, endpoint: Receiver) -> None:
    endpoint.status = 410
    made = await hook(world.admin, endpoint.url, types=["board.*"])
    start = await world.last_event()
    await world.planner.write("goal")

    async def stopped() -> Any:
        seen = await webhook_state(world.admin, made)
        return not seen["enabled"] and seen

    assert "410" in (await wait_until(stopped))["reason"]
    await world.planner.write("goal", "more")
    (event,) = (await world.admin.events(after=start, types=["webhook.*"]))["events"]
    assert (event["type"], event["subject"]) == ("webhook.stopped", made["webhook_id"])
    assert (await world.planner.events(after=start, types=["webhook.*"]))["events"] == []
    endpoint.status = 200
    await world.admin.call("webhook.update", webhook_id=made["webhook_id"], enabled=True)
    await advance_clock(world, seconds=10)
    await endpoint.wait_for_calls(3)
    assert sorted(set(endpoint.seqs[1:])) == sorted(endpoint.seqs[1:])
    assert [call.event["data"]["data"]["version"] for call in sorted(endpoint.calls[1:], key=lambda c: c.seq)] == [1, 2]


async def test_a_reenabled_webhook_resumes_where_it_stopped(world: World, endpoint: Receiver) -> None:
    made = await hook(world.admin, endpoint.url, types=["board.*"])
    switched = await world.admin.call("webhook.update", webhook_id=made["webhook_id"], enabled=False)
    assert (switched["enabled"], switched["reason"]) == (False, "disabled by human:admin")
    await world.planner.write("meanwhile")
    assert (await webhook_state(world.admin, made))["behind"] > 0
    switched = await world.admin.call("webhook.update", webhook_id=made["webhook_id"], enabled=True)
    assert (switched["enabled"], switched["reason"]) == (True, None)
    (call,) = await endpoint.wait_for_calls(1)
    assert call.event["subject"] == "meanwhile"


@pytest.mark.parametrize("change", [{"disabled": True}, {"permissions": ["read", "write"]}])
async def test_a_webhook_is_disabled_when_its_owner_loses_access(
    world: World, endpoint: Receiver, change: dict[str, Any]
) -> None:
    owner = await world.admin.create_agent("maker", permissions=["read", "write", "admin"])
    made = await hook(owner, endpoint.url, types=["board.*"])
    await world.planner.write("before")
    await endpoint.wait_for_calls(1)
    await world.admin.call("agent.update", agent_id="maker", **change)
    await world.planner.write("after")

    async def stopped() -> Any:
        seen = await webhook_state(world.admin, made)
        return not seen["enabled"] and seen

    assert "its owner 'maker'" in (await wait_until(stopped))["reason"]
    with refused("WEBHOOK_CANNOT_RUN"):
        await world.admin.call("webhook.update", webhook_id=made["webhook_id"], enabled=True)
    assert len(endpoint.calls) == 1


async def test_deliveries_end_at_once_when_the_owner_is_disabled_with_its_parent(
    world: World, endpoint: Receiver
) -> None:
    await world.admin.create_agent("dana", kind="human")
    owner = await world.admin.create_agent("maker", parent_id="dana", permissions=["read", "write", "admin"])
    made = await hook(owner, endpoint.url, types=["board.*"])
    endpoint.open.clear()
    for number in range(10):
        await world.admin.write(f"key_{number}")
    await endpoint.wait_for_calls(1)
    changed = await world.admin.call("agent.update", agent_id="dana", disabled=True)
    assert changed["also_disabled"] == ["maker"]
    endpoint.open.set()

    async def stopped() -> Any:
        return not (await webhook_state(world.admin, made))["enabled"]

    await wait_until(stopped)
    assert len(endpoint.calls) == 1


async def test_a_redirect_is_not_followed(world: World, endpoint: Receiver) -> None:
    async with receiver() as elsewhere:
        endpoint.status = 302
        endpoint.headers = {"location": elsewhere.url}
        made = await hook(world.admin, endpoint.url)
        await world.planner.write("goal")
        tried = await failed_delivery(world, made, 1)
        assert (tried["last_status"], tried["last_error"]) == (302, "redirected")
        assert elsewhere.calls == []


async def test_an_unreachable_receiver_gets_one_attempt_for_all_pending_events(world: World) -> None:
    made = await hook(world.admin, CLOSED, types=["board.*"])
    await world.admin.call("webhook.update", webhook_id=made["webhook_id"], enabled=False)
    for number in range(20):
        await world.planner.write(f"k{number}")
    await world.admin.call("webhook.update", webhook_id=made["webhook_id"], enabled=True)

    async def all_tried() -> Any:
        found = (await deliveries(world.admin, made))["deliveries"]
        return len(found) == 20 and all(delivery["attempts"] == 1 for delivery in found) and found

    found = await wait_until(all_tried)
    assert {(each["last_status"], each["last_error"]) for each in found} == {(None, "connection_failed")}
    assert b'weftline_webhook_deliveries_total{outcome="failed"} 1.0' in world.app.metrics.exposition()


async def test_a_receiver_that_never_answers_times_out(
    world: World, endpoint: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weftline.providers.webhook_sender._TIMEOUT_SECONDS", 0.1)
    endpoint.open.clear()
    made = await hook(world.admin, endpoint.url)
    await world.planner.write("goal")
    assert (await failed_delivery(world, made, 1))["last_error"] == "timeout"


async def test_retry_after_of_a_receiver_is_honoured(world: World, endpoint: Receiver) -> None:
    endpoint.status, endpoint.headers = 429, {"retry-after": "120"}
    made = await hook(world.admin, endpoint.url, types=["board.*"])
    await world.planner.write("one")
    await failed_delivery(world, made, 1)
    endpoint.status = 200
    await world.planner.write("two")
    await advance_clock(world, seconds=100)
    await world.planner.write("three")
    assert len(endpoint.calls) == 1
    await advance_clock(world, seconds=21)
    await endpoint.wait_for_calls(4)
    assert [call.event["subject"] for call in endpoint.calls[1:]] == ["one", "two", "three"]


async def test_a_slow_receiver_does_not_block_others(world: World, endpoint: Receiver) -> None:
    async with receiver(host="localhost") as quick:
        endpoint.open.clear()
        for _ in range(3):
            await hook(world.admin, endpoint.url, types=["board.*"])
        await hook(world.admin, quick.url, types=["board.*"])
        for number in range(10):
            await world.planner.write("goal", str(number))
            await quick.wait_for_calls(number + 1)
        assert len(endpoint.calls) <= 3


async def test_a_receiver_that_does_not_answer_does_not_delay_shutdown(world: World, endpoint: Receiver) -> None:
    endpoint.open.clear()
    made = await hook(world.admin, endpoint.url, types=["board.*"])
    await world.planner.write("goal")
    await endpoint.wait_for_calls(1)
    await world.close_app(world.app)
    endpoint.open.set()
    world.app = await world.another_app()
    world.admin, world.planner = world.admin.at(world.app), world.planner.at(world.app)
    # The next process need not wait for the lease to expire.
    await endpoint.wait_for_calls(2)
    assert await wait_until(lambda: _state_if_delivered(world, made, 1))
    assert endpoint.times == {endpoint.calls[0].id: 2}


async def test_a_test_event_is_sent_at_once_and_its_response_returned(world: World, endpoint: Receiver) -> None:
    made = await hook(world.admin, endpoint.url, types=["never.*"])
    result = await world.admin.call("webhook.test", webhook_id=made["webhook_id"])
    assert result == {"delivered": True, "status": 200, "error": None}
    (call,) = endpoint.calls
    event = parsed(call)
    assert (event.get_type(), event.get_subject()) == ("weftline.webhook.test", made["webhook_id"])
    assert Verifier(made["secret"]).verify(call.body, call.headers)
    endpoint.status = 503
    result = await world.admin.call("webhook.test", webhook_id=made["webhook_id"])
    assert result == {"delivered": False, "status": 503, "error": "refused"}
    gone = await hook(world.admin, CLOSED)
    result = await world.admin.call("webhook.test", webhook_id=gone["webhook_id"])
    assert result == {"delivered": False, "status": None, "error": "connection_failed"}


async def test_a_deleted_webhook_is_not_called(world: World, endpoint: Receiver) -> None:
    endpoint.status = 500
    made = await hook(world.admin, endpoint.url)
    await world.planner.write("goal")
    await failed_delivery(world, made, 1)
    await world.admin.call("webhook.delete", webhook_id=made["webhook_id"])
    await advance_clock(world, days=1)
    await world.planner.write("goal")
    assert (await world.admin.call("webhook.list"))["webhooks"] == []
    assert await world.rows("SELECT seq FROM webhook_deliveries WHERE tenant = $1", world.tenant) == []
    with refused("WEBHOOK_NOT_FOUND"):
        await world.admin.call("webhook.delete", webhook_id=made["webhook_id"])
    assert len(endpoint.calls) == 1


async def test_pending_events_of_a_deleted_session_are_not_sent(world: World, endpoint: Receiver) -> None:
    endpoint.status = 500
    made = await hook(world.admin, endpoint.url, types=["board.*"])
    await world.planner.write("goal")
    await failed_delivery(world, made, 1)
    await world.planner.call("session.delete", session_id="s1", force=True)
    await advance_clock(world, days=1)

    async def empty() -> bool:
        return (await webhook_state(world.admin, made))["pending"] == 0

    await wait_until(empty)
    assert len(endpoint.calls) == 1


async def test_a_secret_is_shown_once_and_in_no_log(world: World, endpoint: Receiver) -> None:
    url = f"{endpoint.url}?token=not-for-the-log"
    made = await hook(world.admin, url, description="the dashboard")
    seen = await world.admin.call("webhook.list")
    assert "secret" not in seen["webhooks"][0]
    written = repr(await world.admin.audit()) + repr(await world.admin.events()) + repr(seen)
    assert made["secret"] not in written
    assert "not-for-the-log" not in repr(await world.admin.audit()) + repr(await world.admin.events())
    (entry,) = [entry for entry in await world.admin.audit() if entry["action"] == "webhook.create"]
    assert (entry["target"], entry["detail"]["host"]) == (made["webhook_id"], "127.0.0.1")


@pytest.mark.parametrize(
    ("path", "shown"),
    [("/hook", "/hook"), ("/services/T0/B0/not-for-all", "/service..."), ("/in?key=not-for-all", "/in?...")],
)
async def test_a_url_is_shown_without_secrets(world: World, path: str, shown: str) -> None:
    host = CLOSED.removesuffix("/hook")
    made = await hook(world.admin, f"{host}{path}")
    (seen,) = (await world.admin.call("webhook.list"))["webhooks"]
    assert made["url"] == seen["url"] == f"{host}{shown}"
    assert "not-for-all" not in repr([made, seen])


async def test_events_of_an_imported_bundle_are_not_sent(world: World, endpoint: Receiver) -> None:
    await world.planner.write("goal")
    bundle = await exported(world.planner)
    await world.admin.call("session.delete", session_id=world.planner.session, force=True)
    await hook(world.admin, endpoint.url, types=["board.*", "session.imported"])
    await imported(world.admin, bundle)
    await world.planner.write("goal", "news")
    await endpoint.wait_for_calls(2)
    assert endpoint.types == ["context.surface.created", "context.item.updated"]


async def test_only_admins_of_the_tenant_manage_webhooks(world: World, endpoint: Receiver) -> None:
    made = await hook(world.admin, endpoint.url)
    which = {"webhook_id": made["webhook_id"]}
    lead = await world.admin.create_agent("lead", parent_id="planner", permissions=["read", "write", "admin"])
    for caller in (world.planner, world.analysis, lead):
        with refused("PERMISSION_DENIED"):
            await hook(caller, endpoint.url)
        with refused("PERMISSION_DENIED"):
            await caller.call("webhook.list")
    assert (await world.stranger.call("webhook.list"))["webhooks"] == []
    for operation, more in {"delete": {}, "test": {}, "deliveries": {}, "update": {"enabled": False}}.items():
        with refused("WEBHOOK_NOT_FOUND"):
            await world.stranger.call(f"webhook.{operation}", **which, **more)
    with refused("WEBHOOK_NOT_FOUND"):
        await world.stranger.call("webhook.replay", **which, dead=True)


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "http:///path",
        "http://user:pass@example.com/",
        "http://example.com:99999/",
        "http://[::1/",
        "http://a/#b",
    ],
)
async def test_an_invalid_url_is_refused(world: World, url: str) -> None:
    with refused("INVALID_INPUT_FORMAT"):
        await hook(world.admin, url)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.2",
        "2130706434",
        "0x7f000002",
        "10.0.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "[::ffff:10.0.0.1]",
        "[::1]",
    ],
)
async def test_a_private_address_is_refused(world: World, host: str) -> None:
    with refused("ADDRESS_REFUSED"):
        await hook(world.admin, f"http://{host}/hook")


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".test"])
async def test_an_invalid_host_name_is_refused(world: World, host: str) -> None:
    with refused("ADDRESS_REFUSED"):
        await hook(world.admin, f"http://{host}/hook")


async def test_an_address_no_longer_allowed_is_not_called(world: World, endpoint: Receiver) -> None:
    await world.close_app(world.app)
    strict = world.app = await world.another_app(webhook_private_hosts="")
    world.admin, world.planner = world.admin.at(strict), world.planner.at(strict)
    await world.sql(
        """
        INSERT INTO webhooks (tenant, webhook_id, url, description, secret, principal_id, created_at, state, cursor,
                              delivered, lease_until)
        VALUES ($1, 'webhook_0123456789abcdef', $2, '', 'whsec_QUJDQUJDQUJDQUJDQUJDQUJDQUJDQUJD', 'admin', 0,
                'enabled', 0, 0, 0)
        """,
        world.tenant,
        endpoint.url,
    )
    made = {"webhook_id": "webhook_0123456789abcdef"}
    await world.planner.write("goal")
    assert (await failed_delivery(world, made, 1))["last_error"] == "address_refused"
    assert (await world.admin.call("webhook.test", **made))["error"] == "address_refused"
    assert endpoint.connections == 0


async def test_the_number_of_webhooks_is_limited(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weftline.sessions.events.operations.MAX_WEBHOOKS", 2)
    for _ in range(2):
        await hook(world.admin, CLOSED, types=["never.*"])
    with refused("TOO_MANY_WEBHOOKS"):
        await hook(world.admin, CLOSED)


async def test_a_webhook_with_too_many_dead_letters_is_disabled(
    world: World, endpoint: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weftline.sessions.events.webhooks.MAX_DEAD_LETTERS", 1)
    made = await hook(world.admin, endpoint.url, types=["board.*"])
    await make_dead_letter(world, endpoint, made, "goal")
    seen = await webhook_state(world.admin, made)
    assert (seen["enabled"], seen["dead"]) == (False, 1)
    assert "could not be delivered" in seen["reason"]


async def test_writes_without_webhooks_start_no_poll(
    world: World, endpoint: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    polls = 0

    async def counted(_transaction: Any) -> list[Any]:
        nonlocal polls
        polls += 1
        return []

    monkeypatch.setattr("weftline.jobs.webhook_delivery._NEW_WEBHOOK_SECONDS", 3_600.0)
    monkeypatch.setattr("weftline.jobs.webhook_delivery.webhooks_waiting", counted)
    for number in range(50):
        await world.planner.write("goal", str(number))
    await asyncio.sleep(0.1)
    # Two polls may have been scheduled before.
    assert polls <= 2


async def test_a_damaged_webhook_does_not_affect_others(world: World, endpoint: Receiver) -> None:
    async with receiver() as other_receiver:
        await hook(world.admin, endpoint.url)
        broken = await hook(world.admin, other_receiver.url)
        await world.sql("UPDATE webhooks SET types = 'not JSON' WHERE webhook_id = $1", broken["webhook_id"])
        await world.planner.write("one")
        await endpoint.wait_for_calls(1)
        await world.planner.write("two")
        await endpoint.wait_for_calls(2)
        assert other_receiver.calls == []
