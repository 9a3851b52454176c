"""The default embedder with a cache on disk: only the first evaluation has to embed.

The folder is WEFTLINE_EVAL_CACHE, else .results/vectors.
"""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from weftline.providers.embedders.local import MINILM, load_minilm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

_BATCH_SIZE = 64
_DIGEST_BYTES = 16


class VectorCache:
    """Vectors of texts, by digest; texts that are not cached are embedded and added.

    The files of digests and vectors are append-only, vectors first, so that an interrupted run leaves a valid cache.
    """

    def __init__(self, folder: Path | None = None) -> None:
        folder = folder or Path(os.environ.get("WEFTLINE_EVAL_CACHE", ".results/vectors"))
        folder.mkdir(parents=True, exist_ok=True)
        self._digests = folder / f"{MINILM.name}.digests"
        self._vectors = folder / f"{MINILM.name}.halves"
        self._row_of: dict[bytes, int] = {}
        self._cached: NDArray[np.float16] = np.empty((0, MINILM.dimensions), np.float16)
        self._read()

    def of(self, texts: Sequence[str]) -> Floats:
        """Return one vector for each text, with the precision of float16."""
        digests = [_digest(text) for text in texts]
        missing = {digest: text for digest, text in zip(digests, texts, strict=True) if digest not in self._row_of}
        if missing:
            self._embed(missing)
        return self._cached[[self._row_of[digest] for digest in digests]].astype(np.float32)

    def _read(self) -> None:
        if not (self._digests.exists() and self._vectors.exists()):
            return
        width = MINILM.dimensions * 2
        count = min(self._digests.stat().st_size // _DIGEST_BYTES, self._vectors.stat().st_size // width)
        for path, size in ((self._digests, _DIGEST_BYTES), (self._vectors, width)):
            if path.stat().st_size != count * size:
                os.truncate(path, count * size)
        digests = self._digests.read_bytes()
        self._row_of = {digests[at * _DIGEST_BYTES : (at + 1) * _DIGEST_BYTES]: at for at in range(count)}
        self._cached = np.fromfile(self._vectors, np.float16).reshape(count, MINILM.dimensions)

    def _embed(self, missing: dict[bytes, str]) -> None:
        runner, by_length = load_minilm(), sorted(missing.items(), key=lambda each: len(each[1]))
        parts = [by_length[at : at + _BATCH_SIZE] for at in range(0, len(by_length), _BATCH_SIZE)]
        with ThreadPoolExecutor() as threads:
            embedded = threads.map(lambda part: runner.embed([text for _, text in part]), parts)
            for part, vectors in zip(parts, embedded, strict=True):
                self._add([digest for digest, _ in part], vectors.astype(np.float16))

    def _add(self, digests: list[bytes], vectors: NDArray[np.float16]) -> None:
        with self._vectors.open("ab") as file:
            file.write(vectors.tobytes())
        with self._digests.open("ab") as file:
            file.write(b"".join(digests))
        self._row_of.update({digest: len(self._cached) + at for at, digest in enumerate(digests)})
        self._cached = np.concatenate([self._cached, vectors])


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:_DIGEST_BYTES]
