"""Documents: add, index, replace, read and delete."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import reprlib
import threading
import time
import zlib
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import msgspec
import pytest

from support.knowledge import HANDBOOK, chunks, document, domain, embed_quickly, long_text, put
from support.webhooks import wait_until
from support.world import refused
from weftline.indexing.embeddings import EmbedderUnavailable, TextRefused
from weftline.indexing.sql import CollectionStore
from weftline.knowledge.ingestion import IngestTransaction
from weftline.knowledge.sql import QueuedDocument
from weftline.providers.document_trial import DocumentTrial
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from support.knowledge import QuickEmbedder
    from support.world import World

pytestmark = pytest.mark.req("CE-F39")

TEXT = "# Leave\n\nEveryone has thirty days.\n\n# Travel\n\nTrains before planes."


@pytest.fixture
def embedder(monkeypatch: pytest.MonkeyPatch) -> QuickEmbedder:
    return embed_quickly(monkeypatch)


@pytest.fixture
async def library(embedder: QuickEmbedder, world: World) -> World:
    """Return a world with a domain that everyone may read, without pending documents."""
    await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    embedder.embedded.clear()
    await domain(world.admin, chunking={"chunk_tokens": 64, "overlap_tokens": 8})
    return world


async def listed(world: World, **which: Any) -> Any:
    return await world.planner.call("knowledge.list_documents", domain=HANDBOOK, **which)


async def read(world: World, document_id: str, **which: Any) -> Any:
    return await world.planner.call("knowledge.read_document", domain=HANDBOOK, document_id=document_id, **which)


async def document_events(world: World) -> list[tuple[str, str]]:
    events = (await world.planner.events())["events"]
    return [(event["type"], event["subject"]) for event in events if event["type"].startswith("document.")]


async def test_a_document_is_pending_until_it_is_indexed(library: World) -> None:
    added = await put(library.planner, "guides/start.md", TEXT)
    assert added == {
        "domain": HANDBOOK,
        "document_id": "guides/start.md",
        "version": 1,
        "state": "pending",
        "unchanged": False,
        "bytes": len(TEXT),
        "digest": hashlib.sha256(TEXT.encode()).hexdigest(),
    }
    assert not await chunks(library, "guides/start.md")
    before = await read(library, "guides/start.md")
    assert (before["text"], before["version"], before["state"]) == (TEXT, 1, "pending")
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    shown = await document(library.planner, "guides/start.md")
    found = await chunks(library, "guides/start.md")
    assert (shown["state"], shown["indexed_version"], shown["chunks"]) == ("indexed", 1, len(found))
    assert (shown["chunks_done"], shown["chunks_total"], shown["error"]) == (len(found), len(found), None)
    assert shown["media_type"] == "text/markdown"
    assert await document_events(library) == [
        ("document.added", "handbook/guides/start.md"),
        ("document.indexed", "handbook/guides/start.md"),
    ]
    place = await library.planner.call("knowledge.show_domain", domain=HANDBOOK)
    assert (place["documents"], place["chunks"], place["bytes"]) == (1, len(found), len(TEXT))


@pytest.mark.req("CE-F48")
async def test_every_chunk_has_exact_offsets_into_the_text(library: World) -> None:
    text = long_text(30) + "\nÜber 東京 🚢 — ende\n"
    await put(library.planner, "long.md", text)
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    found = await chunks(library, "long.md")
    assert len(found) > 64
    assert [chunk.ordinal for chunk in found] == list(range(len(found)))
    for chunk in (*found[:3], *found[-3:]):
        part = await read(library, "long.md", start=chunk.start, end=chunk.end, version=chunk.version)
        assert part["text"] == chunk.text == text[chunk.start : chunk.end]
    whole = await read(library, "long.md")
    assert (whole["text"], whole["characters"], whole["next_start"]) == (text, len(text), None)


async def test_a_long_text_is_read_in_parts(library: World) -> None:
    text = "word " * 30_000
    await put(library.planner, "long.txt", text)
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    first = await read(library, "long.txt")
    assert (len(first["text"]), first["next_start"]) == (100_000, 100_000)
    rest = await read(library, "long.txt", start=first["next_start"])
    assert first["text"] + rest["text"] == text
    assert (await read(library, "long.txt", start=10**9))["text"] == ""
    with refused("INVALID_INPUT_FORMAT"):
        await read(library, "long.txt", start=5, end=4)


async def test_chunks_carry_the_metadata_of_the_document(library: World) -> None:
    metadata = {"team": "people", "year": 2026, "draft": False}
    await put(
        library.planner,
        "a.md",
        long_text(2),
        title="Rules",
        metadata=metadata,
        pinned=True,
        importance=0.9,
        timestamp="2026-01-02T03:04:05Z",
    )
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    for chunk in await chunks(library, "a.md"):
        assert chunk.heading.startswith("Rules > Section ")
        assert (chunk.pinned, chunk.importance, chunk.source, chunk.place) == (True, 0.9, "document", HANDBOOK)
        assert msgspec.json.decode(chunk.metadata) == metadata
        assert chunk.terms
    shown = await document(library.planner, "a.md")
    assert (shown["title"], shown["metadata"], shown["timestamp"]) == ("Rules", metadata, "2026-01-02T03:04:05Z")
    await put(library.planner, "b.md", TEXT)
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    assert (await document(library.planner, "b.md"))["title"] == "Leave"
    assert {chunk.importance for chunk in await chunks(library, "b.md")} == {0.5}


async def test_adding_an_unchanged_document_does_nothing(library: World, embedder: QuickEmbedder) -> None:
    await put(library.planner, "a.md", TEXT, metadata={"x": 1})
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    embedded, events = len(embedder.embedded), await library.last_event()
    again = await put(library.planner, "a.md", TEXT, metadata={"x": 1})
    assert (again["unchanged"], again["version"], again["state"]) == (True, 1, "indexed")
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    assert (len(embedder.embedded), await library.last_event()) == (embedded, events)
    other = await put(library.planner, "a.md", TEXT, metadata={"x": 2})
    assert (other["unchanged"], other["version"]) == (False, 2)


@pytest.mark.req("CE-F43")
@pytest.mark.req("CE-F50", part="by item and content; platform data once for all tenants")
async def test_only_changed_chunks_are_embedded_again(library: World, embedder: QuickEmbedder) -> None:
    text = long_text(8)
    await put(library.planner, "a.md", text)
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    first, embedded = await chunks(library, "a.md"), len(embedder.embedded)
    await put(library.planner, "a.md", text + "\n# More\n\nOne more thing.")
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    assert len(embedder.embedded) - embedded == 1
    assert "One more thing." in embedder.embedded[-1]
    second = await chunks(library, "a.md")
    assert {chunk.version for chunk in second} == {2}
    assert len({chunk.digest for chunk in second} - {chunk.digest for chunk in first}) == 1
    state = await library.app.database.read(
        Scope(library.tenant), lambda tx: CollectionStore(tx).state(f"domain:{HANDBOOK}")
    )
    assert state.chunks == len(second)


async def test_the_old_version_is_readable_until_the_new_one_is_indexed(
    library: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weftline.jobs.ingestion._CHUNKS_AT_ONCE", 1)
    await put(library.planner, "a.md", TEXT)
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    old = await chunks(library, "a.md")
    await put(library.planner, "a.md", "One. " * 60)
    seen = []
    embed = library.app.embeddings.of_passages

    async def check_and_embed(tenant: str, texts: Any, model: str, **how: Any) -> Any:
        stored, shown = await chunks(library, "a.md"), await document(library.planner, "a.md")
        seen.append((len(stored) - len(old), shown["indexed_version"], shown["state"], shown["chunks_done"]))
        assert [chunk for chunk in stored if chunk.version == 1] == list(old)
        assert (await read(library, "a.md", version=1))["text"] == TEXT
        return await embed(tenant, texts, model, **how)

    monkeypatch.setattr(library.app.embeddings, "of_passages", check_and_embed)
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    assert seen[:2] == [(0, 1, "pending", 0), (1, 1, "pending", 1)]
    new = await chunks(library, "a.md")
    assert {chunk.version for chunk in new} == {2}
    assert (await read(library, "a.md"))["version"] == 2
    with refused("DOCUMENT_VERSION_NOT_FOUND"):
        await read(library, "a.md", version=1)


async def test_a_partially_indexed_version_does_not_change_search_results(
    library: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weftline.jobs.ingestion._CHUNKS_AT_ONCE", 1)
    await put(library.planner, "a.md", TEXT)
    await put(library.planner, "b.md", "Something else.")
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    before = await library.planner.call("search.query", query="Something", domains=[HANDBOOK])
    await put(library.planner, "a.md", "Something of each. " * 60)
    written = []
    embed = library.app.embeddings.of_passages

    async def check_and_embed(tenant: str, texts: Any, model: str, **how: Any) -> Any:
        written.append(len([chunk for chunk in await chunks(library, "a.md") if chunk.version > 1]))
        found = await library.planner.call("search.query", query="Something", domains=[HANDBOOK])
        assert found["results"] == before["results"]
        return await embed(tenant, texts, model, **how)

    with monkeypatch.context() as patched:
        patched.setattr(library.app.embeddings, "of_passages", check_and_embed)
        await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    assert written[:2] == [0, 1]
    after = await library.planner.call("search.query", query="Something", domains=[HANDBOOK])
    assert after["results"] != before["results"]


async def test_a_document_replaced_during_ingestion_is_indexed_in_its_last_version(
    library: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(library.planner, "a.md", "first")
    embed, times = library.app.embeddings.of_passages, []

    async def interrupted(tenant: str, texts: Any, model: str, **how: Any) -> Any:
        times.append(texts)
        if len(times) == 1:
            await put(library.planner, "a.md", "second")
        return await embed(tenant, texts, model, **how)

    monkeypatch.setattr(library.app.embeddings, "of_passages", interrupted)
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    assert [chunk.text for chunk in await chunks(library, "a.md")] == ["second"]
    assert (await document(library.planner, "a.md"))["indexed_version"] == 2


async def test_a_document_deleted_during_ingestion_stays_deleted(
    library: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(library.planner, "a.md", "first")
    embed = library.app.embeddings.of_passages

    async def interrupted(tenant: str, texts: Any, model: str, **how: Any) -> Any:
        await library.planner.call("knowledge.delete_document", domain=HANDBOOK, document_id="a.md")
        return await embed(tenant, texts, model, **how)

    monkeypatch.setattr(library.app.embeddings, "of_passages", interrupted)
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    assert not await chunks(library, "a.md")
    assert (await listed(library))["documents"] == []


async def test_deleting_a_document_deletes_its_chunks(library: World) -> None:
    await put(library.planner, "a.md", TEXT)
    await put(library.planner, "b.md", TEXT)
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    await library.planner.call("knowledge.delete_document", domain=HANDBOOK, document_id="a.md")
    assert not await chunks(library, "a.md")
    assert await chunks(library, "b.md")
    for operation in ("get_document", "read_document", "delete_document"):
        with refused("DOCUMENT_NOT_FOUND"):
            await library.planner.call(f"knowledge.{operation}", domain=HANDBOOK, document_id="a.md")
    rows = await library.rows("SELECT document_id FROM document_contents WHERE tenant = $1", library.tenant)
    assert [row[0] for row in rows] == ["b.md"]
    place = await library.planner.call("knowledge.show_domain", domain=HANDBOOK)
    assert (place["documents"], place["bytes"]) == (1, len(TEXT))


async def test_an_unreadable_document_fails_with_a_reason_and_keeps_the_indexed_version(library: World) -> None:
    await put(library.planner, "paper", "plain for now")
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    broken = base64.b64encode(b"%PDF-1.7\nnothing of a PDF").decode()
    await library.planner.call("knowledge.add_document", domain=HANDBOOK, document_id="paper", content=broken)
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    shown = await document(library.planner, "paper")
    assert (shown["state"], shown["version"], shown["indexed_version"]) == ("failed", 2, 1)
    assert shown["error"].startswith("The PDF is damaged")
    assert shown["error"].endswith("Save it again and add it.")
    assert [chunk.text for chunk in await chunks(library, "paper")] == ["plain for now"]
    assert [event for event, _ in await document_events(library)][-1] == "document.failed"
    assert [each["document_id"] for each in (await listed(library, state="failed"))["documents"]] == ["paper"]
    assert (await library.planner.call("knowledge.show_domain", domain=HANDBOOK))["failed"] == 1
    again = await library.planner.call("knowledge.add_document", domain=HANDBOOK, document_id="paper", content=broken)
    assert (again["unchanged"], again["state"]) == (False, "pending")
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    assert (await document(library.planner, "paper"))["state"] == "failed"
    await put(library.planner, "paper", "mended")
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    assert (await document(library.planner, "paper"))["state"] == "indexed"


async def test_ingestion_is_retried_while_the_embedder_is_unavailable(
    library: World, embedder: QuickEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unavailable(texts: Any, purpose: Any) -> Any:
        raise EmbedderUnavailable

    await put(library.planner, "a.md", TEXT)
    with monkeypatch.context() as patched:
        patched.setattr(embedder, "embed", unavailable)
        await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    shown = await document(library.planner, "a.md")
    assert (shown["state"], shown["error"]) == ("pending", None)
    library.clock.advance(seconds=16)
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    assert (await document(library.planner, "a.md"))["state"] == "indexed"


@pytest.mark.req("CE-F52")
async def test_the_lease_is_renewed_during_a_long_ingestion(
    library: World, embedder: QuickEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weftline.jobs.runner._RENEW_EVERY_SECONDS", 0.01)
    await put(library.planner, "a.md", TEXT)
    embed = embedder.embed

    async def lease() -> int:
        rows = await library.rows("SELECT lease_until FROM documents WHERE tenant = $1", library.tenant)
        return rows[0][0]

    async def is_later(before: int) -> bool:
        return await lease() > before

    async def embed_slowly(texts: Any, purpose: Any) -> Any:
        before = await lease()
        library.clock.advance(seconds=50)
        await wait_until(lambda: is_later(before))
        return await embed(texts, purpose)

    monkeypatch.setattr(embedder, "embed", embed_slowly)
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    assert (await document(library.planner, "a.md"))["state"] == "indexed"


async def test_a_text_the_embedder_refuses_fails_its_document_only(
    library: World, embedder: QuickEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed = embedder.embed

    async def refusing(texts: Any, purpose: Any) -> Any:
        if any("poison" in text for text in texts):
            raise TextRefused("The embedding service permanently refuses a text, while it accepts others.")
        return await embed(texts, purpose)

    monkeypatch.setattr(embedder, "embed", refusing)
    await put(library.planner, "a.md", f"{TEXT}\n\npoison")
    await put(library.planner, "b.md", TEXT)
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    failed = await document(library.planner, "a.md")
    assert (failed["state"], failed["chunks"]) == ("failed", 0)
    assert "permanently refuses a text" in failed["error"]
    assert (await document(library.planner, "b.md"))["state"] == "indexed"


async def test_a_failed_document_leaves_no_chunks_of_unfinished_versions(
    library: World, embedder: QuickEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(library.planner, "a.md", TEXT)
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    found = [chunk.number for chunk in await chunks(library, "a.md")]
    embed, batches = embedder.embed, 0

    async def unavailable(texts: Any, purpose: Any) -> Any:
        nonlocal batches
        batches += 1
        if batches > 1:
            raise EmbedderUnavailable
        return await embed(texts, purpose)

    monkeypatch.setattr("weftline.jobs.ingestion._CHUNKS_AT_ONCE", 2)
    with monkeypatch.context() as patched:
        patched.setattr(embedder, "embed", unavailable)
        await put(library.planner, "a.md", long_text(6))
        await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    assert {chunk.version for chunk in await chunks(library, "a.md")} == {1, 2}
    broken = base64.b64encode(b"%PDF-1.7\nnothing of a PDF").decode()
    await library.planner.call("knowledge.add_document", domain=HANDBOOK, document_id="a.md", content=broken)
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    assert (await document(library.planner, "a.md"))["state"] == "failed"
    assert [chunk.number for chunk in await chunks(library, "a.md")] == found


async def test_an_empty_document_is_indexed_without_chunks(library: World) -> None:
    await put(library.planner, "empty.txt", "")
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    shown = await document(library.planner, "empty.txt")
    assert (shown["state"], shown["chunks"]) == ("indexed", 0)
    assert (await read(library, "empty.txt"))["text"] == ""


async def test_documents_are_listed_in_pages_and_by_state(library: World) -> None:
    for each in range(5):
        await put(library.planner, f"d{each}", f"text {each}")
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    await put(library.planner, "d2", "other")
    first = await listed(library, limit=2)
    assert [each["document_id"] for each in first["documents"]] == ["d0", "d1"]
    rest = await listed(library, cursor=first["next_cursor"])
    assert [each["document_id"] for each in rest["documents"]] == ["d2", "d3", "d4"]
    assert (rest["has_more"], rest["next_cursor"]) == (False, None)
    assert [each["document_id"] for each in (await listed(library, state="pending"))["documents"]] == ["d2"]
    by_state = await listed(library, state="indexed", limit=3)
    assert [each["document_id"] for each in by_state["documents"]] == ["d0", "d1", "d3"]


async def test_a_batch_of_documents_is_atomic(library: World) -> None:
    documents = [{"document_id": f"d{each}", "text": f"text {each}"} for each in range(100)]
    answer = await library.planner.call("knowledge.add_documents", domain=HANDBOOK, documents=documents)
    assert [each["version"] for each in answer["documents"]] == [1] * 100
    bad = [{"document_id": "x", "text": "x"}, {"document_id": "../y", "text": "y"}]
    for wrong in (bad, [bad[0], bad[0]], [{"document_id": "x"}], []):
        with refused("INVALID_INPUT_FORMAT"):
            await library.planner.call("knowledge.add_documents", domain=HANDBOOK, documents=wrong)
    place = await library.planner.call("knowledge.show_domain", domain=HANDBOOK)
    assert (place["documents"], place["pending"]) == (100, 100)
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    assert (await library.planner.call("knowledge.show_domain", domain=HANDBOOK))["chunks"] == 100


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ({}, "INVALID_INPUT_FORMAT"),
        ({"text": "x", "content": "eA=="}, "INVALID_INPUT_FORMAT"),
        ({"content": "not base64!"}, "INVALID_INPUT_FORMAT"),
        ({"text": "half \ud800"}, "INVALID_INPUT_FORMAT"),
        ({"text": "x", "document_id": "/etc/passwd"}, "INVALID_INPUT_FORMAT"),
        ({"text": "x", "document_id": "a/../b"}, "INVALID_INPUT_FORMAT"),
        ({"text": "x", "document_id": "a\nb"}, "INVALID_INPUT_FORMAT"),
        ({"text": "x", "metadata": {"nested": {"a": 1}}}, "INVALID_INPUT_FORMAT"),
        ({"text": "x", "importance": 1.5}, "INVALID_INPUT_FORMAT"),
        ({"text": "é" * (8 * 2**20 + 1)}, "DOCUMENT_TOO_LARGE"),
        ({"text": "x", "domain": "nowhere"}, "DOMAIN_NOT_FOUND"),
    ],
    ids=reprlib.repr,
)
async def test_invalid_documents_are_refused(library: World, what: dict[str, Any], code: str) -> None:
    with refused(code):
        await library.planner.call("knowledge.add_document", **{"domain": HANDBOOK, "document_id": "a", **what})
    assert (await listed(library))["documents"] == []


async def test_control_characters_keep_offsets_exact(library: World) -> None:
    text = "line one\r\nline two \u2028 \x1b[2J \ufeff end"
    await put(library.planner, "odd.txt", text)
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    shown = await document(library.planner, "odd.txt")
    assert shown["state"] == "indexed"
    whole = (await read(library, "odd.txt"))["text"]
    for chunk in await chunks(library, "odd.txt"):
        assert whole[chunk.start : chunk.end] == chunk.text


async def test_a_reader_cannot_add_or_delete_documents(library: World) -> None:
    reader = await library.admin.create_agent("reader", agent_type="reader", permissions=["read"])
    with refused("PERMISSION_DENIED"):
        await put(reader, "a.md", "x")
    with refused("PERMISSION_DENIED"):
        await reader.call("knowledge.delete_document", domain=HANDBOOK, document_id="a.md")
    assert (await reader.call("knowledge.list_documents", domain=HANDBOOK))["documents"] == []


@pytest.mark.req("CE-F12", part="pinned chunks come with every result")
async def test_pinning_needs_clearance_3(library: World) -> None:
    with refused("PERMISSION_DENIED") as caught:
        await put(library.review, "a.md", "x", pinned=True)
    assert caught.value.context["required_clearance"] == 3
    await put(library.review, "a.md", "x")
    await put(library.planner, "a.md", "x", pinned=True)
    assert (await document(library.review, "a.md"))["pinned"]


async def test_adding_and_deleting_documents_is_audited_without_content(library: World) -> None:
    secret = {"text": "the secret", "title": "the secret", "metadata": {"note": "the secret"}}
    await library.planner.call("knowledge.add_document", domain=HANDBOOK, document_id="a.md", **secret)
    await library.planner.call("knowledge.add_document", domain=HANDBOOK, document_id="a.md", **secret)
    several = [{"document_id": "a.md", "text": "the secret, changed"}, {"document_id": "b.md", "text": "the secret"}]
    await library.planner.call("knowledge.add_documents", domain=HANDBOOK, documents=several)
    await library.review.call("knowledge.delete_document", domain=HANDBOOK, document_id="a.md")
    rows = [row for row in await library.admin.audit() if "document" in row["action"]]
    assert sorted((row["action"], row["target"], row["agent_id"], row["detail"]) for row in rows) == [
        ("knowledge.add_document", "handbook/a.md", "planner", {"domain": HANDBOOK, "version": 1}),
        ("knowledge.add_documents", "handbook/a.md", "planner", {"domain": HANDBOOK, "version": 2}),
        ("knowledge.add_documents", "handbook/b.md", "planner", {"domain": HANDBOOK, "version": 1}),
        ("knowledge.delete_document", "handbook/a.md", "review-2", {"domain": HANDBOOK}),
    ]
    assert "the secret" not in str(rows)


async def die_while_ingesting(library: World, document_id: str, *others: str) -> None:
    """Have a process lease documents and die while it ingests them."""
    app = await library.another_app()
    ingestion = app.ingestion
    for name in (document_id, *others):
        waiting = QueuedDocument(HANDBOOK, name)
        take = partial(IngestTransaction.take, queued=waiting, holder=ingestion._holder)
        await ingestion._ingests.write(library.tenant, take)
    library.clock.advance(seconds=61)


# Longer than the rest of a document after interrupted attempts.
LONG_REST = 3601


async def ingest_after_rest(library: World) -> None:
    library.clock.advance(seconds=LONG_REST)
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")


@pytest.mark.req("CE-F52")
async def test_a_document_is_not_given_up_however_many_processes_stopped(library: World) -> None:
    for name in ("a.md", "b.md"):
        await put(library.planner, name, TEXT)
    for _ in range(9):
        await die_while_ingesting(library, "a.md", "b.md")
        assert (await read(library, "a.md"))["text"] == TEXT
    await ingest_after_rest(library)
    assert {(await document(library.planner, name))["state"] for name in ("a.md", "b.md")} == {"indexed"}


@pytest.mark.req("CE-F52")
async def test_a_document_that_stops_its_own_process_fails_but_stays_readable(
    library: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # More than a process has left after its start, which is not nothing.
    large = f"{TEXT}\n\n" * 3_000
    await put(library.planner, "crashing.md", large)
    await put(library.planner, "b.md", TEXT)
    await die_while_ingesting(library, "crashing.md", "b.md")
    await die_while_ingesting(library, "crashing.md")
    monkeypatch.setattr(library.app.ingestion, "_trial", DocumentTrial(memory_bytes=2**20))
    await ingest_after_rest(library)
    failed = await document(library.planner, "crashing.md")
    assert (failed["state"], (await document(library.planner, "b.md"))["state"]) == ("failed", "indexed")
    assert "runs out of memory or time, or crashes" in failed["error"]
    kept = await read(library, "crashing.md", end=len(TEXT))
    assert (kept["text"], kept["state"]) == (TEXT, "failed")
    await put(library.planner, "crashing.md", f"{TEXT} Repaired.")
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    assert (await document(library.planner, "crashing.md"))["state"] == "indexed"


async def test_an_interrupted_document_rests_longer_each_time(library: World) -> None:
    await put(library.planner, "a.md", TEXT)

    async def queued() -> bool:
        await library.app.ingestion.due(library.app.scheduler._entries["knowledge.ingest"].queue)
        return bool(await library.app.ingestion._queued(library.tenant))

    for _ in range(5):
        assert await queued()
        await die_while_ingesting(library, "a.md")
        library.clock.advance(seconds=15)
    for seconds, expected in ((0, False), (43, False), (2, True)):
        library.clock.advance(seconds=seconds)
        assert await queued() is expected, seconds


@pytest.mark.parametrize("error", [MemoryError, OSError("too many open files")])
async def test_what_the_server_lacks_is_not_a_fault_of_the_document(
    library: World, monkeypatch: pytest.MonkeyPatch, error: Any
) -> None:
    await put(library.planner, "a.md", TEXT)
    with monkeypatch.context() as patched:
        patched.setattr(library.app.ingestion._reader, "read", Mock(side_effect=error))
        for _ in range(4):
            await ingest_after_rest(library)
            assert (await document(library.planner, "a.md"))["state"] == "pending"
    await ingest_after_rest(library)
    assert (await document(library.planner, "a.md"))["state"] == "indexed"


async def test_the_latest_version_is_readable_before_it_is_indexed(library: World) -> None:
    await put(library.planner, "a.md", "first")
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    await put(library.planner, "a.md", "<p>second", media_type="text/html")
    old, new = await read(library, "a.md"), await read(library, "a.md", version=2)
    assert (old["text"], old["version"], old["state"]) == ("first", 1, "indexed")
    assert (new["text"], new["version"], new["state"], new["media_type"]) == ("second", 2, "pending", "text/html")
    with refused("DOCUMENT_VERSION_NOT_FOUND") as caught:
        await read(library, "a.md", version=3)
    assert (caught.value.context["indexed_version"], caught.value.context["latest_version"]) == (1, 2)


async def test_content_that_is_no_text_says_so_when_it_is_read(library: World) -> None:
    picture = base64.b64encode(b"\x89PNG\r\n").decode()
    await library.planner.call("knowledge.add_document", domain=HANDBOOK, document_id="a.png", content=picture)
    for _ in range(2):
        with refused("DOCUMENT_UNREADABLE"):
            await read(library, "a.png")
        await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    assert (await document(library.planner, "a.png"))["state"] == "failed"


@pytest.mark.req("CE-F52")
async def test_a_document_that_may_have_crashed_a_process_is_retried_alone(
    library: World, embedder: QuickEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"d{each}.md" for each in range(6)]
    for name in names:
        await put(library.planner, name, f"{name} {TEXT}")
    await die_while_ingesting(library, *names[:3])
    embed, running_at = embedder.embed, {}

    async def check_and_embed(texts: Any, purpose: Any) -> Any:
        running = library.app.scheduler._entries["knowledge.ingest"].queue.running
        running_at.update({name: len(running) for name in names if any(name in text for text in texts)})
        await asyncio.sleep(0.01)
        return await embed(texts, purpose)

    monkeypatch.setattr(embedder, "embed", check_and_embed)
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    assert [running_at[name] for name in names[:3]] == [1, 1, 1]
    assert {(await document(library.planner, name))["state"] for name in names} == {"indexed"}


@pytest.mark.req("CE-T", part="all limits of what exists")
async def test_ingestion_is_fair_between_tenants(library: World, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, max_reading, running = Counter(), Counter(), []
    read_document = library.app.ingestion._reader.read

    def read_slowly(content: bytes, media_type: str | None, name: str) -> Any:
        tenant = name.partition("-")[0]
        reading[tenant] += 1
        running.append(Counter(key[0] for key in library.app.scheduler._entries["knowledge.ingest"].queue.running))
        max_reading[tenant] = max(max_reading[tenant], reading[tenant])
        done = read_document(content, media_type, name)
        reading[tenant] -= 1
        return done

    monkeypatch.setattr(library.app.ingestion._reader, "read", read_slowly)
    await domain(library.stranger)
    for each in range(8):
        await put(library.planner, f"ours-{each}", TEXT)
        await put(library.stranger, f"theirs-{each}", TEXT)
    await library.app.scheduler.drain("knowledge.ingest")
    assert max(max(tenants.values()) for tenants in running) <= 4
    assert all(len(tenants) == 2 for tenants in running[:6])
    assert dict(max_reading) == {"ours": 1, "theirs": 1}


@pytest.mark.req("CE-T", part="all limits of what exists")
async def test_slow_documents_of_one_agent_do_not_hold_up_those_of_others(
    library: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostile agent adds many documents that take as long to parse as one may; others wait for one of them."""
    read_order: list[str] = []
    read_document = library.app.ingestion._reader.read

    def read_slowly(content: bytes, media_type: str | None, name: str) -> Any:
        read_order.append(name)
        time.sleep(0.05 if name.startswith("bomb") else 0)
        return read_document(content, media_type, name)

    monkeypatch.setattr(library.app.ingestion._reader, "read", read_slowly)
    for each in range(30):
        await put(library.analysis, f"bomb-{each}", TEXT)
    await put(library.planner, "handbook", TEXT)
    await library.app.scheduler.drain("knowledge.ingest")
    assert read_order.index("handbook") <= 2
    assert len(read_order) == 31


