"""Tokens that a tool list costs an agent before its first call, by role and profile, and tokens of typical answers.

Counted by o200k_base over what a client passes on to its model: names, descriptions and input schemas as JSON. Output
schemas are counted separately; Weftline lists none.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Baseline, Row
from benchmarks.peer import peer_party, quiet_weftline
from benchmarks.peer_load import Access, Party, query, text
from benchmarks.peer_server import NAME
from benchmarks.servers import ADMIN, TENANT, call, folder, open_app
from benchmarks.wire import LEGACY, run_async
from weftline.providers.tokenizers import TokenizerRegistry

if TYPE_CHECKING:
    Tools = list[dict[str, Any]]

PROFILES = ("default", "full", "collaboration")
_AT_MOST = {("subagent", "default"): 2_000, ("orchestrator", "default"): 2_500}
_GUIDANCE_AT_MOST = 600
_PARTS = {
    "names": "name",
    "descriptions": "description",
    "input_schemas": "inputSchema",
    "output_schemas": "outputSchema",
}
_FOR_MODELS = ("name", "description", "inputSchema")
_MESSAGES, _QUICK_MESSAGES = 200, 20
_UNANSWERABLE = "banana smoothie recipe"


def run(*, quick: bool) -> list[Row]:
    return run_async(_run(messages=_QUICK_MESSAGES if quick else _MESSAGES, peer=not quick))


async def _run(*, messages: int, peer: bool) -> list[Row]:
    with folder() as ours, folder() as theirs, ExitStack() as stack:
        keys = await _keys(str(ours / "weftline.db"))
        served = stack.enter_context(quiet_weftline(ours))
        roles = {role: Party(served, Access(token=key), LEGACY) for role, key in keys.items()}
        other = await peer_party(stack, theirs) if peer else None
        return [
            *await _lists(roles, other),
            *await _guidance(roles),
            *await _answers(roles["orchestrator"], other, messages),
        ]


async def _keys(url: str) -> dict[str, str]:
    """Create a principal of each role; return their API keys."""
    app = await open_app(url)
    try:
        await app.tenants.create(TENANT)
        orchestrator = await call(app, "agent.create", agent_id="orchestrator")
        subagent = await call(app, "agent.create", agent_id="subagent", parent_id="orchestrator")
        admin = await call(app, "key.create", agent_id=ADMIN.credential.principal_id)
    finally:
        await app.close()
    return {
        "subagent": subagent["api_key"],
        "orchestrator": orchestrator["api_key"],
        "admin": admin["api_key"],
    }


async def _lists(roles: dict[str, Party], other: Party | None) -> list[Row]:
    theirs = _tokens(await _tools(other)) if other else None
    rows = [Row(f"tool_list.peer.{part}", tokens, "tokens") for part, tokens in (theirs or {}).items()]
    for role, party in roles.items():
        for profile in PROFILES:
            tools = await _tools(replace(party, path=f"/mcp/{profile}"))
            tokens = _tokens(tools)
            name = f"tool_list.{role}.{profile}"
            rows.append(Row(f"{name}.tools", len(tools), "tools"))
            rows.append(_compared(name, tokens["total"], theirs and theirs["total"], _AT_MOST.get((role, profile))))
            rows += [Row(f"{name}.{part}", tokens[part], "tokens") for part in _PARTS]
    return rows


async def _tools(party: Party) -> Tools:
    client = await party.client()
    tools = await client.tools()
    await client.connection.close()
    return tools


def _tokens(tools: Tools) -> dict[str, int]:
    """Return the tokens of a list by part; ``total`` is what a client passes on to its model."""
    parts = {part: sum(_count(tool[field]) for tool in tools if field in tool) for part, field in _PARTS.items()}
    for_models = [{field: tool[field] for field in _FOR_MODELS if field in tool} for tool in tools]
    return {**parts, "total": _count(for_models)}


async def _guidance(roles: dict[str, Party]) -> list[Row]:
    rows = []
    for role, party in roles.items():
        client = await party.client()
        answer = await party.ask(client, "get_usage_guidance")
        rows.append(_compared(f"tool_list.{role}.guidance", _count(answer), None, _GUIDANCE_AT_MOST))
        await client.connection.close()
    return rows


async def _answers(weftline: Party, other: Party | None, messages: int) -> list[Row]:
    """Return the tokens of typical answers."""
    for party in filter(None, (weftline, other)):
        await party.fill(messages)
    rows = []
    for tool, arguments in {
        "get_messages": {"limit": 50},
        "search_context": {"query": query(7)},
    }.items():
        sizes = [
            await _answer(party, tool, session_id=party.filled, **arguments) for party in (weftline, other) if party
        ]
        rows.append(_compared(f"tool_list.answer.{tool}", *sizes))
    for name, asked in {"search": text(7), "search_unanswerable": _UNANSWERABLE}.items():
        rows.append(Row(f"tool_list.answer.{name}", await _answer(weftline, "search", query=asked), "tokens"))
    task = {"session_id": weftline.filled, "task_description": text(7), "token_budget": 4_000}
    rows.append(Row("tool_list.answer.assemble_context", await _answer(weftline, "assemble_context", **task), "tokens"))
    return rows


async def _answer(party: Party, tool: str, **arguments: Any) -> int:  # noqa: ANN401 - JSON
    client = await party.client()
    size = _count(await party.ask(client, tool, **arguments))
    await client.connection.close()
    return size


def _compared(name: str, ours: int, theirs: int | None = None, at_most: int | None = None) -> Row:
    row = Row(name, ours, "tokens")
    if theirs is not None:
        row = replace(row, baseline=Baseline(NAME, theirs), ratio=round(theirs / ours, 3))
    if at_most is not None:
        row = replace(row, target=f"at most {at_most:,}", met=ours <= at_most)
    return row


def _count(value: Any) -> int:  # noqa: ANN401 - JSON
    """Return the tokens of a text, or of any other value as JSON."""
    counter = TokenizerRegistry().named("o200k_base")
    return counter(value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False))
