"""Resource subscriptions over MCP: notifications of changes the subscriber may read, in both protocol versions."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING, ClassVar

import pytest
from mcp.shared.exceptions import MCPError

from support.forked_python import server_process
from support.team import LEGACY, MODERN, Board, ResourceUpdates, Team, call, over_http, over_stdio, with_timeout
from weftline import Weftline
from weftline.app.authentication import Local
from weftline.app.dispatch import CallContext
from weftline.kernel.errors import SystemUnavailable
from weftline.sessions.events.model import EventPage
from weftline.transports.mcp.caller import McpCaller
from weftline.transports.mcp.subscriptions import Watcher
from weftline.transports.resources import parse_uri

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from mcp.client.client import Client

    from conftest import Connect

pytestmark = [
    pytest.mark.req("SC-16"),
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]


@pytest.fixture
def unreadable(team: Team) -> list[str]:
    """Return URIs the planner may not subscribe to: another tenant's, unreadable, unknown and malformed ones."""
    foreign = team.new_session(agent="stranger")
    closed = team.new_session(agent="admin", members=["human:*"])
    return [f"board://{foreign}/goal", f"board://{closed}/goal", "board://nowhere/goal", "board:///x", "file:///etc"]


async def test_a_stateful_client_is_notified_of_keys_patterns_and_boards(team: Team, session: str) -> None:
    notifications = ResourceUpdates()
    async with over_http(team, "analysis", LEGACY, message_handler=notifications) as client:
        uris = [f"board://{session}/goal", f"board://{session}/go*", f"board://{session}"]
        for uri in uris:
            await client.subscribe_resource(uri)
        for uri in uris:
            await with_timeout(notifications.after(team, session, "goal", uri))
    assert set(notifications.uris) == set(uris)


async def test_a_stateless_client_is_notified_of_keys_patterns_and_boards(team: Team, session: str) -> None:
    uris = [f"board://{session}/goal", f"board://{session}/go*", f"board://{session}"]
    async with (
        over_http(team, "analysis", MODERN) as client,
        client.listen(resource_subscriptions=uris) as subscription,
    ):
        assert subscription.honored.resource_subscriptions == uris
        await asyncio.to_thread(team.write, session, "goal")
        assert {(await with_timeout(anext(subscription))).uri for _ in uris} == set(uris)


@pytest.mark.req("WX-05")
async def test_a_removed_member_is_notified_of_nothing_more(team: Team) -> None:
    session = team.new_session(members=["reader"])
    async with (
        over_http(team, "reader", MODERN) as client,
        client.listen(resource_subscriptions=[f"board://{session}", f"session://{session}"]) as subscription,
    ):
        body = {"members": ["reader"]}
        removed = await asyncio.to_thread(team.ask, "POST", f"/v1/sessions/{session}/members/remove", json=body)
        assert removed.json()["removed"] == ["reader"]
        await asyncio.to_thread(team.write, session, "goal")
        with pytest.raises(StopAsyncIteration):
            await with_timeout(anext(subscription))


async def test_subscribers_are_notified_of_their_keys_only(team: Team, session: str) -> None:
    async with (
        over_http(team, "analysis", MODERN) as client,
        client.listen(resource_subscriptions=[f"board://{session}/goal", f"board://{session}/end"]) as subscription,
    ):
        for key in ("other", "goals", "end"):
            await asyncio.to_thread(team.write, session, key)
        assert (await with_timeout(anext(subscription))).uri == f"board://{session}/end"


async def test_subscribers_are_not_notified_of_keys_they_cannot_read(team: Team, session: str) -> None:
    body = {"value": "secret", "readable_by": ["orchestrator"]}
    async with (
        over_http(team, "analysis", MODERN) as client,
        client.listen(resource_subscriptions=[f"board://{session}/secret", f"board://{session}/end"]) as subscription,
    ):
        answer = await asyncio.to_thread(
            team.ask, "PUT", f"/v1/sessions/{session}/context/secret", "planner", json=body
        )
        assert answer.status_code == 200
        await asyncio.to_thread(team.write, session, "end")
        assert (await with_timeout(anext(subscription))).uri == f"board://{session}/end"


async def test_subscribing_is_idempotent(tmp_path: Path) -> None:
    async with Weftline.open(tmp_path) as weftline:
        session = (await weftline.session.create("a test")).session_id
        caller = McpCaller(CallContext(Local("default", "admin")))
        watcher = Watcher(weftline.app)
        before = asyncio.all_tasks()
        await asyncio.gather(*(watcher.watch(parse_uri(f"board://{session}"), caller) for _ in range(20)))
        assert len(asyncio.all_tasks() - before) == 1
        watcher.close()
        late = Watcher(weftline.app)
        beginning = asyncio.create_task(late.watch(parse_uri(f"board://{session}"), caller))
        await asyncio.sleep(0)
        late.close()
        await beginning
        await asyncio.sleep(0)
        assert asyncio.all_tasks() <= before | {asyncio.current_task()}


