"""Unfinished files are removed once their process has ended, and not before."""

from __future__ import annotations

from pathlib import Path

import pytest

from weftline.storage.partial_files import abandoned_files, partial_file, remove_abandoned


def test_a_file_that_is_being_written_is_not_abandoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, replace = tmp_path / "backup.tar", Path.replace

    def replace_while_another_backup_begins(self: Path, path: Path) -> Path:
        remove_abandoned(None, tmp_path)
        return replace(self, path)

    monkeypatch.setattr(Path, "replace", replace_while_another_backup_begins)
    with partial_file(target) as file:
        file.write(b"content")
        remove_abandoned(None, tmp_path)
    assert target.read_bytes() == b"content"
    assert list(tmp_path.iterdir()) == [target]


def test_a_file_without_a_process_is_abandoned_and_removed_by_the_next(tmp_path: Path) -> None:
    left = tmp_path / ".backup.tar.4711.partial"
    left.write_bytes(b"half")
    assert abandoned_files(None, tmp_path) == [left]
    with partial_file(tmp_path / "backup.tar"):
        assert not left.exists()
