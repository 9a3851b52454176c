"""What stands around a row: an answer seldom repeats its question, and a thought goes on in the next chunk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.capabilities.retrieval.view import Floats, Rows, View

# The further away something stands, the less it counts: it is gone at this distance.
_REACH = 6
# What stands this near to something that was found may be the answer itself.
_NEAR = 2


class Windows:
    """The surroundings of some rows: which rows stand where around each, and how much they count.

    ``rows`` are all that stand in any of the windows, in order; ``places`` says for each window where its rows are
    among them, ``weights`` how much each of those counts (0 where there is none).
    """

    def __init__(self, view: View, centres: Rows) -> None:
        around = np.stack([_steps(view, centres, distance) for distance in range(1 - _REACH, _REACH)], axis=1)
        counting = 1 - np.abs(np.arange(1 - _REACH, _REACH, dtype=np.float32)) / _REACH
        self.weights: Floats = np.where(around >= 0, counting, 0.0).astype(np.float32)
        # What is not there counts nothing, so any row may stand for it.
        around = np.where(around >= 0, around, centres[:, None])
        self.rows, places = np.unique(around, return_inverse=True)
        self.places: NDArray[np.intp] = places.reshape(around.shape)
        self.centres: NDArray[np.intp] = np.searchsorted(self.rows, centres)

    def sums(self, values: Floats) -> Floats:
        """Return for each window the sum of what its rows have, as much as each counts. The last axis is the rows'."""
        summed: Floats = (values[..., self.places] * self.weights).sum(axis=-1)
        return summed

    def vectors(self, vectors: Floats) -> Floats:
        """Return for each window the sum of its rows' vectors, as much as each counts."""
        summed = np.zeros((len(self.places), vectors.shape[1]), np.float32)
        for step in range(self.places.shape[1]):
            summed += self.weights[:, step, None] * vectors[self.places[:, step]]
        return summed


def with_neighbours(view: View, rows: Rows) -> Rows:
    """Return rows together with those that stand next to them."""
    found = [_steps(view, rows, distance) for distance in range(-_NEAR, _NEAR + 1)]
    everything = np.unique(np.concatenate(found))
    return everything[everything >= 0]


def _steps(view: View, rows: Rows, distance: int) -> Rows:
    return view.neighbours(rows, distance) if distance else rows
