"""Vector search inside PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

import asyncpg
import numpy as np
import pytest

from support.collection_model import DIMENSIONS, random_chunk, random_vector
from support.collection_replicas import (
    ANN,
    COLLECTION,
    MODEL,
    CollectionWriter,
    new_chunk,
    open_indexes,
    wait_for_writes,
    with_fields,
)
from support.databases import new_postgres_database
from support.pgvector import needs_pgvector
from support.world import refused
from weftline.indexing.sql import CollectionStore
from weftline.search.model import CollectionQuery
from weftline.storage.migrations.runner import migrate
from weftline.storage.sql.database import Scope, connect
from weftline.storage.sql.dialects.postgres import PostgresTransaction
from weftline.storage.sql.vectors import _index_name, partition_of

if TYPE_CHECKING:
    from support.world import World
    from weftline.kernel.transaction import Transaction
    from weftline.testing.clock import FrozenClock

pytestmark = [
    needs_pgvector,
    pytest.mark.req("CE-F38"),
    pytest.mark.parametrize("database_url", ["postgres"], indirect=True),
]

COUNT = 3_000


@pytest.fixture
async def vectors(world: World) -> np.ndarray:
    """Fill two collections with chunks of the same vectors and build both indexes."""
    random = np.random.default_rng(5)
    given = [random_vector(random) for _ in range(COUNT)]
    chunks = [new_chunk(random_chunk(random, 0, ordinal=place)) for place in range(COUNT)]

    async def fill(transaction: Transaction) -> None:
        for collection in (COLLECTION, "domain:other"):
            await CollectionStore(transaction).add(collection, chunks, {MODEL: given})

    await world.app.database.write(Scope(world.tenant), fill)
    search = world.app.database.vector_search(world.tenant, COLLECTION, MODEL)
    assert search is not None
    await search.prepare()
    await search.prepare()
    return np.array([np.frombuffer(vector, "<f2") for vector in given], np.float32)


def random_query(random: np.random.Generator) -> Any:
    query_vector = random.standard_normal(DIMENSIONS).astype(np.float32)
    return query_vector / np.linalg.norm(query_vector)


async def test_an_index_scan_finds_the_nearest_vectors(world: World, vectors: np.ndarray) -> None:
    search = world.app.database.vector_search(world.tenant, COLLECTION, MODEL)
    assert search is not None
    random, hits = np.random.default_rng(8), 0
    for _ in range(30):
        query_vector = random_query(random)
        near = await search.nearest(query_vector.astype("<f2").tobytes(), 10)
        exact = np.argsort(-(vectors @ query_vector))[:10] + 1
        hits += len({chunk.number for chunk in near} & set(exact.tolist()))
        assert np.allclose(
            [chunk.cosine for chunk in near], vectors[[c.number - 1 for c in near]] @ query_vector, atol=2e-3
        )
    assert hits >= 0.98 * 300


async def test_the_index_of_a_collection_and_model_is_used_for_them(world: World, vectors: np.ndarray) -> None:
    connection = await asyncpg.connect(world.url)
    try:
        partition = partition_of(world.tenant)
        name = await connection.fetchval(
            "SELECT indexname FROM pg_indexes WHERE tablename = $1 AND indexdef LIKE $2", partition, "%hnsw%"
        )
        plan = await connection.fetch(
            f"""
            EXPLAIN SELECT number FROM chunk_vectors
            WHERE tenant = '{world.tenant}' AND collection = '{COLLECTION}' AND model = '{MODEL}'
              AND vector_dims(vector) = {DIMENSIONS}
            ORDER BY (vector::halfvec({DIMENSIONS})) <=> '{np.zeros(DIMENSIONS).tolist()}'::halfvec LIMIT 10
            """
        )
    finally:
        await connection.close()
    assert name in "\n".join(row[0] for row in plan)


async def test_filtered_views_find_the_nearest_visible_vectors(
    world: World, vectors: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weftline.search_index.view._EXACT_ROWS", 10)
    random = np.random.default_rng(9)
    async with open_indexes(world, None) as indexes:
        for query in (
            CollectionQuery(COLLECTION),
            CollectionQuery(COLLECTION, places=frozenset({"place1"})),
            CollectionQuery(COLLECTION, since=990),
        ):
            view = await indexes.open(world.tenant, query, ANN, MODEL)
            visible = np.array(view.numbers())
            assert 0 < len(visible) < COUNT
            query_vector = random_query(random)
            exact = visible[np.argsort(-(vectors[visible - 1] @ query_vector))[:10]]
            near = await view.nearest(query_vector, 10)
            found = view.columns(near.rows).number
            assert len({*found.tolist()} & {*exact.tolist()}) >= min(9, len(visible))


async def test_a_large_collection_is_indexed_automatically(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weftline.app.search.replica._MIN_ROWS_FOR_VECTOR_INDEX", 20)
    async with open_indexes(world, None) as indexes:
        collection = CollectionWriter(world, indexes)
        await collection.add(60)
        await collection.check()
        await wait_for_writes(indexes)
        found = await world.rows(
            "SELECT COUNT(*) FROM pg_indexes WHERE tablename = $1 AND indexdef LIKE $2",
            partition_of(world.tenant),
            "%hnsw%",
        )
        assert found[0][0] == 1
        await collection.check()


async def test_an_interrupted_index_build_is_redone(world: World, vectors: np.ndarray) -> None:
    connection = await asyncpg.connect(world.url)
    try:
        await connection.execute(
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid IN (SELECT indexname::regclass FROM pg_indexes"
            " WHERE tablename = $1 AND indexdef LIKE '%hnsw%')",
            partition_of(world.tenant),
        )
        search = world.app.database.vector_search(world.tenant, COLLECTION, MODEL)
        assert search is not None
        await search.prepare()
        valid = await connection.fetch(
            "SELECT indisvalid FROM pg_index WHERE indexrelid IN (SELECT indexname::regclass FROM pg_indexes"
            " WHERE tablename = $1 AND indexdef LIKE '%hnsw%')",
            partition_of(world.tenant),
        )
    finally:
        await connection.close()
    assert [row[0] for row in valid] == [True]


@pytest.mark.req("CE-F42")
async def test_the_vectors_of_a_tenant_have_their_own_partition_with_row_level_security(
    world: World, vectors: np.ndarray
) -> None:
    partition = partition_of(world.tenant)
    counted = f'SELECT COUNT(*) FROM "{partition}"'
    own = await world.app.database.read(Scope(world.tenant), lambda tx: tx.all(counted))
    foreign = await world.app.database.read(Scope(world.other_tenant), lambda tx: tx.all(counted))
    assert (own[0][0], foreign[0][0]) == (2 * COUNT, 0)
    through = await world.app.database.read(Scope(world.other_tenant), lambda tx: tx.all("SELECT 1 FROM chunk_vectors"))
    assert list(through) == []


async def test_a_server_without_pgvector_gives_a_clear_error(
    world: World, postgres: str, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = await new_postgres_database(postgres, f"bare{world.tenant}", migrated=False)
    known = migrate.__globals__["known_migrations"]()
    odd = [
        type(step)(step.name, step.sql.replace("EXTENSION IF NOT EXISTS vector", "EXTENSION vector_that_is_not_there"))
        for step in known
    ]
    monkeypatch.setattr("weftline.storage.migrations.runner.known_migrations", lambda: odd)
    database = connect(url)
    await database.open()
    try:
        with refused("SYSTEM_UNAVAILABLE") as caught:
            await migrate(database, clock)
        assert "pgvector" in caught.value.message
    finally:
        await database.close()


async def indexes_of(world: World) -> list[str]:
    found = await world.rows(
        "SELECT indexname FROM pg_indexes WHERE tablename = $1 AND indexdef LIKE $2",
        partition_of(world.tenant),
        "%hnsw%",
    )
    return [row[0] for row in found]


@pytest.mark.parametrize(("pause", "attempts"), [(60.0, 1), (0.0, 3)])
async def test_a_failed_index_build_is_retried_after_a_pause(
    world: World, monkeypatch: pytest.MonkeyPatch, pause: float, attempts: int
) -> None:
    monkeypatch.setattr("weftline.app.search.replica._MIN_ROWS_FOR_VECTOR_INDEX", 20)
    monkeypatch.setattr("weftline.app.search.replica._RETRY_SECONDS", pause)
    build = AsyncMock(side_effect=asyncpg.OutOfMemoryError("not now"))
    async with open_indexes(world, None) as indexes:
        collection = CollectionWriter(world, indexes)
        await collection.add(60)
        with monkeypatch.context() as broken:
            broken.setattr("weftline.storage.sql.vectors.PgVectors._build", build)
            for _ in range(3):
                await collection.check()
                await wait_for_writes(indexes)
        assert (build.await_count, await indexes_of(world)) == (attempts, [])
        await collection.check()
        await wait_for_writes(indexes)
        assert len(await indexes_of(world)) == (0 if pause else 1)


async def test_an_index_being_built_by_another_process_does_not_count_as_built(world: World) -> None:
    search = world.app.database.vector_search(world.tenant, COLLECTION, MODEL)
    assert search is not None
    async with open_indexes(world, None) as indexes:
        await CollectionWriter(world, indexes).add(60)
    name = _index_name(world.tenant, COLLECTION, MODEL)
    connection = await asyncpg.connect(world.url)
    try:
        await connection.fetchval("SELECT pg_advisory_lock(hashtext($1))", name)
        assert not await search.prepare()
    finally:
        await connection.close()
    assert await search.prepare()


async def test_the_index_of_a_deleted_collection_is_dropped(world: World, vectors: np.ndarray) -> None:
    other = world.app.database.vector_search(world.tenant, "domain:other", MODEL)
    assert other is not None
    await other.prepare()
    await world.app.collections.sweep()
    assert len(await indexes_of(world)) == 2

    async def remove(transaction: Transaction) -> None:
        await CollectionStore(transaction).remove_collection(COLLECTION)

    await world.app.database.write(Scope(world.tenant), remove)
    await world.app.collections.sweep()
    assert await indexes_of(world) == [_index_name(world.tenant, "domain:other", MODEL)]


async def test_vectors_of_other_dimensions_are_ignored(world: World) -> None:
    async with open_indexes(world, None) as indexes:
        collection = CollectionWriter(world, indexes)
        numbers = await collection.add(30)
        odd = numbers[::3]
        longer = {number: random_vector(collection.random, DIMENSIONS + 4) for number in odd}
        await collection.change(lambda store: store.add_vectors(COLLECTION, MODEL, longer))
        for number in odd:
            collection.plain.chunks[number] = with_fields(collection.plain.chunks[number], vector=None)
        await collection.check()
        search = world.app.database.vector_search(world.tenant, COLLECTION, MODEL)
        assert search is not None
        assert await search.prepare()
        query_vector = random_query(collection.random).astype("<f2").tobytes()
        near = await search.nearest(query_vector, 100)
        assert {chunk.number for chunk in near} == {*numbers} - {*odd}


async def test_many_vectors_are_fetched_by_one_statement(
    world: World, vectors: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    run = PostgresTransaction.one

    async def record_statement(self: PostgresTransaction, sql: str, *values: Any) -> Any:
        asked.extend([sql] if "FROM chunk_vectors" in sql else [])
        return await run(self, sql, *values)

    monkeypatch.setattr(PostgresTransaction, "one", record_statement)
    search = world.app.database.vector_search(world.tenant, COLLECTION, MODEL)
    assert search is not None
    found = await search.find(range(COUNT + 1, 0, -1), vectors.shape[1])
    assert found.numbers == [*range(1, COUNT + 1)]
    assert np.array_equal(np.frombuffer(found.vectors, "<f2").reshape(vectors.shape), vectors)
    assert len(asked) == 1


async def test_cosines_of_several_queries_are_computed_in_one_call(world: World, vectors: np.ndarray) -> None:
    search = world.app.database.vector_search(world.tenant, COLLECTION, MODEL)
    assert search is not None
    random = np.random.default_rng(4)
    query_vectors = np.array([random_query(random) for _ in range(3)])
    found = await search.cosines(
        [query_vector.astype("<f2").tobytes() for query_vector in query_vectors], [7, 3, 3, COUNT + 1]
    )
    assert found.keys() == {3, 7}
    for number, cosines in found.items():
        assert np.allclose(cosines, query_vectors @ vectors[number - 1], atol=2e-3)


async def test_an_index_build_updates_planner_statistics(world: World, vectors: np.ndarray) -> None:
    connection = await asyncpg.connect(world.url)
    try:
        assert await connection.fetchval("SELECT reltuples FROM pg_class WHERE relname = 'chunks'") >= COUNT
    finally:
        await connection.close()


async def test_a_search_with_few_visible_rows_is_exact(
    world: World, vectors: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An HNSW scan would visit too many hidden rows, so the search is exact."""
    monkeypatch.setattr("weftline.search_index.view._EXACT_ROWS", 10)
    monkeypatch.setattr("weftline.search_index.view._MAX_SCAN", 50)
    monkeypatch.setattr("weftline.storage.sql.vectors.PgVectors.nearest", AsyncMock(side_effect=AssertionError))
    async with open_indexes(world, None) as indexes:
        query = CollectionQuery(COLLECTION, since=900)
        view = await indexes.open(world.tenant, query, ANN, MODEL)
        visible = np.array(view.numbers())
        assert 10 < len(visible) < COUNT / 4
        query_vector = random_query(np.random.default_rng(10))
        exact = visible[np.argsort(-(vectors[visible - 1] @ query_vector))[:10]]
        near = await view.nearest(query_vector, 10)
        assert set(view.columns(near.rows).number.tolist()) == set(exact.tolist())
