"""The steps of a move from one model to another: each is a transaction, and what it rests on is in the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import structs

from weft.capabilities.indexing.collections.model import Chunk
from weft.capabilities.indexing.collections.store import CollectionStore
from weft.capabilities.indexing.embeddings.model import Model
from weft.capabilities.indexing.embeddings.model_selection import models_to_fill
from weft.capabilities.indexing.embeddings.store import TenantModelStore
from weft.capabilities.indexing.model_migration.evaluation import Probe, probes_in
from weft.capabilities.indexing.model_migration.model import (
    MAY_BE_CANCELLED,
    AlreadyServing,
    ModelComparison,
    Move,
    MoveUnderWay,
    NoMove,
)
from weft.capabilities.indexing.model_migration.store import MoveStore
from weft.kernel.clock import Clock, to_micros
from weft.kernel.events import NewEvent, Outbox
from weft.kernel.identity import PERMISSION, Actor, Permission

_ADMINS = (f"{PERMISSION}{Permission.ADMIN}",)
_EMBEDDED_AT_ONCE = 64
_DROPPED_AT_ONCE = 2_000
_LONGEST_PROBLEM = 500


class ChunkBatch(NamedTuple):
    """Chunks of a collection that have no vector of the new model yet."""

    move: Move
    collection: str
    chunks: Sequence[Chunk]


class Moves(msgspec.Struct, frozen=True):
    """Everything that moving between models needs, gathered for one transaction."""

    actor: Actor
    moves: MoveStore
    models: TenantModelStore
    collections: CollectionStore
    outbox: Outbox
    clock: Clock

    @property
    def now(self) -> int:
        return to_micros(self.clock.now())

    async def start(self, model: Model, known: Sequence[Model]) -> Move:
        """Set out for another model: from now on every new chunk gets a vector of both."""
        last = await self.moves.find_locked()
        if last is not None and last.finished_at is None:
            raise MoveUnderWay(to_model=last.to_model, state=last.state)
        serving, *_ = models_to_fill(await self.models.listed(), known)
        if serving == model.name:
            raise AlreadyServing(model=model.name)
        # Both are written, so that whoever adds chunks under what was said before has ended when this is done.
        await self.models.set(serving, "serving", self.now)
        await self.models.set(model.name, "building", self.now)
        move = Move(
            from_model=serving,
            to_model=model.name,
            state="embedding",
            comparable=any(each.name == serving for each in known),
            started_by=self.actor.participant,
            started_at=self.now,
        )
        return await self._save(move, "model_move.started")

    async def cancel(self) -> Move:
        """Stay with the old model; what was made of the new one goes."""
        move = await self.moves.find_locked()
        if move is None or move.state not in MAY_BE_CANCELLED:
            raise NoMove
        await self._set_aside(move.to_model)
        return await self._save(structs.replace(move, state="cancelled"), "model_move.cancelled")

    async def next_batch(self) -> ChunkBatch | None:
        """Return what is next to be embedded; None when every collection is done."""
        move = await self.moves.find()
        if move is None or move.state != "embedding":
            return None
        for collection in await self.collections.names():
            if collection < move.collection:
                continue
            after = move.number if collection == move.collection else 0
            chunks = await self.collections.without_vector(collection, move.to_model, after, _EMBEDDED_AT_ONCE)
            if chunks:
                return ChunkBatch(move, collection, chunks)
        return None

    async def keep(self, batch: ChunkBatch, vectors: Mapping[int, bytes]) -> None:
        """Keep the vectors of a batch, unless the move is not where it was."""
        move = await self._standing("embedding")
        if move is None or move != batch.move:
            return
        added = await self.collections.add_vectors(batch.collection, move.to_model, vectors)
        last, embedded = batch.chunks[-1].number, move.embedded + added
        await self.moves.save(
            structs.replace(move, collection=batch.collection, number=last, embedded=embedded, problem=None)
        )

    async def whole_up_to(self) -> Mapping[str, int]:
        """Return the number up to which every chunk of the collection has a vector of the new model. Slow."""
        move = await self.moves.find()
        if move is None:
            return {}
        reached = {}
        for collection in await self.collections.names():
            missing = await self.collections.without_vector(collection, move.to_model, 0, 1)
            reached[collection] = (
                missing[0].number - 1 if missing else (await self.collections.state(collection)).number
            )
        return reached

    async def conclude_embedding(self, whole_up_to: Mapping[str, int]) -> None:
        """Go on to comparing if nothing is left to be embedded: also nothing that came behind the cursor."""
        move = await self._standing("embedding")
        if move is None:
            return
        begun_anew = structs.replace(move, collection="", number=0)
        if await self._is_whole(move, whole_up_to):
            await self._save(structs.replace(begun_anew, state="comparing"), "model_move.comparing")
        else:
            await self.moves.save(begun_anew)

    async def probes(self) -> list[Probe]:
        """Return questions for chunks of every collection, always the same ones of what stands there."""
        names = await self.collections.names()
        return [probe for collection in names for probe in await probes_in(collection, self.collections, len(names))]

    async def chunks(self) -> int:
        """Return how many chunks there are."""
        return sum([(await self.collections.state(collection)).chunks for collection in await self.collections.names()])

    async def settle(self, comparison: ModelComparison | None, whole_up_to: Mapping[str, int]) -> None:
        """Take over with the new model if it finds as much as the old one, and stay with the old one if not.

        Chunks that were added meanwhile without a vector of the new model get one first; then both are compared again.
        """
        move = await self._standing("comparing")
        if move is None:
            return
        # It is what it was; but whoever adds chunks has ended when this is done, and nobody begins.
        await self.models.set(move.to_model, "building", self.now)
        if not await self._is_whole(move, whole_up_to):
            await self.moves.save(structs.replace(move, state="embedding", problem=None))
            return
        compared = structs.replace(move, comparison=comparison, problem=None)
        if comparison is not None and not comparison.is_parity:
            await self._set_aside(move.to_model)
            await self._save(structs.replace(compared, state="refused"), "model_move.refused")
            return
        await self.models.set(move.to_model, "serving", self.now)
        await self._set_aside(move.from_model)
        taken_over = structs.replace(compared, state="dropping", took_over_at=self.now)
        await self._save(taken_over, "model_move.took_over")

    async def drop_some(self) -> bool:
        """Drop vectors that nobody needs any more; tell whether there may be more of them."""
        move = await self.moves.find_locked()
        if move is None or move.leftover is None or move.finished_at is not None:
            return False
        for collection in await self.collections.names():
            if await self.collections.drop_vectors(collection, move.leftover, _DROPPED_AT_ONCE):
                return True
        finished = structs.replace(move, finished_at=self.now)
        if move.state == "dropping":
            await self._save(structs.replace(finished, state="done"), "model_move.done")
        else:
            await self.moves.save(finished)
        return False

    async def note(self, problem: str) -> None:
        """Note why a move does not go on, for whoever looks."""
        move = await self.moves.find_locked()
        if move is not None and move.finished_at is None:
            await self.moves.save(structs.replace(move, problem=problem[:_LONGEST_PROBLEM]))

    async def _is_whole(self, move: Move, up_to: Mapping[str, int]) -> bool:
        """Tell whether every chunk has a vector of the new model, if those up to these numbers have."""
        for collection in await self.collections.names():
            if await self.collections.without_vector(collection, move.to_model, up_to.get(collection, 0), 1):
                return False
        return True

    async def _set_aside(self, model: str) -> None:
        """Use a model no longer. Where the tenant may use some models only, it goes on being one of them."""
        if any(each.role == "allowed" for each in await self.models.listed()):
            await self.models.set(model, "allowed", self.now)
        else:
            await self.models.remove(model)

    async def _standing(self, state: str) -> Move | None:
        move = await self.moves.find_locked()
        return move if move is not None and move.state == state else None

    async def _save(self, move: Move, event_type: str) -> Move:
        await self.moves.save(move)
        await self.outbox.publish(
            NewEvent(
                type=event_type,
                session_id=None,
                subject=move.to_model,
                actor=self.actor.participant,
                readable_by=_ADMINS,
                data={"from_model": move.from_model, "state": move.state, **_figures(move.comparison)},
            )
        )
        return move


async def models_in_use(store: TenantModelStore, known: Sequence[Model], now: int) -> tuple[str, ...]:
    """Return the models that a new chunk needs a vector of, so that this stays so until the transaction ends.

    The one that serves is written down with the first chunk, so that another default does not change it.
    """
    said = await store.held()
    if not any(each.role == "serving" for each in said):
        await store.set(models_to_fill(said, known)[0], "serving", now)
        # Somebody may have set out for another model meanwhile, who waits for this row from now on.
        said = await store.held()
    return models_to_fill(said, known)


def _figures(comparison: ModelComparison | None) -> dict[str, object]:
    return {} if comparison is None else structs.asdict(comparison)
