"""Folders of this machine that documents are taken from: those that were named, and nothing a link in them leads to."""

from __future__ import annotations

import asyncio
import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from weft.capabilities.knowledge.sources.model import (
    MOST_ENTRIES,
    MOST_LEVELS,
    File,
    FolderRefused,
    is_left_out,
    is_wanted,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weft.capabilities.knowledge.sources.model import Source

# In the name of a folder: the tenant's own name, so that tenants read apart.
_TENANT = "{tenant}"
_HIDDEN = "."
_UPWARDS = frozenset({"", ".", ".."})
_NOT_THERE = "Make it, or bring it back to where it was; until then its documents stay as they are."
# A link is no folder and no file; something that waits to be written to must not keep us waiting.
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class _Place(NamedTuple):
    """Where a folder really is: in a folder that was named, so many steps down."""

    root: str
    steps: tuple[str, ...]


class NamedFolders:
    """Reads folders that lie in one of those that whoever runs Weft has named."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = roots

    async def check(self, tenant: str, folder: str) -> None:
        await asyncio.to_thread(self._place, tenant, folder)

    async def files(self, tenant: str, source: Source) -> Sequence[File]:
        return await asyncio.to_thread(self._files, tenant, source)

    async def read(self, tenant: str, source: Source, path: str, most_bytes: int) -> bytes:
        return await asyncio.to_thread(self._read, tenant, source, path, most_bytes)

    def _place(self, tenant: str, folder: str) -> _Place:
        """Return where a folder is; refuse one that is not inside a folder that was named, or not there."""
        try:
            found = Path(folder).resolve()
        except (OSError, RuntimeError, ValueError):
            raise FolderRefused(f"'{folder[:200]}' is not a folder that Weft may read.") from None
        roots = (Path(root.replace(_TENANT, tenant)).expanduser().resolve() for root in self._roots)
        root = next((root for root in roots if found.is_relative_to(root)), None)
        # Whether a folder is there that nobody named is nothing to be found out.
        if root is None:
            raise FolderRefused(f"'{folder[:200]}' is not a folder that Weft may read.")
        if not found.is_dir():
            raise FolderRefused(f"There is no folder '{folder[:200]}'.", hint=_NOT_THERE)
        return _Place(str(root), found.relative_to(root).parts)

    def _files(self, tenant: str, source: Source) -> list[File]:
        with self._opened(tenant, source) as top:
            return sorted(_walked(top, source))

    def _read(self, tenant: str, source: Source, path: str, most_bytes: int) -> bytes:
        *folders, name = path.split("/")
        if _UPWARDS.intersection((*folders, name)):
            raise FileNotFoundError(path)
        with self._opened(tenant, source) as top, _beneath(top, folders) as folder:
            descriptor = os.open(name, _FILE, dir_fd=folder)
            with os.fdopen(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise FileNotFoundError(path)
                return file.read(most_bytes + 1)

    @contextmanager
    def _opened(self, tenant: str, source: Source) -> Iterator[int]:
        """Open a source's folder from the one that was named: whoever may write there could put a link in its place."""
        place = self._place(tenant, source.location)
        root = os.open(place.root, _FOLDER)
        try:
            with _beneath(root, place.steps) as folder:
                yield folder
        finally:
            os.close(root)


def _walked(top: int, source: Source) -> Iterator[File]:
    """Yield the wanted files beneath an open folder. Names that begin with a dot are nobody's documents."""
    waiting: list[tuple[str, ...]] = [()]
    entries = 0
    while waiting:
        steps = waiting.pop()
        if len(steps) > MOST_LEVELS:
            raise FolderRefused(f"The folder has others in it on more than {MOST_LEVELS} levels.")
        for entry in _entries(top, steps):
            entries += 1
            if entries > MOST_ENTRIES:
                raise FolderRefused(f"The folder has more than {MOST_ENTRIES} files and folders in it.")
            path = "/".join((*steps, entry.name))
            if entry.name.startswith(_HIDDEN):
                continue
            if entry.is_dir(follow_symlinks=False):
                if not is_left_out(path, source.exclude):
                    waiting.append((*steps, entry.name))
            elif is_wanted(path, source.include, source.exclude):
                yield from _file(path, entry)


def _entries(top: int, steps: Sequence[str]) -> Iterator[os.DirEntry[str]]:
    """Yield what is in a folder; nothing if it is one beneath the first that went meanwhile, or is not for us."""
    try:
        with _beneath(top, steps) as folder, os.scandir(folder) as entries:
            yield from entries
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        if not steps:
            raise


def _file(path: str, entry: os.DirEntry[str]) -> Iterator[File]:
    """Yield a file, unless it is none or went meanwhile."""
    try:
        if entry.is_file(follow_symlinks=False):
            facts = entry.stat(follow_symlinks=False)
            yield File(path, facts.st_size, facts.st_mtime_ns)
    except (FileNotFoundError, PermissionError):
        return


@contextmanager
def _beneath(top: int, steps: Sequence[str]) -> Iterator[int]:
    """Open a folder beneath another, step by step, so that no part of the way can be a link."""
    folder = os.dup(top)
    try:
        for name in steps:
            inner = os.open(name, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)
