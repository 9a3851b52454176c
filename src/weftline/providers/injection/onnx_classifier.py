"""A classifier of prompt injection in ONNX, as model hubs publish them, in place of the included detector.

A folder with ``model.onnx``, and as needed ``config.json`` (names of the classes) and ``tokenizer.json`` (unless the
model uses BERT's uncased vocabulary). Texts are normalised as for the included detector, and scored in windows. Slow to
import.
"""

from __future__ import annotations

import json
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from weftline.encoder.bert import import_onnxruntime
from weftline.encoder.wordpiece import WordPieceTokenizer, bert_vocabulary
from weftline.providers.extras import is_installed
from weftline.safety.injection import Detection, DetectorUnavailable, normalise, segments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from weftline.safety.injection import InjectionDetector

    Tokenize = Callable[[str, int], list[int]]

_MAX_TOKENS = 512
# Segments scored together; about 300 words.
_WINDOW = 12
# Log-odds of probabilities of 0.9 and 0.99: models of a hub are trained on more attacks than occur.
_FLAGGED, _STRICT = 2.2, 4.6
_MAX_EXCERPT = 300
_ATTACK_CLASS = re.compile(r"(?i)inject|jailbreak|malicious|unsafe|attack|label_1")


class OnnxClassifier:
    """Implements ``InjectionDetector``. A text that the included detector is sure about is flagged as well."""

    def __init__(self, folder: Path, included: InjectionDetector) -> None:
        self._included = included
        self._session = _session(folder / "model.onnx")
        self._inputs = {each.name for each in self._session.get_inputs()}
        self._attack = _attack_class(folder / "config.json")
        self._tokenize = _tokenizer(folder / "tokenizer.json")

    def detect(self, text: str, *, data: bool) -> Detection:
        known = self._included.detect(text, data=data)
        score, excerpt = max(((self._score(window), window) for window in _windows(text)), default=(-8.0, ""))
        is_strict = known.strict or score > _STRICT
        return Detection(
            score,
            flagged=is_strict or score > _FLAGGED,
            strict=is_strict,
            excerpt=known.excerpt if known.flagged else excerpt[:_MAX_EXCERPT],
        )

    def _score(self, window: str) -> float:
        """Return the log-odds of an attack."""
        tokens = np.array([self._tokenize(window, _MAX_TOKENS)], np.int64)
        inputs = {"input_ids": tokens, "attention_mask": np.ones_like(tokens), "token_type_ids": np.zeros_like(tokens)}
        given = {name: value for name, value in inputs.items() if name in self._inputs}
        logits = self._session.run(None, given)[0][0].astype(np.float64)
        others = np.delete(logits, self._attack)
        return float(logits[self._attack] - np.logaddexp.reduce(others))


def _windows(text: str) -> Iterator[str]:
    normal = normalise(text)
    parts = [segment for one in (normal.text, *normal.decoded) for segment in segments(one)]
    for start in range(0, len(parts), _WINDOW):
        yield " ".join(parts[start : start + _WINDOW])


def _session(path: Path) -> Any:  # noqa: ANN401 - onnxruntime is untyped
    onnxruntime = import_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise DetectorUnavailable("WEFTLINE_INJECTION_MODEL: model.onnx cannot be loaded.") from error


def _attack_class(config: Path) -> int:
    """Return the class of attacks by the names in the configuration; the last one without names."""
    names = json.loads(config.read_text("utf-8")).get("id2label", {}) if config.exists() else {}
    return next((int(number) for number, name in names.items() if _ATTACK_CLASS.search(name)), -1)


def _tokenizer(path: Path) -> Tokenize:
    own = WordPieceTokenizer().numbers
    if not path.exists() or json.loads(path.read_text("utf-8")).get("model", {}).get("vocab") == bert_vocabulary():
        return own
    if not is_installed("tokenizers"):
        raise DetectorUnavailable(
            "WEFTLINE_INJECTION_MODEL: the tokenizer of this model needs the package tokenizers.",
            hint="Run pip install tokenizers where Weftline runs, and restart it.",
        )
    loaded = import_module("tokenizers").Tokenizer.from_file(str(path))
    return lambda text, most: list(loaded.encode(text).ids[:most])
