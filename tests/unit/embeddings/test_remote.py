"""Remote embedding services: batches, retries, and checks of responses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from support.contracts import EmbedderContract
from support.embedding_service import DIMENSIONS, Answer, EmbeddingService, embedding_service
from weftline.indexing.embeddings import Embedder, EmbedderUnavailable, TextRefused
from weftline.kernel.ports import approximate_tokens
from weftline.providers.embedders.factory import configured_embedders
from weftline.providers.embedders.remote import RemoteEmbedder
from weftline.settings import InvalidSetting, Settings

KEY = "sk-not-for-any-log"


@pytest.fixture
async def service() -> AsyncIterator[EmbeddingService]:
    async with embedding_service() as service:
        yield service


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
async def embedder(service: EmbeddingService, pauses: list[float]) -> AsyncIterator[RemoteEmbedder]:
    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    embedder = RemoteEmbedder(service.url, "words", DIMENSIONS, KEY, batch=8, pause=pause)
    yield embedder
    await embedder.close()


class TestRemoteEmbedder(EmbedderContract):
    """Any service with OpenAI's interface."""


async def test_texts_are_sent_in_few_concurrent_batches(service: EmbeddingService, embedder: Embedder) -> None:
    texts = [f"text {number}" for number in range(100)]
    vectors = await embedder.embed(texts, "passage")
    assert sorted(len(request["input"]) for request in service.requests) == [4, *[8] * 12]
    assert 1 <= service.max_concurrent <= 4
    assert np.array_equal(vectors[41:42], await embedder.embed(texts[41:42], "query"))


async def test_the_request_has_the_openai_format(service: EmbeddingService, embedder: Embedder) -> None:
    await embedder.embed(["", "one"], "passage")
    assert service.requests == [{"model": "words", "input": [" ", "one"], "encoding_format": "float"}]
    assert service.headers[0][""] == "POST /v1/embeddings HTTP/1.1"
    assert service.headers[0]["authorization"] == f"bearer {KEY}"


async def test_long_texts_are_truncated(service: EmbeddingService, embedder: Embedder) -> None:
    await embedder.embed(["word " * 20_000, "語" * 20_000], "passage")
    assert all(0 < approximate_tokens(text) <= embedder.model.most_tokens for text in service.requests[0]["input"])


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
async def test_transient_errors_are_retried(
    service: EmbeddingService, embedder: Embedder, pauses: list[float], status: int
) -> None:
    service.script = [Answer(status), Answer(status), Answer(silent=True)]
    assert len(await embedder.embed(["x"], "passage")) == 1
    assert len(service.requests) == 4
    assert 0.5 <= pauses[0] < pauses[1] < pauses[2] <= 3


async def test_retry_after_is_honoured_up_to_a_limit(
    service: EmbeddingService, embedder: Embedder, pauses: list[float]
) -> None:
    retry_after = ("7", "3600", "soon")
    service.script = [Answer(429, {"retry-after": seconds}) for seconds in retry_after]
    await embedder.embed(["x"], "passage")
    assert pauses[:2] == [7, 30]
    assert 2 <= pauses[2] <= 3


async def test_an_unavailable_service_is_given_up_after_retries(service: EmbeddingService, embedder: Embedder) -> None:
    service.script = [Answer(503, change=lambda _: b"a text of yours") for _ in range(5)]
    with pytest.raises(EmbedderUnavailable, match="status 503") as caught:
        await embedder.embed(["x"], "passage")
    assert len(service.requests) == 5
    assert_nothing_leaks(caught.value)


async def test_a_refused_connection_is_unavailable(pauses: list[float]) -> None:
    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    embedder = RemoteEmbedder("http://127.0.0.1:9", "words", 4, KEY, pause=pause)
    with pytest.raises(EmbedderUnavailable, match="ConnectError"):
        await embedder.embed(["x"], "passage")
    await embedder.close()
    assert len(pauses) == 4


