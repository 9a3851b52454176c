"""The bundled embedding model, which computes the vector of a text once."""

from __future__ import annotations

import hashlib
import os
import threading
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from weftline.providers.embedders.local import load_minilm

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from weftline.indexing.embeddings import Vectors


class CachedModel:
    """Many tests embed the same texts, and the vector of a text depends on nothing else.

    Vectors are files in a folder that all workers share.
    """

    def __init__(self, folder: Path) -> None:
        self._model = load_minilm()
        self._folder = folder
        self._vector = cache(self._embed_one)
        folder.mkdir(exist_ok=True)

    def embed(self, texts: Sequence[str]) -> Vectors:
        return np.array([self._vector(text) for text in texts], np.float32)

    def _embed_one(self, text: str) -> Vectors:
        file = self._folder / hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        if file.exists():
            return np.fromfile(file, np.float32)
        vector: Vectors = self._model.embed([text])[0]
        # Neither another worker nor another thread sees half of it.
        unfinished = file.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        vector.astype(np.float32).tofile(unfinished)
        unfinished.rename(file)
        return vector
