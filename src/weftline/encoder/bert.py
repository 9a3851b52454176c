"""Layers of BERT with int8 matrix multiplication, as an ONNX graph.

Values are quantised as they come, matrices beforehand, with a scale for each column.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weftline.encoder.onnx_files import FLOAT, MICROSOFT, Graph

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weftline.encoder.onnx_files import Array

WIDTH, HEADS = 384, 12
_EPSILON = 1e-12
# Outlier channels of each multiplication of all-MiniLM-L6-v2, in the order of the graph, with the factor by which their
# values are divided before quantisation while their weights are multiplied by it. Measured on 300 texts: the maximum of
# the channel over three times the median of all. They only reduce the rounding error: the cosine to the float graph is
# 0.998 instead of 0.995.
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


class Matrix(NamedTuple):
    """An int8 matrix with the scale of each column, and the bias to add; ``factors`` divide the values before."""

    matrix: Array
    scale: Array
    bias: Array
    factors: Array | None = None


class Norm(NamedTuple):
    """Weight and bias of a normalisation."""

    weight: Array
    bias: Array


class EncoderLayer(NamedTuple):
    """The weights of one layer; ``qkv`` are query, key and value side by side."""

    qkv: Matrix
    out: Matrix
    attention_norm: Norm
    into: Matrix
    back: Matrix
    output_norm: Norm


def outlier_factors(multiplication: int, rows: int) -> Array:
    """Return the factors of the channels of a multiplication, by its number in the graph."""
    factors = np.ones(rows, np.float32)
    found = _OUTLIERS.get(multiplication, {})
    factors[list(found)] = list(found.values())
    return factors


def quantised(matrix: Array) -> tuple[Array, Array]:
    """Quantise a matrix to int8, with a scale for each column."""
    scale = (np.abs(matrix).max(0) / 127).astype(np.float32)
    return np.clip(np.rint(matrix / scale), -127, 127).astype(np.int8), scale


def add_embeddings(graph: Graph, weights: Mapping[str, Array]) -> str:
    """Add token and position embeddings of ``piece``; only the rows of the text are dequantised."""
    inner = "inner.embeddings."
    rows = graph.step("Gather", graph.constant(weights[f"{inner}word_embeddings.weight_q"]), "piece", axis=0)
    scales = graph.step("Gather", graph.constant(weights[f"{inner}word_embeddings.weight_scale"]), "piece", axis=0)
    words = graph.step("Mul", graph.step("Cast", rows, to=FLOAT), scales)
    positions: Array = weights[f"{inner}position_embeddings.weight_q"] * weights[
        f"{inner}position_embeddings.weight_scale"
    ].astype(np.float32)
    places = positions + weights[f"{inner}token_type_embeddings.weight"][0]
    length = graph.step("Shape", "piece", start=1, end=2)
    here = graph.step("Slice", graph.constant(places), graph.numbers(0), length, graph.numbers(0))
    norm = Norm(weights[f"{inner}LayerNorm.weight"], weights[f"{inner}LayerNorm.bias"])
    return _normalised(graph, graph.step("Add", words, here), norm)


def add_layer(graph: Graph, hidden: str, layer: EncoderLayer) -> str:
    """Add a layer after the states ``hidden``; return its states."""
    parts = graph.split(_multiplied(graph, hidden, layer.qkv), *[WIDTH] * 3)
    attended = graph.step("MultiHeadAttention", *parts, domain=MICROSOFT, num_heads=HEADS)
    attended = _multiplied(graph, attended, layer.out)
    hidden = _normalised(graph, graph.step("Add", attended, hidden), layer.attention_norm)
    wide = _multiplied(graph, hidden, layer.into, is_biased=False)
    wide = graph.step("BiasGelu", wide, graph.constant(layer.into.bias), domain=MICROSOFT)
    return _normalised(graph, graph.step("Add", _multiplied(graph, wide, layer.back), hidden), layer.output_norm)


def _multiplied(graph: Graph, values: str, weights: Matrix, *, is_biased: bool = True) -> str:
    if weights.factors is not None and (weights.factors != 1).any():
        values = graph.step("Mul", values, graph.constant(1 / weights.factors))
    added = (graph.constant(weights.bias),) if is_biased else ()
    inputs = (values, graph.constant(weights.matrix), graph.constant(weights.scale), "", *added)
    return graph.step("DynamicQuantizeMatMul", *inputs, domain=MICROSOFT)


def _normalised(graph: Graph, values: str, norm: Norm) -> str:
    scale, bias = graph.constant(norm.weight), graph.constant(norm.bias)
    return graph.step("LayerNormalization", values, scale, bias, axis=-1, epsilon=_EPSILON)


def import_onnxruntime() -> Any:  # noqa: ANN401 - untyped
    """Import onnxruntime without its telemetry: it is slow to import, and not needed where weights are only written.

    From version 1.31 on it stores events in the user's cache folder and sends them to its maker, beginning with its
    import; only the environment variable prevents that.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime  # noqa: PLC0415

    return onnxruntime


def session(graph: bytes, weights: Mapping[str, Array]) -> Any:  # noqa: ANN401 - onnxruntime is untyped
    """Return what runs a graph, on one thread."""
    onnxruntime = import_onnxruntime()
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
