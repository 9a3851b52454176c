"""Model migration: the state machine by which a tenant switches to another embedding model.

``embedding``: every chunk gets a vector of the new model next to the old one. ``comparing``: both models answer the
same probes. If the new model's recall is on par, it answers a growing share of queries (``canary``), which the old one
answers too. If they compare well, all searches switch to it. The old vectors stay for a while, for a rollback, and are
then deleted (``dropping``, then ``done``). Otherwise the migration is ``refused``.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from weftline.indexing.model_migration.canary import Canary
from weftline.kernel.errors import Conflict, NotFound

MigrationState = Literal["embedding", "comparing", "canary", "dropping", "done", "refused", "cancelled", "rolled_back"]
CANCELLABLE: frozenset[MigrationState] = frozenset({"embedding", "comparing", "canary"})
_SWITCHED: frozenset[MigrationState] = frozenset({"dropping", "done"})

# Tolerated loss of recall: figures from a sample vary by about this much.
PARITY_SLACK = 0.02
# Searches that started with the old model may still be running.
_DROP_DELAY_MICROS = 30_000_000

ModelName = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=200,
        description="Name of an embedding model, as shown by list_models.",
    ),
]


class ModelInUse(Conflict):
    """The tenant's searches already use this model."""

    code = "MODEL_IN_USE"
    hint = "Choose another model: `knowledge.list_models` lists those you may use."
    related = ("knowledge",)


class ModelMigrationInProgress(Conflict):
    """A model migration of the tenant is in progress, or its last one is still deleting vectors."""

    code = "MODEL_MIGRATION_IN_PROGRESS"
    hint = (
        "See its progress with `knowledge.show_model_migration`; cancel it with `knowledge.cancel_model_migration`, "
        "or wait until it has finished."
    )
    related = ("knowledge",)


class ModelMigrationNotFound(NotFound):
    """The tenant has no model migration, or none that is in progress."""

    code = "MODEL_MIGRATION_NOT_FOUND"
    hint = "Start one with `knowledge.start_model_migration`."
    related = ("knowledge",)


class ModelComparison(msgspec.Struct, frozen=True):
    """Recall@10 of both models on probes (sentences that must retrieve their own chunk).

    ``agreement`` is the mean overlap of the two top tens, over probes and recent user queries.
    """

    probes: int
    recall_before: float
    recall_after: float
    agreement: float

    @property
    def is_parity(self) -> bool:
        return self.recall_after >= self.recall_before - PARITY_SLACK


class ModelMigration(msgspec.Struct, frozen=True, kw_only=True):
    """One tenant's migration between two models. The cursor (``collection``, ``number``) is the last processed chunk.

    Not ``comparable`` if the old model was unavailable at the start: there is no baseline, so the new model takes over
    without a comparison.
    """

    from_model: str
    to_model: str
    state: MigrationState
    comparable: bool
    started_by: str
    started_at: int
    switched_at: int | None = None
    finished_at: int | None = None
    collection: str = ""
    number: int = 0
    embedded: int = 0
    comparison: ModelComparison | None = None
    problem: str | None = None
    canary: Canary | None = None

    @property
    def required_models(self) -> frozenset[str]:
        """Return the models that the next step needs."""
        if self.state == "embedding" or (self.state == "comparing" and not self.comparable):
            return frozenset({self.to_model})
        return frozenset({self.from_model, self.to_model}) if self.state == "comparing" else frozenset()

    @property
    def leftover(self) -> str | None:
        """Return the model whose vectors are to be deleted; None while both are needed."""
        if self.state in CANCELLABLE:
            return None
        return self.from_model if self.state in _SWITCHED else self.to_model

    def may_be_dropped(self, now: int) -> bool:
        """Tell whether no running search can still use the left-over vectors, and no rollback will need them."""
        if self.leftover is None:
            return False
        if self.state in _SWITCHED:
            kept = 0 if self.canary is None or not self.comparable else self.canary.keep_micros
            return now >= (self.switched_at or 0) + max(_DROP_DELAY_MICROS, kept)
        ended_at = None if self.canary is None else self.canary.ended_at
        return ended_at is None or now >= ended_at + _DROP_DELAY_MICROS

    def may_be_rolled_back(self, now: int) -> bool:
        """Tell whether searches can still return to the old model."""
        return self.state == "dropping" and self.comparable and not self.may_be_dropped(now)
