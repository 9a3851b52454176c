"""Allowed folders: depth and size limits, and no access outside of them."""

from __future__ import annotations

import itertools
import os
import resource
from pathlib import Path
from typing import Any

import pytest

from weftline.knowledge.sources import FolderRefused, KnowledgeSource
from weftline.providers.local_folders import AllowedFolders

pytestmark = pytest.mark.req("CE-F43")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "root" / "docs"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def folders(folder: Path) -> AllowedFolders:
    return AllowedFolders([str(folder.parent)])


def source(folder: Path, **options: Any) -> KnowledgeSource:
    return KnowledgeSource(
        source_id="source_0",
        domain="handbook",
        kind="folder",
        location=str(folder),
        prefix="",
        secret="",
        token_digest="",
        principal_id="admin",
        created_at=0,
        **options,
    )


def write(path: Path, text: str = "text") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def nested(folder: Path, levels: int) -> Path:
    for _ in range(levels):
        folder /= "d"
    return folder


async def listed(folders: AllowedFolders, source: KnowledgeSource) -> list[str]:
    return [file.path for file in await folders.files("tenant", source)]


async def test_files_are_found_down_to_the_depth_limit(folders: AllowedFolders, folder: Path) -> None:
    write(nested(folder, 64) / "deep.md")
    assert await listed(folders, source(folder)) == ["d/" * 64 + "deep.md"]
    nested(folder, 65).mkdir()
    with pytest.raises(FolderRefused, match="64 levels"):
        await folders.files("tenant", source(folder))


async def test_deep_folders_need_few_file_descriptors(folders: AllowedFolders, folder: Path) -> None:
    write(nested(folder, 60) / "deep.md")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = {int(name) for name in os.listdir("/proc/self/fd")}  # noqa: PTH208 - descriptors, not files
    free = (descriptor for descriptor in itertools.count() if descriptor not in used)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next(itertools.islice(free, 12, None)), hard))
    try:
        assert len(await listed(folders, source(folder))) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_excluded_files_count_towards_the_limit(
    folders: AllowedFolders, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weftline.providers.local_folders.MAX_FOLDER_ENTRIES", 10)
    for number in range(10):
        write(folder / f"{number}.bin")
    assert await listed(folders, source(folder, include=("*.md",))) == []
    write(folder / ".hidden")
    with pytest.raises(FolderRefused, match="more than 10"):
        await folders.files("tenant", source(folder, include=("*.md",)))


async def test_excluded_folders_are_not_read(
    folders: AllowedFolders, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weftline.providers.local_folders.MAX_FOLDER_ENTRIES", 10)
    for number in range(20):
        write(folder / "node_modules" / f"{number}.md")
    write(folder / "own.md")
    assert await listed(folders, source(folder, exclude=("node_modules/*",))) == ["own.md"]


@pytest.mark.parametrize("swapped", ["docs", "docs/inner"])
async def test_a_folder_replaced_by_a_symlink_is_not_followed(
    tmp_path: Path, folders: AllowedFolders, folder: Path, swapped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "secret" / "inner" / "passwords.md", "secret")
    write(folder / "inner" / "passwords.md", "harmless")
    victim = source(folder / "inner")
    place = folders._place

    def place_and_swap(tenant: str, location: str) -> Any:
        found = place(tenant, location)
        path = folder.parent / swapped
        path.rename(tmp_path / "away")
        path.symlink_to(tmp_path / "secret" / ("inner" if swapped.endswith("inner") else ""))
        return found

    monkeypatch.setattr(folders, "_place", place_and_swap)
    with pytest.raises(OSError, match=r"symbolic links|directory"):
        await folders.files("tenant", victim)
    (folder.parent / swapped).unlink()
    (tmp_path / "away").rename(folder.parent / swapped)
    with pytest.raises(OSError, match=r"symbolic links|directory"):
        await folders.read("tenant", victim, "passwords.md", 100)


async def test_a_missing_folder_and_a_forbidden_one_have_different_errors(
    tmp_path: Path, folders: AllowedFolders, folder: Path
) -> None:
    folder.rename(folder.with_name("elsewhere"))  # noqa: ASYNC240 - takes no time
    with pytest.raises(FolderRefused, match="There is no folder") as gone:
        await folders.files("tenant", source(folder))
    assert "bring it back" in gone.value.hint
    with pytest.raises(FolderRefused, match="not a folder that Weftline may read") as foreign:
        await folders.check("tenant", str(tmp_path))
    assert "WEFTLINE_KNOWLEDGE_FOLDERS" in foreign.value.hint


async def test_paths_outside_allowed_folders_have_one_error_whether_they_exist_or_not(
    tmp_path: Path, folders: AllowedFolders, folder: Path
) -> None:
    (tmp_path / "secret" / "inner").mkdir(parents=True)
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "loop").symlink_to(folder / "loop")
    places = ["link/inner", "link/nothing", "../../secret/inner", "../../secret/nothing", "missing/../../../secret"]
    for place in places:
        with pytest.raises(FolderRefused, match="not a folder that Weftline may read"):
            await folders.check("tenant", f"{folder}/{place}")
    with pytest.raises(FolderRefused):
        await folders.check("tenant", f"{folder}/loop")
