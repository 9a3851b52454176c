"""Where the server of a SQLite database is reached: a file beside the database, while a server runs.

Only who may read the database can write there, so a command trusts the address and sends no key to find out.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from weft.transports.http.host_check import EVERY_INTERFACE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.settings import Settings

_READY_SECONDS = 5.0


class RunningServer(msgspec.Struct, frozen=True):
    """A server that a process runs."""

    url: str
    pid: int


def address_of(settings: Settings, port: int | None = None) -> str:
    """Return the URL of a server on this machine."""
    host = "127.0.0.1" if settings.host in EVERY_INTERFACE else settings.host
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port if port is None else port}"


@contextlib.contextmanager
def announced(settings: Settings, url: str) -> Iterator[None]:
    """Say where this process serves a database; of several servers, the one that started last is found."""
    file = _file(settings)
    if file is None:
        yield
        return
    content = msgspec.json.encode(RunningServer(url, os.getpid()))
    _replace(file, content)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if file.read_bytes() == content:
                file.unlink()


def find_server(settings: Settings) -> str | None:
    """Return the URL of a server that works on this database and is ready."""
    file = _file(settings)
    if file is None or not file.exists():
        return None
    try:
        url = msgspec.json.decode(file.read_bytes(), type=RunningServer).url
    except (OSError, msgspec.DecodeError):
        return None
    return url if _is_ready(url) else None


def _file(settings: Settings) -> Path | None:
    """Return the file of a SQLite database; a PostgreSQL database has no place that only its users can write."""
    return None if "://" in settings.storage_url else Path(f"{settings.storage_url}-server.json").absolute()


def _replace(file: Path, content: bytes) -> None:
    fresh = file.with_name(f"{file.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        fresh.unlink()
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.write(content)
    fresh.replace(file)


def _is_ready(url: str) -> bool:
    import httpx2  # noqa: PLC0415 - a server needs no client

    try:
        return httpx2.get(f"{url}/ready", timeout=_READY_SECONDS).is_success
    except httpx2.HTTPError:
        # It ended without removing its file.
        return False
