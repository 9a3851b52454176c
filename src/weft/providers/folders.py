"""Folders of this machine that documents are taken from: those that were named, and nothing a link in them leads to."""

from __future__ import annotations

import asyncio
import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from weft.capabilities.knowledge_sources.model import MOST_FILES, File, FolderRefused, is_wanted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weft.capabilities.knowledge_sources.model import Source

# In the name of a folder: the tenant's own name, so that tenants read apart.
_TENANT = "{tenant}"
_HIDDEN = "."
_UPWARDS = frozenset({"", ".", ".."})
# A link is no folder and no file; something that waits to be written to must not keep us waiting.
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class NamedFolders:
    """Reads folders that lie in one of those that whoever runs Weft has named."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = roots

    async def check(self, tenant: str, folder: str) -> None:
        await asyncio.to_thread(self._resolved, tenant, folder)

    async def files(self, tenant: str, source: Source) -> Sequence[File]:
        return await asyncio.to_thread(self._files, tenant, source)

    async def read(self, tenant: str, source: Source, path: str, most_bytes: int) -> bytes:
        return await asyncio.to_thread(self._read, tenant, source, path, most_bytes)

    def _resolved(self, tenant: str, folder: str) -> Path:
        """Return where a folder really is; refuse one that is not there, or not inside a folder that was named."""
        try:
            found = Path(folder).resolve(strict=True)
        except (OSError, RuntimeError, ValueError):
            raise FolderRefused(f"'{folder[:200]}' is not a folder that Weft may read.") from None
        roots = (Path(root.replace(_TENANT, tenant)).expanduser().resolve() for root in self._roots)
        # Whether a folder is there that nobody named is nothing to be found out.
        if not found.is_dir() or not any(found == root or root in found.parents for root in roots):
            raise FolderRefused(f"'{folder[:200]}' is not a folder that Weft may read.")
        return found

    def _files(self, tenant: str, source: Source) -> list[File]:
        found: list[File] = []
        with _opened(str(self._resolved(tenant, source.location))) as top:
            for file in _walked(top, ""):
                if is_wanted(file.path, source.include, source.exclude):
                    found.append(file)
                if len(found) > MOST_FILES:
                    raise FolderRefused(f"The folder has more than {MOST_FILES} files.")
        return sorted(found)

    def _read(self, tenant: str, source: Source, path: str, most_bytes: int) -> bytes:
        *folders, name = path.split("/")
        if _UPWARDS.intersection((*folders, name)):
            raise FileNotFoundError(path)
        with _opened(str(self._resolved(tenant, source.location))) as top, _beneath(top, folders) as folder:
            descriptor = os.open(name, _FILE, dir_fd=folder)
            with os.fdopen(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise FileNotFoundError(path)
                return file.read(most_bytes + 1)


def _walked(folder: int, path: str) -> Iterator[File]:
    """Yield the files beneath an open folder. Names that begin with a dot are nobody's documents."""
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if not entry.name.startswith(_HIDDEN))
    for name in names:
        try:
            facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(facts.st_mode):
                yield File(f"{path}{name}", facts.st_size, facts.st_mtime_ns)
            elif stat.S_ISDIR(facts.st_mode):
                with _opened(name, folder) as inner:
                    yield from _walked(inner, f"{path}{name}/")
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            # It went meanwhile, or is not for us.
            continue


@contextmanager
def _opened(path: str, within: int | None = None) -> Iterator[int]:
    descriptor = os.open(path, _FOLDER, dir_fd=within)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _beneath(top: int, folders: Sequence[str]) -> Iterator[int]:
    """Open a folder beneath another, step by step, so that no part of the way can be a link."""
    if not folders:
        yield top
        return
    with _opened(folders[0], top) as inner, _beneath(inner, folders[1:]) as found:
        yield found
