"""all-MiniLM-L6-v2 with int8 matrix multiplication, on onnxruntime.

The installed graph dequantises its int8 weights and multiplies floats. Here a graph that multiplies int8 is built in
memory from the same weights. Texts are run one at a time, without padding, so that the vector of a text depends on
nothing else.

Slow to import (numpy, onnxruntime): imported by the first use.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import numpy as np

from weftline.encoder.bert import (
    WIDTH,
    EncoderLayer,
    Matrix,
    Norm,
    add_embeddings,
    add_layer,
    outlier_factors,
    quantised,
    session,
)
from weftline.encoder.onnx_files import FLOAT, INT64, SHA256, Graph, WeightsUnreadable, installed_weights
from weftline.encoder.wordpiece import WordPieceTokenizer
from weftline.indexing.embeddings import EmbedderUnavailable
from weftline.providers.embedders.local import MINILM

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.encoder.onnx_files import Array
    from weftline.indexing.embeddings import Vectors

_INSTALL = "Run pip install --force-reinstall weftline where Weftline runs; weftline doctor checks it."
_LAYERS = 6
# The model's training length; a longer text is run in two halves and their vectors are averaged.
_MAX_TOKENS = 256
_loading = threading.Lock()
# The model of this process while an embedder uses it.
_loaded: WeakValueDictionary[str, MiniLm] = WeakValueDictionary()


class MiniLm:
    """The model in memory; thread-safe."""

    def __init__(self, weights: dict[str, Array]) -> None:
        self._tokenizer = WordPieceTokenizer()
        self._session = session(*_graph(weights))

    def embed(self, texts: Sequence[str]) -> Vectors:
        vectors = np.empty((len(texts), WIDTH), np.float32)
        for index, text in enumerate(texts):
            vectors[index] = self._vector(self._tokenizer.numbers(text, MINILM.most_tokens))
        return vectors

    def _vector(self, pieces: list[int]) -> Vectors:
        if len(pieces) <= _MAX_TOKENS:
            return self._run(pieces)
        start, *body, end = pieces
        half = (len(body) + 1) // 2
        both = self._run([start, *body[:half], end]) + self._run([start, *body[half:], end])
        mean: Vectors = both / np.linalg.norm(both)
        return mean

    def _run(self, pieces: list[int]) -> Vectors:
        vector: Vectors = self._session.run(["vector"], {"piece": np.array([pieces], np.int64)})[0][0]
        return vector


def load_installed() -> MiniLm:
    """Return the model of this process; it is loaded unless an embedder holds it."""
    with _loading:
        model = _loaded.get(SHA256)
        if model is None:
            try:
                model = _loaded[SHA256] = MiniLm(installed_weights())
            except WeightsUnreadable as error:
                raise EmbedderUnavailable(str(error), hint=_INSTALL) from error
        return model


def _graph(weights: dict[str, Array]) -> tuple[bytes, dict[str, Array]]:
    """Return the graph that maps the token ids of a text to its vector, and its large weights."""
    graph = Graph()
    hidden = add_embeddings(graph, weights)
    for layer in range(_LAYERS):
        hidden = add_layer(graph, hidden, _layer(weights, layer))
    mean = graph.step("ReduceMean", hidden, axes=[1], keepdims=0)
    graph.step("LpNormalization", mean, axis=-1, p=2, output="vector")
    return graph.model({"piece": (INT64, 2)}, {"vector": (FLOAT, 2)}), graph.external


def _layer(weights: dict[str, Array], number: int) -> EncoderLayer:
    """Return the weights of a layer of the installed file."""
    inner = f"inner.encoder.layer.{number}."
    matrices = [name[:-2] for name in weights if name.startswith("val_") and name.endswith("_q")]
    *attending, out, into, back = matrices[6 * number : 6 * number + 6]
    biases = np.concatenate([weights[f"{inner}attention.self.{part}.bias"] for part in ("query", "key", "value")])
    first = 4 * number
    return EncoderLayer(
        _matrix(weights, attending, biases, first),
        _matrix(weights, [out], weights[f"{inner}attention.output.dense.bias"], first + 1),
        _norm(weights, f"{inner}attention.output.LayerNorm"),
        _matrix(weights, [into], weights[f"{inner}intermediate.dense.bias"], first + 2),
        _matrix(weights, [back], weights[f"{inner}output.dense.bias"], first + 3),
        _norm(weights, f"{inner}output.LayerNorm"),
    )


def _matrix(weights: dict[str, Array], names: Sequence[str], bias: Array, multiplication: int) -> Matrix:
    """Return one or several matrices side by side, with their outlier channels scaled."""
    matrix = np.concatenate([weights[f"{name}_q"] for name in names], 1)
    scale = np.concatenate([weights[f"{name}_scale"] for name in names], 1)[0]
    factors = outlier_factors(multiplication, len(matrix))
    if (factors == 1).all():
        return Matrix(matrix, scale, bias)
    return Matrix(*quantised(matrix * scale * factors[:, None]), bias, factors)


def _norm(weights: dict[str, Array], name: str) -> Norm:
    return Norm(weights[f"{name}.weight"], weights[f"{name}.bias"])
