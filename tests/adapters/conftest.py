"""Weftline as each of the four clients, for adapters."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from client.client_support import WeftlineServer, weftline_server
from weftline import Client, SyncClient, Weftline

CLIENTS = ("in process", "in process, blocking", "HTTP", "HTTP, blocking")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WeftlineServer]:
    with weftline_server(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path, empty_file: Path) -> Path:
    """Return a data folder with an empty database."""
    shutil.copy(empty_file, tmp_path / "weftline.db")
    return tmp_path


@pytest.fixture
async def opened(folder: Path) -> AsyncIterator[Weftline]:
    async with Weftline.open(folder) as weftline:
        yield weftline


@pytest.fixture(params=CLIENTS)
async def any_client(request: pytest.FixtureRequest, folder: Path, server: WeftlineServer) -> AsyncIterator[Any]:
    """Run a test with each client."""
    if request.param == "in process":
        async with Weftline.open(folder) as weftline:
            yield weftline
    elif request.param == "in process, blocking":
        with Weftline.open_sync(folder) as blocking:
            yield blocking
    elif request.param == "HTTP":
        async with Client(server.url, server.admin_key) as client:
            yield client
    else:
        with SyncClient(server.url, server.admin_key) as blocking_client:
            yield blocking_client
