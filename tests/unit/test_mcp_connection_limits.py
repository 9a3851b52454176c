"""The number of open MCP connections is limited per principal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from weftline.kernel.identity import Actor, PrincipalKind
from weftline.transports.mcp.http import OpenConnections, TooManyConnections

if TYPE_CHECKING:
    from starlette.types import Message


def actor(name: str, *ancestors: str) -> Actor:
    return Actor(
        "t", name, PrincipalKind.AGENT, name, bool(ancestors), frozenset(), 1, 0, ancestors=frozenset(ancestors)
    )


async def open_connection(connections: OpenConnections, name: str, session: str, *ancestors: str) -> None:
    async def send(message: Message) -> None:
        del message

    scope: dict[str, Any] = {"headers": []}
    answer = {"type": "http.response.start", "status": 200, "headers": [(b"mcp-session-id", session.encode())]}
    await connections.watch(scope, actor(name, *ancestors), send)(answer)


async def test_the_limit_is_per_principal_and_closing_frees_a_slot() -> None:
    open_sessions = {"a", "b", "c"}
    connections = OpenConnections(open_sessions, limit=2)
    await open_connection(connections, "greedy", "a")
    await open_connection(connections, "greedy", "b")
    with pytest.raises(TooManyConnections):
        await open_connection(connections, "greedy", "c")
    await open_connection(connections, "modest", "c")
    open_sessions.discard("a")
    await open_connection(connections, "greedy", "d")


async def test_an_open_connection_is_not_limited() -> None:
    connections = OpenConnections({"a"}, limit=1)
    await open_connection(connections, "greedy", "a")

    async def send(message: Message) -> None:
        del message

    assert connections.watch({"headers": [(b"mcp-session-id", b"a")]}, actor("greedy"), send) is send


async def test_a_tenant_leaves_connections_to_others() -> None:
    connections = OpenConnections({"a", "b"}, limit=2, tenant_limit=2)
    await open_connection(connections, "one", "a")
    await open_connection(connections, "two", "b")
    with pytest.raises(TooManyConnections, match="Your tenant"):
        await open_connection(connections, "three", "c")


async def test_an_agent_with_all_agents_below_it_leaves_connections_to_others() -> None:
    connections = OpenConnections({"a", "b", "c"}, tenant_limit=4)
    await open_connection(connections, "helper1", "a", "mallory")
    await open_connection(connections, "helper2", "b", "mallory")
    with pytest.raises(TooManyConnections, match="agents around you"):
        await open_connection(connections, "helper3", "d", "mallory")
    await open_connection(connections, "victim", "c")
