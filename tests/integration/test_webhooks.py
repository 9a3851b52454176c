"""Webhooks: signed, ordered, retried with backoff, dead-lettered and replayed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from standardwebhooks import Webhook as Verifier
from standardwebhooks.webhooks import WebhookVerificationError

from support.bundles import exported, imported
from support.webhook_receiver import Receiver, receiver
from support.webhooks import advance_clock, deliveries, hook, parsed, poll_at_once, wait_until, webhook_state
from support.world import refused
from weft.app.diagnostics.checks import CheckStatus, check_database
from weft.capabilities.events.webhooks.model import RETRY_AFTER_SECONDS
from weft.testing.clock import FrozenClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from support.world import World
    from weft.settings import Settings

pytestmark = pytest.mark.req("AC-13")
CLOSED = "http://127.0.0.1:9/hook"


@pytest.fixture
def clock() -> FrozenClock:
    # Receivers check how old a signature is by their own clock.
    return FrozenClock(datetime.now(UTC))


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, webhook_private_hosts="127.0.0.1 localhost")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    poll_at_once(monkeypatch)


@pytest.fixture(autouse=True)
async def _nothing_left(world: World) -> AsyncIterator[None]:
    yield
    # Tenants share a database; the webhooks of this one would be called by the next test's worker.
    await world.sql("DELETE FROM webhooks WHERE tenant = $1", world.tenant)


@pytest.fixture
async def there() -> AsyncIterator[Receiver]:
    async with receiver() as there:
        yield there


async def failed(world: World, made: Any, attempts: int) -> Any:
    """Wait until a webhook's only delivery was tried so often, and return it."""

    async def look() -> Any:
        found = (await deliveries(world.admin, made))["deliveries"]
        return found and found[0]["attempts"] == attempts and found[0]

    return await wait_until(look)


async def test_an_event_arrives_as_a_cloudevent_with_a_signature_that_holds(world: World, there: Receiver) -> None:
    made = await hook(world.admin, there.url)
    await world.planner.write("goal", "ship it")
    (call,) = await there.wait_for_calls(1)
    assert call.headers["content-type"].startswith("application/cloudevents+json")
    event = parsed(call)
    assert (event.get_type(), event.get_subject()) == ("context.item.added", "goal")
    assert event.get_data()["data"]["type"] == "board.written"
    assert b"ship it" not in call.body
    verifier = Verifier(made["secret"])
    assert verifier.verify(call.body, call.headers)["id"] == event.get_id()
    with pytest.raises(WebhookVerificationError):
        verifier.verify(call.body + b" ", call.headers)
    with pytest.raises(WebhookVerificationError):
        Verifier("whsec_" + "QUJD" * 8).verify(call.body, call.headers)


async def test_a_given_secret_signs(world: World, there: Receiver) -> None:
    secret = "whsec_" + "QUJD" * 8
    assert (await hook(world.admin, there.url, secret=secret))["secret"] == secret
    await world.planner.write("goal")
    (call,) = await there.wait_for_calls(1)
    assert Verifier(secret).verify(call.body, call.headers)
    for bad in ("whsec_short", "QUJD" * 8, "whsec_" + "QUJD" * 7 + "Q===", "whsec_" + "A" * 33):
        with refused("INVALID_INPUT_FORMAT"):
            await hook(world.admin, there.url, secret=bad)


async def test_every_event_arrives_once_and_in_order(world: World, there: Receiver) -> None:
    made = await hook(world.admin, there.url, types=["board.*"])
    for number in range(250):
        await world.planner.write(f"k{number % 7}", str(number))
    await there.wait_for_calls(250)
    seen = await wait_until(lambda: _counted(world, made, 250))
    assert (seen["pending"], seen["dead"], seen["enabled"]) == (0, 0, True)
    assert there.seqs == sorted(there.seqs)
    assert set(there.times.values()) == {1}
    assert len(there.calls) == 250


async def _counted(world: World, made: Any, delivered: int) -> Any:
    seen = await webhook_state(world.admin, made)
    return seen["delivered"] == delivered and seen


async def test_two_processes_share_the_work_and_double_nothing(world: World, there: Receiver) -> None:
    await world.another_app()
    await world.another_app()
    for _ in range(5):
        await hook(world.admin, there.url, types=["board.*"])
    await asyncio.gather(*(world.planner.write(f"k{number}", "x") for number in range(40)))
    await there.wait_for_calls(200)
    await asyncio.gather(*(world.planner.write(f"k{number}", "y") for number in range(40)))
    await there.wait_for_calls(400)
    assert len(there.calls) == 400
    assert set(there.times.values()) == {1}


