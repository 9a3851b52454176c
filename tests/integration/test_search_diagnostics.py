"""weftline doctor reports what keeps searches from finding content."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from support.knowledge import HANDBOOK, domain, embed_quickly, put
from weftline.app.diagnostics.checks import CheckStatus, check_database
from weftline.kernel.job_store import JobStore
from weftline.search.session_cursor import start_session_reindex
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from support.world import World
    from weftline.app.diagnostics import Finding


async def findings_of(world: World, check: str, **settings: str) -> list[Finding]:
    findings = await check_database(replace(world.settings, **settings), world.clock)
    return [finding for finding in findings if finding.check == check]


async def test_failed_and_long_pending_documents_are_reported(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    embed_quickly(monkeypatch)
    await domain(world.admin)
    await put(world.admin, "a.md", "waits")
    await world.admin.call("knowledge.add_document", domain=HANDBOOK, document_id="b.md", text="fails")
    assert (await findings_of(world, "Documents"), await findings_of(world, "Indexing")) == ([], [])
    await world.sql("UPDATE documents SET state = 'failed' WHERE tenant = $1 AND document_id = 'b.md'", world.tenant)
    world.clock.advance(seconds=3_700)
    [failed], [waiting] = await findings_of(world, "Documents"), await findings_of(world, "Indexing")
    assert (failed.state, waiting.state) == (CheckStatus.WARNING, CheckStatus.WARNING)
    assert "could not be indexed" in failed.detail
    assert "wait for over an hour" in waiting.detail


async def test_search_index_lag_is_reported(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weftline.app.diagnostics.checks._MANY_EVENTS", 3)
    for number in range(3):
        await world.planner.say(f"message {number}")
    [lagging] = await findings_of(world, "Sessions", session_indexing="on")
    assert (lagging.state, "lags up to" in lagging.detail) == (CheckStatus.WARNING, True)
    assert await findings_of(world, "Sessions", session_indexing="off") == []


async def test_memory_that_was_never_indexed_is_reported(world: World) -> None:
    before = [each.detail for each in await findings_of(world, "Memory", session_indexing="on")]
    await world.app.database.write(Scope(world.tenant), lambda tx: start_session_reindex(JobStore(tx), 0))
    [unindexed] = await findings_of(world, "Memory", session_indexing="on")
    assert (unindexed.state, "not indexed yet" in unindexed.detail) == (CheckStatus.WARNING, True)
    assert unindexed.detail not in before
    await world.index_sessions()
    assert unindexed not in await findings_of(world, "Memory", session_indexing="on")


@pytest.mark.parametrize("role", ["serving", "building"])
async def test_a_missing_model_in_use_is_a_problem(world: World, role: str) -> None:
    await world.sql(
        "INSERT INTO tenant_models (tenant, model, role, since) VALUES ($1, 'remote:gone@4', $2, 1)",
        world.tenant,
        role,
    )
    [missing] = await findings_of(world, "Search model")
    assert (missing.state, "remote:gone@4" in missing.detail) == (CheckStatus.PROBLEM, True)
    assert "nothing new of theirs is indexed" in missing.detail
    await world.sql("DELETE FROM tenant_models WHERE tenant = $1", world.tenant)
    assert await findings_of(world, "Search model") == []


async def test_a_stalled_model_migration_is_reported(world: World) -> None:
    await world.sql(
        """
        INSERT INTO model_migrations (tenant, from_model, to_model, state, comparable, started_by, started_at,
            collection,
            number,
                                 embedded, problem)
        VALUES ($1, 'a', 'b', 'embedding', 1, 'admin', 1, '', 0, 0, 'The service is away.')
        """,
        world.tenant,
    )
    [stuck] = await findings_of(world, "Model migrations")
    assert (stuck.state, "show-model-migration" in stuck.next_step) == (CheckStatus.WARNING, True)
    await world.sql("UPDATE model_migrations SET finished_at = 1 WHERE tenant = $1", world.tenant)
    assert await findings_of(world, "Model migrations") == []


async def test_an_unfinished_vector_index_is_reported(world: World) -> None:
    if not world.url.startswith("postgres"):
        pytest.skip("vector indexes exist on PostgreSQL only")
    assert await findings_of(world, "Vector indexes") == []
    async with world.app.database.owning() as connection:  # type: ignore[attr-defined]
        await connection.execute("CREATE INDEX nearest_unfinished ON chunk_vector_updates (first)")
        try:
            await connection.execute(
                "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'nearest_unfinished'::regclass"
            )
            [unfinished] = await findings_of(world, "Vector indexes")
        finally:
            await connection.execute("DROP INDEX nearest_unfinished")
    assert unfinished.state is CheckStatus.WARNING
