"""Which models a tenant may use, and which one its searches use.

Without restriction a tenant may use every configured model. A restriction by an admin always includes the model that
serves its searches and the one it is being migrated to.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from weftline.indexing.embeddings.model import EmbeddingModelUnknown
from weftline.indexing.embeddings.sql import SHARE_UNITS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from weftline.indexing.embeddings.model import Embeddings, Model
    from weftline.indexing.embeddings.sql import TenantModel, TenantModelStore

# Stored as a model name to mark that the tenant's models are restricted.
_RESTRICTED = ""
_OFF_FOR_TENANT = "turned off for this tenant"


def serving_model(listed: Sequence[TenantModel], models: Sequence[Model]) -> Model:
    """Return the model that a tenant's searches use: the chosen one if configured, else the default."""
    chosen = {each.model for each in listed if each.role == "serving"}
    return next((model for model in models if model.name in chosen), models[0])


class QueryModel(NamedTuple):
    """The model that answers a query; ``fallback`` is the serving one if another answers."""

    model: Model
    fallback: Model | None = None


def query_model(listed: Sequence[TenantModel], models: Sequence[Model], text: str) -> QueryModel:
    """Return the model that answers a query: for a share of queries the one being migrated to, if it is configured.

    The share is taken by a hash of the query, so the same query always has the same model, in every process.
    """
    serving = serving_model(listed, models)
    for each in listed:
        if each.role == "building" and _query_place(text) < each.share:
            found = next((model for model in models if model.name == each.model), None)
            return QueryModel(serving) if found is None else QueryModel(found, serving)
    return QueryModel(serving)


def _query_place(text: str) -> int:
    words = " ".join(text.casefold().split()).encode(errors="replace")
    return int.from_bytes(hashlib.sha256(words).digest()[:8]) % SHARE_UNITS


def models_to_fill(listed: Sequence[TenantModel], models: Sequence[Model]) -> tuple[str, ...]:
    """Return the models that a new chunk needs vectors of: the serving one, then the one being migrated to or kept.

    They may include models that this process does not know.
    """
    serving = next((each.model for each in listed if each.role == "serving"), models[0].name)
    return (serving, *(each.model for each in listed if each.role in {"building", "kept"}))


def known_models_to_fill(listed: Sequence[TenantModel], models: Sequence[Model]) -> tuple[str, ...]:
    """Return the same for a process that computes these vectors; raises if it does not know one of the models.

    A model kept for a rollback is left out if it is unknown: its service may have been switched off.
    """
    known = {model.name for model in models}
    kept = {each.model for each in listed if each.role == "kept"}
    names = tuple(name for name in models_to_fill(listed, models) if name in known or name not in kept)
    for name in names:
        if name not in known:
            raise EmbeddingModelUnknown(f"Model '{name[:100]}' is in use but not configured in this process.")
    return names


def has_required_models(embedded: Collection[str], needed: Sequence[str]) -> bool:
    """Return whether chunks may be written with vectors of these models.

    The serving model is required. A migration adds missing vectors of its model before it ends.
    """
    return needed[0] in embedded and set(embedded) <= set(needed)


def usable_models(listed: Sequence[TenantModel], models: Sequence[Model]) -> list[Model]:
    """Return the models that a tenant may use, the serving one first."""
    serving = serving_model(listed, models)
    names_listed = {each.model for each in listed}
    chosen = [model for model in models if model.name in names_listed] if _RESTRICTED in names_listed else models
    return [serving, *(model for model in chosen if model != serving)]


def usable_model(listed: Sequence[TenantModel], models: Sequence[Model], name: str | None) -> Model:
    """Return the named model if the tenant may use it; the serving one if no name is given."""
    usable = usable_models(listed, models)
    found = next((model for model in usable if name in {None, model.name}), None)
    if found is None:
        # Does not reveal whether the model exists.
        raise EmbeddingModelUnknown(your_models=[model.name for model in usable])
    return found


async def is_semantic(store: TenantModelStore, embeddings: Embeddings) -> bool:
    """Return whether a tenant's content is embedded: neither the installation nor the tenant has turned it off."""
    return not await semantic_search_off(store, embeddings)


async def semantic_search_off(store: TenantModelStore, embeddings: Embeddings) -> str:
    """Return why a tenant's content is not embedded; empty if it is."""
    return embeddings.off_reason() or ("" if await store.semantic_search() else _OFF_FOR_TENANT)


async def allow_models(names: Sequence[str], models: Sequence[Model], store: TenantModelStore, now: int) -> None:
    """Restrict a tenant to these models; an empty list lifts the restriction."""
    known = {model.name for model in models}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise EmbeddingModelUnknown(f"Model '{unknown[0][:100]}' is not configured in this installation.")
    allowed = {*names, _RESTRICTED} if names else set()
    listed = {each.model: each for each in await store.listed()}
    for name in sorted(listed.keys() - allowed):
        if listed[name].role == "allowed":
            await store.remove(name)
    for name in sorted(allowed - listed.keys()):
        await store.set(name, "allowed", now)
