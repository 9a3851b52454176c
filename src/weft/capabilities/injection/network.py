"""The trained networks, on numpy: convolutions over the tokens of each segment, their maximum, and a small perceptron.

Several networks share one table of word embeddings; their log-probabilities are averaged, which is steadier than one
larger network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Floats = np.ndarray[Any, np.dtype[np.floating[Any]]]

# Empty positions between segments, as many as a convolution reaches.
GAP = 2
DILATIONS = (1, 2, 2)


class Network:
    """The networks of a file of weights; thread-safe."""

    def __init__(self, weights: Mapping[str, Floats]) -> None:
        """Read embeddings in int8 with a scale for each dimension, and the rest in half precision.

        ``members`` in the file is the number of networks; each array of theirs has them as its first axis.
        """
        self._embedding = weights["embedding"]
        self._scale = weights["scale"]
        self._embedding[0] = 0
        members = range(len(weights["out.bias"]))
        self._members = [
            _Member({name: value[one] for name, value in weights.items() if "." in name}) for one in members
        ]

    def pooled(self, tokens: Sequence[Sequence[int]]) -> Floats:
        """Return the maximum of each filter over each segment, of all networks side by side."""
        numbers: list[int] = [0] * GAP
        starts: list[int] = []
        for segment in tokens:
            starts.append(len(numbers))
            numbers += segment
            numbers += [0] * GAP
        row = np.array(numbers)
        live = (row > 0).astype(np.float32)[:, None]
        # Words repeat: those of the text are multiplied once.
        known, places = np.unique(row, return_inverse=True)
        words = self._embedding[known] * self._scale
        return np.hstack([found for one in self._members for found in one.pooled(words, places, live, starts)])

    def log_probabilities(self, pooled: Floats, shape: Floats) -> Floats:
        """Return those of document, request and attack, from the filters and features of each window."""
        parts = np.split(pooled, len(self._members), axis=1)
        found = [one.log_probabilities(part, shape) for one, part in zip(self._members, parts, strict=True)]
        mean: Floats = np.mean(found, axis=0)
        return mean


class _Member:
    """One network."""

    def __init__(self, weights: Mapping[str, Floats]) -> None:
        float32 = {name: value.astype(np.float32) for name, value in weights.items()}
        names = ["pair", *(f"layers.{number}" for number in range(len(DILATIONS)))]
        # A matrix for each position of a kernel.
        self._kernels = [
            [np.ascontiguousarray(tap) for tap in float32[f"{name}.weight"].transpose(2, 1, 0)] for name in names
        ]
        self._biases = [float32[f"{name}.bias"] for name in names]
        self._hidden = float32["hidden.weight"].T.copy(), float32["hidden.bias"]
        self._out = float32["out.weight"].T.copy(), float32["out.bias"]

    def pooled(self, words: Floats, places: Any, live: Floats, starts: list[int]) -> list[Floats]:  # noqa: ANN401 - integers
        (before, here), first, *later = self._kernels
        pair = _convolved([(words @ before)[places], (words @ here)[places]], (1, 0), self._biases[0], live)
        values = _convolved([(words @ tap)[places] for tap in first], (1, 0, -1), self._biases[1], live)
        best = [np.maximum.reduceat(pair, starts), np.maximum.reduceat(values, starts)]
        for step, taps, bias in zip(DILATIONS[1:], later, self._biases[2:], strict=True):
            found = _convolved([values @ tap for tap in taps], (step, 0, -step), bias, live)
            best.append(np.maximum.reduceat(found, starts))
            values += found
        return best

    def log_probabilities(self, pooled: Floats, shape: Floats) -> Floats:
        hidden = np.maximum(np.hstack([pooled, shape]) @ self._hidden[0] + self._hidden[1], 0)
        logits = (hidden @ self._out[0] + self._out[1]).astype(np.float64)
        found: Floats = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        return found


def _convolved(products: list[Floats], offsets: tuple[int, ...], bias: Floats, live: Floats) -> Floats:
    """Return the rectified convolution, from the products with each position of the kernel.

    Position ``i`` sees ``i - offset`` for each offset.
    """
    found = products[offsets.index(0)]
    for product, offset in zip(products, offsets, strict=True):
        if offset > 0:
            found[offset:] += product[:-offset]
        elif offset < 0:
            found[:offset] += product[-offset:]
    found += bias
    np.maximum(found, 0, out=found)
    found *= live
    return found