async def test_only_the_types_and_the_session_asked_for_are_sent(world: World) -> None:
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


async def test_events_hidden_from_the_owner_are_not_sent(world: World, there: Receiver) -> None:
    await hook(world.admin, there.url)
    await world.planner.write("closed", readable_by=["orchestrator"])
    await world.planner.say("between us", visibility="private")
    await world.planner.remember("diary")
    await world.stranger.create_session("away")
    await world.planner.write("open")
    await there.wait_for_calls(1)
    await world.planner.write("open", "again")
    await there.wait_for_calls(2)
    assert [call.event["subject"] for call in there.calls] == ["open", "open"]


async def test_what_is_closed_before_it_could_be_sent_is_not_sent(world: World, there: Receiver) -> None:
    there.status = 500
    made = await hook(world.admin, there.url, types=["message.added"])
    number = await world.planner.say("not for all, on second thought")
    await failed(world, made, 1)
    await world.admin.call("message.set_visibility", session_id="s1", message_id=number, visibility="private")
    there.status = 200
    await advance_clock(world, seconds=10)

    async def forgotten() -> bool:
        return (await webhook_state(world.admin, made))["pending"] == 0

    await wait_until(forgotten)
    assert len(there.calls) == 1


def _metered(world: World, outcome: str) -> float:
    name = f'weft_webhook_deliveries_total{{outcome="{outcome}"}} '.encode()
    return next(float(line.removeprefix(name)) for line in world.app.metrics.exposition().splitlines() if name in line)


async def test_a_failed_call_is_made_again_and_again_and_then_given_up(world: World, there: Receiver) -> None:
    there.status = 500
    made = await hook(world.admin, there.url)
    await world.planner.write("goal")
    for attempts, seconds in enumerate(RETRY_AFTER_SECONDS, 1):
        tried = await failed(world, made, attempts)
        assert (tried["state"], tried["last_status"], tried["last_error"]) == ("pending", 500, "refused")
        wait = (datetime.fromisoformat(tried["next_attempt_at"]) - world.clock.now()).total_seconds()
        assert 0.8 * seconds <= wait <= 1.2 * seconds
        await advance_clock(world, seconds=seconds * 1.2)
    given_up = await failed(world, made, 9)
    assert (given_up["state"], given_up["next_attempt_at"]) == ("dead", None)
    assert given_up["delivery_id"] == there.calls[0].id
    assert there.times == {there.calls[0].id: 9}
    assert (await webhook_state(world.admin, made))["dead"] == 1
    # Those of other tenants in the same database count as well.
    assert _metered(world, "dead") >= 1
    assert _metered(world, "failed") >= 9


async def test_what_was_given_up_can_be_sent_again(world: World, there: Receiver) -> None:
    made = await hook(world.admin, there.url, types=["board.*"])
    seqs = [(await give_up(world, there, made, key))["seq"] for key in ("one", "two", "three")]
    assert [dead["seq"] for dead in (await deliveries(world.admin, made, state="dead"))["deliveries"]] == seqs
    there.calls.clear()
    replay = {"webhook_id": made["webhook_id"]}
    assert (await world.admin.call("webhook.replay", seqs=seqs[1:2], **replay))["revived"] == 1
    await there.wait_for_calls(1)
    assert (await world.admin.call("webhook.replay", dead=True, **replay))["revived"] == 2
    await there.wait_for_calls(3)
    assert there.seqs == [seqs[1], seqs[0], seqs[2]]
    assert await wait_until(lambda: _counted(world, made, 3))
    for wrong in ({}, {"dead": True, "from_seq": 1}, {"seqs": [1], "dead": True}):
        with refused("INVALID_INPUT_FORMAT"):
            await world.admin.call("webhook.replay", **wrong, **replay)


async def test_the_doctor_reports_dead_letters(world: World, there: Receiver) -> None:
    made = await hook(world.admin, there.url, types=["board.*"])
    await give_up(world, there, made, "goal")
    found = {finding.check: finding for finding in await check_database(world.settings, world.clock)}
    assert found["Webhooks"].state is CheckStatus.WARNING
    assert "weft webhook replay" in found["Webhooks"].next_step
    await world.admin.call("webhook.delete", webhook_id=made["webhook_id"])


async def give_up(world: World, there: Receiver, made: Any, key: str) -> Any:
    """Have an event of a key given up."""
    there.status = 500
    await world.planner.write(key)
    seq = await world.last_event()

    async def dead() -> Any:
        found = (await deliveries(world.admin, made, after=seq - 1))["deliveries"]
        await advance_clock(world, days=1)
        return found and found[0]["state"] == "dead" and found[0]

    given_up = await wait_until(dead)
    there.status = 200
    return given_up


