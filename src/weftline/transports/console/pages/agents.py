"""Agents: the tree, what each is told, what it remembers, its keys; teams; the tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from weftline.kernel.errors import WeftlineError
from weftline.transports.console.view import Page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.responses import Response

    from weftline.access.operations import AgentInfo
    from weftline.transports.console.view import PageView

_ENTRIES = 50
# Deeper agents are indented no further.
_MAX_DEPTH = 5


class TreeRow(NamedTuple):
    """An agent, and how many of its ancestors stand above it in the table."""

    agent: AgentInfo
    depth: int


async def agents(view: PageView) -> Response:
    listed = await view.call("agent.list", after=view.query("after"), limit=200)
    rows = view.arranged(listed.agents, "agent_id", "agent_type", "kind", "participant", "parent_id", "clearance")
    is_tree = not (view.query("sort") or view.query("filter"))
    last = listed.agents[-1].agent_id if listed.has_more else None
    return view.render(
        "agents.html",
        agents=tree_of(rows) if is_tree else [TreeRow(row, 0) for row in rows],
        is_tree=is_tree,
        following=last,
    )


def tree_of(agents: Sequence[AgentInfo]) -> list[TreeRow]:
    """Return agents below their parents; one whose parent is on another page is a root here."""
    known = {each.agent_id for each in agents}
    below: dict[str | None, list[AgentInfo]] = {}
    for each in agents:
        below.setdefault(each.parent_id if each.parent_id in known else None, []).append(each)
    rows: list[TreeRow] = []
    waiting = [TreeRow(each, 0) for each in reversed(below.get(None, []))]
    while waiting:
        row = waiting.pop()
        rows.append(row)
        depth = min(row.depth + 1, _MAX_DEPTH)
        waiting += [TreeRow(each, depth) for each in reversed(below.get(row.agent.agent_id, []))]
    return rows


async def agent(view: PageView) -> Response:
    agent_id = view.part("agent_id")
    return view.render(
        "agent.html",
        agent_id=agent_id,
        definition=await _section(view, "agent.read_definition", agent_id=agent_id),
        layers=await _section(view, "layer.show", agent_id=agent_id),
        proxy=await _section(view, "conversation.settings", agent_id=agent_id),
        keys=await _section(view, "key.list", agent_id=agent_id),
        now=view.now,
        tab="agent",
    )


async def context(view: PageView) -> Response:
    """Show what was pushed and stays from session to session; that of others by its history."""
    agent_id = view.part("agent_id")
    shown = None
    if agent_id == view.actor.principal_id:
        shown = await view.call("context.read", limit=_ENTRIES, cursor=view.query("cursor"))
    entries = shown.entries if shown is not None else []
    return view.render(
        "agent_context.html",
        agent_id=agent_id,
        context=shown,
        entries=view.arranged(entries, "key", "memory_type", "written_by", "written_at", "version", "size"),
        tab="context",
    )


async def memory(view: PageView) -> Response:
    """Show the memory of an agent: its own by key, that of others as an audited inspection for admins."""
    agent_id = view.part("agent_id")
    if agent_id != view.actor.principal_id:
        inspected = None
        if view.query("inspect"):
            inspected = await view.call(
                "memory.inspect", agent_id=agent_id, limit=_ENTRIES, cursor=view.query("cursor")
            )
        return view.render("agent_memory.html", agent_id=agent_id, listed=inspected, entry=None, tab="memory")
    listed = await view.call("memory.list", session_id="all", limit=_ENTRIES, cursor=view.query("cursor"))
    key = view.query("key")
    entry = await view.call("memory.get", key=key, session_id=view.query("session")) if key else None
    return view.render("agent_memory.html", agent_id=agent_id, listed=listed, entry=entry, tab="memory")


async def _section(view: PageView, operation: str, **fields: Any) -> Any:  # noqa: ANN401 - the operation's response
    """Return what an operation answers, or its refusal, which the page shows in its place."""
    try:
        return await view.call(operation, **fields)
    except WeftlineError as error:
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


async def tenant(view: PageView) -> Response:
    """Show the caller's tenant: its plan, what is used of it, its layers and budgets."""
    listed = await _section(view, "layer.list", cursor=view.query("cursor"), limit=_ENTRIES)
    return view.render(
        "tenant.html",
        plan=await view.call("plan.show"),
        layers=listed,
        budgets=await _section(view, "budget.list"),
    )


AGENTS = (
    Page("/agents", agents, "agent.list", "Agents", "a"),
    Page("/agents/{agent_id}", agent, "agent.list"),
    Page("/agents/{agent_id}/context", context, "context.read"),
    Page("/agents/{agent_id}/memory", memory, "memory.list"),
    Page("/teams", teams, "team.list", "Teams", "t"),
    Page("/teams/{team}", team, "team.show"),
    Page("/tenant", tenant, "plan.show", "Tenant", "n"),
)
