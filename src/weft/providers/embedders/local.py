"""An embedder in this process: threads of its own, and no more work in them than they can do soon.

Nothing heavy is imported here; the model is loaded in a thread when the first text comes.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

from weft.capabilities.indexing.embeddings.model import Model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from weft.capabilities.indexing.embeddings.model import Purpose, Vectors

MINILM = Model("all-MiniLM-L6-v2-int8", dimensions=384, most_tokens=510)
# So many texts are handed to a thread at a time: long enough to be worth it, short enough to share.
_AT_ONCE = 4


class Runner(Protocol):
    """A loaded model; any number of threads may use it at once."""

    def embed(self, texts: Sequence[str]) -> Vectors: ...


class LocalEmbedder:
    """Embeds in threads. Questions have one to themselves, so that none waits for a document."""

    def __init__(self, model: Model, load: Callable[[], Runner], threads: int = 0) -> None:
        self._model = model
        self._load = load
        self._threads = threads or max(1, (os.cpu_count() or 1) // 2)
        # Each thread has a task before it and one in hand; whoever brings more waits for room.
        self._room = asyncio.Semaphore(2 * self._threads)
        self._passages = ThreadPoolExecutor(self._threads, "weft-embedding")
        self._queries = ThreadPoolExecutor(1, "weft-queries")

    @property
    def model(self) -> Model:
        return self._model

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Vectors:
        if purpose == "query" and len(texts) == 1:
            return await asyncio.get_running_loop().run_in_executor(self._queries, self._run, texts)
        parts: dict[int, Vectors] = {}
        # Each caller has as many tasks under way as there are threads, so that callers take turns.
        pending = enumerate([texts[start : start + _AT_ONCE] for start in range(0, len(texts), _AT_ONCE)])
        await asyncio.gather(*(self._work(pending, parts) for _ in range(self._threads)))
        return self._joined([parts[place] for place in range(len(parts))])

    async def close(self) -> None:
        for executor in (self._passages, self._queries):
            executor.shutdown(wait=False, cancel_futures=True)

    async def _work(self, pending: Iterator[tuple[int, Sequence[str]]], parts: dict[int, Vectors]) -> None:
        for place, some in pending:
            async with self._room:
                parts[place] = await asyncio.get_running_loop().run_in_executor(self._passages, self._run, some)

    def _joined(self, parts: Sequence[Vectors]) -> Vectors:
        import numpy as np  # noqa: PLC0415 - by now a thread has loaded it

        return np.concatenate(parts) if parts else np.empty((0, self._model.dimensions), np.float32)

    def _run(self, texts: Sequence[str]) -> Vectors:
        return self._load().embed(texts)


def load_minilm() -> Runner:
    """Return the model that comes with Weft."""
    from weft.providers.embedders.minilm import installed  # noqa: PLC0415 - loaded by the first who embeds

    return installed()
