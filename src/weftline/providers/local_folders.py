"""Local folders as knowledge sources: only those the operator allows, and no symbolic or hard links in them."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from weftline.kernel.thread_pools import DOCUMENT_THREADS
from weftline.knowledge.sources import (
    MAX_FOLDER_DEPTH,
    MAX_FOLDER_ENTRIES,
    FolderRefused,
    SourceFile,
    is_excluded_folder,
    is_included,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weftline.knowledge.sources import KnowledgeSource

# Placeholder in a configured folder, replaced by the tenant: isolates tenants.
_TENANT = "{tenant}"
_HIDDEN = "."
_UPWARDS = frozenset({"", ".", ".."})
_MISSING_HINT = "Make it, or bring it back to where it was; until then its documents stay as they are."
# Links are refused; O_NONBLOCK, because opening a FIFO would block.
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class _Place(NamedTuple):
    """A resolved folder: an allowed root and the steps below it."""

    root: str
    steps: tuple[str, ...]


class AllowedFolders:
    """Reads folders inside the configured roots."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = roots

    async def check(self, tenant: str, folder: str) -> None:
        await DOCUMENT_THREADS.run(self._place, tenant, folder)

    async def files(self, tenant: str, source: KnowledgeSource) -> Sequence[SourceFile]:
        return await DOCUMENT_THREADS.run(self._files, tenant, source)

    async def read(self, tenant: str, source: KnowledgeSource, path: str, max_bytes: int) -> bytes:
        return await DOCUMENT_THREADS.run(self._read, tenant, source, path, max_bytes)

    def _place(self, tenant: str, folder: str) -> _Place:
        """Resolve a folder; raises FolderRefused if it is outside the roots or missing."""
        try:
            found = Path(folder).resolve()
        except (OSError, RuntimeError, ValueError):
            raise FolderRefused(f"'{folder[:200]}' is not a folder that Weftline may read.") from None
        roots = (Path(root.replace(_TENANT, tenant)).expanduser().resolve() for root in self._roots)
        root = next((root for root in roots if found.is_relative_to(root)), None)
        # Does not reveal whether a folder outside the roots exists.
        if root is None:
            raise FolderRefused(f"'{folder[:200]}' is not a folder that Weftline may read.")
        if not found.is_dir():
            raise FolderRefused(f"There is no folder '{folder[:200]}'.", hint=_MISSING_HINT)
        return _Place(str(root), found.relative_to(root).parts)

    def _files(self, tenant: str, source: KnowledgeSource) -> list[SourceFile]:
        with self._opened(tenant, source) as top:
            return sorted(_walk(top, source))

    def _read(self, tenant: str, source: KnowledgeSource, path: str, max_bytes: int) -> bytes:
        *folders, name = path.split("/")
        if _UPWARDS.intersection((*folders, name)):
            raise FileNotFoundError(path)
        with self._opened(tenant, source) as top, _open_below(top, folders) as folder:
            descriptor = os.open(name, _FILE, dir_fd=folder)
            with os.fdopen(descriptor, "rb") as file:
                facts = os.fstat(file.fileno())
                if not stat.S_ISREG(facts.st_mode):
                    raise FileNotFoundError(path)
                if facts.st_nlink > 1:
                    # Nothing tells where its other names are: it may be a file of a folder that Weftline may not read.
                    raise FolderRefused(
                        "The file has other names (hard links), which may be outside the folder: copy it."
                    )
                return file.read(max_bytes + 1)

    @contextmanager
    def _opened(self, tenant: str, source: KnowledgeSource) -> Iterator[int]:
        """Open a folder relative to its root: a writer could replace it with a link."""
        place = self._place(tenant, source.location)
        root = os.open(place.root, _FOLDER)
        try:
            with _open_below(root, place.steps) as folder:
                yield folder
        finally:
            os.close(root)


def _walk(top: int, source: KnowledgeSource) -> Iterator[SourceFile]:
    """Yield the matching files below an open folder, without hidden ones."""
    waiting: list[tuple[str, ...]] = [()]
    entries = 0
    while waiting:
        steps = waiting.pop()
        if len(steps) > MAX_FOLDER_DEPTH:
            raise FolderRefused(f"The folder has others in it on more than {MAX_FOLDER_DEPTH} levels.")
        for entry in _entries(top, steps):
            entries += 1
            if entries > MAX_FOLDER_ENTRIES:
                raise FolderRefused(f"The folder has more than {MAX_FOLDER_ENTRIES} files and folders in it.")
            path = "/".join((*steps, entry.name))
            if entry.name.startswith(_HIDDEN):
                continue
            if entry.is_dir(follow_symlinks=False):
                if not is_excluded_folder(path, source.exclude):
                    waiting.append((*steps, entry.name))
            elif is_included(path, source.include, source.exclude):
                yield from _file(path, entry)


def _entries(top: int, steps: Sequence[str]) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a folder; none if a subfolder is gone or not readable."""
    try:
        with _open_below(top, steps) as folder, os.scandir(folder) as entries:
            yield from entries
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        if not steps:
            raise


def _file(path: str, entry: os.DirEntry[str]) -> Iterator[SourceFile]:
    """Yield a regular file, unless it is gone."""
    try:
        if entry.is_file(follow_symlinks=False):
            facts = entry.stat(follow_symlinks=False)
            yield SourceFile(path, facts.st_size, facts.st_mtime_ns)
    except (FileNotFoundError, PermissionError):
        return


@contextmanager
def _open_below(top: int, steps: Sequence[str]) -> Iterator[int]:
    """Open a folder below another step by step, so that no component can be a link."""
    folder = os.dup(top)
    try:
        for name in steps:
            inner = os.open(name, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)
