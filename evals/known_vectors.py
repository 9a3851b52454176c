"""The default embedder with a memory on disk, so that only the first evaluation waits for it.

The folder is WEFT_EVAL_CACHE, else .results/vectors.
"""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from weft.providers.embedders.local import MINILM, load_minilm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

_AT_ONCE = 64
_DIGEST = 16


class KnownVectors:
    """Vectors of texts: from the folder if one was embedded before, else embedded now and added to it.

    The file of digests and the file of vectors are only ever added to, vectors first, so that a run that was stopped
    leaves nothing wrong behind.
    """

    def __init__(self, folder: Path | None = None) -> None:
        folder = folder or Path(os.environ.get("WEFT_EVAL_CACHE", ".results/vectors"))
        folder.mkdir(parents=True, exist_ok=True)
        self._digests = folder / f"{MINILM.name}.digests"
        self._vectors = folder / f"{MINILM.name}.halves"
        self._places: dict[bytes, int] = {}
        self._known: NDArray[np.float16] = np.empty((0, MINILM.dimensions), np.float16)
        self._read()

    def of(self, texts: Sequence[str]) -> Floats:
        """Return a row for each text, as exact as vectors are kept in rows."""
        digests = [_digest(text) for text in texts]
        missing = {digest: text for digest, text in zip(digests, texts, strict=True) if digest not in self._places}
        if missing:
            self._embed(missing)
        return self._known[[self._places[digest] for digest in digests]].astype(np.float32)

    def _read(self) -> None:
        if not (self._digests.exists() and self._vectors.exists()):
            return
        width = MINILM.dimensions * 2
        count = min(self._digests.stat().st_size // _DIGEST, self._vectors.stat().st_size // width)
        for path, size in ((self._digests, _DIGEST), (self._vectors, width)):
            if path.stat().st_size != count * size:
                os.truncate(path, count * size)
        digests = self._digests.read_bytes()
        self._places = {digests[at * _DIGEST : (at + 1) * _DIGEST]: at for at in range(count)}
        self._known = np.fromfile(self._vectors, np.float16).reshape(count, MINILM.dimensions)

    def _embed(self, missing: dict[bytes, str]) -> None:
        runner, wanted = load_minilm(), sorted(missing.items(), key=lambda each: len(each[1]))
        parts = [wanted[at : at + _AT_ONCE] for at in range(0, len(wanted), _AT_ONCE)]
        with ThreadPoolExecutor() as threads:
            embedded = threads.map(lambda part: runner.embed([text for _, text in part]), parts)
            for part, vectors in zip(parts, embedded, strict=True):
                self._add([digest for digest, _ in part], vectors.astype(np.float16))

    def _add(self, digests: list[bytes], vectors: NDArray[np.float16]) -> None:
        with self._vectors.open("ab") as file:
            file.write(vectors.tobytes())
        with self._digests.open("ab") as file:
            file.write(b"".join(digests))
        self._places.update({digest: len(self._known) + at for at, digest in enumerate(digests)})
        self._known = np.concatenate([self._known, vectors])


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:_DIGEST]
