"""Schema migrations."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from support import forked_python
from support.databases import new_postgres_database
from support.world import refused
from weftline.kernel.clock import to_micros
from weftline.kernel.packed_text import pack
from weftline.kernel.transaction import placeholders
from weftline.models.metering import SUM_NAMES
from weftline.prompts.assembly.sql import ReceiptStore
from weftline.sessions.sql import SessionStore
from weftline.storage.migrations.runner import known_migrations, migrate, status
from weftline.storage.sql.database import SYSTEM, Scope, connect
from weftline.storage.sql.dialects.postgres import PostgresDatabase
from weftline.testing.receipts import receipt

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from weftline.kernel.transaction import Transaction
    from weftline.prompts.assembly.receipts import SavingsTotal, StoredReceipt
    from weftline.sessions.model import Session
    from weftline.storage.sql.database import Database
    from weftline.testing.clock import FrozenClock

OPEN = """
import asyncio, sys
from weftline.app.app import App
from weftline.settings import Settings

async def main():
    app = App(Settings(database_url=sys.argv[1]))
    await app.open()
    await app.tenants.create(sys.argv[2])
    await app.close()

asyncio.run(main())
"""


@pytest.fixture(params=["sqlite", "postgres"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "weftline.db")
    # The worker's database creates the roles, which are global to the server.
    request.getfixturevalue("postgres_url")
    server = request.getfixturevalue("postgres")
    return asyncio.run(new_postgres_database(server, f"empty_{secrets.token_hex(4)}", migrated=False))


@pytest.fixture
async def empty(empty_url: str) -> AsyncIterator[Database]:
    database = connect(empty_url)
    await database.open()
    yield database
    await database.close()


async def test_a_new_database_gets_every_step_once(empty: Database, clock: FrozenClock) -> None:
    names = [step.name for step in known_migrations()]
    assert [step.applied_at for step in await status(empty)] == [None] * len(names)
    assert await migrate(empty, clock) == names
    clock.advance(days=1)
    assert await migrate(empty, clock) == []
    applied = await status(empty)
    assert [step.name for step in applied] == names
    clock.advance(days=-1)
    assert {step.applied_at for step in applied} == {to_micros(clock.now())}


async def test_a_step_with_a_changed_checksum_is_refused(empty: Database, clock: FrozenClock) -> None:
    await migrate(empty, clock)
    await empty.exclusively(lambda transaction: transaction.run("UPDATE weftline_migrations SET checksum = 'other'"))
    with refused("SCHEMA_MISMATCH"):
        await migrate(empty, clock)
    with refused("SCHEMA_MISMATCH"):
        await status(empty)


async def test_an_unknown_step_is_refused(empty: Database, clock: FrozenClock) -> None:
    await migrate(empty, clock)
    await empty.exclusively(
        lambda transaction: transaction.run("INSERT INTO weftline_migrations VALUES ('9999_future', 'x', 0)")
    )
    with refused("SCHEMA_MISMATCH") as caught:
        await migrate(empty, clock)
    assert "9999_future" in caught.value.message


async def test_a_failing_step_is_rolled_back(
    empty: Database, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = known_migrations()
    broken = type(known[0])("9999_broken", "CREATE TABLE half_done (a TEXT); SELECT no_such_thing")
    monkeypatch.setattr("weftline.storage.migrations.runner.known_migrations", lambda: [*known, broken])
    with pytest.raises(Exception, match="no_such_thing"):
        await migrate(empty, clock)
    monkeypatch.undo()
    assert await migrate(empty, clock) == [step.name for step in known]


@pytest.mark.parametrize("size", [0, 200, 2_000, 50_000])
async def test_migrating_to_branches_keeps_all_values(empty: Database, clock: FrozenClock, size: int) -> None:
    await migrate(empty, clock, steps=3)
    kept = [("acme", bytes([number]) * 32, bytes([number]) * size) for number in range(20)]
    kept += [("other", name, content + b"!") for _, name, content in kept]

    async def keep(transaction: Transaction) -> None:
        for row in kept:
            await transaction.run("INSERT INTO blobs (tenant, hash, content) VALUES ($1, $2, $3)", *row)

    await empty.write(SYSTEM, keep)
    await migrate(empty, clock)
    found = await empty.read(
        SYSTEM, lambda tx: tx.all("SELECT tenant, hash, content, object FROM blobs ORDER BY tenant, hash")
    )
    assert [tuple(row) for row in found] == [(*row, None) for row in kept]


async def test_migrating_to_branches_keeps_values_unique_per_tenant(empty: Database, clock: FrozenClock) -> None:
    keep = "INSERT INTO blobs (tenant, hash, content) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
    value = (b"h" * 32, b"content")
    await migrate(empty, clock, steps=3)
    await empty.write(SYSTEM, lambda tx: tx.run(keep, "acme", *value))
    await migrate(empty, clock)
    assert await empty.write(Scope("acme"), lambda tx: tx.changed(keep, "acme", *value)) == 0
    if isinstance(empty, PostgresDatabase):
        # Without a tenant condition: row-level security separates the tenants.
        assert len(await empty.read(Scope("acme"), lambda tx: tx.all("SELECT hash FROM blobs"))) == 1
        assert not await empty.read(Scope("other"), lambda tx: tx.all("SELECT hash FROM blobs"))


async def test_migrating_to_trees_finds_the_orchestrator_of_each_agent(empty: Database, clock: FrozenClock) -> None:
    names = [step.name for step in known_migrations()]
    await migrate(empty, clock, steps=names.index("0024_agents"))
    columns = "tenant, principal_id, kind, agent_type, parent_id, clearance, permissions, created_at"
    people = [
        ("dana", "human", None),
        ("lead", "agent", "dana"),
        ("worker", "agent", "lead"),
        ("helper", "agent", "worker"),
        ("ana", "human", "worker"),
        ("second", "agent", "ana"),
    ]

    async def fill(transaction: Transaction) -> None:
        for name, kind, parent in people:
            await transaction.run(
                f"INSERT INTO principals ({columns}) VALUES ('t', $1, $2, 'x', $3, 1, '', 1)", name, kind, parent
            )

    await empty.write(SYSTEM, fill)
    await migrate(empty, clock)
    rows = await empty.read(SYSTEM, lambda tx: tx.all("SELECT principal_id, root_id FROM principals"))
    assert {row[0]: row[1] for row in rows} == {
        "dana": None,
        "lead": "lead",
        "worker": "lead",
        "helper": "lead",
        "ana": None,
        "second": "second",
    }


async def test_concurrently_started_processes_migrate_once(empty_url: str) -> None:
    processes = [
        await asyncio.create_subprocess_exec(
            forked_python.python(), "-c", OPEN, empty_url, f"t{number}", stderr=asyncio.subprocess.PIPE
        )
        for number in range(4)
    ]
    async with asyncio.timeout(60):
        complaints = [(await process.communicate())[1] for process in processes]
    assert complaints == [b""] * 4
    database = connect(empty_url)
    await database.open()
    assert all(step.applied_at for step in await status(database))
    await database.close()


@pytest.mark.req("WX-05")
async def test_participants_become_members(empty: Database, clock: FrozenClock) -> None:
    names = [step.name for step in known_migrations()]
    await migrate(empty, clock, steps=names.index("0022_session_members"))
    given = {
        "closed": '{"keep_versions":7,"participants":["subagent:*","human:dana"]}',
        "open": '{"keep_versions":7,"participants":["*"]}',
        "unset": '{"keep_versions":7}',
    }

    columns = "tenant, session_id, purpose, metadata, config, created_by, created_at, updated_at, archived_at"

    async def fill(transaction: Transaction) -> None:
        for name, config in given.items():
            values = ("acme", name, "x", "{}", config, "ada", 1, 1, 5 if name == "open" else None)
            await transaction.run(f"INSERT INTO sessions ({columns}) VALUES ({placeholders(1, 9)})", *values)

    await empty.write(SYSTEM, fill)
    await migrate(empty, clock)

    async def read(transaction: Transaction) -> tuple[dict[str, Session | None], list[tuple[str, str, int]]]:
        sessions = SessionStore(transaction)
        rows = await transaction.all("SELECT session_id, pattern, archived FROM session_members ORDER BY 1, 2")
        return {name: await sessions.find(name) for name in given}, [tuple(row) for row in rows]

    found, rows = await empty.read(Scope("acme"), read)
    assert {name: each and each.members for name, each in found.items()} == {
        "closed": ("subagent:*", "human:dana"),
        "open": ("*",),
        "unset": ("*",),
    }
    assert {each and each.config.keep_versions for each in found.values()} == {7}
    assert rows == [
        ("closed", "human:dana", 0),
        ("closed", "principal:ada", 0),
        ("closed", "subagent:*", 0),
        ("open", "*", 1),
        ("open", "principal:ada", 1),
        ("unset", "*", 0),
        ("unset", "principal:ada", 0),
    ]


@pytest.mark.req("CE-F54")
async def test_earlier_calls_claim_no_savings(empty: Database, clock: FrozenClock) -> None:
    """Their baseline counted the documents of every candidate; what of it was the conversation is not known."""
    names = [step.name for step in known_migrations()]
    await migrate(empty, clock, steps=names.index("0050_conversation_baseline"))
    made = receipt("r1", 20)
    body = msgspec.to_builtins(made)
    for name in ("document_tokens", "savings_ratio_with_documents"):
        del body["savings"][name]
    sums = {"calls": 1, "naive_baseline_tokens": 200, "engine_assembled_tokens": 80, "cost_nanos": 250_000_000}
    sums |= {"expected_cost_nanos": 250_000_000, "naive_cost_nanos": 1_000_000_000}
    counted = {name: sums.get(name, 0) for name in SUM_NAMES if name != "document_tokens"}
    key = {"tenant": "t", "kind": "assembly"}
    detail = {**key, "agent_id": "a", "session_id": "s", "step": "", "model": "m", "teams": ""}
    rows: dict[str, dict[str, str | int | float | bytes | None]] = {
        "receipts": {
            "tenant": "t",
            "receipt_id": "r1",
            "session_id": "s",
            "agent_id": "a",
            "model": "m",
            "created_at": 20,
            "naive_tokens": 200,
            "assembled_tokens": 80,
            "cached_tokens": 10,
            "cost": 0.25,
            "naive_cost": 1.0,
            "body": pack(msgspec.json.encode(body).decode()),
            "items": b"",
        },
        "usage_entries": {**detail, "seq": 1, "entry": "call", "call_id": "r1", "at": 20, **counted},
        "usage_rollups": {**detail, "unit": "day", "start": 0, **counted},
        "usage_totals": {**key, "unit": "day", "start": 0, **counted},
    }

    async def fill(transaction: Transaction) -> None:
        for table, row in rows.items():
            places = placeholders(1, len(row))
            await transaction.run(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", *row.values())

    await empty.write(SYSTEM, fill)
    await migrate(empty, clock)

    async def read(transaction: Transaction) -> tuple[StoredReceipt | None, Sequence[SavingsTotal], list[Any]]:
        receipts = ReceiptStore(transaction)
        await receipts.add(receipt("r2", 25), {})
        figures = "naive_baseline_tokens, document_tokens, engine_assembled_tokens, naive_cost_nanos"
        usage = [tuple(*(await transaction.all(f"SELECT {figures} FROM {table}"))) for table in list(rows)[1:]]
        return await receipts.find("r1"), await receipts.totals("agent", None, None, 0, 30, max_clearance=4), usage

    found, (total,), usage = await empty.write(Scope("t"), read)
    assert usage == [(80, 0, 80, 250_000_000)] * 3
    assert found is not None
    saved = found.receipt.savings
    assert (saved.naive_baseline_tokens, saved.document_tokens, saved.naive_cost) == (80, 0, 0.25)
    assert (saved.savings_ratio, saved.savings_ratio_with_documents, saved.naive_cached_tokens) == (0, 0, 10)
    # A new receipt keeps its own figures.
    assert (total.naive_baseline_tokens, total.document_tokens, total.naive_cost) == (80 + 200, 300, 1.25)
