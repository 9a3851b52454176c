"""Servers for the client tests, and each test once for every client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from client_support import Product, Script, product_server, scripted_server, threaded_client

from support.jobs import pause_jobs
from weft import Client


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WEFT_URL", "WEFT_API_KEY", "WEFT_DATA_DIR", "WEFT_DATABASE_URL", "WEFT_RATE_LIMITS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session", autouse=True)
def _nothing_happens_meanwhile() -> Iterator[None]:
    """Leave documents as they were put and reads uncounted, so that answers do not depend on how far a worker got."""
    with pytest.MonkeyPatch.context() as patch:
        pause_jobs(patch, "knowledge.reindex", "knowledge.ingest", "board.flush_read_counts")
        yield


@pytest.fixture(scope="session")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    with product_server(tmp_path_factory.mktemp("product")) as product:
        yield product


@pytest.fixture
def script() -> Iterator[Script]:
    with scripted_server() as script:
        yield script


@pytest.fixture(params=["async", "blocking"])
def connect(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return how to open a client, of both kinds in turn."""
    return Client if request.param == "async" else threaded_client
