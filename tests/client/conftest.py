"""A server for the client tests, and each test once for each client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from client_support import ScriptedServer, WeftlineServer, scripted_server, threaded_client, weftline_server

from support.jobs import pause_jobs
from weftline import Client

PAUSED = ("knowledge.reindex", "knowledge.ingest", "board.flush_read_counts")


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "WEFTLINE_URL",
        "WEFTLINE_API_KEY",
        "WEFTLINE_DATA_DIR",
        "WEFTLINE_DATABASE_URL",
        "WEFTLINE_RATE_LIMITS",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _paused_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pause jobs that could change answers between two clients."""
    pause_jobs(monkeypatch, *PAUSED)


@pytest.fixture(scope="session")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WeftlineServer]:
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            pause_jobs(patch, *PAUSED)
            product = stack.enter_context(weftline_server(tmp_path_factory.mktemp("product")))
        yield product


@pytest.fixture
def script() -> Iterator[ScriptedServer]:
    with scripted_server() as script:
        yield script


@pytest.fixture(params=["async", "blocking"])
def connect(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return a function that opens a client: asynchronous, then blocking."""
    return Client if request.param == "async" else threaded_client
