"""Isolation: every operation, called by one tenant with the ids of another one, shows and changes nothing of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from weftline.insight.guidance import example_request
from weftline.kernel.errors import WeftlineError
from weftline.kernel.identity import Permission
from weftline.kernel.operation import Audience, Effect
from weftline.storage.sql.database import Scope
from weftline.validation.model import Figure, all_of, none_of
from weftline.validation.temporary_weftline import TENANT, TenantCaller, temporary_weftline

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from weftline.kernel.identity import Actor
    from weftline.kernel.operation import Operation
    from weftline.kernel.transaction import Transaction
    from weftline.settings import Settings

_OTHER = "neighbour"
_MARK, _OTHER_MARK = "quokka", "numbat"
_SESSION, _AGENT, _DOMAIN, _DOCUMENT = "work", "reviewer", "handbook", "guides/start.md"
# Tables with content; counters and logs of refusals may grow.
_TABLES = (
    *("principals", "sessions", "entries", "messages", "lines", "commits", "changes", "teams", "team_members"),
    *("api_keys", "records", "session_members", "line_signatures", "memory_entries", "documents", "domains"),
)
# Below this share, the marks are planted in too few places to show anything.
_LEAST_SEEN = 30


async def measure(settings: Settings) -> Sequence[Figure]:
    """Fill two tenants with the same names and different marks, and call everything as the admin of one of them."""
    async with temporary_weftline(settings) as home:
        await home.app.tenants.create(_OTHER)
        neighbour = TenantCaller(home.app, _OTHER)
        home_ids = await _fill(home, _MARK)
        await _fill(neighbour, _OTHER_MARK)
        own = [name async for name in _showing(home, home_ids, _MARK, reads_only=True)]
        before = await _rows(home)
        leaks = [name async for name in _showing(neighbour, home_ids, _MARK)]
        after = await _rows(home)
        changed = [table for table in _TABLES if before[table] != after[table]]
        named = [name for name in ("tenant", "tenant_id") if not await _is_refused(neighbour, name)]
    return [
        Figure(measured="operations called with ids of the other tenant", value=len(list(_ordered(home)))),
        none_of("operations that show something of the other tenant", leaks),
        none_of("tables of the other tenant that were changed", changed),
        all_of("requests that name the other tenant and are refused", 2, named),
        Figure(
            measured="operations that show the same content to its own tenant",
            value=len(own),
            target=f">= {_LEAST_SEEN}",
            met=len(own) >= _LEAST_SEEN,
        ),
    ]


async def _fill(admin: TenantCaller, mark: str) -> dict[str, Any]:
    """Add something of every kind that has the mark; return the ids of it, by the fields of requests."""
    await admin.call("agent.create", agent_id=_AGENT)
    await admin.call("agent.define", agent_id=_AGENT, role=mark)
    await admin.call("session.create", session_id=_SESSION, purpose=f"{mark} release", members=["*"])
    agent, in_session = admin.acting_as(_AGENT), {"session_id": _SESSION}
    await admin.call("board.write", **in_session, key="goal", value=f"{mark} on the board")
    await admin.call("board.snapshot", **in_session, label="before")
    await admin.call("history.branch", context_id=f"board:{_SESSION}", branch="try")
    await admin.call("message.add", **in_session, content=f"{mark} by Ada Lovelace")
    await admin.call("memory.set", key="goal", value=f"{mark} in memory")
    await admin.call("context.push", knowledge=[{"key": "goal", "value": mark}], if_version=0)
    await agent.call("context.push", knowledge=[{"key": "goal", "value": mark}], if_version=1)
    await admin.call("context.ingest", **in_session, events=[{"event_id": "e1", "content": f"{mark} in a window"}])
    await admin.call("window.checkpoint", **in_session, label="before")
    missing = await admin.call("missing.report", **in_session, question=f"Which {mark}?")
    await admin.call("layer.define", layer="tenant", text=f"{mark} policy")
    await admin.call("team.create", team="research", description=mark)
    await admin.call("knowledge.create_domain", domain=_DOMAIN, description=mark)
    text = f"# Start\n\nThe {mark} begins here."
    await admin.call("knowledge.add_document", domain=_DOMAIN, document_id=_DOCUMENT, text=text)
    await admin.call("policy.set", name="partners", definition={"description": mark})
    hook = await admin.call("webhook.create", url="https://receiver.invalid/hook", description=mark)
    await admin.call("tools.register", tools=[{"name": "tracker.search", "description": f"Find a {mark}."}])
    await admin.index()
    prompt = await admin.call("context.assemble", **in_session, task_description=f"Describe the {mark}.")
    keys = await admin.call("key.create", agent_id=_AGENT)
    return {
        **in_session,
        "agent_id": _AGENT,
        "from_agent_id": _AGENT,
        "key": "goal",
        "keys": ["goal"],
        "label": "before",
        "from_label": "before",
        "target_version": "1",
        "from_version": "1",
        "context_id": f"board:{_SESSION}",
        "from_context_id": f"board:{_SESSION}@try",
        "branch": "try",
        "message_id": 1,
        "missing_id": missing["missing_id"],
        "receipt_id": prompt["receipt_id"],
        "webhook_id": hook["webhook_id"],
        "key_id": keys["key_id"],
        "domain": _DOMAIN,
        "document_id": _DOCUMENT,
        "item": f"board:{_SESSION}/goal",
        "item_id": f"board:{_SESSION}/goal/1.1",
        "record_id": f"board:{_SESSION}/goal/1.1",
        "ids": ["e1"],
        "team": "research",
        "layer": "tenant",
        # Words that both tenants have: an answer may repeat them without having seen the mark.
        "query": "Where does it begin?",
        "contains": "on the board",
        "after": 0,
    }


def _ordered(caller: TenantCaller) -> Iterator[Operation]:
    """Yield all operations of callers with a tenant, reads first: others may delete what they would show."""
    known = [each for each in caller.app.registry if each.audience is not Audience.ANONYMOUS]
    yield from sorted(known, key=lambda each: (each.effect is not Effect.READ, each.destructive))


async def _showing(
    caller: TenantCaller, ids: dict[str, Any], mark: str, *, reads_only: bool = False
) -> AsyncIterator[str]:
    """Yield the names of the operations whose answers or errors have the mark."""
    actor = await caller.app.identify(caller.context)
    for operation in _ordered(caller):
        if reads_only and operation.effect is not Effect.READ and operation.permission is not Permission.READ:
            continue
        answers = [await _answer(caller, operation, raw) for raw in _requests(operation, actor, ids)]
        if any(mark in answer for answer in answers):
            yield operation.name


def _requests(operation: Operation, actor: Actor, ids: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield requests with ids of the other tenant: in all required fields, then also in each optional one."""
    fields = operation.request.__struct_fields__
    example = {name: value for name, value in example_request(operation, actor).items() if name in fields}
    base = {name: ids.get(name, value) for name, value in example.items()}
    yield base
    yield from ({**base, name: value} for name, value in ids.items() if name in fields and name not in base)


async def _answer(caller: TenantCaller, operation: Operation, raw: dict[str, Any]) -> str:
    """Return what an operation answers, or the text of its error."""
    try:
        return msgspec.json.encode(await caller.app.call(operation, raw, caller.context)).decode()
    except WeftlineError as error:
        return f"{error.message} {error.hint} {error.context}"


async def _rows(caller: TenantCaller) -> dict[str, list[str]]:
    """Return all rows of a tenant's tables with content."""

    async def read(transaction: Transaction) -> dict[str, list[str]]:
        found = {}
        for table in _TABLES:
            rows = await transaction.all(f"SELECT * FROM {table} WHERE tenant = $1", caller.tenant)  # noqa: S608 - ours
            found[table] = sorted(str(tuple(row)) for row in rows)
        return found

    return await caller.app.database.read(Scope(caller.tenant), read)


async def _is_refused(caller: TenantCaller, field: str) -> bool:
    try:
        await caller.call("board.list_keys", session_id=_SESSION, **{field: TENANT})
    except WeftlineError as error:
        return error.violation == "cross_tenant"
    return False
