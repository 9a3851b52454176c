"""The trained networks, on numpy: convolutions over the tokens of each segment, their maximum, and a small perceptron.

Several networks share one table of word embeddings; their log-probabilities are averaged, which is steadier than one
larger network. They are computed together: the first axis of their arrays is the network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Array = np.ndarray[Any, Any]

# Empty positions between segments, as many as a convolution reaches.
GAP = 2
DILATIONS = (1, 2, 2)


class Network:
    """The networks of a file of weights; thread-safe."""

    def __init__(self, weights: Mapping[str, Array]) -> None:
        """Read embeddings in int8 with a scale for each dimension, and the rest in half precision."""
        self._embedding, self._scale = weights["embedding"], weights["scale"]
        self._embedding[0] = 0
        float32 = {name: value.astype(np.float32) for name, value in weights.items() if "." in name}
        self._members = len(float32["out.bias"])
        names = ["pair", *(f"layers.{number}" for number in range(len(DILATIONS)))]
        # For each position of a kernel and each network a matrix.
        self._kernels = [np.ascontiguousarray(float32[f"{name}.weight"].transpose(3, 0, 2, 1)) for name in names]
        self._biases = [float32[f"{name}.bias"][:, None] for name in names]
        self._hidden = np.ascontiguousarray(float32["hidden.weight"].transpose(0, 2, 1))
        self._hidden_bias = float32["hidden.bias"][:, None]
        self._out = np.ascontiguousarray(float32["out.weight"].transpose(0, 2, 1))
        self._out_bias = float32["out.bias"][:, None]

    def pooled(self, tokens: Sequence[Sequence[int]]) -> Array:
        """Return the maximum of each filter over each segment, of all networks side by side."""
        numbers: list[int] = [0] * GAP
        starts: list[int] = []
        for segment in tokens:
            starts.append(len(numbers))
            numbers += segment
            numbers += [0] * GAP
        row = np.array(numbers)
        empty = np.flatnonzero(row == 0)
        # Words repeat: those of the text are multiplied once.
        known, places = np.unique(row, return_inverse=True)
        words = self._embedding[known] * self._scale
        pair, values = (np.matmul(words, kernel).take(places, axis=2) for kernel in self._kernels[:2])
        pair = _convolved(pair, (1, 0), self._biases[0], empty)
        values = _convolved(values, (1, 0, -1), self._biases[1], empty)
        best = [np.maximum.reduceat(pair, starts, axis=1), np.maximum.reduceat(values, starts, axis=1)]
        for step, kernel, bias in zip(DILATIONS[1:], self._kernels[2:], self._biases[2:], strict=True):
            found = _convolved(np.matmul(values, kernel), (step, 0, -step), bias, empty)
            best.append(np.maximum.reduceat(found, starts, axis=1))
            values += found
        return np.concatenate(best, axis=2).transpose(1, 0, 2).reshape(len(starts), -1)

    def log_probabilities(self, pooled: Array, shape: Array) -> Array:
        """Return those of document, request and attack, from the filters and features of each window."""
        filters = pooled.reshape(len(pooled), self._members, -1).transpose(1, 0, 2)
        count = filters.shape[2]
        hidden = np.matmul(filters, self._hidden[:, :count]) + np.matmul(shape, self._hidden[:, count:])
        hidden += self._hidden_bias
        np.maximum(hidden, 0, out=hidden)
        logits = (np.matmul(hidden, self._out) + self._out_bias).astype(np.float64)
        logits -= np.logaddexp.reduce(logits, axis=2, keepdims=True)
        mean: Array = logits.mean(axis=0)
        return mean


def _convolved(products: Array, offsets: tuple[int, ...], bias: Array, empty: Array) -> Array:
    """Return the rectified convolution, from the products with each position of the kernel.

    Position ``i`` sees ``i - offset`` for each offset. Nothing is left in empty positions.
    """
    found: Array = products[offsets.index(0)]
    for product, offset in zip(products, offsets, strict=True):
        if offset > 0:
            found[:, offset:] += product[:, :-offset]
        elif offset < 0:
            found[:, :offset] += product[:, -offset:]
    found += bias
    np.maximum(found, 0, out=found)
    found[:, empty] = 0
    return found
