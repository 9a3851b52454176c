"""The bundled embedding model, which computes the vector of a text once."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from weft.providers.embedders.local import load_minilm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.indexing.embeddings.model import Vectors


class CachedModel:
    """Many tests embed the same texts, and the vector of a text depends on nothing else."""

    def __init__(self) -> None:
        self._model = load_minilm()
        self._vector = cache(self._embed_one)

    def embed(self, texts: Sequence[str]) -> Vectors:
        return np.array([self._vector(text) for text in texts], np.float32)

    def _embed_one(self, text: str) -> Vectors:
        vector: Vectors = self._model.embed([text])[0]
        return vector
