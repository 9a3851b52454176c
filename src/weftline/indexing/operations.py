"""Operations on embedding models and model migrations."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET

from weftline.access.grants import check_highest_clearance
from weftline.access.plan_warnings import Plans
from weftline.indexing.embeddings import (
    EmbeddingModelUnknown,
    Embeddings,
    Role,
    TenantModelStore,
    allow_models,
    semantic_search_off,
    serving_model,
    usable_model,
    usable_models,
)
from weftline.indexing.model_migration import (
    MEANS,
    Canary,
    MigrationState,
    MigrationSteps,
    ModelComparison,
    ModelInUse,
    ModelMigration,
    ModelMigrationInProgress,
    ModelMigrationNotFound,
    ModelName,
    QueryComparison,
    Share,
)
from weftline.kernel.clock import Clock, from_micros, optional_datetime, to_micros
from weftline.kernel.errors import InvalidInput, QuotaExceeded
from weftline.kernel.identity import Permission
from weftline.kernel.operation import Audience, Effect, RateClass, Request, Response, SessionUse, operation

# Operations on embedding models and model migrations.

_FIGURES = ("rank_correlation", *MEANS)
_admin_operation = partial(
    operation, tool="knowledge", permission=Permission.ADMIN, rate=RateClass.ADMIN, audience=Audience.NOT_SUBAGENTS
)


class ListModels(Request):
    """Lists the tenant's embedding models."""


class AllowModels(Request):
    """Restricts the models the tenant may use."""

    models: Annotated[
        tuple[ModelName, ...],
        msgspec.Meta(max_length=50, description="Only these models; an empty list allows every configured model."),
    ]


class StartModelMigration(Request):
    """The model that searches switch to, and how carefully."""

    model: ModelName
    shares: Annotated[
        tuple[Share, ...],
        msgspec.Meta(
            max_length=10,
            description="Shares of the queries that the new model answers, step by step, before it answers all. An "
            "empty list switches all at once.",
        ),
    ] = (0.1, 0.5)
    min_overlap: Annotated[
        float,
        msgspec.Meta(ge=0, le=1, description="Refuse the model if, on average, the first ten results agree less."),
    ] = 0.3
    keep_hours: Annotated[
        int, msgspec.Meta(ge=0, le=720, description="How long after the switch it can be rolled back.")
    ] = 24


class ShowModelMigration(Request):
    """Shows the latest model migration."""


class CancelModelMigration(Request):
    """Cancels the model migration in progress."""


class EmbeddingModelInfo(Response, omit_defaults=False):
    """An embedding model and its role: used by searches, being migrated to, kept for a rollback, or usable."""

    model: str
    dimensions: int
    most_tokens: int
    role: Literal["serving", "building", "kept", "usable"]


class ModelList(Response, omit_defaults=False):
    """Models that the tenant may use, the serving one first. ``limited`` if an admin restricted them.

    ``semantic_search_off``: why nothing is embedded, so that searches match words only; only if so.
    """

    models: list[EmbeddingModelInfo]
    limited: bool
    semantic_search_off: str | msgspec.UnsetType = UNSET


class CanaryStep(Response, omit_defaults=False):
    """Queries that both models answered, and the means of what was compared.

    ``overlap``: share of the first ten results that both found, or of fewer if one model found fewer.
    ``rank_correlation``: Kendall's tau of these. ``results_*``: number of results, ``ms_*``: latency.
    ``failures``: queries that the new model could not answer, so that the old one did.
    """

    share: float
    started_at: datetime
    queries: int
    failures: int
    overlap: float
    rank_correlation: float
    results_before: float
    results_after: float
    confidence_before: float
    confidence_after: float
    ms_before: float
    ms_after: float


class ModelMigrationInfo(Response, omit_defaults=False):
    """Progress of a model migration: ``embedded`` of ``chunks`` chunks; chunks added meanwhile get both vectors.

    ``comparison``: recall of both models on the same probes; missing if the old model was unavailable. ``canary``: the
    steps in which the new model answers a ``share`` of the queries, each with the comparison of both models' answers.
    ``rollback_until``: until then, cancelling returns to the old model. ``problem``: why the migration is stalled or
    was refused.
    """

    on_record = ("from_model", "to_model", "state")

    from_model: str
    to_model: str
    state: MigrationState
    started_by: str
    started_at: datetime
    switched_at: datetime | None
    finished_at: datetime | None
    embedded: int
    chunks: int
    comparison: ModelComparison | None
    share: float
    canary: list[CanaryStep]
    rollback_until: datetime | None
    problem: str | None


@operation(
    "knowledge.list_models",
    tool="knowledge",
    action="list_models",
    http="GET /v1/models",
    permission=Permission.READ,
    rate=RateClass.KNOWLEDGE,
    effect=Effect.READ,
    session=SessionUse.NONE,
)
async def list_models(_: ListModels, models: TenantModelStore, embeddings: Embeddings) -> ModelList:
    """List the embedding models that you may use, and which one searches use."""
    roles = await models.listed()
    in_migration = {each.model: each.role for each in roles if each.role in {"building", "kept"}}
    serving = serving_model(roles, embeddings.models())
    return ModelList(
        models=[
            EmbeddingModelInfo(
                model=model.name,
                dimensions=model.dimensions,
                most_tokens=model.most_tokens,
                role="serving" if model == serving else _shown_role(in_migration.get(model.name)),
            )
            for model in usable_models(roles, embeddings.models())
        ],
        limited=any(each.role == "allowed" for each in roles),
        semantic_search_off=await semantic_search_off(models, embeddings) or UNSET,
    )


