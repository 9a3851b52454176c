"""MCP clients that support elicitation show the question of a held call; others wait for a human of Weftline."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from support import forked_python
from support.approvals import QUESTION, Asking, pending
from support.gateway import serving
from support.team import LEGACY, MODERN
from support.world import SESSION

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from support.world import Caller, World

TIMEOUT_SECONDS = 60
DELETE = {"action": "delete", "session_id": SESSION, "key": "goal"}
# An agent over stdio, in a process with the rule.
STDIO = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from support.approvals import Asking
from weftline.app.app import App
from weftline.settings import Settings
from weftline.transports.stdio import run
opened = App.open
async def open_with_rule(app, **options):
    app.guards.install(Asking(approver="client"))
    await opened(app, **options)
App.open = open_with_rule
run(Settings.from_environment(), tenant=sys.argv[1], principal="planner", session=None)
"""


@pytest.fixture
def database_url(empty_file: Path, tmp_path: Path) -> str:
    """Return the URL of a SQLite database: other tests of approvals run on both kinds."""
    return str(shutil.copy(empty_file, tmp_path / "weftline.db"))


@pytest.fixture(params=[LEGACY, MODERN], ids=["2025-11-25", "2026-07-28"])
def era(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def approver(world: World) -> Caller:
    await world.planner.write("goal")
    return await world.admin.create_agent("approver", kind="human", clearance=3, permissions=["read", "write"])


@dataclass(slots=True)
class User:
    """The user of a client: answers questions, and remembers them."""

    action: Any = "accept"
    content: dict[str, Any] | None = field(default_factory=lambda: {"approve": True})
    asked: list[str] = field(default_factory=list)
    waits: asyncio.Event | None = None

    async def __call__(self, context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        del context
        assert isinstance(params, types.ElicitRequestFormParams)
        assert list(params.requested_schema["properties"]) == ["approve"]
        self.asked.append(params.message)
        if self.waits is not None:
            await self.waits.wait()
        return types.ElicitResult(action=self.action, content=self.content)


@asynccontextmanager
async def served(world: World, rule: Asking) -> AsyncIterator[str]:
    """Serve the world's App over HTTP, with a rule."""
    world.app.guards.install(rule)
    async with serving(world) as url:
        yield url


@asynccontextmanager
async def connected(url: str, caller: Caller, era: str, user: User | None) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {caller.credential}"}
    async with (
        asyncio.timeout(TIMEOUT_SECONDS),
        httpx2.AsyncClient(headers=headers, timeout=TIMEOUT_SECONDS, verify=False) as http,
        Client(streamable_http_client(url, http_client=http), mode=era, elicitation_callback=user) as client,
    ):
        yield client


def path_counts(world: World) -> dict[str, int]:
    lines = world.app.metrics.exposition().decode().splitlines()
    counts = [line.split() for line in lines if line.startswith("weftline_tool_calls_total{")]
    return {name.split('"')[1]: int(float(count)) for name, count in counts}


async def test_the_user_of_a_client_approves_a_call(world: World, approver: Caller, era: str) -> None:
    user = User()
    async with (
        served(world, Asking(approver="client")) as url,
        connected(url, world.planner, era, user) as client,
    ):
        answer = await client.call_tool("shared_context", DELETE)
        assert answer.structured_content == {"deleted": "goal", "previous_version": 1}
    assert await world.planner.keys() == []
    [asked] = user.asked
    assert asked.startswith(f"{QUESTION}\n\nplanner calls board.delete: ")
    assert '"key":"goal"' in asked
    [held] = (await approver.call("approval.list"))["approvals"]
    assert (held["state"], held["decided_by"]) == ("performed", "client of orchestrator:planner")
    row = next(row for row in await world.admin.audit() if row["action"] == "approval.approve")
    assert (row["actor"], row["target"]) == ("orchestrator:planner", held["approval_id"])


@pytest.mark.parametrize(
    ("action", "content", "code", "state"),
    [
        ("decline", None, "APPROVAL_REJECTED", "rejected"),
        ("accept", {"approve": False}, "APPROVAL_REJECTED", "rejected"),
        ("cancel", None, "APPROVAL_PENDING", "pending"),
    ],
)
async def test_the_user_of_a_client_does_not_approve(
    world: World, approver: Caller, era: str, action: str, content: Any, code: str, state: str
) -> None:
    user = User(action, content)
    async with (
        served(world, Asking(approver="client")) as url,
        connected(url, world.planner, era, user) as client,
    ):
        answer = await client.call_tool("shared_context", DELETE)
        assert (answer.is_error, answer.structured_content["code"]) == (True, code)
    assert len(user.asked) == 1
    assert await world.planner.keys() == ["goal"]
    assert [held["state"] for held in (await approver.call("approval.list"))["approvals"]] == [state]


@pytest.mark.parametrize(("approver_of_rule", "user"), [("human", User()), ("client", None)])
async def test_a_client_is_not_asked_unless_the_rule_says_so_and_it_can(
    world: World, approver: Caller, era: str, approver_of_rule: str, user: User | None
) -> None:
    async with (
        served(world, Asking(approver=approver_of_rule)) as url,
        connected(url, world.planner, era, user) as client,
    ):
        answer = await client.call_tool("shared_context", DELETE)
        assert answer.structured_content["code"] == "APPROVAL_PENDING"
        [held] = await pending(approver)
        await approver.call("approval.approve", approval_id=held["approval_id"])
        answer = await client.call_tool("shared_context", DELETE)
        assert answer.structured_content["deleted"] == "goal"
    assert user is None or user.asked == []
    assert path_counts(world) == {"fast": 2}


async def test_only_calls_that_are_held_for_the_client_leave_the_fast_path(
    world: World, approver: Caller, era: str
) -> None:
    del approver
    async with (
        served(world, Asking(approver="client")) as url,
        connected(url, world.planner, era, User()) as client,
    ):
        for _ in range(3):
            read = await client.call_tool("shared_context", {"action": "read", "session_id": SESSION, "key": "goal"})
            assert not read.is_error
        assert path_counts(world) == {"fast": 3}
        await client.call_tool("shared_context", DELETE)
    # Tried on the fast path first; with the newer protocol the client then calls again, with the answer.
    assert path_counts(world) == {"fast": 4, "sdk": 1 if era == LEGACY else 2}


async def test_a_human_may_be_faster_than_the_client(world: World, approver: Caller) -> None:
    user = User(waits=asyncio.Event())
    async with (
        served(world, Asking(approver="client")) as url,
        connected(url, world.planner, LEGACY, user) as client,
    ):
        call = asyncio.create_task(client.call_tool("shared_context", DELETE))
        [held] = await pending(approver)
        while not user.asked:  # noqa: ASYNC110 - the question arrives over HTTP
            await asyncio.sleep(0.01)
        await approver.call("approval.approve", approval_id=held["approval_id"])
        assert (await call).structured_content["deleted"] == "goal"
        assert (await approver.call("approval.show", approval_id=held["approval_id"]))["decided_by"] == "human:approver"


async def test_an_answer_without_a_question_decides_nothing(world: World, approver: Caller) -> None:
    """The state ties an answer to one held call; nobody can decide about the calls of others with it."""
    async with (
        served(world, Asking(approver="client")) as url,
        connected(url, world.planner, MODERN, User()) as client,
        connected(url, world.review, MODERN, User()) as other,
    ):
        first = await client.session.call_tool("shared_context", DELETE, allow_input_required=True)
        assert isinstance(first, types.InputRequiredResult)
        yes = {"approval": types.ElicitResult(action="accept", content={"approve": True})}
        for state in (None, "approval_elsewhere", first.request_state):
            answer = await other.session.call_tool(
                "shared_context", DELETE, input_responses=yes, request_state=state, allow_input_required=True
            )
            assert isinstance(answer, types.InputRequiredResult)
            assert answer.request_state != first.request_state
        assert await world.planner.keys() == ["goal"]
        assert len(await pending(approver, 2)) == 2
        done = await client.session.call_tool(
            "shared_context", DELETE, input_responses=yes, request_state=first.request_state
        )
        assert done.structured_content["deleted"] == "goal"


async def test_the_user_of_a_client_over_stdio_approves_a_call(world: World, approver: Caller, era: str) -> None:
    user = User()
    settings = {
        "WEFTLINE_DATA_DIR": world.settings.data_dir,
        "WEFTLINE_DATABASE_URL": world.url,
        "WEFTLINE_RATE_LIMITS": "off",
    }
    server = StdioServerParameters(command=forked_python.python(), args=["-c", STDIO, world.tenant], env=settings)
    async with asyncio.timeout(TIMEOUT_SECONDS), Client(server, mode=era, elicitation_callback=user) as client:
        answer = await client.call_tool("shared_context", DELETE)
        assert answer.structured_content["deleted"] == "goal"
    assert len(user.asked) == 1
    [held] = (await approver.call("approval.list"))["approvals"]
    assert held["decided_by"] == "client of orchestrator:planner"
