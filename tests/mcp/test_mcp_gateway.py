"""Tools of MCP servers behind Weftline, as real clients of both protocol versions see and call them."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx2
import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from support.gateway import Upstream, add, serving
from support.team import LEGACY, MODERN, tools_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from support.world import Caller, World
    from weftline.settings import Settings

pytestmark = [
    pytest.mark.req("WX-13"),
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]
TIMEOUT_SECONDS = 60


@pytest.fixture
def database_url(empty_file: Path, tmp_path: Path) -> str:
    """Return the URL of a SQLite database: other tests of the gateway run on both kinds."""
    return str(shutil.copy(empty_file, tmp_path / "weftline.db"))


@pytest.fixture(params=[LEGACY, MODERN], ids=["2025-11-25", "2026-07-28"])
def era(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, gateway_commands="on")


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return Upstream(tmp_path)


@asynccontextmanager
async def connected(world: World, caller: Caller, era: str, **options: Any) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {caller.credential}"}
    async with (
        asyncio.timeout(TIMEOUT_SECONDS),
        serving(world) as url,
        httpx2.AsyncClient(headers=headers, timeout=TIMEOUT_SECONDS, verify=False) as http,
        Client(streamable_http_client(url, http_client=http), mode=era, **options) as client,
    ):
        yield client


async def test_a_client_is_told_when_other_tools_were_chosen_for_its_task(
    world: World, upstream: Upstream, era: str
) -> None:
    planets = {f"planet{number}": f"Tell the distance of planet number {number} from its star" for number in range(12)}
    upstream.say(invoice="Write an invoice for a customer", **planets)
    await add(world.admin, command=upstream.command)
    told = asyncio.Event()

    async def note(message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            told.set()

    async with connected(world, world.planner, era, message_handler=note) as client:
        assert not [name for name in await tools_of(client) if "__" in name]
        select = {"task_description": "write the customer an invoice"}
        if era == MODERN:
            async with client.listen(tools_list_changed=True) as subscription:
                await world.planner.call("tools.select", **select)
                await anext(subscription)
        else:
            # The stream of notifications may open late.
            await asyncio.sleep(0.5)
            await world.planner.call("tools.select", **select)
            await told.wait()
        assert "up__invoice" in await tools_of(client)
