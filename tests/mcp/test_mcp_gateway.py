"""Tools of MCP servers behind Weftline, as real clients of both protocol versions see and call them."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx2
import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from support.gateway import ATTACK, Upstream, add, http_upstream, serving, text
from support.mcp_upstream import QUESTION
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
TIMEOUT_SECONDS = 25


@pytest.fixture
def database_url(empty_file: Path, tmp_path: Path) -> str:
    """Return the URL of a SQLite database: other tests of the gateway run on both kinds."""
    return str(shutil.copy(empty_file, tmp_path / "weftline.db"))


@pytest.fixture(params=[LEGACY, MODERN], ids=["2025-11-25", "2026-07-28"])
def era(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, gateway_commands="on", gateway_private_hosts="127.0.0.1")


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


async def choose(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
    del context
    return types.ElicitResult(action="accept", content={"color": f"blue, to {params.message}"})


async def sample(context: object, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    del context
    (message,) = params.messages
    return types.CreateMessageResult(
        role="assistant", content=types.TextContent(text=f"green, to {message.content.text}"), model="scripted"
    )


async def texts(client: Client, name: str, /, **arguments: Any) -> str:
    """Call a tool like clients that list what they call, and return its text."""
    result = await client.call_tool(name, arguments)
    return "".join(each.text for each in result.content if isinstance(each, types.TextContent))


@pytest.mark.parametrize("over", ["legacy-stdio", "stdio", "http"])
async def test_what_a_server_asks_is_passed_on_to_the_client_of_the_call(
    world: World, upstream: Upstream, era: str, over: str
) -> None:
    asking = {"ask": "Ask the user", "think": "Ask the model"}
    async with AsyncExitStack() as stack:
        if over == "http":
            url = await stack.enter_async_context(http_upstream(**asking))
            await add(world.admin, command=None, url=url)
        else:
            upstream.say(**asking)
            legacy = "env UPSTREAM_LEGACY=yes " if over == "legacy-stdio" else ""
            await add(world.admin, command=f"{legacy}{upstream.command}")
        both = {"elicitation_callback": choose, "sampling_callback": sample}
        client = await stack.enter_async_context(connected(world, world.planner, era, **both))
        assert await texts(client, "up__ask") == f"accept: blue, to {QUESTION}"
        assert await texts(client, "up__think") == f"green, to {QUESTION}"
        through = {"action": "call", "name": "up__ask", "arguments": {}}
        assert await texts(client, "weftline_tools", **through) == f"accept: blue, to {QUESTION}"
        # What attacks is not passed on.
        assert await texts(client, "up__ask", question=ATTACK) == "cancel: None"


async def test_a_client_that_cannot_be_asked_is_not(world: World, upstream: Upstream, era: str) -> None:
    upstream.say(ask="Ask the user", think="Ask the model")
    await add(world.admin, command=f"env UPSTREAM_LEGACY=yes {upstream.command}")
    async with connected(world, world.planner, era) as client:
        assert await texts(client, "up__ask") == "cancel: None"
        assert "samples no messages" in await texts(client, "up__think")
    # Over REST nobody can be asked.
    assert await text(world.planner, "up__ask") == "cancel: None"


async def test_a_call_that_asked_goes_on_for_its_caller_only(world: World, upstream: Upstream) -> None:
    upstream.say(ask="Ask the user")
    await add(world.admin, command=upstream.command)
    async with connected(world, world.planner, MODERN, elicitation_callback=choose) as client:
        asked = await client.session.call_tool("up__ask", {}, allow_input_required=True)
        assert isinstance(asked, types.InputRequiredResult)
        answer: Any = {"server": types.ElicitResult(action="accept", content={"color": "red"})}
        given = {"input_responses": answer, "request_state": asked.request_state, "allow_input_required": True}
        async with connected(world, world.analysis, MODERN, elicitation_callback=choose) as other:
            # Somebody else makes a call of his own.
            assert isinstance(await other.session.call_tool("up__ask", {}, **given), types.InputRequiredResult)


async def test_progress_is_passed_on(world: World, upstream: Upstream, era: str) -> None:
    upstream.say(slow="Take a while")
    await add(world.admin, command=upstream.command)
    seen: list[tuple[float, float | None, str | None]] = []

    async def note(done: float, total: float | None, message: str | None) -> None:
        seen.append((done, total, message))

    async with connected(world, world.planner, era) as client:
        await client.call_tool("up__slow", {}, progress_callback=note)
    assert seen == [(1, 2, "part 1"), (2, 2, "part 2")]
