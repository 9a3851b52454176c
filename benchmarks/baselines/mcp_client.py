"""A real MCP client as it comes: the official Python client or FastMCP. Runs in the environment of that client.

Reads one JSON object per line: first the client, the address and its headers, then lists of calls. Answers a line per
list: seconds of each call, and the CPU that the client itself used.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def official(url: str, headers: dict[str, str]) -> AsyncIterator[tuple[Any, Any]]:
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http), mode="auto") as client,
    ):
        yield client, client.session


@asynccontextmanager
async def fastmcp(url: str, headers: dict[str, str]) -> AsyncIterator[tuple[Any, Any]]:
    # Installed only in the environment of this client.
    library, transports = import_module("fastmcp"), import_module("fastmcp.client.transports")
    async with library.Client(transports.StreamableHttpTransport(url, headers=headers), timeout=60) as client:
        yield client, client.session


async def main() -> None:
    # It warns of every tool that is not listed.
    logging.disable(logging.WARNING)
    given = json.loads(sys.stdin.readline())
    connect = {"official": official, "fastmcp": fastmcp}[given["client"]]
    async with connect(given["url"], given["headers"]) as (client, session):
        listed = await client.list_tools()
        print(json.dumps({"tools": len(getattr(listed, "tools", listed))}), flush=True)
        for line in sys.stdin:
            work = json.loads(line)
            # Both clients validate answers against the schemas that a server lists.
            session._tool_output_schemas.update(work["output_schemas"])  # noqa: SLF001
            print(json.dumps(await run(client, work["calls"])), flush=True)


async def run(client: Any, calls: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: ANN401 - of either library
    seconds = []
    cpu = time.process_time()
    for call in calls:
        started = time.perf_counter()
        answer = await client.call_tool(call["tool"], call["arguments"])
        seconds.append(time.perf_counter() - started)
        if answer.is_error:
            raise RuntimeError(str(answer)[:500])
    return {"seconds": seconds, "cpu": time.process_time() - cpu}


if __name__ == "__main__":
    asyncio.run(main())