@pytest.mark.req("CE-T", part="all limits of what exists")
async def test_a_small_document_is_ready_before_the_large_ones_of_its_author(
    library: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table, a mailbox and a notebook are queued first; each is read once the small one is ready."""
    large = {
        "table.csv": "day,place,amount\n" + "".join(f"{each},Oslo,{each * 7}\n" for each in range(400)),
        "mail.mbox": "".join(
            f"From a@b.c Mon Jan  1 10:00:00 2026\nFrom: a@b.c\nSubject: Note {each}\n\nHello {each}.\n\n"
            for each in range(100)
        ),
        "notebook.ipynb": msgspec.json.encode(
            {
                "cells": [{"cell_type": "code", "source": [f"print({each})"], "outputs": []} for each in range(120)],
                "metadata": {},
                "nbformat": 4,
            }
        ).decode(),
    }
    indexed = threading.Event()
    ingestion = library.app.ingestion
    read_document, count_document = ingestion._reader.read, ingestion._metrics.count_document

    def read_late(content: bytes, media_type: str | None, name: str) -> Any:
        assert name not in large or indexed.wait(20), f"{name} was read first"
        return read_document(content, media_type, name)

    def count(outcome: str) -> None:
        indexed.set()
        count_document(outcome)

    monkeypatch.setattr("weftline.jobs.ingestion.LARGE_BYTES", 5_000)
    monkeypatch.setattr(ingestion._reader, "read", read_late)
    monkeypatch.setattr(ingestion._metrics, "count_document", count)
    for name, text in large.items():
        assert len(text) > 5_000
        await put(library.planner, name, text)
    await put(library.planner, "small.md", TEXT)
    await library.app.scheduler.drain("knowledge.ingest")
    done = [subject.partition("/")[2] for kind, subject in await document_events(library) if kind == "document.indexed"]
    assert done[0] == "small.md"
    assert set(done) == {"small.md", *large}


async def test_several_processes_index_each_document_once(library: World, embedder: QuickEmbedder) -> None:
    other = await library.another_app()
    documents = [{"document_id": f"d{each}", "text": f"text {each}"} for each in range(60)]
    await library.planner.call("knowledge.add_documents", domain=HANDBOOK, documents=documents)
    await asyncio.gather(
        library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest"),
        other.scheduler.drain("knowledge.reindex", "knowledge.ingest"),
    )
    place = await library.planner.call("knowledge.show_domain", domain=HANDBOOK)
    assert (place["chunks"], place["pending"]) == (60, 0)
    assert len(embedder.embedded) == 60


async def test_concurrent_puts_of_a_document_count_it_once(library: World) -> None:
    await asyncio.gather(*(put(library.planner, "a.md", f"text {each}") for each in range(8)))
    shown = await document(library.planner, "a.md")
    place = await library.planner.call("knowledge.show_domain", domain=HANDBOOK)
    assert (shown["version"], place["documents"], place["bytes"]) == (8, 1, shown["bytes"])


async def test_metrics_count_documents_and_chunks(library: World) -> None:
    def figures() -> dict[str, float]:
        lines = library.app.metrics.exposition().decode().splitlines()
        found = (line.rpartition(" ") for line in lines if line.startswith(("weftline_documents", "weftline_chunks")))
        return {name: float(value) for name, _, value in found}

    before = figures()
    await put(library.planner, "a.md", TEXT)
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    after, indexed = figures(), 'weftline_documents_total{outcome="indexed"}'
    assert after[indexed] - before.get(indexed, 0) == 1
    assert after["weftline_chunks_total"] - before["weftline_chunks_total"] == len(await chunks(library, "a.md"))
    assert "weftline_documents_pending" in after


async def test_the_worker_ingests_new_documents_automatically(
    embedder: QuickEmbedder, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = await world.another_app()
    app.scheduler.paused.clear()
    await domain(world.admin)

    for name in ("a.md", "b.md"):
        await put(world.planner.at(app), name, TEXT)

        async def indexed(name: str = name) -> bool:
            return (await document(world.planner, name))["state"] == "indexed"

        await wait_until(indexed)


UNREPRESENTABLE_TIMES = ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"]


@pytest.mark.parametrize("timestamp", UNREPRESENTABLE_TIMES)
async def test_a_timestamp_out_of_range_in_utc_is_refused(library: World, timestamp: str) -> None:
    with refused("INVALID_INPUT_FORMAT") as caught:
        await put(library.planner, "odd.md", TEXT, timestamp=timestamp)
    assert "between 0001-01-01T00:00:00Z and 9999-12-31T23:59:59Z" in caught.value.message
    assert (await listed(library))["documents"] == []


@pytest.mark.parametrize("timestamp", UNREPRESENTABLE_TIMES)
async def test_a_timestamp_in_a_text_out_of_range_in_utc_is_ignored(library: World, timestamp: str) -> None:
    turns = "\n".join(f"[{timestamp}] {who}: turn {number}" for number, who in enumerate(["Ann", "Bob"] * 5))
    lines = "\n".join(f"{timestamp} ERROR turn {number}" for number in range(10))
    rows = "\n".join(f'{{"time": "{timestamp}", "speaker": "Ann", "text": "turn {number}"}}' for number in range(10))
    for name, text in (("talk.txt", turns), ("server.log", lines), ("rows.jsonl", rows)):
        await put(library.planner, name, text)
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    found = await library.planner.call("search.query", query="turn", low_confidence=True, top_k=50)
    assert {result["document_id"] for result in found["results"]} == {"talk.txt", "server.log", "rows.jsonl"}
    assert {result["timestamp"] for result in found["results"]} == {
        library.clock.now().isoformat().replace("+00:00", "Z")
    }


def packed_pdf(pages: int) -> bytes:
    """Return a small PDF whose pages all show the same long text."""
    lines = b" ".join(b"(lorem ipsum dolor sit amet consectetur %d) Tj T*" % number for number in range(200))
    shown = zlib.compress(b"BT /F1 10 Tf 12 TL 10 800 Td " + lines + b" ET")
    kids = b" ".join(b"%d 0 R" % (5 + number) for number in range(pages))
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 842] /Contents 4 0 R "
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Count %d /Kids [%s] >>" % (pages, kids),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(shown), shown),
        *[page + b"/Resources << /Font << /F1 3 0 R >> >> >>"] * pages,
    ]
    body, places = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, 1):
        places.append(len(body))
        body += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % place for place in (0, *places))
    size = len(places) + 1
    return b"%sxref\n0 %d\n%strailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % (
        body,
        size,
        table,
        size,
        len(body),
    )


async def put_pdf(world: World, pages: int) -> Any:
    content = base64.b64encode(packed_pdf(pages)).decode()
    given = {"domain": HANDBOOK, "document_id": "packed.pdf", "content": content}
    return await world.admin.call("knowledge.add_document", **given)


async def counted_bytes(world: World) -> int:
    return int((await world.planner.call("knowledge.show_domain", domain=HANDBOOK))["bytes"])


@pytest.mark.req("CE-T", part="all limits of what exists")
async def test_the_extracted_text_counts_toward_the_domain_s_bytes(library: World) -> None:
    put_bytes = (await put_pdf(library, 2))["bytes"]
    assert await counted_bytes(library) == put_bytes
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    text = await read(library, "packed.pdf")
    assert await counted_bytes(library) == text["characters"] > 4 * put_bytes
    # The indexed version counts until the next one is indexed.
    await put_pdf(library, 1)
    assert await counted_bytes(library) == text["characters"]
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    shorter = await read(library, "packed.pdf")
    assert await counted_bytes(library) == shorter["characters"] < text["characters"]
    await library.admin.call("knowledge.delete_document", domain=HANDBOOK, document_id="packed.pdf")
    assert await counted_bytes(library) == 0


@pytest.mark.req("CE-T", part="all limits of what exists")
async def test_a_text_beyond_the_plan_is_not_indexed(library: World) -> None:
    await library.app.tenants.set_plan(library.tenant, "free")
    put_bytes = (await put_pdf(library, 2))["bytes"]
    used_bytes = 2**30 - put_bytes
    await library.sql("UPDATE domains SET bytes = $1 WHERE tenant = $2", used_bytes, library.tenant)
    await library.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    shown = await document(library.planner, "packed.pdf")
    assert (shown["state"], await chunks(library, "packed.pdf")) == ("failed", [])
    assert "this would exceed it" in shown["error"]
    assert await counted_bytes(library) == used_bytes


async def test_adding_can_wait_until_searches_find_the_document(library: World) -> None:
    app = await library.another_app()
    app.scheduler.paused.clear()
    librarian = library.admin.at(app)
    added = await librarian.call(
        "knowledge.add_document", domain=HANDBOOK, document_id="d1", text="Otters sleep afloat.", wait_seconds=60
    )
    assert added["state"] == "indexed"
    batch = [{"document_id": "d2", "text": "Owls hunt at night."}, {"document_id": "d3", "text": "Eels migrate."}]
    put = await librarian.call("knowledge.add_documents", domain=HANDBOOK, documents=batch, wait_seconds=60)
    assert [each["state"] for each in put["documents"]] == ["indexed", "indexed"]
    answer = await librarian.call("search.query", query="Owls hunt at night.", domain=HANDBOOK)
    assert answer["results"][0]["document_id"] == "d2"
    at_once = await librarian.call("knowledge.add_document", domain=HANDBOOK, document_id="d4", text="Bats.")
    assert at_once["state"] == "pending"
