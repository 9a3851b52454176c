"""The bundled text classifier, which reads the same tokens once: many tests write the same texts."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from weftline.encoder.classifier import TextClassifier

if TYPE_CHECKING:
    import pytest

    from weftline.encoder.onnx_files import Array


def read_each_text_once(patch: pytest.MonkeyPatch) -> None:
    """Remember the answers of the classifier: they depend on its weights and on the question only."""
    instructs, kinds = TextClassifier.instructs, TextClassifier.kinds

    @cache
    def instructed(classifier: TextClassifier, tokens: tuple[int, ...], least: float, *, data: bool) -> float:
        return instructs(classifier, tokens, data=data, least=least)

    @cache
    def kinds_of(classifier: TextClassifier, tokens: tuple[int, ...], spans: tuple[tuple[int, int], ...]) -> Array:
        return kinds(classifier, tokens, spans)

    patch.setattr(
        TextClassifier,
        "instructs",
        lambda self, tokens, *, data, least: instructed(self, tuple(tokens), least, data=data),
    )
    patch.setattr(TextClassifier, "kinds", lambda self, tokens, spans: kinds_of(self, tuple(tokens), tuple(spans)))
    patch.setattr(TextClassifier, "pair", cache(TextClassifier.pair))
