"""Attacks by a member that opens many MCP connections and subscriptions, or calls tools as fast as it can."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

from benchmarks.attacks import End, attack, flood
from benchmarks.wire import LEGACY, MODERN, Connection, McpClient, Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.attacks import Tally, Target


@attack(End.SHARED)
async def mcp_connections(target: Target, tally: Tally) -> None:
    """MCP connections that are opened and never used."""

    async def keep_opening() -> None:
        connection = await Connection.open(target.port)
        while True:
            client = McpClient(connection, target.key, LEGACY)
            try:
                await client.start()
                tally.statuses[200] += 1
            except Refused:
                tally.statuses[429] += 1
                await asyncio.sleep(0.01)
            except (OSError, EOFError):
                tally.closed += 1
                connection = await Connection.open(target.port)

    await asyncio.gather(*(keep_opening() for _ in range(16)))


@attack(End.SHARED)
async def tool_calls(target: Target, tally: Tally) -> None:
    """Tool calls as fast as they are answered."""

    def requests(_: int) -> Iterator[bytes]:
        client = McpClient(None, target.key, MODERN)  # type: ignore[arg-type]
        return itertools.repeat(client.call("shared_context", {"action": "list_keys", "session_id": target.session}))

    await flood(target, tally, requests)


@attack(End.SHARED)
async def tool_lists(target: Target, tally: Tally) -> None:
    def requests(_: int) -> Iterator[bytes]:
        client = McpClient(None, target.key, MODERN, path="/mcp/full")  # type: ignore[arg-type]
        return itertools.repeat(client.list_tools())

    await flood(target, tally, requests)


@attack(End.SHARED)
async def searches_of_tools(target: Target, tally: Tally) -> None:
    def requests(_: int) -> Iterator[bytes]:
        for number in itertools.count():
            client = McpClient(None, target.key, MODERN)  # type: ignore[arg-type]
            yield client.call("weftline_tools", {"action": "search", "query": f"merge branches {number}"})

    await flood(target, tally, requests)


@attack(End.REFUSED)
async def long_lists_of_subscriptions(target: Target, tally: Tally) -> None:
    """Twenty thousand resources that do not exist, in each call."""

    def requests(_: int) -> Iterator[bytes]:
        client = McpClient(None, target.key, MODERN)  # type: ignore[arg-type]
        return itertools.repeat(client.listen(["board://nowhere"] * 20_000))

    await flood(target, tally, requests, 4)
