"""Where the server of a SQLite database is reached: a file beside the database, while a server runs.

A link that signs in leads to the address in this file, so a command trusts it only if it belongs to who may write the
database and the server that wrote it still runs: the port of one that crashed may be another program's by now.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weftline.settings import Settings

_log = logging.getLogger("weftline.server")
_READY_SECONDS = 5.0
_MAX_BYTES = 4_096
_ROOT = 0


class RunningServer(msgspec.Struct, frozen=True):
    """A server that a process runs."""

    url: str
    pid: int


@contextlib.contextmanager
def announced(settings: Settings, url: str) -> Iterator[None]:
    """Say where this process serves a database; of several servers, the one that started last is found."""
    file = _file(settings)
    if file is None:
        yield
        return
    content = msgspec.json.encode(RunningServer(url, os.getpid()))
    try:
        held = _replace(file, content)
    except OSError as error:
        # In a folder where others may write too, the name can be taken.
        _log.warning("cannot write the address of this server: %s", error.strerror)
        yield
        return
    # Open, and so locked, until this process ends, however it ends.
    with contextlib.closing(held):
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                if file.read_bytes() == content:
                    file.unlink()


def find_server(settings: Settings) -> str | None:
    """Return the URL of a server that works on this database and is ready."""
    file = _file(settings)
    if file is None:
        return None
    try:
        url = msgspec.json.decode(_content(file, Path(settings.storage_url)), type=RunningServer).url
    except (OSError, msgspec.DecodeError):
        return None
    return url if _is_ready(url) else None


def _file(settings: Settings) -> Path | None:
    """Return the file of a SQLite database; a PostgreSQL database has no place that only its users can write."""
    return None if "://" in settings.storage_url else Path(f"{settings.storage_url}-server.json").absolute()


def _replace(file: Path, content: bytes) -> IO[bytes]:
    """Write the file and return it open, with a lock that ends with this process."""
    fresh = file.with_name(f"{file.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        fresh.unlink()
    opened = os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
    try:
        opened.write(content)
        opened.flush()
        if sys.platform == "win32":
            # A file that is open is not replaced there.
            opened.close()
        else:
            fcntl.flock(opened, fcntl.LOCK_EX)
        fresh.replace(file)
    except OSError:
        opened.close()
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
    return opened


def _content(file: Path, database: Path) -> bytes:
    """Return what a running server wrote; nothing if anyone else may have written it. Raises OSError."""
    # Neither a link to elsewhere nor a pipe that never answers.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with os.fdopen(os.open(file, flags), "rb") as opened:
        status = os.fstat(opened.fileno())
        trusted = stat.S_ISREG(status.st_mode) and _is_of_owner(status, database) and _is_locked(opened)
        return opened.read(_MAX_BYTES) if trusted else b""


def _is_of_owner(status: os.stat_result, database: Path) -> bool:
    """Tell whether a file belongs to this user, to the owner of the database or to root, and only they can write it."""
    if sys.platform == "win32":
        return True
    owners = {os.geteuid(), database.stat().st_uid, _ROOT}
    return status.st_uid in owners and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _is_locked(file: IO[bytes]) -> bool:
    """Tell whether the server that wrote a file still runs."""
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _is_ready(url: str) -> bool:
    import httpx2  # noqa: PLC0415 - a server needs no client

    try:
        return httpx2.get(f"{url}/ready", timeout=_READY_SECONDS).is_success
    except (httpx2.HTTPError, httpx2.InvalidURL):
        # It does not answer yet, or no longer.
        return False
