"""The bundled text classifier, which reads the same tokens once: many tests write the same texts."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from weft.encoder.classifier import TextClassifier

if TYPE_CHECKING:
    import pytest


def read_each_text_once(patch: pytest.MonkeyPatch) -> None:
    """Remember the answers of the classifier: they depend on its weights and on the question only."""
    instructs, pair = TextClassifier.instructs, TextClassifier.pair

    @cache
    def instructed(classifier: TextClassifier, tokens: tuple[int, ...], least: float, *, data: bool) -> float:
        return instructs(classifier, tokens, data=data, least=least)

    patch.setattr(
        TextClassifier,
        "instructs",
        lambda self, tokens, *, data, least: instructed(self, tuple(tokens), least, data=data),
    )
    patch.setattr(TextClassifier, "pair", cache(pair))
