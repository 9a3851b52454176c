"""The address of a running server beside its database: only what its server wrote, and only while that runs."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest

from weftline.settings import Settings
from weftline.transports import server_address
from weftline.transports.server_address import announced, find_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class _Ready(BaseHTTPRequestHandler):
    """A program that answers everything."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Log nothing."""


@contextmanager
def listening() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Ready) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "weftline.db").touch()
    return Settings(data_dir=str(tmp_path))


def test_a_server_is_found_while_it_runs(settings: Settings, tmp_path: Path) -> None:
    with listening() as url:
        with announced(settings, url):
            assert find_server(settings) == url
        assert find_server(settings) is None
    assert [file.name for file in tmp_path.iterdir()] == ["weftline.db"]


def test_the_address_of_a_server_that_crashed_is_not_used_although_another_program_answers_there(
    settings: Settings, tmp_path: Path
) -> None:
    with listening() as url:
        (tmp_path / "weftline.db-server.json").write_text(f'{{"url": "{url}", "pid": {os.getpid()}}}')
        assert find_server(settings) is None
        with announced(settings, url):
            assert find_server(settings) == url


def test_an_address_that_another_user_may_have_written_is_not_used(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "weftline.db-server.json"
    with listening() as url, announced(settings, url):
        file.chmod(0o620)
        assert find_server(settings) is None
        file.chmod(0o600)
        assert find_server(settings) == url
        moved = file.rename(tmp_path / "elsewhere.json")
        file.symlink_to(moved)
        assert find_server(settings) is None
        moved.replace(file)
        monkeypatch.setattr(server_address, "_is_of_owner", lambda *_: False)
        assert find_server(settings) is None


def test_a_file_of_another_user_is_known_by_its_owner(tmp_path: Path) -> None:
    database = tmp_path / "weftline.db"
    database.touch(0o600)
    status = database.stat()
    assert server_address._is_of_owner(status, database)
    stranger = os.stat_result((status.st_mode, 0, 0, 1, status.st_uid + 1_000, 0, 0, 0, 0, 0))
    assert not server_address._is_of_owner(stranger, database)


@pytest.mark.parametrize("make", ["pipe", "folder", "garbage"])
def test_what_is_no_address_hangs_and_fails_nothing(settings: Settings, tmp_path: Path, make: str) -> None:
    file = tmp_path / "weftline.db-server.json"
    if make == "pipe":
        os.mkfifo(file)
    elif make == "folder":
        file.mkdir()
    else:
        file.write_bytes(b"\xff{" * 10_000)
    assert find_server(settings) is None
    with listening() as url, announced(settings, url):
        assert find_server(settings) == (None if make == "folder" else url)