async def test_unsubscribing_stops_notifications(team: Team, session: str) -> None:
    notifications = ResourceUpdates()
    async with over_http(team, "planner", LEGACY, message_handler=notifications) as client:
        left, kept = f"board://{session}/left", f"board://{session}/kept"
        await client.subscribe_resource(left)
        await client.subscribe_resource(kept)
        await with_timeout(notifications.after(team, session, "left", left))
        await client.unsubscribe_resource(left)
        notifications.uris.clear()
        await asyncio.to_thread(team.write, session, "left")
        await with_timeout(notifications.after(team, session, "kept", kept))
        assert left not in notifications.uris
        await client.unsubscribe_resource("board://never/subscribed")


async def test_every_uri_is_authorised_separately(team: Team, unreadable: list[str]) -> None:
    async with over_http(team, "planner", LEGACY) as client:
        for uri in unreadable:
            with pytest.raises(MCPError) as refusal:
                await client.subscribe_resource(uri)
            assert refusal.value.error.data["code"] in {"SESSION_NOT_FOUND", "RESOURCE_NOT_FOUND"}
    async with over_http(team, "planner", MODERN) as client:
        for uri in unreadable:
            with pytest.raises(MCPError) as refusal:
                async with client.listen(resource_subscriptions=[uri]):
                    pass
            assert refusal.value.error.data["code"] in {"SESSION_NOT_FOUND", "RESOURCE_NOT_FOUND"}


async def test_a_session_connection_cannot_subscribe_to_another(web: Connect, session: str) -> None:
    other = web.team.new_session()
    theirs, ours = f"board://{other}/goal", f"board://{session}/goal"
    async with web("planner", session) as client:
        with pytest.raises(MCPError) as refusal:
            await _subscribe(client, web.era, theirs)
        assert refusal.value.error.data["code"] == "SESSION_NOT_FOUND"
        assert refusal.value.error.data["uri"] == theirs
        await _subscribe(client, web.era, ours)


async def _subscribe(client: Client, era: str, uri: str) -> None:
    if era == LEGACY:
        await client.subscribe_resource(uri)
    else:
        async with client.listen(resource_subscriptions=[uri]) as subscription:
            assert subscription.honored.resource_subscriptions == [uri]


async def test_permitted_uris_of_a_mixed_list_are_subscribed(team: Team, session: str, unreadable: list[str]) -> None:
    allowed = f"board://{session}/goal"
    wanted = [*unreadable[:3], allowed, *unreadable[3:]]
    async with (
        over_http(team, "planner", MODERN) as client,
        client.listen(resource_subscriptions=wanted) as subscription,
    ):
        assert subscription.honored.resource_subscriptions == [allowed]
        await asyncio.to_thread(team.write, session, "goal")
        assert (await with_timeout(anext(subscription))).uri == allowed


async def test_updates_reach_clients_of_another_process(team: Team, session: str) -> None:
    notifications = ResourceUpdates()
    uri = f"board://{session}/goal"
    with server_process(team.data, rate_limits="off") as second:
        async with (
            over_http(team, "analysis", MODERN, url=second.url) as client,
            client.listen(resource_subscriptions=[uri]) as subscription,
        ):
            await asyncio.to_thread(team.write, session, "goal")
            assert (await with_timeout(anext(subscription))).uri == uri
        async with over_http(team, "analysis", LEGACY, url=second.url, message_handler=notifications) as client:
            await client.subscribe_resource(uri)
            await with_timeout(notifications.after(team, session, "goal", uri))


async def test_a_revoked_key_ends_the_stream(team: Team, session: str) -> None:
    agent = team.new_agent(parent_id="planner")
    async with (
        over_http(team, agent, MODERN) as client,
        client.listen(resource_subscriptions=[f"board://{session}/goal"]) as subscription,
    ):
        await asyncio.to_thread(team.revoke, agent)
        await asyncio.to_thread(team.write, session, "goal")
        assert await with_timeout(_uris(subscription)) == []


async def test_a_revoked_key_gets_no_notifications(team: Team, session: str) -> None:
    agent = team.new_agent(parent_id="planner")
    notifications, other_notifications = ResourceUpdates(), ResourceUpdates()
    uri = f"board://{session}/goal"
    async with (
        over_http(team, "planner", LEGACY, message_handler=other_notifications) as other,
        over_http(team, agent, LEGACY, message_handler=notifications) as client,
    ):
        await client.subscribe_resource(uri)
        await other.subscribe_resource(uri)
        await with_timeout(notifications.after(team, session, "goal", uri))
        await asyncio.to_thread(team.revoke, agent)
        # Notifications under way when the key was revoked may still arrive; later ones may not.
        other_notifications.uris.clear()
        await with_timeout(other_notifications.after(team, session, "goal", uri))
        notifications.uris.clear()
        for _ in range(3):
            other_notifications.uris.clear()
            await with_timeout(other_notifications.after(team, session, "goal", uri))
        assert notifications.uris == []