async def test_timeouts_are_retried(
    service: EmbeddingService, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weftline.providers.embedders.remote._TIMEOUT_SECONDS", 0.0001)
    with pytest.raises(EmbedderUnavailable, match="too long"):
        await embedder.embed(["x"], "passage")


@pytest.mark.parametrize(
    ("status", "setting"),
    [(401, "WEFTLINE_EMBEDDING_KEY"), (403, "WEFTLINE_EMBEDDING_KEY"), (404, "WEFTLINE_EMBEDDING_MODEL")],
)
async def test_permanent_errors_are_not_retried(
    service: EmbeddingService, embedder: Embedder, status: int, setting: str
) -> None:
    service.script = [Answer(status, change=lambda _: f"the key {KEY} is wrong".encode())]
    with pytest.raises(EmbedderUnavailable) as caught:
        await embedder.embed(["x"], "passage")
    assert len(service.requests) == 1
    assert setting in caught.value.hint
    assert_nothing_leaks(caught.value)


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_rejected_texts_are_separated_from_accepted_ones(
    service: EmbeddingService, embedder: Embedder, status: int, pauses: list[float]
) -> None:
    service.poison, service.refusal = "poison", status
    texts = [f"text {number}" for number in range(20)]
    texts[3], texts[17] = "poison one", "poison two"
    with pytest.raises(TextRefused) as caught:
        await embedder.embed(texts, "passage")
    assert caught.value.texts == {"poison one", "poison two"}
    assert "poison" not in f"{caught.value!r}{caught.value.hint}"
    assert pauses == []


async def test_an_oversized_batch_is_split(service: EmbeddingService, embedder: Embedder) -> None:
    texts = [f"text {number}" for number in range(8)]
    together = await embedder.embed(texts, "passage")
    service.script = [Answer(413), Answer(), Answer(413)]
    assert np.array_equal(await embedder.embed(texts, "passage"), together)


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_service_that_refuses_every_text_is_unavailable(
    service: EmbeddingService, embedder: Embedder, status: int
) -> None:
    service.script = [Answer(status), Answer(status)]
    with pytest.raises(EmbedderUnavailable, match=str(status)) as caught:
        await embedder.embed(["x"] * 8, "passage")
    assert "WEFTLINE_EMBEDDING_MODEL" in caught.value.hint
    assert len(service.requests) == 2


async def test_the_key_is_not_sent_to_a_redirect(service: EmbeddingService, embedder: Embedder) -> None:
    service.script = [Answer(307, {"location": f"{service.url}/elsewhere"})]
    with pytest.raises(EmbedderUnavailable, match="307"):
        await embedder.embed(["x"], "passage")
    assert len(service.requests) == 1


def with_rows(*rows: Any) -> Any:
    return lambda _: {"data": list(rows)}


def row(index: int, *numbers: Any) -> dict[str, Any]:
    return {"index": index, "embedding": list(numbers) or [1.0] * DIMENSIONS}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _: b"<html>", "no list"),
        (lambda _: [], "no list"),
        (lambda _: {"data": [{"index": 0, "embedding": "AAAA"}]}, "no list"),
        (lambda _: {"data": [{"embedding": [1.0]}]}, "no list"),
        (with_rows(row(0)), "1 vectors for 2 texts"),
        (with_rows(row(0), row(1), row(2)), "3 vectors for 2 texts"),
        (with_rows(row(0), row(0)), "2 vectors for 2 texts"),
        (with_rows(row(0), row(1, 1.0, 2.0)), "of 2 dimensions instead of 64"),
        (with_rows(row(0), row(1, *[0.0] * DIMENSIONS)), "of no length"),
        (with_rows(row(0), row(1, *[1e200] * DIMENSIONS)), "of no length"),
        (with_rows(row(0), row(1, *[None] * DIMENSIONS)), "no list"),
        (lambda _: json.dumps({"data": [row(0), row(1, *[float("nan")] * 64)]}).encode(), "no list"),
        (lambda _: json.dumps({"data": [row(0), row(1, *[1e999] * 64)]}).encode(), "no list"),
        (lambda _: b" " * 200_000, "more than was asked for"),
    ],
)
async def test_a_malformed_response_is_refused(
    service: EmbeddingService, embedder: Embedder, change: Any, message: str
) -> None:
    service.script = [Answer(change=change)]
    with pytest.raises(EmbedderUnavailable, match=message):
        await embedder.embed(["x", "y"], "passage")
    assert len(service.requests) == 1


def assert_nothing_leaks(error: EmbedderUnavailable) -> None:
    text = f"{error.message} {error.hint} {error.context} {error.__cause__}"
    assert KEY not in text
    assert "a text of yours" not in text


def test_the_api_key_is_never_shown(embedder: RemoteEmbedder) -> None:
    assert KEY not in repr(embedder)
    assert KEY not in repr(Settings(embedding_key=KEY))


async def test_settings_choose_the_default_embedder() -> None:
    service = {
        "embedding_url": "http://127.0.0.1:9/v1/",
        "embedding_model": "BAAI/bge-m3",
        "embedding_dimensions": 1024,
    }
    names = ["all-MiniLM-L6-v2-int8", "remote:BAAI/bge-m3@1024"]
    for settings, expected in (
        (Settings(), names[:1]),
        (Settings(**service), names),
        (Settings(**service, embedder="remote"), names[::-1]),
    ):
        embedders = configured_embedders(settings)
        assert [embedder.model.name for embedder in embedders] == expected
        await asyncio.gather(*(embedder.close() for embedder in embedders))


@pytest.mark.parametrize(
    ("options", "setting"),
    [
        ({"embedder": "best"}, "WEFTLINE_EMBEDDER:"),
        ({"embedder": "remote"}, "WEFTLINE_EMBEDDING_URL"),
        ({"embedding_url": "file:///x", "embedding_model": "m", "embedding_dimensions": 8}, "WEFTLINE_EMBEDDING_URL"),
        ({"embedding_url": "http://x", "embedding_dimensions": 8}, "WEFTLINE_EMBEDDING_MODEL"),
        ({"embedding_url": "http://x", "embedding_model": "m"}, "WEFTLINE_EMBEDDING_DIMENSIONS"),
    ],
)
def test_an_unusable_setting_is_named_in_the_error(options: dict[str, Any], setting: str) -> None:
    with pytest.raises(InvalidSetting, match=setting):
        configured_embedders(Settings(**options))
