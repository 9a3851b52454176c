"""An acknowledged write has been forced to disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw
import pytest

from support.databases import connect_durably
from weftline import Weftline

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.both_databases


class CountingFile(apsw.VFSFile):
    """A file that counts how often it is forced to disk."""

    def __init__(self, vfs: CountingVfs, name: apsw.URIFilename, flags: list[int]) -> None:
        super().__init__(vfs.base_name, name, flags)
        self._vfs = vfs
        self._name = str(name.filename() if isinstance(name, apsw.URIFilename) else name)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's own name
        super().xSync(flags)
        if self._name.endswith("-wal"):
            self._vfs.forced += 1


class CountingVfs(apsw.VFS):
    """The default file system with counting files."""

    def __init__(self) -> None:
        self.forced = 0
        self.base_name = apsw.vfs_names()[0]
        super().__init__("counting", self.base_name, makedefault=True)

    def xOpen(self, name: apsw.URIFilename, flags: list[int]) -> CountingFile:  # noqa: N802 - SQLite's own name
        return CountingFile(self, name, flags)


@pytest.mark.req("SC-08")
async def test_every_acknowledged_write_was_forced_to_disk_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weftline.storage.sql.dialects.sqlite._connect", connect_durably)
    vfs = CountingVfs()
    try:
        async with Weftline.open(tmp_path) as weftline:
            await weftline.session.create("power", session_id="s")
            for number in range(5):
                before = vfs.forced
                await weftline.board.write("s", "goal", f"version {number}")
                assert vfs.forced > before
    finally:
        apsw.set_default_vfs(vfs.base_name)
        vfs.unregister()
