"""What callers can ask of embedding models."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from weft.capabilities.access.grants import check_highest_clearance
from weft.capabilities.indexing.embeddings.model import EmbeddingModelUnknown, Embeddings
from weft.capabilities.indexing.embeddings.model_selection import (
    allow_models,
    serving_model,
    usable_model,
    usable_models,
)
from weft.capabilities.indexing.embeddings.store import TenantModelStore
from weft.capabilities.indexing.model_migration.migration import Moves
from weft.capabilities.indexing.model_migration.model import (
    AlreadyServing,
    ModelComparison,
    ModelName,
    Move,
    MoveUnderWay,
    NoMove,
    State,
)
from weft.kernel.clock import Clock, from_micros, optional_datetime, to_micros
from weft.kernel.identity import Actor, Permission
from weft.kernel.operation import Audience, Effect, RateClass, Request, Response, operation


class ListModels(Request):
    """The models there are for the tenant."""


class AllowModels(Request):
    """Which models the tenant may use."""

    models: Annotated[
        tuple[ModelName, ...],
        msgspec.Meta(max_length=50, description="These and no others; every model there is if none is named."),
    ]


class StartMove(Request):
    """Which model searches shall use from when on it finds as much as the one they use now."""

    model: ModelName


class ShowMove(Request):
    """The tenant's last move to another model."""


class CancelMove(Request):
    """The move that is under way."""


class ModelInfo(Response, omit_defaults=False):
    """An embedding model. The role is what it is to the tenant: that of its searches, or the one it is moving to."""

    model: str
    dimensions: int
    most_tokens: int
    role: Literal["serving", "building", "usable"]


class ModelList(Response, omit_defaults=False):
    """The models that the tenant may use, the one of its searches first."""

    models: list[ModelInfo]
    limited: bool


class MoveInfo(Response, omit_defaults=False):
    """How far a move is: so many of all ``chunks`` were ``embedded`` anew by it; those that are added get both vectors.

    ``comparison`` is how both models did on the same questions: searches use the new one only if it found as much. It
    is missing if the old model was not there to be asked. ``problem`` is why the move does not go on.
    """

    on_record = ("from_model", "to_model", "state")

    from_model: str
    to_model: str
    state: State
    started_by: str
    started_at: datetime
    took_over_at: datetime | None
    finished_at: datetime | None
    embedded: int
    chunks: int
    comparison: ModelComparison | None
    problem: str | None


@operation(
    "knowledge.list_models",
    tool="knowledge",
    action="list_models",
    http="GET /v1/models",
    permission=Permission.READ,
    rate=RateClass.KNOWLEDGE,
    effect=Effect.READ,
)
async def list_models(_: ListModels, models: TenantModelStore, embeddings: Embeddings) -> ModelList:
    """List the embedding models that you may use, and which of them searches use."""
    said = await models.listed()
    building = {each.model for each in said if each.role == "building"}
    serving = serving_model(said, embeddings.models())
    return ModelList(
        models=[
            ModelInfo(
                model=model.name,
                dimensions=model.dimensions,
                most_tokens=model.most_tokens,
                role="serving" if model == serving else "building" if model.name in building else "usable",
            )
            for model in usable_models(said, embeddings.models())
        ],
        limited=any(each.role == "allowed" for each in said),
    )


@operation(
    "knowledge.allow_models",
    tool="knowledge",
    action="allow_models",
    http="PUT /v1/models/allowed",
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    errors=(EmbeddingModelUnknown,),
    audited=True,
)
async def allow(
    request: AllowModels, actor: Actor, models: TenantModelStore, embeddings: Embeddings, clock: Clock
) -> ModelList:
    """Say which embedding models the tenant may use; every model there is if none is named."""
    check_highest_clearance(actor)
    await allow_models(request.models, embeddings.models(), models, to_micros(clock.now()))
    listed: ModelList = await list_models.run(ListModels(), models, embeddings)
    return listed


@operation(
    "knowledge.start_move",
    tool="knowledge",
    action="start_move",
    http="POST /v1/models/move",
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    errors=(EmbeddingModelUnknown, AlreadyServing, MoveUnderWay),
    audited=True,
    status=202,
)
async def start_move(request: StartMove, actor: Actor, moves: Moves, embeddings: Embeddings) -> MoveInfo:
    """Move searches to another embedding model without a gap: both are kept until the new one finds as much.

    Only then do searches use it, and the vectors of the old one are dropped. Otherwise nothing changes.
    """
    check_highest_clearance(actor)
    model = usable_model(await moves.models.listed(), embeddings.models(), request.model)
    return await _info(await moves.start(model, embeddings.models()), moves)


@operation(
    "knowledge.show_move",
    tool="knowledge",
    action="show_move",
    http="GET /v1/models/move",
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.READ,
    audience=Audience.NOT_SUBAGENTS,
    errors=(NoMove,),
)
async def show_move(_: ShowMove, actor: Actor, moves: Moves) -> MoveInfo:
    """Show how far the last move to another embedding model is, and how the two compare."""
    check_highest_clearance(actor)
    move = await moves.moves.find()
    if move is None:
        raise NoMove
    return await _info(move, moves)


@operation(
    "knowledge.cancel_move",
    tool="knowledge",
    action="cancel_move",
    http="DELETE /v1/models/move",
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    errors=(NoMove,),
    audited=True,
)
async def cancel_move(_: CancelMove, actor: Actor, moves: Moves) -> MoveInfo:
    """Stay with the embedding model that searches use now; what was made for the other is dropped."""
    check_highest_clearance(actor)
    return await _info(await moves.cancel(), moves)


async def _info(move: Move, moves: Moves) -> MoveInfo:
    return MoveInfo(
        from_model=move.from_model,
        to_model=move.to_model,
        state=move.state,
        started_by=move.started_by,
        started_at=from_micros(move.started_at),
        took_over_at=optional_datetime(move.took_over_at),
        finished_at=optional_datetime(move.finished_at),
        embedded=move.embedded,
        chunks=await moves.chunks(),
        comparison=move.comparison,
        problem=move.problem,
    )
