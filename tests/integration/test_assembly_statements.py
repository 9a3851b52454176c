"""In one transaction an assembly reads each thing once: the same statement again would be the same work again.

Each transaction has a snapshot of its own, so that what may have changed since, such as rights, is read again.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pytest

from support.assemblies import add_documents, assemble, ingest
from support.statement_log import executed_by
from weftline.storage.sql.dialects.postgres import PostgresDatabase, PostgresTransaction
from weftline.storage.sql.dialects.sqlite import SqliteTransaction

if TYPE_CHECKING:
    from support.world import World

ANSWER = "The parking barrier opens with the code 7319."
TASK = "Which code opens the parking barrier?"


@pytest.mark.both_databases
@pytest.mark.parametrize("call", ["first", "next"])
async def test_no_transaction_of_an_assembly_executes_a_statement_twice(
    world: World, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    agent = world.analysis
    await add_documents(world, *(f"{ANSWER} The rule of office {number} is kept by it." for number in range(3)))
    await ingest(agent, *({"content": f"Note {number} about the parking barrier of the depot."} for number in range(8)))
    await world.planner.write("status", "The barrier is open.")
    await agent.remember("barrier", "The guard of the barrier is called Ida.")
    await world.index_sessions()
    await assemble(agent, "We arrive by car.")
    if call == "next":
        await assemble(agent, TASK)
        await ingest(agent, {"event_id": "more", "content": "And at night?"})
        await world.index_sessions()
    kind = PostgresTransaction if isinstance(world.app.database, PostgresDatabase) else SqliteTransaction
    executed = await executed_by(partial(assemble, agent, TASK, fresh=call == "first"), kind, monkeypatch)
    times = Counter((id(each.transaction), each.sql, repr(each.values)) for each in executed)
    assert any("INSERT INTO receipts" in each.sql for each in executed)
    assert [sql for (_, sql, _), count in times.items() if count > 1] == []
