"""Local embedder: runs a model in threads, with bounded queues.

Imports nothing heavy; the model is loaded in a thread with the first text, and again after it was released.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

from weftline.indexing.embeddings import Model
from weftline.kernel.thread_pools import lower_priority, return_free_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from weftline.indexing.embeddings import Purpose, Vectors

MINILM = Model("all-MiniLM-L6-v2-int8", dimensions=384, most_tokens=510)
# Texts per task: large enough to be worth a thread, small enough for fairness.
_BATCH_SIZE = 4


class Runner(Protocol):
    """A loaded model; thread-safe."""

    def embed(self, texts: Sequence[str]) -> Vectors: ...


class LocalEmbedder:
    """Embeds in threads. Queries have their own thread, so that they do not wait for documents.

    Documents are embedded at the lowest priority, so that calls do not notice. ``clock`` returns seconds.
    """

    def __init__(
        self,
        model: Model,
        load: Callable[[], Runner],
        threads: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model = model
        self._load = load
        self._clock = clock
        self._loading = threading.Lock()
        self._runner: Runner | None = None
        self._used_at = 0.0
        self._threads = threads or max(1, (os.cpu_count() or 1) // 2)
        # Each thread has one running and one queued task; further callers wait.
        self._slots = asyncio.Semaphore(2 * self._threads)
        self._passages = ThreadPoolExecutor(self._threads, "weftline-embedding", initializer=lower_priority)
        self._queries = ThreadPoolExecutor(1, "weftline-queries")

    @property
    def model(self) -> Model:
        return self._model

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Vectors:
        if purpose == "query" and len(texts) == 1:
            return await asyncio.get_running_loop().run_in_executor(self._queries, self._run, texts)
        parts: dict[int, Vectors] = {}
        # A caller has at most as many tasks as there are threads, so that callers share them fairly.
        pending = enumerate([texts[start : start + _BATCH_SIZE] for start in range(0, len(texts), _BATCH_SIZE)])
        await asyncio.gather(*(self._work(pending, parts) for _ in range(self._threads)))
        return self._joined([parts[index] for index in range(len(parts))])

    async def release_idle(self, seconds: float) -> bool:
        # A model that a thread loads is not idle, and the event loop must not wait for it.
        if not self._loading.acquire(blocking=False):
            return False
        try:
            if self._runner is None or self._clock() - self._used_at < seconds:
                return False
            self._runner = None
        finally:
            self._loading.release()
        await asyncio.get_running_loop().run_in_executor(self._passages, _free_memory)
        return True

    async def close(self) -> None:
        for executor in (self._passages, self._queries):
            executor.shutdown(wait=False, cancel_futures=True)

    async def _work(self, pending: Iterator[tuple[int, Sequence[str]]], parts: dict[int, Vectors]) -> None:
        for index, batch in pending:
            async with self._slots:
                parts[index] = await asyncio.get_running_loop().run_in_executor(self._passages, self._run, batch)

    def _joined(self, parts: Sequence[Vectors]) -> Vectors:
        import numpy as np  # noqa: PLC0415 - already loaded by a thread

        return np.concatenate(parts) if parts else np.empty((0, self._model.dimensions), np.float32)

    def _run(self, texts: Sequence[str]) -> Vectors:
        runner = self._loaded()
        try:
            return runner.embed(texts)
        finally:
            self._used_at = self._clock()

    def _loaded(self) -> Runner:
        with self._loading:
            self._used_at = self._clock()
            if self._runner is None:
                self._runner = self._load()
                # Loading needs three times the memory of the model.
                return_free_memory()
            return self._runner


def _free_memory() -> None:
    gc.collect()
    return_free_memory()


def load_minilm() -> Runner:
    """Return the bundled model."""
    from weftline.providers.embedders.minilm import load_installed  # noqa: PLC0415 - slow to import

    return load_installed()
