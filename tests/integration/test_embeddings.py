"""Embeddings: each text once per tenant, with a bounded cache."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from support.embedding_service import DIMENSIONS, Answer, EmbeddingService, embedding_service
from support.knowledge import embed_quickly
from support.world import Caller, World, refused
from weftline.app.app import App
from weftline.app.caches import Cache
from weftline.app.diagnostics.checks import CheckStatus, check_embedder
from weftline.app.search.embedding_cache import CachedEmbeddings
from weftline.indexing.collections import ChunkOwner
from weftline.indexing.embeddings import PLATFORM, EmbeddingModelUnknown, Role, TenantModelStore, VectorStore
from weftline.kernel.clock import to_micros
from weftline.kernel.identity import system_actor
from weftline.storage.sql.database import SYSTEM, Scope
from weftline.testing.embedder import WordEmbedder

MINILM = "all-MiniLM-L6-v2-int8"


@pytest.fixture
def word_embedder() -> WordEmbedder:
    return WordEmbedder()


@pytest.fixture
def embeddings(world: World, word_embedder: WordEmbedder) -> CachedEmbeddings:
    return embeddings_of(world, word_embedder)


def embeddings_of(world: World, *embedders: WordEmbedder, max_entries: int = 1_000) -> CachedEmbeddings:
    queries: Cache[Any] = Cache("test", 1, 100_000, 60, world.clock)
    return CachedEmbeddings(world.app.database, embedders, world.clock, world.app.metrics, queries, max_entries)


async def passages(
    embeddings: CachedEmbeddings, tenant: str, texts: Sequence[str], model: str, item: str | None = "item"
) -> list[bytes]:
    """Embed texts of an item, or public texts."""
    if item is None:
        return await embeddings.of_passages(tenant, texts, model)
    digests = [ChunkOwner("document", "domain", item).digest_of(text) for text in texts]
    return await embeddings.of_passages(tenant, texts, model, digests=digests)


def embedded_texts(word_embedder: WordEmbedder) -> list[str]:
    return [text for call in word_embedder.calls for text in call]


def cache_metric(world: World, outcome: str) -> float:
    name = f'weftline_embedding_cache_total{{outcome="{outcome}"}} '.encode()
    lines = world.app.metrics.exposition().splitlines()
    return next((float(line.removeprefix(name)) for line in lines if name in line), 0.0)


async def cached_count(world: World, tenant: str | None = None) -> int:
    scope = SYSTEM if tenant == PLATFORM else Scope(tenant or world.tenant)
    return await world.app.database.read(scope, lambda tx: VectorStore(tx).count())


@pytest.mark.req("CE-F50", part="by place and content; platform data once for all tenants")
async def test_a_text_is_embedded_once_per_model(world: World, word_embedder: WordEmbedder) -> None:
    other = WordEmbedder("other", 8)
    embeddings = embeddings_of(world, word_embedder, other)
    first = await passages(embeddings, world.tenant, ["a b", "c", "a b"], "words")
    again = await passages(embeddings, world.tenant, ["c", "d", "a b"], "words")
    assert word_embedder.calls == [["a b", "c"], ["d"]]
    assert (first[0], first[1], again[0], again[2]) == (first[2], again[0], first[1], first[0])
    await passages(embeddings, world.tenant, ["c"], "other")
    assert other.calls == [["c"]]
    assert (cache_metric(world, "hit"), cache_metric(world, "miss")) == (2, 4)


@pytest.mark.req("CE-F50", part="by place and content; platform data once for all tenants")
async def test_cached_vectors_equal_fresh_ones_in_half_precision(
    world: World, embeddings: CachedEmbeddings, word_embedder: WordEmbedder
) -> None:
    [fresh] = await passages(embeddings, world.tenant, ["the invoice is due"], "words")
    [again] = await passages(embeddings, world.tenant, ["the invoice is due"], "words")
    [exact] = await word_embedder.embed(["the invoice is due"], "passage")
    assert fresh == again
    assert np.allclose(struct.unpack("<64e", fresh), exact, atol=1e-3)


@pytest.mark.req("CE-F50", part="by place and content; platform data once for all tenants")
async def test_the_cache_is_persistent_and_shared_between_processes(world: World, word_embedder: WordEmbedder) -> None:
    await passages(embeddings_of(world, word_embedder), world.tenant, ["a", "b"], "words")
    await passages(embeddings_of(world, word_embedder), world.tenant, ["b", "a"], "words")
    assert embedded_texts(word_embedder) == ["a", "b"]


@pytest.mark.req("CE-F42")
@pytest.mark.req("CE-F50", part="by place and content; platform data once for all tenants")
async def test_cached_vectors_are_not_shared_between_tenants(
    world: World, embeddings: CachedEmbeddings, word_embedder: WordEmbedder
) -> None:
    for tenant in (world.tenant, world.other_tenant):
        await passages(embeddings, tenant, ["our secret"], "words")
        await embeddings.of_query(system_actor(tenant), "our question", "words")
    assert embedded_texts(word_embedder) == ["our secret", "our question"] * 2


@pytest.mark.req("CE-F42")
@pytest.mark.req("CE-F50", part="by place and content; platform data once for all tenants")
async def test_cached_vectors_are_shared_by_items_with_the_same_readers_only(
    world: World, embeddings: CachedEmbeddings, word_embedder: WordEmbedder
) -> None:
    owners = [
        ChunkOwner("memory", "planner", "plan"),
        ChunkOwner("memory", "analysis", "plan"),
        ChunkOwner("board", "s1", "plan"),
        ChunkOwner("board", "s2", "plan"),
        ChunkOwner("board", "s1", "plan", '["human:*"]'),
        ChunkOwner("board", "s1", "other", '["human:*"]'),
        ChunkOwner("document", "domain", "plan"),
        ChunkOwner("document", "other", "plan"),
    ]
    shared = [ChunkOwner("board", "s1", "other"), ChunkOwner("document", "domain", "copy")]
    for owner in [*owners, *owners, *shared]:
        await embeddings.of_passages(world.tenant, ["our secret"], "words", digests=[owner.digest_of("our secret")])
    assert embedded_texts(word_embedder) == ["our secret"] * len(owners)
    assert (cache_metric(world, "hit"), cache_metric(world, "miss")) == (len(owners) + len(shared), len(owners))


@pytest.mark.req("CE-F50", part="by place and content; platform data once for all tenants")
async def test_platform_data_is_embedded_once_for_all_tenants(
    world: World, embeddings: CachedEmbeddings, word_embedder: WordEmbedder
) -> None:
    before = await cached_count(world, PLATFORM)
    text = f"a tool of {world.tenant}"
    for tenant in (world.tenant, world.other_tenant):
        await passages(embeddings, tenant, [text], "words", None)
    assert embedded_texts(word_embedder) == [text]
    assert await cached_count(world, PLATFORM) == before + 1
    assert (await cached_count(world), await cached_count(world, world.other_tenant)) == (0, 0)
    await passages(embeddings, world.tenant, [text], "words")
    assert embedded_texts(word_embedder) == [text, text]


async def test_query_vectors_are_cached_in_memory_only(
    world: World, embeddings: CachedEmbeddings, word_embedder: WordEmbedder
) -> None:
    first = await embeddings.of_query(system_actor(world.tenant), "what is due", "words")
    again = await embeddings.of_query(system_actor(world.tenant), "what is due", "words")
    assert first is again
    assert first.shape == (64,)
    assert not first.flags.writeable
    assert word_embedder.calls == [["what is due"]]
    assert await cached_count(world) == 0


@pytest.mark.req("CE-F42")
@pytest.mark.req("CE-F50", part="by place and content; platform data once for all tenants")
async def test_query_vectors_are_not_shared_between_agents(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = embed_quickly(monkeypatch)
    app = await world.another_app()
    await world.planner.say("The plant is in the valley.")
    await world.index_sessions()
    for caller in (world.planner, world.analysis):
        asker = caller.at(app)
        for _ in range(2):
            await asker.call("search.find_similar", text="we close the plant in March")
            await asker.call("search.query", query="when does the plant close")
    assert quick.embedded == ["we close the plant in March", "when does the plant close"] * 2


@pytest.mark.req("CE-F50", part="by place and content; platform data once for all tenants")
async def test_the_least_recently_used_vectors_are_evicted(world: World, word_embedder: WordEmbedder) -> None:
    embeddings = embeddings_of(world, word_embedder, max_entries=40)
    await passages(embeddings, world.tenant, [f"old {number}" for number in range(30)], "words")
    world.clock.advance(days=2)
    await passages(embeddings, world.tenant, [f"old {number}" for number in range(10)], "words")
    world.clock.advance(minutes=1)
    await passages(embeddings, world.tenant, [f"new {number}" for number in range(20)], "words")
    assert await cached_count(world) == 38
    word_embedder.calls.clear()
    await passages(embeddings, world.tenant, [f"new {number}" for number in range(20)], "words")
    await passages(embeddings, world.tenant, [f"old {number}" for number in range(10)], "words")
    assert word_embedder.calls == []


async def test_eviction_is_per_tenant(world: World, word_embedder: WordEmbedder) -> None:
    embeddings = embeddings_of(world, word_embedder, max_entries=4)
    await passages(embeddings, world.other_tenant, ["a", "b", "c", "d"], "words")
    await passages(embeddings, world.tenant, [f"{number}" for number in range(50)], "words")
    assert await cached_count(world, world.other_tenant) == 4
    assert await cached_count(world) <= 4


async def test_texts_are_embedded_in_batches_and_finished_batches_are_kept(
    world: World, word_embedder: WordEmbedder
) -> None:
    class Failing(WordEmbedder):
        async def embed(self, texts: Any, purpose: Any) -> Any:
            if "600" in texts:
                raise ConnectionError
            return await super().embed(texts, purpose)

    texts = [f"{number}" for number in range(700)]
    with pytest.raises(ConnectionError):
        await passages(embeddings_of(world, Failing(), max_entries=10_000), world.tenant, texts, "words")
    await passages(embeddings_of(world, word_embedder, max_entries=10_000), world.tenant, texts, "words")
    assert embedded_texts(word_embedder) == texts[512:]


async def test_an_unknown_model_is_an_error(world: World, embeddings: CachedEmbeddings) -> None:
    asker = system_actor(world.tenant)
    for call in (embeddings.of_query(asker, "x", "none"), passages(embeddings, world.tenant, ["x"], "none")):
        with pytest.raises(EmbeddingModelUnknown, match="none"):
            await call


async def test_concurrent_callers_cache_the_same_texts(world: World, embeddings: CachedEmbeddings) -> None:
    texts = [f"{number}" for number in range(60)]
    orders = [texts, texts[::-1], texts[30:] + texts[:30]]
    answers = await asyncio.gather(*(passages(embeddings, world.tenant, order, "words") for order in orders * 3))
    found = [dict(zip(order, answer, strict=True)) for order, answer in zip(orders * 3, answers, strict=True)]
    assert all(each == found[0] for each in found)
    assert await cached_count(world) == 60


@pytest.mark.req("CE-F49")
@pytest.mark.req("CE-A")
async def test_embedding_needs_only_the_read_permission(world: World) -> None:
    texts = ["Refunds take ten days.", "How long do refunds take?", "Penguins cannot fly."]
    answer = await world.planner.call("knowledge.embed", texts=texts)
    assert (answer["model"], answer["dimensions"], answer["cached"]) == (MINILM, 384, 0)
    refunds, question, penguins = np.array(answer["vectors"])
    assert np.allclose(np.linalg.norm(answer["vectors"], axis=1), 1, atol=1e-3)
    assert refunds @ question > refunds @ penguins + 0.3
    again = await world.planner.call("knowledge.embed", texts=[*texts[::-1], "new", "new"])
    assert again["cached"] == 3
    assert again["vectors"][:3] == answer["vectors"][::-1]
    assert again["vectors"][3] == again["vectors"][4]
    alone = await world.planner.call("knowledge.embed", text=texts[0])
    assert alone["vectors"] == answer["vectors"][:1]


async def test_exactly_one_of_text_and_texts_is_required(world: World) -> None:
    for given in ({}, {"text": "a", "texts": ["b"]}):
        with refused("INVALID_INPUT_FORMAT"):
            await world.planner.call("knowledge.embed", **given)


@pytest.mark.req("CE-F42")
@pytest.mark.req("CE-A")
async def test_the_cached_flag_does_not_reveal_what_others_embedded(world: World) -> None:
    secret = {"texts": ["the merger is on"]}
    await passages(world.app.embeddings, world.tenant, secret["texts"], MINILM)
    await world.app.embeddings.of_query(system_actor(world.tenant), secret["texts"][0], MINILM)
    assert (await world.planner.call("knowledge.embed", **secret))["cached"] == 0
    for other in (world.analysis, world.admin, world.stranger):
        for purpose in ("passage", "query"):
            assert (await other.call("knowledge.embed", **secret, purpose=purpose))["cached"] == 0
    assert (await world.planner.call("knowledge.embed", **secret))["cached"] == 1


@pytest.mark.req("CE-F49")
async def test_a_tenant_uses_only_its_allowed_models(world: World) -> None:
    service = {"embedding_url": "http://127.0.0.1:9", "embedding_model": "m", "embedding_dimensions": 8}
    planner = world.planner.at(await world.another_app(**service))
    await set_role(world, "", "allowed")
    await set_role(world, MINILM, "allowed")
    assert (await planner.call("knowledge.embed", texts=["x"], model=MINILM))["model"] == MINILM
    for model in ("remote:m@8", "none"):
        with refused("EMBEDDING_MODEL_UNKNOWN") as caught:
            await planner.call("knowledge.embed", texts=["x"], model=model)
        assert caught.value.context == {"your_models": [MINILM]}


async def set_role(world: World, model: str, role: Role) -> None:
    now = to_micros(world.clock.now())
    await world.app.database.write(Scope(world.tenant), lambda tx: TenantModelStore(tx).set(model, role, now))


@pytest.fixture
async def service() -> AsyncIterator[EmbeddingService]:
    async with embedding_service() as service:
        yield service


async def remote_app(world: World, service: EmbeddingService) -> App:
    return await world.another_app(
        embedder="remote", embedding_url=service.url, embedding_model="words", embedding_dimensions=DIMENSIONS
    )


@pytest.mark.req("CE-F49")
async def test_a_remote_service_is_used_if_it_is_the_default(world: World, service: EmbeddingService) -> None:
    planner = world.planner.at(await remote_app(world, service))
    answer = await planner.call("knowledge.embed", texts=["a", "b"])
    assert (answer["model"], answer["dimensions"]) == ("remote:words@64", 64)
    assert (await planner.call("knowledge.embed", texts=["b"]))["vectors"] == answer["vectors"][1:]
    assert len(service.requests) == 1


async def test_a_failing_service_is_unavailable_and_caches_nothing(world: World, service: EmbeddingService) -> None:
    planner = world.planner.at(await remote_app(world, service))
    service.script = [Answer(403)]
    with refused("EMBEDDER_UNAVAILABLE") as caught:
        await planner.call("knowledge.embed", texts=["a"])
    assert caught.value.http_status == 503
    assert await cached_count(world) == 0
    assert (await planner.call("knowledge.embed", texts=["a"]))["cached"] == 0


async def test_a_revoked_agent_embeds_nothing(world: World) -> None:
    agent: Caller = await world.admin.create_agent("brief")
    await agent.call("knowledge.embed", texts=["x"])
    await world.admin.call("agent.update", agent_id="brief", disabled=True)
    with refused("AUTHENTICATION_ERROR"):
        await agent.call("knowledge.embed", texts=["x"])


async def test_the_doctor_embeds_a_text(world: World, service: EmbeddingService) -> None:
    finding = await check_embedder(world.settings)
    assert (finding.check, finding.state, MINILM in finding.detail) == ("Embedding", CheckStatus.OK, True)
    remote = replace(
        world.settings,
        embedder="remote",
        embedding_url=service.url,
        embedding_model="words",
        embedding_dimensions=DIMENSIONS,
    )
    assert (await check_embedder(remote)).state is CheckStatus.OK
    finding = await check_embedder(replace(remote, embedding_dimensions=65))
    assert (finding.state, "WEFTLINE_EMBEDDING_DIMENSIONS" in finding.next_step) == (CheckStatus.PROBLEM, True)
    finding = await check_embedder(replace(remote, embedding_model=""))
    assert (finding.state, "WEFTLINE_EMBEDDING_MODEL" in finding.detail) == (CheckStatus.PROBLEM, True)
