"""Agents: the tree, what each is told, what it remembers, its keys; teams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.kernel.errors import WeftError
from weft.transports.console.view import Page

if TYPE_CHECKING:
    from starlette.responses import Response

    from weft.transports.console.view import PageView


async def agents(view: PageView) -> Response:
    listed = await view.call("agent.list", after=view.query("after"), limit=200)
    rows = view.arranged(listed.agents, "agent_id", "agent_type", "kind", "participant")
    last = listed.agents[-1].agent_id if listed.has_more else None
    return view.render("agents.html", agents=rows, following=last)


async def agent(view: PageView) -> Response:
    agent_id = view.part("agent_id")
    sections: dict[str, Any] = {}
    for name, operation, fields in (
        ("definition", "agent.read_definition", {}),
        ("layers", "layer.show", {}),
        ("context", "context.read", {"owner": agent_id, "limit": 50, "cursor": view.query("cursor")}),
        ("memory", "memory.overview", {}),
        ("guardrails", "guardrail.list", {}),
        ("keys", "key.list", {}),
    ):
        sections[name] = await _section(
            view, operation, **({"agent_id": agent_id} if "owner" not in fields else {}), **fields
        )
    return view.render("agent.html", agent_id=agent_id, **sections)


async def _section(view: PageView, operation: str, **fields: Any) -> Any:  # noqa: ANN401 - the operation's response
    """Return what an operation answers, or its refusal, which the page shows in its place."""
    try:
        return await view.call(operation, **fields)
    except WeftError as error:
        return error


async def teams(view: PageView) -> Response:
    listed = await view.call("team.list", after=view.query("after"))
    return view.render(
        "teams.html",
        teams=view.arranged(listed.teams, "team", "description", "members", "updated_at"),
        following=listed.teams[-1].team if listed.has_more else None,
    )


async def team(view: PageView) -> Response:
    return view.render("team.html", team=await view.call("team.show", team=view.part("team")))


AGENTS = (
    Page("/agents", agents, "agent.list", "Agents", "a"),
    Page("/agents/{agent_id}", agent, "agent.list"),
    Page("/teams", teams, "team.list", "Teams", "t"),
    Page("/teams/{team}", team, "team.show"),
)
