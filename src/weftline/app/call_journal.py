"""A file with the usage of calls that are not metered yet, so that it outlives a process that is killed.

The file belongs to one process, which holds its lock. It is emptied whenever all its calls are metered; another process
meters what is left in files whose process has ended. It holds no messages and no keys.
"""

from __future__ import annotations

import logging
import os
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from weftline.app.call_notes import CallNote

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# What a database that is away for days may leave behind.
_MAX_BYTES = 16 * 2**20
_END = ".calls"
_log = logging.getLogger("weftline.proxy")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(CallNote).decode


class CallJournal:
    """The journal of this process, and those that others left."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: int | None = None
        self._path: Path | None = None
        self._open: set[str] = set()
        self._size = 0
        self._is_broken = False

    def add(self, note: CallNote) -> None:
        """Write the usage of a call that ends now. A call is metered whether this succeeds or not."""
        if self._is_broken or self._size > _MAX_BYTES:
            return
        line = _encode(note.as_usage()) + b"\n"
        try:
            if self._file is None:
                self._path = self._folder / f"{os.getpid()}-{secrets.token_hex(4)}{_END}"
                self._file = _create(self._path)
            os.write(self._file, line)
        except OSError as error:
            self._is_broken = True
            _log.warning("calls through the proxy are not written to %s: %s", self._folder.name, type(error).__name__)
            return
        self._open.add(note.call_id)
        self._size += len(line)

    def done(self, call_id: str) -> None:
        """Forget a call that is metered."""
        self._open.discard(call_id)
        if not self._open and self._size and self._file is not None:
            with suppress(OSError):
                os.ftruncate(self._file, 0)
                self._size = 0

    def left(self) -> Iterator[tuple[CallNote, ...]]:
        """Yield the calls in each file whose process has ended; a file is removed when the next one is asked for."""
        for path in sorted(self._folder.glob(f"*{_END}")):
            file = None if path == self._path else _take(path)
            if file is None:
                continue
            try:
                yield tuple(_read(path))
                path.unlink(missing_ok=True)
            except OSError:
                continue
            finally:
                os.close(file)

    def close(self) -> None:
        """Remove the file if all its calls are metered; leave it to the next process otherwise."""
        if self._file is not None and self._path is not None:
            if not self._open:
                self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = None


def _create(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    if not _lock(file):
        os.close(file)
        raise OSError("the file cannot be locked")
    return file


def _take(path: Path) -> int | None:
    """Lock a file that its process has left; None if it is still there."""
    try:
        file = os.open(path, os.O_RDWR)
    except OSError:
        return None
    if _lock(file) and os.fstat(file).st_nlink:
        return file
    os.close(file)
    return None


def _lock(file: int) -> bool:
    try:
        import fcntl  # noqa: PLC0415 - not on every system

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True


def _read(path: Path) -> Iterator[CallNote]:
    """Yield the calls in a file; the last line may be half written."""
    for line in path.read_bytes().splitlines():
        with suppress(msgspec.MsgspecError):
            yield _decode(line)
