"""Equal knowledge is stored and embedded once, as far as that tells nobody what others have stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.knowledge import HANDBOOK, QuickEmbedder, domain, embed_quickly, put

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from support.world import World

pytestmark = [
    pytest.mark.both_databases,
    pytest.mark.req(
        "CE-L4", part="values of boards and memories are stored once; documents of a domain are embedded once"
    ),
]
FACT = "A quokka naps under the banksia at noon. " * 40


@pytest.fixture(autouse=True)
def embedder(monkeypatch: pytest.MonkeyPatch) -> QuickEmbedder:
    return embed_quickly(monkeypatch)


async def test_equal_values_of_boards_and_memories_are_stored_once(world: World) -> None:
    count = "SELECT COUNT(*) FROM blobs WHERE tenant = $1"
    ((before,),) = await world.rows(count, world.tenant)
    await world.planner.write("first", FACT)
    ((once,),) = await world.rows(count, world.tenant)
    assert once > before
    await world.planner.write("second", FACT)
    await world.analysis.write("third", FACT)
    assert await world.rows(count, world.tenant) == [(once,)]
    await world.planner.write("fourth", f"{FACT} Then it eats.")
    ((more,),) = await world.rows(count, world.tenant)
    assert more > once


async def test_a_document_that_is_put_again_is_neither_stored_nor_embedded_again(
    world: World, embedder: QuickEmbedder
) -> None:
    await domain(world.admin)
    for _ in range(2):
        await put(world.admin, "naps.md", FACT)
        await world.app.scheduler.drain("knowledge.ingest")
    embedded = len(embedder.embedded)
    assert embedded
    assert (await world.admin.call("knowledge.get_document", domain=HANDBOOK, document_id="naps.md"))["version"] == 1
    await world.admin.call("knowledge.reindex", domain=HANDBOOK)
    await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    assert len(embedder.embedded) == embedded
    rows = await world.rows("SELECT COUNT(*) FROM document_contents WHERE tenant = $1", world.tenant)
    assert [tuple(row) for row in rows] == [(1,)]


async def test_equal_documents_of_a_domain_are_embedded_once_while_one_of_them_exists(
    world: World, embedder: QuickEmbedder
) -> None:
    async def embedded_by(work: Awaitable[Any]) -> int:
        before = len(embedder.embedded)
        await work
        await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
        return len(embedder.embedded) - before

    for name in (HANDBOOK, "office"):
        await domain(world.admin, name)
    once = await embedded_by(put(world.admin, "naps.md", FACT))
    assert once > 0
    assert await embedded_by(put(world.admin, "copy.md", FACT)) == 0
    # Who reads another domain does not learn by the time it takes that this one has the text.
    office = {"domain": "office", "document_id": "naps.md", "text": FACT}
    assert await embedded_by(world.admin.call("knowledge.add_document", **office)) == once
    await world.admin.call("knowledge.delete_document", domain=HANDBOOK, document_id="naps.md")
    found = await world.admin.call("search.query", query="where does it nap", domains=[HANDBOOK])
    assert found["results"][0]["document_id"] == "copy.md"
    await world.admin.call("knowledge.delete_document", domain=HANDBOOK, document_id="copy.md")
    # Nor that it had the text before it was deleted.
    assert await embedded_by(put(world.admin, "again.md", FACT)) == once
