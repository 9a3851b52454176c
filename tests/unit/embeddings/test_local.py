"""Threads that embed take on no more than they can do soon, and questions overtake documents."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence

import numpy as np
import pytest

from weft.capabilities.indexing.embeddings.model import Embedder, Vectors
from weft.providers.embedders.local import MINILM, LocalEmbedder
from weft.testing.contracts import EmbedderContract
from weft.testing.embedder import WordEmbedder

PATIENCE = 30


class Gate:
    """A model that does nothing until it is let; and says what it was given."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.taken: list[str] = []

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.taken += texts
        if texts[0] != "question":
            assert self.opened.wait(PATIENCE)
        return np.ones((len(texts), MINILM.dimensions), np.float32)


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
    await until(lambda: gate.taken)
    assert local._slots.locked()
    assert local._passages._work_queue.qsize() == 1
    gate.opened.set()
    assert [len(vectors) for vectors in await asyncio.gather(*callers)] == [9] * 20
    assert len(gate.taken) == 180


async def test_callers_take_turns(gate: Gate, local: LocalEmbedder) -> None:
    callers = [asyncio.create_task(local.embed([name] * 40, "passage")) for name in "ab"]
    await until(lambda: gate.taken)
    gate.opened.set()
    await asyncio.gather(*callers)
    assert "b" in gate.taken[:40]


async def test_queries_overtake_documents(gate: Gate, local: LocalEmbedder) -> None:
    document = asyncio.create_task(local.embed(["document"] * 40, "passage"))
    await until(lambda: gate.taken)
    assert len(await local.embed(["question"], "query")) == 1
    assert not document.done()
    gate.opened.set()
    await document


async def test_a_cancelled_caller_frees_its_slot(gate: Gate, local: LocalEmbedder) -> None:
    impatient = asyncio.create_task(local.embed(["gone"] * 400, "passage"))
    await until(lambda: gate.taken)
    impatient.cancel()
    gate.opened.set()
    assert len(await local.embed(["stays"] * 8, "passage")) == 8
    assert gate.taken.count("gone") <= 8


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - what is waited for happens in a thread
            await asyncio.sleep(0.001)


class TestWordEmbedder(EmbedderContract):
    """The embedder that tests use keeps the contract too."""

    @pytest.fixture
    def embedder(self) -> Embedder:
        return WordEmbedder()
