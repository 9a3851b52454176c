"""A tenant may use every model, or those an admin named; one of them serves its searches."""

from __future__ import annotations

import pytest

from weft.capabilities.indexing.embeddings.model import EmbeddingModelUnknown, Model
from weft.capabilities.indexing.embeddings.model_selection import (
    allow_models,
    has_required_models,
    known_models_to_fill,
    models_to_fill,
    serving_model,
    usable_model,
    usable_models,
)
from weft.capabilities.indexing.embeddings.store import Role, TenantModel

pytestmark = pytest.mark.req("CE-F49")
A, B, C = (Model(name, 8, 256) for name in "abc")
MODELS = (A, B, C)


class Said:
    """What is said of models, in memory."""

    def __init__(self, *, only_these: bool = False, **said: Role) -> None:
        if only_these:
            said[""] = "allowed"
        self.said = {name: TenantModel(name, role, 1) for name, role in said.items()}

    async def listed(self) -> list[TenantModel]:
        return [self.said[name] for name in sorted(self.said)]

    async def set(self, model: str, role: Role, now: int) -> None:
        self.said[model] = TenantModel(model, role, now)

    async def remove(self, model: str) -> bool:
        return self.said.pop(model, None) is not None

    def roles(self) -> dict[str, Role]:
        return {name: each.role for name, each in self.said.items()}


async def test_a_tenant_without_a_list_may_use_every_model() -> None:
    assert serving_model([], MODELS) == A
    assert usable_models([], MODELS) == [A, B, C]


async def test_a_tenant_may_use_allowed_models_and_the_current_one() -> None:
    said = await Said(b="serving", c="allowed", only_these=True).listed()
    assert serving_model(said, MODELS) == B
    assert usable_models(said, MODELS) == [B, C]
    assert usable_models(await Said(c="allowed", only_these=True).listed(), MODELS) == [A, C]


async def test_a_migration_limits_no_models() -> None:
    assert usable_models(await Said(a="serving", b="building").listed(), MODELS) == [A, B, C]


async def test_a_removed_model_is_not_used() -> None:
    assert serving_model(await Said(gone="serving").listed(), MODELS) == A


async def test_required_vectors_follow_the_stored_state() -> None:
    assert models_to_fill([], MODELS) == ("a",)
    assert models_to_fill(await Said(gone="serving", b="building", c="allowed").listed(), MODELS) == ("gone", "b")
    assert known_models_to_fill(await Said(b="serving", a="building").listed(), MODELS) == ("b", "a")
    for said in (Said(gone="serving"), Said(b="serving", gone="building")):
        with pytest.raises(EmbeddingModelUnknown, match="gone"):
            known_models_to_fill(await said.listed(), MODELS)


def test_chunks_are_embedded_with_the_current_model_only() -> None:
    assert has_required_models({"a"}, ("a",))
    assert has_required_models({"a", "b"}, ("a", "b"))
    assert has_required_models({"a"}, ("a", "b"))
    assert not has_required_models({"b"}, ("a", "b"))
    assert not has_required_models({"a", "b"}, ("a",))


async def test_the_default_is_the_model_of_searches() -> None:
    said = await Said(b="serving").listed()
    assert usable_model(said, MODELS, None) == B
    assert usable_model(said, MODELS, "c") == C


@pytest.mark.parametrize("name", ["b", "none"])
async def test_unknown_and_forbidden_models_have_the_same_error(name: str) -> None:
    with pytest.raises(EmbeddingModelUnknown) as caught:
        usable_model(await Said(c="allowed", only_these=True).listed(), MODELS, name)
    assert (caught.value.message, caught.value.context) == (
        EmbeddingModelUnknown().message,
        {"your_models": ["a", "c"]},
    )


async def test_allowing_models_replaces_the_list_and_keeps_models_in_use() -> None:
    store = Said(a="serving", b="building", c="allowed")
    await allow_models(["a"], MODELS, store, 2)
    assert usable_models(await store.listed(), MODELS) == [A, B]
    await allow_models(["b", "c"], MODELS, store, 3)
    assert usable_models(await store.listed(), MODELS) == [A, B, C]
    await allow_models([], MODELS, store, 4)
    assert store.roles() == {"a": "serving", "b": "building"}


async def test_a_tenant_can_be_limited_to_the_model_it_has() -> None:
    store = Said(b="serving")
    await allow_models(["b"], MODELS, store, 2)
    assert usable_models(await store.listed(), MODELS) == [B]


async def test_only_existing_models_can_be_allowed() -> None:
    store = Said()
    with pytest.raises(EmbeddingModelUnknown):
        await allow_models(["a", "none"], MODELS, store, 2)
    assert store.roles() == {}
