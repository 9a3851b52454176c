"""Which models a tenant may use, and which of them its searches use.

A tenant of which nothing is said may use every model there is. Once an admin names some, it may use these and no other;
the one that serves its searches, and one that it is being migrated to, are always among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.capabilities.indexing.embeddings.model import EmbeddingModelUnknown

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from weft.capabilities.indexing.embeddings.model import Model
    from weft.capabilities.indexing.embeddings.store import TenantModel, TenantModelStore

# Said of no model: that those which something is said of are all that the tenant may use.
_ONLY_THESE = ""


def serving_model(said: Sequence[TenantModel], models: Sequence[Model]) -> Model:
    """Return the model that a tenant's searches use: the first there is, unless another was chosen and is there."""
    chosen = {each.model for each in said if each.role == "serving"}
    return next((model for model in models if model.name in chosen), models[0])


def models_to_fill(said: Sequence[TenantModel], models: Sequence[Model]) -> tuple[str, ...]:
    """Return the models that a new chunk needs a vector of: the one that serves, then one that is being migrated to.

    What was said holds for every process, also for one that does not know these models.
    """
    serving = next((each.model for each in said if each.role == "serving"), models[0].name)
    return (serving, *(each.model for each in said if each.role == "building"))


def known_models_to_fill(said: Sequence[TenantModel], models: Sequence[Model]) -> tuple[str, ...]:
    """Return the same to whoever makes these vectors; a process that does not know the models leaves it to others."""
    known = {model.name for model in models}
    names = models_to_fill(said, models)
    for name in names:
        if name not in known:
            raise EmbeddingModelUnknown(f"'{name[:100]}' is in use and not known to this process.")
    return names


def suffices(made: Collection[str], needed: Sequence[str]) -> bool:
    """Tell whether chunks may be written with vectors of these models.

    One of the model that serves there must be. A migration makes up for those of its own model before it concludes.
    """
    return needed[0] in made and set(made) <= set(needed)


def usable_models(said: Sequence[TenantModel], models: Sequence[Model]) -> list[Model]:
    """Return the models that a tenant may use, the one that serves its searches first."""
    serving = serving_model(said, models)
    named = {each.model for each in said}
    chosen = [model for model in models if model.name in named] if _ONLY_THESE in named else models
    return [serving, *(model for model in chosen if model != serving)]


def usable_model(said: Sequence[TenantModel], models: Sequence[Model], name: str | None) -> Model:
    """Return the model of that name if the tenant may use it; the one of its searches if none is named."""
    usable = usable_models(said, models)
    found = next((model for model in usable if name in {None, model.name}), None)
    if found is None:
        # Whether a model is not there or not for this tenant is nothing that a caller needs to tell apart.
        raise EmbeddingModelUnknown(your_models=[model.name for model in usable])
    return found


async def allow_models(names: Sequence[str], models: Sequence[Model], store: TenantModelStore, now: int) -> None:
    """Let a tenant use these models and no others; every model there is if none is named."""
    known = {model.name for model in models}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise EmbeddingModelUnknown(f"'{unknown[0][:100]}' is no embedding model of this installation.")
    wanted = {*names, _ONLY_THESE} if names else set()
    said = {each.model: each for each in await store.listed()}
    for name in sorted(said.keys() - wanted):
        if said[name].role == "allowed":
            await store.remove(name)
    for name in sorted(wanted - said.keys()):
        await store.set(name, "allowed", now)