async def test_the_log_can_be_sent_once_more_from_any_event(world: World, there: Receiver) -> None:
    before = await world.last_event()
    await world.planner.write("early")
    made = await hook(world.admin, there.url, types=["board.*"])
    for key in ("one", "two", "three"):
        await world.planner.write(key)
    await there.wait_for_calls(3)
    second = there.calls[1]
    await wait_until(lambda: _counted(world, made, 3))
    await world.admin.call("webhook.replay", webhook_id=made["webhook_id"], from_seq=second.seq)
    await there.wait_for_calls(5)
    assert [call.id for call in there.calls[3:]] == [call.id for call in there.calls[1:3]]
    await wait_until(lambda: _counted(world, made, 5))
    await world.admin.call("webhook.replay", webhook_id=made["webhook_id"], from_seq=before + 1)
    await there.wait_for_calls(9)
    assert [call.event["subject"] for call in there.calls[5:]] == ["early", "one", "two", "three"]


async def test_a_receiver_that_is_gone_is_called_no_more(world: World, there: Receiver) -> None:
    there.status = 410
    made = await hook(world.admin, there.url, types=["board.*"])
    start = await world.last_event()
    await world.planner.write("goal")

    async def stopped() -> Any:
        seen = await webhook_state(world.admin, made)
        return not seen["enabled"] and seen

    assert "410" in (await wait_until(stopped))["reason"]
    await world.planner.write("goal", "more")
    (told,) = (await world.admin.events(after=start, types=["webhook.*"]))["events"]
    assert (told["type"], told["subject"]) == ("webhook.stopped", made["webhook_id"])
    assert (await world.planner.events(after=start, types=["webhook.*"]))["events"] == []
    there.status = 200
    await world.admin.call("webhook.update", webhook_id=made["webhook_id"], enabled=True)
    await advance_clock(world, seconds=10)
    await there.wait_for_calls(3)
    assert sorted(set(there.seqs[1:])) == sorted(there.seqs[1:])
    assert [call.event["data"]["data"]["version"] for call in sorted(there.calls[1:], key=lambda c: c.seq)] == [1, 2]


async def test_a_reenabled_webhook_resumes_where_it_stopped(world: World, there: Receiver) -> None:
    made = await hook(world.admin, there.url, types=["board.*"])
    switched = await world.admin.call("webhook.update", webhook_id=made["webhook_id"], enabled=False)
    assert (switched["enabled"], switched["reason"]) == (False, "disabled by human:admin")
    await world.planner.write("meanwhile")
    assert (await webhook_state(world.admin, made))["behind"] > 0
    switched = await world.admin.call("webhook.update", webhook_id=made["webhook_id"], enabled=True)
    assert (switched["enabled"], switched["reason"]) == (True, None)
    (call,) = await there.wait_for_calls(1)
    assert call.event["subject"] == "meanwhile"


@pytest.mark.parametrize("change", [{"disabled": True}, {"permissions": ["read", "write"]}])
async def test_a_webhook_ends_with_the_rights_of_its_owner(
    world: World, there: Receiver, change: dict[str, Any]
) -> None:
    maker = await world.admin.create_agent("maker", permissions=["read", "write", "admin"])
    made = await hook(maker, there.url, types=["board.*"])
    await world.planner.write("before")
    await there.wait_for_calls(1)
    await world.admin.call("agent.update", agent_id="maker", **change)
    await world.planner.write("after")

    async def stopped() -> Any:
        seen = await webhook_state(world.admin, made)
        return not seen["enabled"] and seen

    assert "its owner 'maker'" in (await wait_until(stopped))["reason"]
    with refused("WEBHOOK_CANNOT_RUN"):
        await world.admin.call("webhook.update", webhook_id=made["webhook_id"], enabled=True)
    assert len(there.calls) == 1


async def test_a_redirect_is_not_followed(world: World, there: Receiver) -> None:
    async with receiver() as elsewhere:
        there.status = 302
        there.headers = {"location": elsewhere.url}
        made = await hook(world.admin, there.url)
        await world.planner.write("goal")
        tried = await failed(world, made, 1)
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
    assert b'weft_webhook_deliveries_total{outcome="failed"} 1.0' in world.app.metrics.exposition()


