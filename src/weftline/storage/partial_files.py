"""Files that get their name only when they are complete: backups and exports.

Until then they are hidden, and locked by the process that writes them. A process that is killed leaves its file; the
next one removes it. A journal in the data folder says where they are, for ``weftline doctor``.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NAME = re.compile(r"\..+\.\d+\.partial\Z")
_MAX_JOURNAL_BYTES = 1_000_000


@contextmanager
def partial_file(
    path: Path, journal: Path | None = None, create: Callable[[Path], BinaryIO] | None = None
) -> Iterator[BinaryIO]:
    """Write a file that appears as ``path`` once it is complete and on disk; on failure nothing remains."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    remove_abandoned(journal, path.parent)
    try:
        with _locked(partial, create or _new_file) as file:
            _note(journal, partial)
            yield file
            file.flush()
            os.fsync(file.fileno())
            # While it is locked: another process would take it for abandoned.
            partial.replace(path)
        _sync_folder(path.parent)
    finally:
        partial.unlink(missing_ok=True)
        remove_abandoned(journal)


def _locked(partial: Path, create: Callable[[Path], BinaryIO]) -> BinaryIO:
    """Create a file and lock it; again if another process took it for abandoned in between."""
    while True:
        file = create(partial)
        with suppress(ImportError, OSError):
            import fcntl  # noqa: PLC0415 - not on every system

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()


def abandoned_files(journal: Path | None, folder: Path | None = None) -> list[Path]:
    """Return the partial files in the journal, and in a folder, whose process has ended."""
    return sorted({partial for partial in [*_noted(journal), *_in_folder(folder)] if _is_abandoned(partial)})


def remove_abandoned(journal: Path | None, folder: Path | None = None) -> None:
    """Remove partial files whose process has ended, and forget them."""
    for partial in abandoned_files(journal, folder):
        with suppress(OSError):
            partial.unlink(missing_ok=True)
    if journal is None:
        return
    remaining = [partial for partial in _noted(journal) if partial.exists()]
    with suppress(OSError):
        if remaining:
            journal.write_text("".join(f"{partial}\n" for partial in remaining))
        else:
            journal.unlink(missing_ok=True)


def _new_file(path: Path) -> BinaryIO:
    """Create a private file."""
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")  # noqa: PTH123 - a handle


def _note(journal: Path | None, partial: Path) -> None:
    if journal is None:
        return
    # The journal is for later: a data folder that cannot be written does not prevent a backup.
    with suppress(OSError), journal.open("a") as file:
        file.write(f"{partial.absolute()}\n")


def _noted(journal: Path | None) -> list[Path]:
    if journal is None:
        return []
    try:
        with journal.open() as file:
            lines = file.read(_MAX_JOURNAL_BYTES).splitlines()
    except (OSError, UnicodeError):
        return []
    return [partial for line in lines if _NAME.match((partial := Path(line)).name)]


def _in_folder(folder: Path | None) -> list[Path]:
    if folder is None:
        return []
    try:
        return [each.absolute() for each in folder.iterdir() if _NAME.match(each.name)]
    except OSError:
        return []


def _is_abandoned(partial: Path) -> bool:
    """Tell whether no process has the file locked. Where files cannot be locked, none is taken for abandoned."""
    try:
        import fcntl  # noqa: PLC0415 - not on every system

        with partial.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True


def _sync_folder(folder: Path) -> None:
    """Make a rename durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
