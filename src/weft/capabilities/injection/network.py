"""The trained networks, on numpy: convolutions over the tokens of each segment, their maximum, and a small perceptron.

Several networks share one table of word embeddings; their log-probabilities are averaged, which is steadier than one
larger network. They are computed together, and so are all segments of a text: few numpy calls, each on large arrays.
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
# OpenBLAS starts threads for a product of more multiplications than this. They cost several times what they save here,
# and in the process of a user their number is not Weft's to set.
_MAX_MULTIPLICATIONS = 4 * 65_536


class Network:
    """The networks of a file of weights; thread-safe."""

    def __init__(self, weights: Mapping[str, Array]) -> None:
        """Read embeddings in int8 with a scale for each dimension, and the rest in half precision."""
        self._embedding, self._scale = weights["embedding"], weights["scale"]
        self._embedding[0] = 0
        float32 = {name: value.astype(np.float32) for name, value in weights.items() if "." in name}
        self._members, self._pairs = float32["pair.bias"].shape
        pair, first, *others = (
            float32[f"{name}.weight"].transpose(3, 0, 2, 1)
            for name in ("pair", *(f"layers.{number}" for number in range(len(DILATIONS))))
        )
        # Pairs and first layer read the same words: one matrix for the word before, the word itself and the one after.
        kernels = np.concatenate((pair[0], first[0]), axis=2), np.concatenate((pair[1], first[1]), axis=2), first[2]
        self._kernels = [_side_by_side(kernel) for kernel in kernels]
        self._bias = np.concatenate((float32["pair.bias"], float32["layers.0.bias"]), axis=1).reshape(-1)
        # The products of each word with these, once it has occurred. 50 MB if all words have; the pages of others are
        # not in memory.
        self._products = [np.empty((len(self._embedding), kernel.shape[1]), np.float32) for kernel in self._kernels]
        self._has_occurred = np.zeros(len(self._embedding), bool)
        # For each further layer and network the matrices of the kernel's positions below each other, then the bias.
        biases = (float32[f"layers.{number}.bias"][None, :, None] for number in range(1, len(DILATIONS)))
        self._layers = [
            np.ascontiguousarray(np.concatenate((*kernel, *bias), axis=1))
            for kernel, bias in zip(others, biases, strict=True)
        ]
        self._hidden = np.ascontiguousarray(float32["hidden.weight"].transpose(0, 2, 1))
        self._hidden_bias = float32["hidden.bias"][:, None]
        self._out = np.ascontiguousarray(float32["out.weight"].transpose(0, 2, 1))
        self._out_bias = float32["out.bias"][:, None]

    def pooled(self, tokens: Sequence[Sequence[int]]) -> Array:
        """Return the maximum of each filter over each segment, of all networks side by side."""
        numbers: list[int] = [0] * GAP
        bounds: list[tuple[int, int]] = []
        for segment in tokens:
            start = len(numbers)
            numbers += segment
            bounds.append((start, len(numbers)))
            numbers += [0] * GAP
        row = np.array(numbers)
        filters = self._filters(row, np.flatnonzero(row == 0))
        best = np.empty((len(bounds), filters.shape[1]), np.float32)
        for segment_best, (start, end) in zip(best, bounds, strict=True):
            np.maximum.reduce(filters[start:end], axis=0, out=segment_best)
        return best

    def log_probabilities(self, pooled: Array, shape: Array) -> Array:
        """Return those of document, request and attack, from the filters and features of each window."""
        filters = pooled.reshape(len(pooled), self._members, -1).transpose(1, 0, 2)
        count = filters.shape[2]
        hidden = _product(filters, self._hidden[:, :count]) + np.matmul(shape, self._hidden[:, count:])
        hidden += self._hidden_bias
        np.maximum(hidden, 0, out=hidden)
        logits = (_product(hidden, self._out) + self._out_bias).astype(np.float64)
        logits -= np.logaddexp.reduce(logits, axis=2, keepdims=True)
        mean: Array = logits.mean(axis=0)
        return mean

    def _filters(self, row: Array, empty: Array) -> Array:
        """Return the filters at each position: for each network those of pairs and of each layer."""
        found = self._first(row)
        found[empty] = 0
        values = np.ascontiguousarray(found[:, :, self._pairs :].transpose(1, 0, 2))
        layers = [found]
        for step, kernel in zip(DILATIONS[1:], self._layers, strict=True):
            found = _product(_columns(values, step), kernel)
            np.maximum(found, 0, out=found)
            found[:, empty] = 0
            layers.append(found.transpose(1, 0, 2))
            values += found
        return np.concatenate(layers, axis=2).reshape(len(row), -1)

    def _first(self, row: Array) -> Array:
        """Return the filters of pairs and of the first layer."""
        self._multiply(row[~self._has_occurred[row]])
        before, itself, after = self._products
        found = itself.take(row, axis=0)
        found[1:] += before.take(row[:-1], axis=0)
        found = found.reshape(len(row), self._members, -1)
        found[:-1, :, self._pairs :] += after.take(row[1:], axis=0).reshape(len(row) - 1, self._members, -1)
        np.maximum(found, 0, out=found)
        return found

    def _multiply(self, new: Array) -> None:
        """Store the products of words that occur for the first time. Threads that meet write the same."""
        if not len(new):
            return
        words = np.unique(new)
        values = self._embedding[words] * self._scale
        for products, kernel, bias in zip(self._products, self._kernels, (0, self._bias, 0), strict=True):
            products[words] = _product(values, kernel) + bias
        self._has_occurred[words] = True


def _side_by_side(matrices: Array) -> Array:
    """Return the matrices of all networks as one."""
    return np.ascontiguousarray(matrices.transpose(1, 0, 2)).reshape(matrices.shape[1], -1)


def _columns(values: Array, step: int) -> Array:
    """Return for each position what a kernel of three reads: the values before, at and after it, and a one."""
    networks, positions, width = values.shape
    columns = np.empty((networks, positions, 3 * width + 1), np.float32)
    columns[:, :step, :width] = 0
    columns[:, step:, :width] = values[:, :-step]
    columns[:, :, width : 2 * width] = values
    columns[:, :-step, 2 * width : -1] = values[:, step:]
    columns[:, -step:, 2 * width : -1] = 0
    columns[:, :, -1] = 1
    return columns


def _product(rows: Array, matrix: Array) -> Array:
    """Return the matrix product, in blocks of rows for which OpenBLAS starts no threads."""
    *networks, number, width = rows.shape
    size = max(1, _MAX_MULTIPLICATIONS // (width * matrix.shape[-1]))
    blocks = number // size
    product = np.empty((*networks, number, matrix.shape[-1]), np.float32)
    whole = blocks * size
    if blocks:
        np.matmul(
            rows[..., :whole, :].reshape(*networks, blocks, size, width),
            matrix[..., None, :, :],
            out=product[..., :whole, :].reshape(*networks, blocks, size, -1),
        )
    np.matmul(rows[..., whole:, :], matrix, out=product[..., whole:, :])
    return product
