"""The contracts of Embedder, VectorStore and TenantModelStore."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from msgspec import structs

from support.contracts.collections import CHUNK
from support.contracts.stores import ContractStores
from weftline.indexing.embeddings import CachedVector, Embedder, TenantModel

TEXTS = (
    "The invoice is due on Friday.",
    "",
    "   ",
    "x",
    "Rechnung für Müller & Söhne, 2026",
    "発注書は金曜日までです。",
    "\u200b\u0301",
    "a" * 5_000,
    "one two three " * 2_000,
    "[CLS] [SEP] [MASK]",
    "🚢 sails at dawn\n\tnot later",
)
DIGESTS = [bytes([number]) * 32 for number in range(120)]


@pytest.mark.req("CE-F49")
class EmbedderContract:
    """Every text gets one normalised vector that depends on nothing else. Subclasses provide ``embedder``."""

    async def test_each_text_has_a_vector_of_length_one(self, embedder: Embedder) -> None:
        vectors = await embedder.embed(TEXTS, "passage")
        assert vectors.shape == (len(TEXTS), embedder.model.dimensions)
        assert vectors.dtype == np.float32
        assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)

    async def test_a_vector_depends_on_its_text_alone(self, embedder: Embedder) -> None:
        together = await embedder.embed(TEXTS, "passage")
        backwards = await embedder.embed(TEXTS[::-1], "passage")
        alone = [await embedder.embed([text], "passage") for text in TEXTS]
        assert np.array_equal(together, backwards[::-1])
        assert np.array_equal(together, np.concatenate(alone))

    async def test_callers_at_the_same_time_get_their_own(self, embedder: Embedder) -> None:
        together = await embedder.embed(TEXTS, "passage")
        apart = await asyncio.gather(*(embedder.embed([text] * 3, "passage") for text in TEXTS))
        for row, vectors in zip(together, apart, strict=True):
            assert np.array_equal(vectors, [row] * 3)

    async def test_a_query_is_close_to_text_with_the_same_meaning(self, embedder: Embedder) -> None:
        [question] = await embedder.embed(["when is the invoice due"], "query")
        near, far = await embedder.embed(["the invoice is due on friday", "penguins cannot fly"], "passage")
        assert question @ near > question @ far

    async def test_nothing_gives_nothing(self, embedder: Embedder) -> None:
        assert (await embedder.embed([], "passage")).shape == (0, embedder.model.dimensions)


@pytest.mark.req("CE-F50", part="by item and content; platform data once for all tenants")
class VectorStoreContract:
    """Vectors are stored by model and digest, per tenant; the least recently used are evicted first."""

    async def test_what_is_kept_is_found_by_model_and_digest(self, stores: ContractStores) -> None:
        await stores.vectors.keep("m", {digest: digest[:2] for digest in DIGESTS}, 10)
        await stores.vectors.keep("other", {DIGESTS[0]: b"zz"}, 10)
        found = await stores.vectors.find("m", [*DIGESTS, b"?" * 32])
        assert found == {digest: CachedVector(digest[:2], 10) for digest in DIGESTS}
        assert await stores.vectors.find("other", DIGESTS[:2]) == {DIGESTS[0]: CachedVector(b"zz", 10)}
        assert await stores.vectors.find("m", []) == {}

    async def test_what_is_kept_already_stays(self, stores: ContractStores) -> None:
        await stores.vectors.keep("m", {DIGESTS[0]: b"first"}, 10)
        await stores.vectors.keep("m", {DIGESTS[0]: b"second"}, 20)
        assert await stores.vectors.find("m", DIGESTS[:1]) == {DIGESTS[0]: CachedVector(b"first", 10)}

    async def test_those_not_used_for_longest_go_first(self, stores: ContractStores) -> None:
        for number, digest in enumerate(DIGESTS[:6]):
            await stores.vectors.keep("m" if number % 2 else "n", {digest: b"v"}, number)
        await stores.vectors.touch("n", DIGESTS[:1], 100)
        assert (await stores.vectors.evict(2), await stores.vectors.count()) == (2, 4)
        kept = {**await stores.vectors.find("m", DIGESTS[:6]), **await stores.vectors.find("n", DIGESTS[:6])}
        assert sorted(kept) == [DIGESTS[0], *DIGESTS[3:6]]
        assert [await stores.vectors.evict(100) for _ in range(2)] == [4, 0]

    async def test_what_callers_asked_for_goes_before_any_passage(self, stores: ContractStores) -> None:
        await stores.vectors.keep("m", {DIGESTS[0]: b"v", DIGESTS[1]: b"v"}, 10)
        await stores.vectors.keep("n", {DIGESTS[2]: b"v"}, 30, "asked")
        await stores.vectors.keep("m", {DIGESTS[3]: b"v"}, 20, "asked")
        assert await stores.vectors.evict(1) == 1
        assert (len(await stores.vectors.find("n", DIGESTS)), len(await stores.vectors.find("m", DIGESTS))) == (1, 2)
        assert await stores.vectors.evict(2) == 2
        assert len(await stores.vectors.find("m", DIGESTS)) == 1

    async def test_what_is_old_goes_in_steps_and_of_it_what_no_chunk_is_made_of(self, stores: ContractStores) -> None:
        await stores.vectors.keep("m", dict.fromkeys(DIGESTS[:3], b"v"), 10)
        await stores.vectors.keep("m", {DIGESTS[3]: b"v"}, 10, "asked")
        await stores.vectors.keep("m", {DIGESTS[4]: b"v"}, 20)
        await stores.collections.add("domain:a", [structs.replace(CHUNK, digest=DIGESTS[0])], {})
        assert [await stores.vectors.review(20, 100, 2) for _ in range(3)] == [3, 1, 0]
        left = await stores.vectors.find("m", DIGESTS[:5])
        assert {digest: found.used_at for digest, found in left.items()} == {DIGESTS[0]: 100, DIGESTS[4]: 20}

    async def test_a_deleted_vector_can_be_stored_again(
        self, stores: ContractStores, elsewhere: ContractStores
    ) -> None:
        for where in (stores, elsewhere):
            await where.vectors.keep("m", {DIGESTS[0]: b"old", DIGESTS[1]: b"old"}, 10)
        await stores.vectors.forget("m", [DIGESTS[0], DIGESTS[0], b"?" * 32])
        await stores.vectors.forget("other", DIGESTS[:2])
        await stores.vectors.keep("m", {DIGESTS[0]: b"new", DIGESTS[1]: b"new"}, 20)
        found = await stores.vectors.find("m", DIGESTS[:2])
        assert [found[digest].vector for digest in DIGESTS[:2]] == [b"new", b"old"]
        assert (await elsewhere.vectors.find("m", DIGESTS[:1]))[DIGESTS[0]].vector == b"old"

    @pytest.mark.req("CE-F42")
    async def test_tenants_keep_their_own(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await stores.vectors.keep("m", {DIGESTS[0]: b"v"}, 10)
        assert await elsewhere.vectors.find("m", DIGESTS[:1]) == {}
        assert (await elsewhere.vectors.count(), await elsewhere.vectors.evict(10)) == (0, 0)
        assert await stores.vectors.count() == 1


@pytest.mark.req("CE-F49")
class TenantModelStoreContract:
    """The last role of a model counts."""

    async def test_the_last_setting_of_a_model_wins(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await stores.tenant_models.set("b", "allowed", 10)
        await stores.tenant_models.set("a", "building", 20, 0.125)
        assert (await stores.tenant_models.listed())[0] == TenantModel("a", "building", 20, 125)
        await stores.tenant_models.set("a", "serving", 30)
        assert await stores.tenant_models.listed() == [TenantModel("a", "serving", 30), TenantModel("b", "allowed", 10)]
        assert await stores.tenant_models.held() == await stores.tenant_models.listed()
        assert await elsewhere.tenant_models.listed() == []

    async def test_a_removed_model_has_no_setting(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await stores.tenant_models.set("a", "allowed", 10)
        assert not await elsewhere.tenant_models.remove("a")
        assert await stores.tenant_models.remove("a")
        assert not await stores.tenant_models.remove("a")
        assert await stores.tenant_models.listed() == []
