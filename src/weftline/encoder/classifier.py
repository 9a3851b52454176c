"""A small encoder with several heads, on onnxruntime: one pass over a text answers several questions.

The word embeddings are those of the installed embedding model; the layers after them were trained for these questions
and are part of this package (evals/classifier says how, and on what). Half of the layers answer first: a text that is
clearly harmless goes no further.

Slow to import (numpy, onnxruntime): imported by the first use.
"""

from __future__ import annotations

import hashlib
import io
import threading
import time
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np

from weftline.encoder.bert import EncoderLayer, Matrix, Norm, add_embeddings, add_layer, outlier_factors, session
from weftline.encoder.onnx_files import FLOAT, INT64, Graph, WeightsUnreadable, installed_weights
from weftline.encoder.wordpiece import WordPieceTokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.encoder.onnx_files import Array

_SHA256 = "0be2b968a7d065c6a39293ee61604b0190278ac585fa27f4dd2426b82f27281a"
_LAYERS, _EARLY = 6, 3
_START, _END = 101, 102
_MAX_SIDE = 100


class TextClassifier:
    """The classifier in memory; thread-safe."""

    def __init__(self, weights: Mapping[str, Array], installed: Mapping[str, Array]) -> None:
        self._tokenizer = WordPieceTokenizer()
        layers = [_layer(weights, number) for number in range(_LAYERS)]
        self._first = session(*_first_graph(installed, layers[:_EARLY]))
        self._second = session(*_second_graph(layers[_EARLY:]))
        self._heads = {
            name: (weights[f"{name}.weight"].T.copy(), weights[f"{name}.bias"])
            for name in ("early", "window", "kind", "stated", "pair")
        }

    def tokens(self, text: str) -> list[int]:
        """Return the token ids of a text, without start and end."""
        return self._tokenizer.numbers(text, len(text) + 3)[1:-1]

    def instructs(self, tokens: Sequence[int], *, data: bool, least: float) -> float:
        """Return the logit of a window being an instruction that does not belong to its reader's task.

        ``data`` if the text is a document or a result, where any instruction to the reader is out of place. A window
        whose first logit is below ``least`` is read no further.
        """
        states = self.states(tokens)
        early = float(self._head("early", pooled(states))[int(data)])
        if early < least:
            return early
        return float(self._head("window", pooled(self.last_states(states)))[int(data)])

    def kinds(self, tokens: Sequence[int], spans: Sequence[tuple[int, int]]) -> Array:
        """Return the probabilities of the kinds of each sentence, given by its place among the tokens of a window."""
        states = self.states(tokens)
        sentences = np.array([pooled(states[start:end]) for start, end in spans])
        logits = self._head("kind", sentences)
        shares = np.exp(logits - logits.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        # In doubt a sentence states something: the larger of what the two heads say.
        stated = np.maximum(1 - shares[:, 0], 1 / (1 + np.exp(-self._head("stated", sentences)[:, 0])))
        of_kind = shares[:, 1:] / shares[:, 1:].sum(1, keepdims=True)
        return np.concatenate([1 - stated[:, None], of_kind * stated[:, None]], 1)

    def pair(self, first: str, second: str) -> tuple[float, float]:
        """Return the probabilities that the second text answers the first, and that it replaces it."""
        one, two = self.tokens(first)[:_MAX_SIDE], self.tokens(second)[:_MAX_SIDE]
        if not one or not two:
            return 0.0, 0.0
        states = self.last_states(self.states([_START, *one, _END, *two, _END]))
        left, right = states[1 : 1 + len(one)].mean(0), states[2 + len(one) : -1].mean(0)
        logits = self._head("pair", np.concatenate([left, right, np.abs(left - right), left * right]))
        answers, replaces = (1 / (1 + np.exp(-logits))).tolist()
        return answers, replaces

    def states(self, tokens: Sequence[int]) -> Array:
        """Return the states of tokens after the first half of the layers."""
        states: Array = self._first.run(["states"], {"piece": np.array([tokens], np.int64)})[0][0]
        return states

    def last_states(self, states: Array) -> Array:
        """Return the states of tokens after all layers, from those after the first half."""
        last: Array = self._second.run(["last"], {"states": states[None]})[0][0]
        return last

    def _head(self, name: str, values: Array) -> Array:
        matrix, bias = self._heads[name]
        logits: Array = values @ matrix + bias
        return logits


class SharedClassifier:
    """The classifier of this process: loaded with the first text, and again after it was released."""

    def __init__(self) -> None:
        self._loading = threading.Lock()
        self._loaded: TextClassifier | None = None
        self._used_at = 0.0

    def get(self) -> TextClassifier:
        """Return the classifier; raises WeightsUnreadable."""
        self._used_at = time.monotonic()
        with self._loading:
            if self._loaded is None:
                packed = resources.files("weftline.encoder").joinpath("weights.npz").read_bytes()
                self._loaded = TextClassifier(read_weights(packed), installed_weights())
            return self._loaded

    def release_idle(self, seconds: float) -> bool:
        """Free the memory of a classifier that nothing used for so long; tell whether it did."""
        # One that a thread loads is not idle, and the event loop must not wait for it.
        if not self._loading.acquire(blocking=False):
            return False
        try:
            is_idle = self._loaded is not None and time.monotonic() - self._used_at >= seconds
            if is_idle:
                self._loaded = None
            return is_idle
        finally:
            self._loading.release()


CLASSIFIER = SharedClassifier()


def read_weights(packed: bytes, sha256: str = _SHA256) -> dict[str, Array]:
    """Return the weights of a file after checking its hash."""
    if hashlib.sha256(packed).hexdigest() != sha256:
        raise WeightsUnreadable("The weights of the text classifier have an unexpected checksum.")
    with np.load(io.BytesIO(packed)) as weights:
        return dict(weights)


def pooled(states: Array) -> Array:
    """Return mean and maximum of the states of tokens."""
    return np.concatenate([states.mean(0), states.max(0)])


def _first_graph(installed: Mapping[str, Array], layers: Sequence[EncoderLayer]) -> tuple[bytes, dict[str, Array]]:
    graph = Graph()
    hidden = add_embeddings(graph, installed)
    for layer in layers:
        hidden = add_layer(graph, hidden, layer)
    graph.step("Identity", hidden, output="states")
    return graph.model({"piece": (INT64, 2)}, {"states": (FLOAT, 3)}), graph.external


def _second_graph(layers: Sequence[EncoderLayer]) -> tuple[bytes, dict[str, Array]]:
    graph = Graph()
    hidden = "states"
    for layer in layers:
        hidden = add_layer(graph, hidden, layer)
    graph.step("Identity", hidden, output="last")
    return graph.model({"states": (FLOAT, 3)}, {"last": (FLOAT, 3)}), graph.external


def _layer(weights: Mapping[str, Array], number: int) -> EncoderLayer:
    matrices = [_matrix(weights, number, place, name) for place, name in enumerate(("qkv", "out", "into", "back"))]
    norms = [
        Norm(weights[f"{number}.{name}.weight"], weights[f"{number}.{name}.bias"])
        for name in ("attention_norm", "output_norm")
    ]
    qkv, out, into, back = matrices
    return EncoderLayer(qkv, out, norms[0], into, back, norms[1])


def _matrix(weights: Mapping[str, Any], number: int, place: int, name: str) -> Matrix:
    matrix, scale, bias = (weights[f"{number}.{name}.{part}"] for part in ("matrix", "scale", "bias"))
    return Matrix(matrix, scale, bias, outlier_factors(4 * number + place, len(matrix)))
