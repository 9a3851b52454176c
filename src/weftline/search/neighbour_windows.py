"""Neighbour windows: rows around a candidate support it, as an answer seldom repeats the words of its question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weftline.search.index_view import Floats, Rows, View

# A neighbour's weight decreases linearly with its distance, to 0 at this one.
_RADIUS = 6
_DISTANCES = range(1 - _RADIUS, _RADIUS)
_WEIGHTS = 1 - np.abs(np.array(_DISTANCES, np.float32)) / _RADIUS
# Rows this close to a match become candidates themselves.
_CANDIDATE_OFFSETS = range(-2, 3)


@dataclass(frozen=True, slots=True)
class NeighbourWindows:
    """Windows around centre rows, with weights.

    ``rows`` are all rows of all windows, in order. For each window, ``places`` are the positions of its rows in it,
    ``weights`` their weights (0 for none) and ``centres`` the position of its centre.
    """

    rows: Rows
    places: NDArray[np.intp]
    weights: Floats
    centres: NDArray[np.intp]

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Return the number of rows in each window."""
        sizes: NDArray[np.intp] = np.count_nonzero(self.weights, axis=1)
        return sizes

    def only(self, chosen: NDArray[np.intp]) -> NeighbourWindows:
        """Return a subset of the windows."""
        used, places = np.unique(self.places[chosen], return_inverse=True)
        centres = np.searchsorted(used, self.centres[chosen])
        return NeighbourWindows(self.rows[used], places.reshape(-1, len(_DISTANCES)), self.weights[chosen], centres)

    def sums(self, values: Floats) -> Floats:
        """Return the weighted sum of a value per row for each window. The last axis is that of the rows."""
        summed: Floats = (values[..., self.places] * self.weights).sum(axis=-1)
        return summed

    def lengths(self, vectors: Floats) -> Floats:
        """Return the length of each window's weighted sum of vectors."""
        summed = np.zeros((len(self.places), vectors.shape[1]), np.float32)
        for step in range(self.places.shape[1]):
            summed += self.weights[:, step, None] * vectors[self.places[:, step]]
        lengths: Floats = np.linalg.norm(summed, axis=1)
        return lengths


def windows_around(view: View, centres: Rows) -> NeighbourWindows:
    around = view.neighbours(centres, _DISTANCES)
    weights = np.where(around >= 0, _WEIGHTS, 0.0).astype(np.float32)
    # Missing rows have weight 0, so any row can fill their place.
    rows, places = np.unique(np.where(around >= 0, around, centres[:, None]), return_inverse=True)
    return NeighbourWindows(rows, places.reshape(around.shape), weights, np.searchsorted(rows, centres))


def with_neighbours(view: View, rows: Rows) -> Rows:
    """Return rows together with their close neighbours."""
    found = np.unique(view.neighbours(rows, _CANDIDATE_OFFSETS))
    return found[found >= 0]
