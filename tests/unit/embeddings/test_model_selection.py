"""Model selection: a tenant may use every model or an allow list; one model serves its searches."""

from __future__ import annotations

import pytest

from weftline.indexing.embeddings import (
    EmbeddingModelUnknown,
    Model,
    Role,
    TenantModel,
    allow_models,
    has_required_models,
    known_models_to_fill,
    models_to_fill,
    serving_model,
    usable_model,
    usable_models,
)

pytestmark = pytest.mark.req("CE-F49")
A, B, C = (Model(name, 8, 256) for name in "abc")
MODELS = (A, B, C)


class TenantModels:
    """Store of a tenant's models, in memory."""

    def __init__(self, *, restricted: bool = False, **roles: Role) -> None:
        if restricted:
            roles[""] = "allowed"
        self._models = {name: TenantModel(name, role, 1) for name, role in roles.items()}

    async def listed(self) -> list[TenantModel]:
        return [self._models[name] for name in sorted(self._models)]

    async def set(self, model: str, role: Role, now: int) -> None:
        self._models[model] = TenantModel(model, role, now)

    async def remove(self, model: str) -> bool:
        return self._models.pop(model, None) is not None

    def roles(self) -> dict[str, Role]:
        return {name: model.role for name, model in self._models.items()}


async def test_a_tenant_without_a_list_may_use_every_model() -> None:
    assert serving_model([], MODELS) == A
    assert usable_models([], MODELS) == [A, B, C]


async def test_a_tenant_may_use_allowed_models_and_the_serving_one() -> None:
    models = await TenantModels(b="serving", c="allowed", restricted=True).listed()
    assert serving_model(models, MODELS) == B
    assert usable_models(models, MODELS) == [B, C]
    assert usable_models(await TenantModels(c="allowed", restricted=True).listed(), MODELS) == [A, C]


async def test_a_migration_limits_no_models() -> None:
    assert usable_models(await TenantModels(a="serving", b="building").listed(), MODELS) == [A, B, C]


async def test_a_removed_model_is_not_used() -> None:
    assert serving_model(await TenantModels(gone="serving").listed(), MODELS) == A


async def test_models_to_fill_are_the_serving_and_the_building_one() -> None:
    assert models_to_fill([], MODELS) == ("a",)
    assert models_to_fill(await TenantModels(gone="serving", b="building", c="allowed").listed(), MODELS) == (
        "gone",
        "b",
    )
    assert known_models_to_fill(await TenantModels(b="serving", a="building").listed(), MODELS) == ("b", "a")
    for models in (TenantModels(gone="serving"), TenantModels(b="serving", gone="building")):
        with pytest.raises(EmbeddingModelUnknown, match="gone"):
            known_models_to_fill(await models.listed(), MODELS)


def test_a_chunk_needs_the_serving_model_and_no_unused_one() -> None:
    assert has_required_models({"a"}, ("a",))
    assert has_required_models({"a", "b"}, ("a", "b"))
    assert has_required_models({"a"}, ("a", "b"))
    assert not has_required_models({"b"}, ("a", "b"))
    assert not has_required_models({"a", "b"}, ("a",))


async def test_the_default_is_the_serving_model() -> None:
    models = await TenantModels(b="serving").listed()
    assert usable_model(models, MODELS, None) == B
    assert usable_model(models, MODELS, "c") == C


@pytest.mark.parametrize("name", ["b", "none"])
async def test_unknown_and_forbidden_models_have_the_same_error(name: str) -> None:
    with pytest.raises(EmbeddingModelUnknown) as caught:
        usable_model(await TenantModels(c="allowed", restricted=True).listed(), MODELS, name)
    assert (caught.value.message, caught.value.context) == (
        EmbeddingModelUnknown().message,
        {"your_models": ["a", "c"]},
    )


async def test_allowing_models_replaces_the_list_and_keeps_models_in_use() -> None:
    store = TenantModels(a="serving", b="building", c="allowed")
    await allow_models(["a"], MODELS, store, 2)
    assert usable_models(await store.listed(), MODELS) == [A, B]
    await allow_models(["b", "c"], MODELS, store, 3)
    assert usable_models(await store.listed(), MODELS) == [A, B, C]
    await allow_models([], MODELS, store, 4)
    assert store.roles() == {"a": "serving", "b": "building"}


async def test_a_tenant_can_be_limited_to_its_serving_model() -> None:
    store = TenantModels(b="serving")
    await allow_models(["b"], MODELS, store, 2)
    assert usable_models(await store.listed(), MODELS) == [B]


async def test_only_existing_models_can_be_allowed() -> None:
    store = TenantModels()
    with pytest.raises(EmbeddingModelUnknown):
        await allow_models(["a", "none"], MODELS, store, 2)
    assert store.roles() == {}
