"""The local embedder: a bounded queue, fair between callers, with queries before documents."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Sequence

import numpy as np
import pytest

from support.contracts import EmbedderContract
from weftline.indexing.embeddings import Embedder, Vectors
from weftline.kernel.thread_pools import LOWEST_PRIORITY
from weftline.providers.embedders.local import MINILM, LocalEmbedder
from weftline.testing.embedder import WordEmbedder

TIMEOUT_SECONDS = 60


class Gate:
    """A model that blocks until it is opened, and records its texts."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.texts: list[str] = []

    def embed(self, batch: Sequence[str]) -> Vectors:
        self.texts += batch
        if batch[0] != "question":
            assert self.opened.wait(TIMEOUT_SECONDS)
        return np.ones((len(batch), MINILM.dimensions), np.float32)


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
async def local(gate: Gate) -> AsyncIterator[LocalEmbedder]:
    local = LocalEmbedder(MINILM, lambda: gate, threads=1)
    yield local
    gate.opened.set()
    await local.close()


async def test_callers_wait_while_the_queue_is_full(gate: Gate, local: LocalEmbedder) -> None:
    callers = [asyncio.create_task(local.embed([f"{number}"] * 9, "passage")) for number in range(20)]
    await wait_until(lambda: gate.texts)
    assert local._slots.locked()
    assert local._passages._work_queue.qsize() == 1
    gate.opened.set()
    assert [len(vectors) for vectors in await asyncio.gather(*callers)] == [9] * 20
    assert len(gate.texts) == 180


async def test_callers_take_turns(gate: Gate, local: LocalEmbedder) -> None:
    callers = [asyncio.create_task(local.embed([name] * 40, "passage")) for name in "ab"]
    await wait_until(lambda: gate.texts)
    gate.opened.set()
    await asyncio.gather(*callers)
    assert "b" in gate.texts[:40]


async def test_queries_overtake_documents(gate: Gate, local: LocalEmbedder) -> None:
    document = asyncio.create_task(local.embed(["document"] * 40, "passage"))
    await wait_until(lambda: gate.texts)
    assert len(await local.embed(["question"], "query")) == 1
    assert not document.done()
    gate.opened.set()
    await document


async def test_a_cancelled_caller_frees_its_slot(gate: Gate, local: LocalEmbedder) -> None:
    cancelled = asyncio.create_task(local.embed(["gone"] * 400, "passage"))
    await wait_until(lambda: gate.texts)
    cancelled.cancel()
    gate.opened.set()
    assert len(await local.embed(["stays"] * 8, "passage")) == 8
    assert gate.texts.count("gone") <= 8


async def test_documents_are_embedded_at_the_lowest_priority() -> None:
    noted: dict[str, int] = {}

    class Noting:
        def embed(self, batch: Sequence[str]) -> Vectors:
            noted[batch[0]] = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
            return np.ones((len(batch), MINILM.dimensions), np.float32)

    local = LocalEmbedder(MINILM, Noting, threads=1)
    await local.embed(["question"], "query")
    await local.embed(["document"], "passage")
    await local.close()
    own = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    assert noted == {"question": own, "document": LOWEST_PRIORITY if sys.platform == "linux" else own}


class Loads:
    """Counts how often a model is loaded."""

    def __init__(self) -> None:
        self.models: list[weakref.ref[Gate]] = []

    def __call__(self) -> Gate:
        gate = Gate()
        gate.opened.set()
        self.models.append(weakref.ref(gate))
        return gate


async def test_an_idle_model_is_released_and_loaded_again() -> None:
    now, loads = [0.0], Loads()
    local = LocalEmbedder(MINILM, loads, threads=1, clock=lambda: now[0])
    assert not await local.release_idle(600)
    assert not loads.models
    await local.embed(["first"], "passage")
    now[0] = 599.0
    assert not await local.release_idle(600)
    await local.embed(["question"], "query")
    now[0] = 1_198.0
    assert not await local.release_idle(600)
    now[0] = 1_199.0
    assert await local.release_idle(600)
    assert [model() for model in loads.models] == [None]
    assert not await local.release_idle(600)
    assert len(await local.embed(["again"], "passage")) == 1
    assert len(loads.models) == 2
    await local.close()


async def test_a_model_in_use_is_not_released(gate: Gate) -> None:
    now = [0.0]
    local = LocalEmbedder(MINILM, lambda: gate, threads=1, clock=lambda: now[0])
    document = asyncio.create_task(local.embed(["document"], "passage"))
    await wait_until(lambda: gate.texts)
    now[0] = 599.0
    gate.opened.set()
    await document
    now[0] = 600.0
    assert not await local.release_idle(600)
    await local.close()


async def wait_until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not condition():  # noqa: ASYNC110 - the condition changes in a thread
            await asyncio.sleep(0.001)


class TestWordEmbedder(EmbedderContract):
    """The embedder of the tests fulfils the contract."""

    @pytest.fixture
    def embedder(self) -> Embedder:
        return WordEmbedder()


async def test_the_event_loop_does_not_wait_for_a_model_that_is_loaded(gate: Gate) -> None:
    loading, loaded = threading.Event(), threading.Event()

    def load() -> Gate:
        loading.set()
        # A loop that waited for this would never let it go on.
        assert loaded.wait(TIMEOUT_SECONDS)
        return gate

    local = LocalEmbedder(MINILM, load, threads=1, clock=lambda: 1_000.0)
    embedding = asyncio.create_task(local.embed(["question"], "query"))
    try:
        await wait_until(loading.is_set)
        assert not await local.release_idle(0)
        assert not loaded.is_set()
    finally:
        loaded.set()
    assert len(await embedding) == 1
    assert await local.release_idle(0)
    await local.close()
