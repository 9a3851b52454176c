"""How far the way of a tenant from one embedding model to another is.

A move goes through these states: every chunk gets a vector of the new model beside the one it has (``embedding``), both
models answer the same questions and the answers are compared (``comparing``), and only if the new one finds as much do
searches use it from then on, while the vectors of the old one are dropped (``dropping``, then ``done``). Otherwise the
move is ``refused``. Searches go on all the while, with the old model until the new one has taken over.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from weft.kernel.errors import Conflict, NotFound

State = Literal["embedding", "comparing", "dropping", "done", "refused", "cancelled"]
MAY_BE_CANCELLED: frozenset[State] = frozenset({"embedding", "comparing"})

# So much less of what is looked for may the new model find, for what is counted on a sample is never quite equal.
PARITY_SLACK = 0.02
# Searches that began with the old model end with it.
_GRACE_MICROS = 30_000_000

ModelName = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=200,
        description="The name of an embedding model, as list_models shows it.",
    ),
]


class AlreadyServing(Conflict):
    """The tenant's searches use this model."""

    code = "MODEL_IN_USE"
    hint = "Name another model: see those you may use with the action list_models."
    related = ("knowledge",)


class MoveUnderWay(Conflict):
    """The tenant is on its way to another model, or what is left of its last move is being dropped."""

    code = "MODEL_MOVE_UNDER_WAY"
    hint = "See how far it is with the action show_move; cancel it with cancel_move, or wait until it has finished."
    related = ("knowledge",)


class NoMove(NotFound):
    """The tenant has never moved to another model, or is not on its way to one."""

    code = "MODEL_MOVE_NOT_FOUND"
    hint = "Start one with the action start_move."
    related = ("knowledge",)


class ModelComparison(msgspec.Struct, frozen=True):
    """How two models did on the same questions.

    A probe is a sentence of a chunk that must be found again among the first ten. ``agreement`` is how much of the ten
    nearest both models share, on probes and on questions that were really asked.
    """

    probes: int
    recall_before: float
    recall_after: float
    agreement: float

    @property
    def is_parity(self) -> bool:
        return self.recall_after >= self.recall_before - PARITY_SLACK


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """The way of one tenant from one model to another. The cursor is the last chunk that was looked at.

    It is not ``comparable`` if the old model was not there any more when it was started: then nothing is left to be
    compared with. Whatever was left over is gone once it has finished.
    """

    from_model: str
    to_model: str
    state: State
    comparable: bool
    started_by: str
    started_at: int
    took_over_at: int | None = None
    finished_at: int | None = None
    collection: str = ""
    number: int = 0
    embedded: int = 0
    comparison: ModelComparison | None = None
    problem: str | None = None

    @property
    def asked_models(self) -> frozenset[str]:
        """Return the models that have to be there for the move to go on."""
        if self.state == "embedding" or (self.state == "comparing" and not self.comparable):
            return frozenset({self.to_model})
        return frozenset({self.from_model, self.to_model}) if self.state == "comparing" else frozenset()

    @property
    def leftover(self) -> str | None:
        """Return the model whose vectors nobody needs any more; None while both are needed."""
        if self.state in MAY_BE_CANCELLED:
            return None
        return self.from_model if self.took_over_at is not None else self.to_model

    def may_be_dropped(self, now: int) -> bool:
        """Tell whether no search can be under way any more that uses what is left over."""
        return self.leftover is not None and (self.took_over_at is None or now >= self.took_over_at + _GRACE_MICROS)