async def test_a_receiver_that_never_answers_is_given_up_on_in_time(
    world: World, there: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.providers.webhook_sender._TIMEOUT_SECONDS", 0.1)
    there.open.clear()
    made = await hook(world.admin, there.url)
    await world.planner.write("goal")
    assert (await failed(world, made, 1))["last_error"] == "timeout"


async def test_a_receiver_that_asks_for_a_pause_gets_it(world: World, there: Receiver) -> None:
    there.status, there.headers = 429, {"retry-after": "120"}
    made = await hook(world.admin, there.url, types=["board.*"])
    await world.planner.write("one")
    await failed(world, made, 1)
    there.status = 200
    await world.planner.write("two")
    await advance_clock(world, seconds=100)
    await world.planner.write("three")
    assert len(there.calls) == 1
    await advance_clock(world, seconds=21)
    await there.wait_for_calls(4)
    assert [call.event["subject"] for call in there.calls[1:]] == ["one", "two", "three"]


async def test_a_slow_receiver_does_not_block_others(world: World, there: Receiver) -> None:
    async with receiver(host="localhost") as quick:
        there.open.clear()
        for _ in range(3):
            await hook(world.admin, there.url, types=["board.*"])
        await hook(world.admin, quick.url, types=["board.*"])
        for number in range(10):
            await world.planner.write("goal", str(number))
            await quick.wait_for_calls(number + 1)
        assert len(there.calls) <= 3


async def test_a_receiver_that_does_not_answer_does_not_keep_the_server_from_stopping(
    world: World, there: Receiver
) -> None:
    there.open.clear()
    made = await hook(world.admin, there.url, types=["board.*"])
    await world.planner.write("goal")
    await there.wait_for_calls(1)
    await world.close_app(world.app)
    there.open.set()
    world.app = await world.another_app()
    world.admin, world.planner = world.admin.at(world.app), world.planner.at(world.app)
    # Whoever comes next need not wait for a lease to end.
    await there.wait_for_calls(2)
    assert await wait_until(lambda: _counted(world, made, 1))
    assert there.times == {there.calls[0].id: 2}


async def test_a_test_event_is_sent_at_once_and_its_response_returned(world: World, there: Receiver) -> None:
    made = await hook(world.admin, there.url, types=["never.*"])
    told = await world.admin.call("webhook.test", webhook_id=made["webhook_id"])
    assert told == {"delivered": True, "status": 200, "error": None}
    (call,) = there.calls
    event = parsed(call)
    assert (event.get_type(), event.get_subject()) == ("weft.webhook.test", made["webhook_id"])
    assert Verifier(made["secret"]).verify(call.body, call.headers)
    there.status = 503
    told = await world.admin.call("webhook.test", webhook_id=made["webhook_id"])
    assert told == {"delivered": False, "status": 503, "error": "refused"}
    gone = await hook(world.admin, CLOSED)
    told = await world.admin.call("webhook.test", webhook_id=gone["webhook_id"])
    assert told == {"delivered": False, "status": None, "error": "connection_failed"}


async def test_a_deleted_webhook_is_called_no_more(world: World, there: Receiver) -> None:
    there.status = 500
    made = await hook(world.admin, there.url)
    await world.planner.write("goal")
    await failed(world, made, 1)
    await world.admin.call("webhook.delete", webhook_id=made["webhook_id"])
    await advance_clock(world, days=1)
    await world.planner.write("goal")
    assert (await world.admin.call("webhook.list"))["webhooks"] == []
    assert await world.rows("SELECT seq FROM webhook_deliveries WHERE tenant = $1", world.tenant) == []
    with refused("WEBHOOK_NOT_FOUND"):
        await world.admin.call("webhook.delete", webhook_id=made["webhook_id"])
    assert len(there.calls) == 1


async def test_what_a_deleted_session_left_is_not_sent(world: World, there: Receiver) -> None:
    there.status = 500
    made = await hook(world.admin, there.url, types=["board.*"])
    await world.planner.write("goal")
    await failed(world, made, 1)
    await world.planner.call("session.delete", session_id="s1")
    await advance_clock(world, days=1)

    async def empty() -> bool:
        return (await webhook_state(world.admin, made))["pending"] == 0

    await wait_until(empty)
    assert len(there.calls) == 1


async def test_a_secret_is_shown_once_and_on_no_record(world: World, there: Receiver) -> None:
    url = f"{there.url}?token=not-for-the-log"
    made = await hook(world.admin, url, description="the dashboard")
    seen = await world.admin.call("webhook.list")
    assert "secret" not in seen["webhooks"][0]
    written = repr(await world.admin.audit()) + repr(await world.admin.events()) + repr(seen)
    assert made["secret"] not in written
    assert "not-for-the-log" not in repr(await world.admin.audit()) + repr(await world.admin.events())
    (entry,) = [entry for entry in await world.admin.audit() if entry["action"] == "webhook.create"]
    assert (entry["target"], entry["detail"]["host"]) == (made["webhook_id"], "127.0.0.1")


@pytest.mark.parametrize(
    ("path", "told"),
    [("/hook", "/hook"), ("/services/T0/B0/not-for-all", "/service..."), ("/in?key=not-for-all", "/in?...")],
)
async def test_a_url_is_shown_without_secrets(world: World, path: str, told: str) -> None:
    host = CLOSED.removesuffix("/hook")
    made = await hook(world.admin, f"{host}{path}")
    (seen,) = (await world.admin.call("webhook.list"))["webhooks"]
    assert made["url"] == seen["url"] == f"{host}{told}"
    assert "not-for-all" not in repr([made, seen])


async def test_what_is_imported_is_no_news(world: World, there: Receiver) -> None:
    await world.planner.write("goal")
    bundle = await exported(world.planner)
    await world.admin.call("session.delete", session_id=world.planner.session)
    await hook(world.admin, there.url, types=["board.*", "session.imported"])
    await imported(world.admin, bundle)
    await world.planner.write("goal", "news")
    await there.wait_for_calls(2)
    assert there.types == ["context.surface.created", "context.item.updated"]


async def test_webhooks_are_for_admins_of_their_tenant(world: World, there: Receiver) -> None:
    made = await hook(world.admin, there.url)
    which = {"webhook_id": made["webhook_id"]}
    lead = await world.admin.create_agent("lead", parent_id="planner", permissions=["read", "write", "admin"])
    for caller in (world.planner, world.analysis, lead):
        with refused("PERMISSION_DENIED"):
            await hook(caller, there.url)
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
async def test_an_address_that_is_none_is_refused(world: World, url: str) -> None:
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
async def test_an_address_that_is_not_public_is_refused(world: World, host: str) -> None:
    with refused("ADDRESS_REFUSED"):
        await hook(world.admin, f"http://{host}/hook")


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".test"])
async def test_a_name_that_no_host_can_have_is_refused(world: World, host: str) -> None:
    with refused("ADDRESS_REFUSED"):
        await hook(world.admin, f"http://{host}/hook")


