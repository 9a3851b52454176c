"""Index rows that are lost or damaged in the database: operators are told, searches answer, texts are indexed again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.knowledge import HANDBOOK, domain, embed_quickly, put
from weftline.app.diagnostics.checks import check_collections

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = [pytest.mark.both_databases, pytest.mark.req("CE-L2")]

NAPS = [f"Quokka {number} naps under banksia {number}." for number in range(8)]
LOST = {
    "half of the rows": "DELETE FROM chunks WHERE tenant = $1 AND number % 2 = 0",
    "all rows": "DELETE FROM chunks WHERE tenant = $1",
    "the state": "DELETE FROM collections WHERE tenant = $1",
    "an old state": "UPDATE collections SET number = 3 WHERE tenant = $1",
}
JOBS = ("search.index_sessions", "search.embed_sessions", "knowledge.reindex", "knowledge.ingest")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    embed_quickly(monkeypatch)


async def alert_texts(caller: Caller) -> list[tuple[str, str]]:
    return [(each["condition"], each["message"]) for each in (await caller.call("alerts.list"))["alerts"]]


async def answers(caller: Caller, word: str) -> list[str]:
    found = await caller.call("search.query", query=word, top_k=20, low_confidence=True)
    return sorted(each["text"] for each in found["results"])


async def damaged(world: World, statement: str) -> Caller:
    """Return a caller in a new process, which reads the index from the damaged database."""
    await world.sql(statement, world.tenant)
    app = await world.another_app()
    app.lease_runner.rest = 0
    return world.admin.at(app)


@pytest.mark.parametrize("what", LOST)
async def test_messages_whose_index_rows_are_lost_are_indexed_again_and_an_alert_says_so(
    world: World, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    for text in NAPS:
        await world.admin.say(text)
    await world.index_sessions()
    assert await check_collections(world.app.database) == []
    admin = await damaged(world, LOST[what])
    (finding,) = await check_collections(world.app.database) if what != "an old state" else [None]
    assert finding is None or (finding.state, "weftline knowledge reindex-all" in finding.next_step) == (
        "problem",
        True,
    )
    during = await answers(admin, "quokka")
    assert set(during) <= set(NAPS)
    # The stored messages themselves answer meanwhile.
    stored = await admin.call("message.search", session_id="s1", query="Quokka 4 naps under banksia 4", limit=3)
    assert stored["results"][0]["message"]["content"] == NAPS[4]
    assert [record.message for record in caplog.records if record.name == "weftline.search_index"] == ["index damaged"]
    ((condition, text),) = await alert_texts(admin)
    assert condition == "index.damaged"
    assert text.startswith("A search index of the tenant was damaged in the database.")
    assert await alert_texts(world.stranger.at(admin.app)) == []
    assert b"weftline_damaged_indexes_total 1.0" in admin.app.metrics.exposition()
    await admin.app.scheduler.drain(*JOBS)
    assert await answers(admin, "quokka") == sorted(NAPS)
    assert await check_collections(world.app.database) == []
    assert len(await alert_texts(admin)) == 1


@pytest.mark.parametrize("what", [name for name in LOST if name != "the state"])
async def test_documents_whose_index_rows_are_lost_are_indexed_again(world: World, what: str) -> None:
    await domain(world.admin)
    for number, text in enumerate(NAPS):
        await put(world.admin, f"d{number}", text)
    await world.app.scheduler.drain(*JOBS)
    assert len(await answers(world.admin, "quokka")) == len(NAPS)
    admin = await damaged(world, LOST[what])
    await answers(admin, "quokka")
    assert [condition for condition, _ in await alert_texts(admin)] == ["index.damaged"]
    assert (await admin.call("knowledge.show_domain", domain=HANDBOOK))["reindexing"]
    await admin.app.scheduler.drain(*JOBS)
    assert len(await answers(admin, "quokka")) == len(NAPS)
    assert await check_collections(world.app.database) == []


async def test_damaged_vectors_leave_the_words_to_answer(world: World) -> None:
    for text in NAPS:
        await world.admin.say(text)
    await world.index_sessions()
    is_postgres = world.url.startswith("postgres")
    vector = "CAST('[1,2,3]' AS halfvec)" if is_postgres else "CAST('abc' AS BLOB)"
    admin = await damaged(world, f"UPDATE chunk_vectors SET vector = {vector} WHERE tenant = $1")
    found: Any = await answers(admin, "banksia 5")
    assert NAPS[5] in found
    if not is_postgres:
        # PostgreSQL stores no vector of another type: one of other dimensions may be of an earlier model.
        assert [condition for condition, _ in await alert_texts(admin)] == ["index.damaged"]
        await admin.app.scheduler.drain(*JOBS)
        again = await damaged(world, "UPDATE collections SET number = number WHERE tenant = $1")
        assert await answers(again, "quokka") == sorted(NAPS)
        rows = await world.rows("SELECT DISTINCT LENGTH(vector) FROM chunk_vectors WHERE tenant = $1", world.tenant)
        assert [row[0] % 2 for row in rows] == [0]


async def test_an_index_that_is_whole_raises_no_alert(world: World) -> None:
    for text in NAPS:
        await world.admin.say(text)
    await world.admin.write("roost", "Quokkas roost.")
    await world.index_sessions()
    await world.admin.delete("roost")
    await world.index_sessions()
    admin = await damaged(world, "UPDATE collections SET number = number WHERE tenant = $1")
    assert await answers(admin, "quokka") == sorted(NAPS)
    assert await alert_texts(admin) == []
