"""Real MCP clients are told when the tools that they may use have changed, and of nothing else."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import mcp_types as types
import pytest
from mcp.shared.subscriptions import ToolsListChanged

from support.team import MODERN, tools_of, with_timeout

if TYPE_CHECKING:
    from conftest import Connect
    from support.team import Team

pytestmark = [
    pytest.mark.req("CE-F44"),
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]
STEP = "mooring"


@dataclass
class ListChanges:
    """Whether a client of the handshake era was told of a changed list."""

    received: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self.received.set()


def define(team: Team, *tools: str, step: str = STEP) -> None:
    answer = team.ask("PUT", f"/v1/steps/{step}", "planner", json={"tools": list(tools)})
    assert answer.is_success, answer.text


async def test_a_client_is_told_that_the_tools_of_its_step_have_changed(
    connect: Connect, team: Team, session: str
) -> None:
    await asyncio.to_thread(define, team, "get_messages")
    changes = ListChanges()
    options: dict[str, Any] = {} if connect.era == MODERN else {"message_handler": changes}
    async with connect("analysis", session, step=STEP, **options) as client:
        assert list(await tools_of(client)) == ["get_messages"]
        if connect.era == MODERN:
            async with client.listen(tools_list_changed=True) as subscription:
                assert subscription.honored.tools_list_changed is True
                await asyncio.to_thread(define, team, "get_messages", "search")
                assert await with_timeout(anext(subscription)) == ToolsListChanged()
        else:
            # The stream of notifications may open late.
            await asyncio.sleep(0.5)
            await asyncio.to_thread(define, team, "get_messages", "search")
            await with_timeout(changes.received.wait())
        assert set(await tools_of(client)) == {"get_messages", "search"}


async def test_a_change_that_leaves_the_list_as_it_is_is_not_announced(web: Connect, team: Team, session: str) -> None:
    if web.era != MODERN:
        pytest.skip("the order of notifications is that of one stream")
    async with (
        web("analysis", session) as client,
        client.listen(tools_list_changed=True, resource_subscriptions=[f"board://{session}/end"]) as subscription,
    ):
        await asyncio.to_thread(define, team, "search", step="another")
        await asyncio.sleep(2.5)
        await asyncio.to_thread(team.write, session, "end")
        assert (await with_timeout(anext(subscription))).uri == f"board://{session}/end"


async def test_a_revoked_caller_is_told_once_and_its_stream_ends(web: Connect, team: Team, session: str) -> None:
    if web.era != MODERN:
        pytest.skip("a stream with a session ends with its session")
    created = await asyncio.to_thread(team.ask, "POST", "/v1/agents", "admin", json={"agent_id": "docker"})
    team.keys["docker"] = created.json()["api_key"]
    async with web("docker") as client, client.listen(tools_list_changed=True) as subscription:
        key_id = team.keys["docker"].split(".")[2]
        gone = await asyncio.to_thread(team.ask, "DELETE", f"/v1/keys/{key_id}", "admin")
        assert gone.is_success, gone.text
        assert await with_timeout(anext(subscription)) == ToolsListChanged()
        with pytest.raises(StopAsyncIteration):
            await with_timeout(anext(subscription))
