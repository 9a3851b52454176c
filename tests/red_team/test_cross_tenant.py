"""Threat: a caller reaches what belongs to another tenant, by any operation and any id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from test_bad_input import OPERATIONS, VALID

from support.red_team import blocked
from support.world import SESSION
from weftline.kernel.errors import WeftlineError
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = [
    pytest.mark.req("CE-F42"),
    pytest.mark.req("CE-E", part="cross-tenant queries"),
    pytest.mark.req("CE-V", part="isolation"),
    pytest.mark.both_databases,
]
MARK = "quokka"
# They address the caller's own tenant, whatever exists elsewhere.
OWN = {"token.issue"}


@pytest.fixture
async def filled(world: World) -> World:
    """Return a world whose home tenant has something of every kind, all with a mark."""
    admin, planner = world.admin, world.planner
    await planner.write("goal", f"{MARK} on the board")
    await planner.snapshot("mark")
    await planner.say(f"{MARK} by Ada Lovelace")
    await planner.remember("goal", f"{MARK} in memory")
    await planner.call("context.push", knowledge=[{"key": "goal", "value": MARK}], if_version=0)
    await planner.call("context.ingest", session_id=SESSION, events=[{"event_id": "e1", "content": MARK}])
    await planner.call("missing.report", session_id=SESSION, question=f"{MARK}?")
    await admin.call("layer.define", layer="tenant", text=f"{MARK} policy")
    await admin.call("team.create", team="research", description=MARK)
    await admin.call("agent.define", agent_id="planner", role=MARK)
    await admin.call("knowledge.create_domain", domain="handbook", description=MARK)
    await admin.call("knowledge.add_document", domain="handbook", document_id="a.md", text=MARK)
    await admin.call("policy.set", name="outside", definition={})
    return world


async def whole_tenant(world: World) -> Any:
    """Return all rows of the home tenant, but its counters of refusals."""
    tables = [
        *("principals", "sessions", "entries", "messages", "lines", "commits", "changes", "teams", "team_members"),
        *("api_keys", "records", "session_members", "line_signatures"),
    ]
    return {
        table: sorted(map(str, map(tuple, await world.rows(f"SELECT * FROM {table} WHERE tenant = $1", world.tenant))))
        for table in tables
    }


async def answer(caller: Caller, name: str, raw: dict[str, Any]) -> str:
    try:
        return msgspec.json.encode(await caller.call(name, **raw)).decode()
    except WeftlineError as error:
        return f"{error.message} {error.hint} {error.context}"


async def test_no_operation_shows_or_changes_anything_of_another_tenant(filled: World) -> None:
    """Every operation, with ids that exist in the other tenant, by an admin with clearance 5."""
    before = await whole_tenant(filled)
    for name in sorted(OPERATIONS.keys() - OWN):
        text = await answer(filled.stranger, name, VALID[name])
        assert MARK not in text, name
    assert await whole_tenant(filled) == before


async def test_a_request_that_names_another_tenant_is_a_security_event(filled: World) -> None:
    for field in ("tenant", "tenant_id"):
        attempt = filled.stranger.call("board.list_keys", session_id=SESSION, **{field: filled.tenant})
        await blocked(filled, attempt, "INVALID_INPUT_FORMAT", violation="cross_tenant", reader=filled.stranger)


async def test_a_transaction_sees_one_tenant(filled: World) -> None:
    """Below the operations: the store of one tenant, asked for the ids of another."""

    async def count(tx: Any) -> int:
        rows = await tx.all("SELECT COUNT(*) FROM line_signatures WHERE tenant = $1", filled.other_tenant)
        return int(rows[0][0])

    assert await filled.app.database.read(Scope(filled.other_tenant), count) == 0