async def test_an_address_that_is_no_longer_allowed_is_not_called(world: World, there: Receiver) -> None:
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
        there.url,
    )
    made = {"webhook_id": "webhook_0123456789abcdef"}
    await world.planner.write("goal")
    assert (await failed(world, made, 1))["last_error"] == "address_refused"
    assert (await world.admin.call("webhook.test", **made))["error"] == "address_refused"
    assert there.connections == 0


async def test_there_is_a_limit_to_webhooks(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.capabilities.events.webhooks.operations.MAX_WEBHOOKS", 2)
    for _ in range(2):
        await hook(world.admin, CLOSED, types=["never.*"])
    with refused("TOO_MANY_WEBHOOKS"):
        await hook(world.admin, CLOSED)


async def test_a_webhook_that_takes_nothing_for_long_is_stopped(
    world: World, there: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.capabilities.events.webhooks.delivery.MAX_DEAD_LETTERS", 1)
    made = await hook(world.admin, there.url, types=["board.*"])
    await give_up(world, there, made, "goal")
    seen = await webhook_state(world.admin, made)
    assert (seen["enabled"], seen["dead"]) == (False, 1)
    assert "could not be delivered" in seen["reason"]


async def test_without_webhooks_writing_costs_no_poll(
    world: World, there: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    polls = 0

    async def counted(_transaction: Any) -> list[Any]:
        nonlocal polls
        polls += 1
        return []

    monkeypatch.setattr("weft.jobs.webhook_delivery._NEW_WEBHOOK_SECONDS", 3_600.0)
    monkeypatch.setattr("weft.jobs.webhook_delivery.webhooks_waiting", counted)
    for number in range(50):
        await world.planner.write("goal", str(number))
    await asyncio.sleep(0.1)
    # Two may have been scheduled before.
    assert polls <= 2


async def test_something_wrong_with_one_webhook_is_nothing_wrong_with_others(world: World, there: Receiver) -> None:
    async with receiver() as unlucky:
        await hook(world.admin, there.url)
        broken = await hook(world.admin, unlucky.url)
        await world.sql("UPDATE webhooks SET types = 'not JSON' WHERE webhook_id = $1", broken["webhook_id"])
        await world.planner.write("one")
        await there.wait_for_calls(1)
        await world.planner.write("two")
        await there.wait_for_calls(2)
        assert unlucky.calls == []
