"""What stands around a row: an answer seldom repeats its question, and a thought goes on in the next chunk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.capabilities.search.index_view import Floats, Rows, View

# The further away something stands, the less it counts: it is gone at this distance.
_REACH = 6
_DISTANCES = range(1 - _REACH, _REACH)
_COUNTING = 1 - np.abs(np.array(_DISTANCES, np.float32)) / _REACH
# What stands this near to something that was found may be the answer itself.
_NEAR = range(-2, 3)


@dataclass(frozen=True, slots=True)
class Windows:
    """The surroundings of some rows, the centres: which rows stand where around each, and how much they count.

    ``rows`` are all that stand in any of the windows, in order; ``places`` says for each window where its rows are
    among them, ``weights`` how much each of those counts (0 where there is none), ``centres`` where its centre is.
    """

    rows: Rows
    places: NDArray[np.intp]
    weights: Floats
    centres: NDArray[np.intp]

    @property
    def beside(self) -> NDArray[np.intp]:
        """Return how many rows stand in each window."""
        standing: NDArray[np.intp] = np.count_nonzero(self.weights, axis=1)
        return standing

    def only(self, chosen: NDArray[np.intp]) -> Windows:
        """Return some of the windows."""
        used, places = np.unique(self.places[chosen], return_inverse=True)
        centres = np.searchsorted(used, self.centres[chosen])
        return Windows(self.rows[used], places.reshape(-1, len(_DISTANCES)), self.weights[chosen], centres)

    def sums(self, values: Floats) -> Floats:
        """Return for each window the sum of what its rows have, as much as each counts. The last axis is the rows'."""
        summed: Floats = (values[..., self.places] * self.weights).sum(axis=-1)
        return summed

    def lengths(self, vectors: Floats) -> Floats:
        """Return for each window how long the sum of its rows' vectors is, as much as each counts."""
        summed = np.zeros((len(self.places), vectors.shape[1]), np.float32)
        for step in range(self.places.shape[1]):
            summed += self.weights[:, step, None] * vectors[self.places[:, step]]
        lengths: Floats = np.linalg.norm(summed, axis=1)
        return lengths


def windows_around(view: View, centres: Rows) -> Windows:
    around = view.neighbours(centres, _DISTANCES)
    weights = np.where(around >= 0, _COUNTING, 0.0).astype(np.float32)
    # What is not there counts nothing, so any row may stand for it.
    rows, places = np.unique(np.where(around >= 0, around, centres[:, None]), return_inverse=True)
    return Windows(rows, places.reshape(around.shape), weights, np.searchsorted(rows, centres))


def with_neighbours(view: View, rows: Rows) -> Rows:
    """Return rows together with those that stand next to them."""
    everything = np.unique(view.neighbours(rows, _NEAR))
    return everything[everything >= 0]
