"""A deterministic embedder for tests, without a model."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from weftline.indexing.embeddings import Model, Purpose, Vectors


class WordEmbedder:
    """Bag-of-words vectors: texts that share words are similar."""

    def __init__(self, name: str = "words", dimensions: int = 64) -> None:
        self._model = Model(name, dimensions, most_tokens=512)
        # The texts of each call.
        self.calls: list[list[str]] = []

    @property
    def model(self) -> Model:
        return self._model

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Vectors:
        del purpose
        self.calls.append(list(texts))
        return np.array([self._vector(text) for text in texts], np.float32).reshape(-1, self._model.dimensions)

    async def release_idle(self, seconds: float) -> bool:
        """Return False: there is no model in memory."""
        del seconds
        return False

    async def close(self) -> None:
        """Do nothing."""

    def _vector(self, text: str) -> Vectors:
        vector = np.zeros(self._model.dimensions, np.float32)
        for word in text.lower().split() or [""]:
            digest = hashlib.sha256(word.encode()).digest()
            vector[digest[0] % self._model.dimensions] += 1
            vector[digest[1] % self._model.dimensions] += 1
        unit: Vectors = vector / np.linalg.norm(vector)
        return unit