async def test_a_deleted_session_ends_the_stream(team: Team) -> None:
    session = team.new_session()
    async with (
        over_http(team, "planner", MODERN) as client,
        client.listen(resource_subscriptions=[f"board://{session}"]) as subscription,
    ):
        assert (await asyncio.to_thread(team.ask, "DELETE", f"/v1/sessions/{session}")).status_code == 200
        assert set(await with_timeout(_uris(subscription))) <= {f"board://{session}"}


async def test_stdio_clients_on_one_folder_are_notified_of_each_other_s_writes(tmp_path: Path, era: str) -> None:
    notifications = ResourceUpdates()
    async with over_stdio(tmp_path, "admin", era, message_handler=notifications) as first:
        session = (await call(first, "create_session", purpose="two processes")).structured_content["session_id"]
        uri = f"board://{session}/goal"
        async with over_stdio(tmp_path, "admin", era, session=session) as second:
            board = Board(second, None)
            if era == MODERN:
                async with first.listen(resource_subscriptions=[uri]) as subscription:
                    await board("write", key="goal", value="ship")
                    assert (await with_timeout(anext(subscription))).uri == uri
            else:
                await first.subscribe_resource(uri)
                await board("write", key="goal", value="ship")
                await with_timeout(notifications.of(uri))
        assert (await Board(first, session)("read", key="goal"))["value"] == "ship"


async def test_too_many_subscriptions_are_refused(team: Team, session: str) -> None:
    uris = [f"board://{session}/k{n}" for n in range(257)]
    async with over_http(team, "planner", MODERN) as client:
        with pytest.raises(MCPError, match="At most 256"):
            async with client.listen(resource_subscriptions=uris):
                pass


@pytest.mark.parametrize("uri", ["nonsense", "board://nowhere"])
async def test_long_lists_are_refused_whatever_is_in_them(team: Team, uri: str) -> None:
    async with over_http(team, "planner", MODERN) as client:
        with pytest.raises(MCPError, match="At most 256"):
            async with client.listen(resource_subscriptions=[uri] * 257):
                pass


async def test_subscriptions_of_all_connections_are_counted_together(team: Team, session: str) -> None:
    agent = await asyncio.to_thread(team.new_agent, parent_id="planner")
    uris = [f"board://{session}/k{n}" for n in range(129)]
    async with (
        over_http(team, agent, MODERN) as first,
        over_http(team, agent, MODERN) as second,
        first.listen(resource_subscriptions=uris) as subscribed,
        second.listen(resource_subscriptions=uris) as limited,
    ):
        assert [len(each.honored.resource_subscriptions) for each in (subscribed, limited)] == [129, 127]
    # Closed connections leave room.
    async with over_http(team, agent, MODERN) as third, third.listen(resource_subscriptions=uris) as subscribed:
        assert len(subscribed.honored.resource_subscriptions) == 129


async def test_a_subscription_survives_a_storage_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weftline.transports.mcp.subscriptions._RETRY_SECONDS", 0)
    watcher = Watcher(_FlakyApp())
    await watcher.watch(parse_uri("board://s1/goal"), McpCaller(CallContext("a key")))
    assert await with_timeout(anext(watcher.changes())) == "board://s1/goal"
    assert _FlakyApp.followed_after == [7, 7, 8]
    watcher.close()


class _FlakyApp:
    """An App whose storage is unavailable at the first request for events."""

    followed_after: ClassVar[list[int]] = []
    registry: ClassVar[dict[str, str]] = {"board.list_keys": "list_keys"}

    async def call(self, *_: object) -> None:
        pass

    async def position(self, _: object) -> int:
        return 7

    async def subscription(self, _: object) -> AbstractContextManager[None]:
        return nullcontext()

    async def follow(self, _: object, __: object, after: int, ___: object) -> AsyncIterator[EventPage]:
        self.followed_after.append(after)
        if len(self.followed_after) == 1:
            raise SystemUnavailable
        if len(self.followed_after) > 2:
            await asyncio.Event().wait()
        yield EventPage([], 8)
        yield EventPage(["an event"], 8)


async def test_subscriptions_to_resources_and_to_the_list_of_tools_are_advertised(team: Team, era: str) -> None:
    async with over_http(team, "planner", "auto" if era == MODERN else era) as client:
        offered = client.server_capabilities
    assert offered.resources.subscribe is True
    assert offered.tools.list_changed is True
    assert not any((offered.prompts.list_changed, offered.resources.list_changed))


async def _uris(subscription: object) -> list[str]:
    return [event.uri async for event in subscription]
