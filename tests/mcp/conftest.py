"""One server process for all MCP tests, reached by each protocol version over each transport."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from support.team import LEGACY, MODERN, Team, over_http, over_stdio, team_process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from mcp.client.client import Client


@pytest.fixture(scope="session")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    with team_process(tmp_path_factory.mktemp("team")) as team:
        yield team


@pytest.fixture
def session(team: Team) -> str:
    return team.new_session(members=["tree:planner", "reader"])


@pytest.fixture(params=[LEGACY, MODERN], ids=["2025-11-25", "2026-07-28"])
def era(request: pytest.FixtureRequest) -> str:
    return request.param


@dataclass(frozen=True, slots=True)
class Connect:
    """Connects clients with one protocol version over one transport."""

    team: Team
    transport: str
    era: str

    @asynccontextmanager
    async def __call__(
        self, agent: str, session: str | None = None, *, tools: str = "", step: str = "", **options: Any
    ) -> AsyncIterator[Client]:
        if self.transport == "stdio":
            bound = {"session": session or "", "tools": tools, "step": step}
            async with over_stdio(self.team.data, agent, self.era, **bound, **options) as client:
                yield client
        else:
            path = f"/mcp/session/{session}" if session else "/mcp"
            path += f"/tools/{tools}" if tools else f"/step/{step}" if step else ""
            async with over_http(self.team, agent, self.era, path=path, **options) as client:
                yield client


@pytest.fixture(params=["http", "stdio"])
def connect(request: pytest.FixtureRequest, team: Team, era: str) -> Connect:
    return Connect(team, request.param, era)


@pytest.fixture
def web(team: Team, era: str) -> Connect:
    """Connect over HTTP only, for behaviour that does not depend on the transport."""
    return Connect(team, "http", era)
