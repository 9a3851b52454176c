"""The contract of CollectionStore."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from weftline.indexing.collections import CollectionState, NewChunk, Removal, VectorUpdate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.contracts.stores import ContractStores

COLLECTION, OTHER = "domain:a", "domain:b"
MODEL, NEXT_MODEL = "m", "n"
CHUNK = NewChunk(
    source="document",
    place="a",
    item="guide.md",
    ordinal=0,
    start=0,
    end=9,
    terms="one two two",
    digest=b"\x00\xff",
    tokens=3,
    timestamp=7,
    version=2,
    scope='["agent:*"]',
    kind="code",
    heading="Guide > Start",
    speaker="ann",
    importance=0.75,
    pinned=True,
    metadata='{"lang":"en"}',
    entities="person:Ann\nfile:a.py",
    text="one two twö",
)


def parts(count: int, **changes: object) -> list[NewChunk]:
    return [structs.replace(CHUNK, ordinal=ordinal, **changes) for ordinal in range(count)]


def vectors(count: int) -> Sequence[bytes]:
    """Return distinct vectors of two dimensions."""
    return [bytes([index, 0x3C, 0, 0xBC]) for index in range(count)]


class CollectionStoreContract:
    """Every change of a collection takes the next number, so that replicas know what they have missed."""

    async def test_chunks_are_found_as_they_were_added(self, stores: ContractStores) -> None:
        numbers = await stores.collections.add(COLLECTION, parts(100), {MODEL: vectors(100)})
        assert list(numbers) == list(range(1, 101))
        found = await stores.collections.find(COLLECTION, [100, 3, 3, 999])
        assert [chunk.chunk_id for chunk in found] == ["domain:a/3", "domain:a/100"]
        known = {name: getattr(found[0], name) for name in NewChunk.__struct_fields__}
        assert NewChunk(**known) == structs.replace(CHUNK, ordinal=2)
        assert await stores.collections.vectors(COLLECTION, MODEL, [3, 100]) == {
            3: vectors(3)[2],
            100: vectors(100)[99],
        }
        assert await stores.collections.vectors(COLLECTION, NEXT_MODEL, [3]) == {}
        assert (
            list(await stores.collections.find(COLLECTION, [])),
            await stores.collections.vectors(COLLECTION, MODEL, []),
        ) == ([], {})

    async def test_numbers_go_on_and_are_never_used_again(self, stores: ContractStores) -> None:
        await stores.collections.add(COLLECTION, parts(3), {})
        assert await stores.collections.remove(COLLECTION, [2, 3, 3, 7]) == 2
        assert list(await stores.collections.add(COLLECTION, parts(2), {})) == [6, 7]
        state = await stores.collections.state(COLLECTION)
        assert (state.number, state.chunks) == (7, 3)
        assert list(await stores.collections.removals_after(COLLECTION, 0, 10)) == [Removal(4, 2), Removal(5, 3)]
        assert list(await stores.collections.removals_after(COLLECTION, 4, 10)) == [Removal(5, 3)]

    async def test_what_is_removed_takes_its_vectors_of_every_model_along(self, stores: ContractStores) -> None:
        await stores.collections.add(COLLECTION, parts(3), {MODEL: vectors(3), NEXT_MODEL: vectors(3)})
        await stores.collections.remove(COLLECTION, [1, 3])
        assert [await stores.collections.count_vectors(COLLECTION, model) for model in (MODEL, NEXT_MODEL)] == [1, 1]

    async def test_chunks_after_a_number_come_in_order(self, stores: ContractStores) -> None:
        await stores.collections.add(COLLECTION, parts(4), {MODEL: vectors(4)})
        await stores.collections.remove(COLLECTION, [3])
        chunks = await stores.collections.chunks_after(COLLECTION, 1, 10, MODEL)
        assert [(chunk.number, chunk.vector) for chunk in chunks] == [(2, vectors(4)[1]), (4, vectors(4)[3])]
        first = (await stores.collections.chunks_after(COLLECTION, 0, 1, None))[0]
        assert (first.number, first.vector, first.terms, first.pinned) == (1, None, CHUNK.terms, True)
        assert first.entities == CHUNK.entities
        assert (first.scope, first.importance, first.version) == (CHUNK.scope, 0.75, 2)

    async def test_an_item_goes_as_a_whole_or_by_its_older_versions(self, stores: ContractStores) -> None:
        await stores.collections.add(COLLECTION, [*parts(2, version=1), *parts(2, version=2)], {})
        await stores.collections.add(COLLECTION, parts(1, item="other.md"), {})
        assert await stores.collections.remove_item(COLLECTION, "a", "guide.md", before=2) == 2
        assert [chunk.version for chunk in await stores.collections.of_item(COLLECTION, "a", "guide.md")] == [2, 2]
        assert await stores.collections.remove_item(COLLECTION, "a", "guide.md") == 2
        assert (await stores.collections.state(COLLECTION)).chunks == 1

    async def test_the_parts_of_an_item_come_in_their_order(self, stores: ContractStores) -> None:
        await stores.collections.add(COLLECTION, parts(5)[::-1], {})
        found = await stores.collections.of_item(COLLECTION, "a", "guide.md", 2)
        assert [chunk.ordinal for chunk in found] == [0, 1, 2, 3, 4]
        assert (await stores.collections.items_of(COLLECTION, "a"))["guide.md"] >= {2}
        located = await stores.collections.versions_of(COLLECTION, [1, 5, 99])
        assert located == {1: ("a", "guide.md", 2), 5: ("a", "guide.md", 2)}
        positions = [("guide.md", 2, ordinal) for ordinal in (1, 2, 3, 9)] + [("guide.md", 1, 0), ("other.md", 2, 0)]
        chunks = await stores.collections.chunks_at(COLLECTION, "a", positions)
        assert sorted(chunk.ordinal for chunk in chunks) == [1, 2, 3]
        assert list(await stores.collections.chunks_at(COLLECTION, "b", positions)) == []
        assert list(await stores.collections.of_item(COLLECTION, "a", "guide.md", 1)) == []
        assert list(await stores.collections.numbers_of(COLLECTION, "a", "guide.md", 2)) == [5, 4, 3, 2, 1]
        assert list(await stores.collections.numbers_of(COLLECTION, "a", "guide.md", 1)) == []

    async def test_removed_chunks_are_deleted_for_good(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        for tenant_stores in (stores, elsewhere):
            await tenant_stores.vectors.keep("m", {CHUNK.digest: b"v"}, 10)
        await stores.vectors.keep("n", {CHUNK.digest: b"v", b"other": b"v"}, 10)
        await stores.collections.add(COLLECTION, parts(2), {})
        await stores.collections.add(OTHER, parts(2), {})
        await stores.collections.remove(COLLECTION, [1])
        await stores.collections.remove_collection(OTHER)
        assert await stores.vectors.count() == 3
        await stores.collections.remove(COLLECTION, [2])
        assert (await stores.vectors.count(), await elsewhere.vectors.count()) == (1, 1)

    async def test_chunks_of_a_deleted_collection_are_deleted_for_good(self, stores: ContractStores) -> None:
        for model in ("m", "n"):
            await stores.vectors.keep(model, {CHUNK.digest: b"v", b"other": b"v"}, 10)
        await stores.collections.add(COLLECTION, parts(2), {})
        await stores.collections.remove_collection(COLLECTION)
        assert await stores.vectors.count() == 2
        assert await stores.vectors.find("m", [CHUNK.digest]) == {}

    async def test_a_place_goes_with_all_that_belongs_to_it(self, stores: ContractStores) -> None:
        await stores.collections.add(COLLECTION, [*parts(2), *parts(2, place="b")], {MODEL: vectors(4)})
        await stores.collections.remove_place(COLLECTION, "a")
        newest = await stores.collections.newest(COLLECTION, ["a", "b"], 10)
        assert [(chunk.number, chunk.place) for chunk in newest] == [(4, "b"), (3, "b")]

    async def test_the_newest_of_some_places_are_found(self, stores: ContractStores) -> None:
        await stores.collections.add(COLLECTION, [*parts(1, place="b"), *parts(300)], {})
        assert [chunk.number for chunk in await stores.collections.newest(COLLECTION, ["b"], 3)] == [1]
        assert [chunk.number for chunk in await stores.collections.newest(COLLECTION, ["a", "b"], 2)] == [301, 300]

    async def test_a_recreated_collection_is_a_new_one(self, stores: ContractStores) -> None:
        await stores.collections.add(COLLECTION, parts(2), {MODEL: vectors(2)})
        await stores.collections.add(OTHER, parts(1), {MODEL: vectors(1)})
        before = await stores.collections.state(COLLECTION)
        assert await stores.collections.count_chunks() == 3
        await stores.collections.remove_collection(COLLECTION)
        assert await stores.collections.count_chunks() == 1
        assert await stores.collections.state(COLLECTION) == CollectionState()
        assert list(await stores.collections.names()) == [OTHER]
        assert await stores.collections.count_vectors(COLLECTION, MODEL) == 0
        await stores.collections.add(COLLECTION, parts(2), {})
        recreated = await stores.collections.state(COLLECTION)
        assert (recreated.number, recreated.chunks) == (before.number, before.chunks)
        assert recreated.generation not in {before.generation, 0}

    async def test_a_chunk_may_get_its_vector_later(self, stores: ContractStores) -> None:
        first, _, third = vectors(3)
        await stores.collections.add(COLLECTION, parts(3), {MODEL: [first, None, third]})
        assert [chunk.number for chunk in await stores.collections.without_vector(COLLECTION, MODEL, 0, 10)] == [2]
        assert await stores.collections.vectors(COLLECTION, MODEL, [1, 2, 3]) == {1: first, 3: third}
        await stores.collections.add_vectors(COLLECTION, MODEL, {2: vectors(2)[1]})
        assert list(await stores.collections.without_vector(COLLECTION, MODEL, 0, 10)) == []

    async def test_vectors_of_a_further_model_are_announced(self, stores: ContractStores) -> None:
        await stores.collections.add(COLLECTION, parts(4), {MODEL: vectors(4)})
        await stores.collections.remove(COLLECTION, [2])
        missing = await stores.collections.without_vector(COLLECTION, NEXT_MODEL, 0, 10)
        assert [chunk.number for chunk in missing] == [1, 3, 4]
        changes = dict(zip((1, 2, 3), vectors(3), strict=True))
        assert await stores.collections.add_vectors(COLLECTION, NEXT_MODEL, changes) == 2
        assert list(await stores.collections.vector_updates_after(COLLECTION, NEXT_MODEL, 5, 10)) == [
            VectorUpdate(6, 1, 3)
        ]
        assert list(await stores.collections.vector_updates_after(COLLECTION, MODEL, 0, 10)) == []
        assert (await stores.collections.state(COLLECTION)).number == 6
        recreated = await stores.collections.chunks_between(COLLECTION, 1, 3, NEXT_MODEL)
        assert [(chunk.number, chunk.vector) for chunk in recreated] == [(1, vectors(3)[0]), (3, vectors(3)[2])]
        assert [chunk.number for chunk in await stores.collections.without_vector(COLLECTION, NEXT_MODEL, 0, 10)] == [4]

    async def test_changes_beyond_the_retained_ones_are_deleted(
        self, stores: ContractStores, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("weftline.indexing.collections._MIN_RETAINED_CHANGES", 2)
        await stores.collections.add(COLLECTION, parts(9), {MODEL: vectors(9)})
        await stores.collections.add_vectors(COLLECTION, NEXT_MODEL, {1: vectors(1)[0]})
        await stores.collections.remove(COLLECTION, [2, 3, 4, 5, 6, 7, 8])
        assert (await stores.collections.state(COLLECTION)).prunable == 13
        assert not await stores.collections.prune_changes(COLLECTION)
        state = await stores.collections.state(COLLECTION)
        assert (state.number, state.pruned_up_to, state.prunable) == (17, 13, 0)
        assert [each.number for each in await stores.collections.removals_after(COLLECTION, 0, 10)] == [14, 15, 16, 17]
        assert list(await stores.collections.vector_updates_after(COLLECTION, NEXT_MODEL, 0, 10)) == []

    async def test_vectors_of_a_model_are_dropped_bit_by_bit(self, stores: ContractStores) -> None:
        await stores.collections.add(COLLECTION, parts(5), {MODEL: vectors(5), NEXT_MODEL: vectors(5)})
        assert [await stores.collections.drop_vectors(COLLECTION, MODEL, 3) for _ in range(3)] == [3, 2, 0]
        assert await stores.collections.count_vectors(COLLECTION, NEXT_MODEL) == 5

    async def test_tenants_have_their_own_collections(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await stores.collections.add(COLLECTION, parts(2), {MODEL: vectors(2)})
        assert await elsewhere.collections.state(COLLECTION) == CollectionState()
        assert list(await elsewhere.collections.find(COLLECTION, [1, 2])) == []
        assert await elsewhere.collections.vectors(COLLECTION, MODEL, [1]) == {}
        assert await elsewhere.collections.remove(COLLECTION, [1]) == 0
        assert list(await elsewhere.collections.add(COLLECTION, parts(1), {MODEL: vectors(1)})) == [1]
        assert await stores.collections.count_vectors(COLLECTION, MODEL) == 2