@_admin_operation(
    "knowledge.allow_models",
    action="allow_models",
    requires=check_highest_clearance,
    http="PUT /v1/models/allowed",
    effect=Effect.WRITE,
    errors=(EmbeddingModelUnknown,),
    audited=True,
    session=SessionUse.NONE,
)
async def allow(request: AllowModels, models: TenantModelStore, embeddings: Embeddings, clock: Clock) -> ModelList:
    """Restrict which embedding models the tenant may use; an empty list lifts the restriction."""
    await allow_models(request.models, embeddings.models(), models, to_micros(clock.now()))
    listed: ModelList = await list_models.run(ListModels(), models, embeddings)
    return listed


@_admin_operation(
    "knowledge.start_model_migration",
    action="start_model_migration",
    requires=check_highest_clearance,
    http="POST /v1/models/migration",
    effect=Effect.WRITE,
    errors=(EmbeddingModelUnknown, ModelInUse, ModelMigrationInProgress, QuotaExceeded),
    audited=True,
    status=202,
    session=SessionUse.OUTSIDE,
)
async def start_model_migration(
    request: StartModelMigration, migrations: MigrationSteps, embeddings: Embeddings, plans: Plans
) -> ModelMigrationInfo:
    """Migrate searches to another embedding model: both are kept until the new one is on par.

    Then the new one answers a growing share of the queries, and at last all. If its answers differ too much, the
    migration is refused and the old one answers all queries again.
    """
    (await plans.allowance()).check_custom_models()
    if list(request.shares) != sorted(set(request.shares)):
        raise InvalidInput("shares: must grow from step to step", field="shares")
    model = usable_model(await migrations.models.listed(), embeddings.models(), request.model)
    canary = Canary(request.shares, request.min_overlap, request.keep_hours)
    return await _info(await migrations.start(model, embeddings.models(), canary), migrations)


@_admin_operation(
    "knowledge.show_model_migration",
    action="show_model_migration",
    requires=check_highest_clearance,
    http="GET /v1/models/migration",
    effect=Effect.READ,
    errors=(ModelMigrationNotFound,),
    session=SessionUse.OUTSIDE,
)
async def show_model_migration(_: ShowModelMigration, migrations: MigrationSteps) -> ModelMigrationInfo:
    """Show the progress of the latest model migration, and how the two models compare."""
    migration = await migrations.migrations.find()
    if migration is None:
        raise ModelMigrationNotFound
    return await _info(migration, migrations)


@_admin_operation(
    "knowledge.cancel_model_migration",
    action="cancel_model_migration",
    requires=check_highest_clearance,
    http="DELETE /v1/models/migration",
    destructive=True,
    effect=Effect.WRITE,
    errors=(ModelMigrationNotFound,),
    audited=True,
    session=SessionUse.OUTSIDE,
)
async def cancel_model_migration(_: CancelModelMigration, migrations: MigrationSteps) -> ModelMigrationInfo:
    """Cancel the model migration, or roll it back after the switch: searches use the old model, at once."""
    return await _info(await migrations.cancel(), migrations)


async def _info(migration: ModelMigration, migrations: MigrationSteps) -> ModelMigrationInfo:
    canary = migration.canary
    steps = () if canary is None else canary.steps
    return ModelMigrationInfo(
        from_model=migration.from_model,
        to_model=migration.to_model,
        state=migration.state,
        started_by=migration.started_by,
        started_at=from_micros(migration.started_at),
        switched_at=optional_datetime(migration.switched_at),
        finished_at=optional_datetime(migration.finished_at),
        embedded=migration.embedded,
        chunks=await migrations.chunks(),
        comparison=migration.comparison,
        share=_share(migration),
        canary=[_step_info(step) for step in steps],
        rollback_until=_rollback_until(migration, migrations.now),
        problem=migration.problem,
    )


def _shown_role(role: Role | None) -> Literal["building", "kept", "usable"]:
    return role if role in {"building", "kept"} else "usable"


def _share(migration: ModelMigration) -> float:
    """Return the share of queries that the new model answers now."""
    if migration.state in {"dropping", "done"}:
        return 1.0
    current = None if migration.canary is None else migration.canary.current
    return current.share if current is not None and migration.state == "canary" else 0.0


def _rollback_until(migration: ModelMigration, now: int) -> datetime | None:
    if migration.canary is None or migration.switched_at is None or not migration.may_be_rolled_back(now):
        return None
    return from_micros(migration.switched_at + migration.canary.keep_micros)


def _step_info(step: QueryComparison) -> CanaryStep:
    figures = {name: round(getattr(step, name), 4) for name in _FIGURES}
    return CanaryStep(
        share=step.share,
        started_at=from_micros(step.started_at),
        queries=step.queries,
        failures=step.failures,
        **figures,
    )
