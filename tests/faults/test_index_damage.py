"""Damaged index files are detected, reported, bypassed and rebuilt."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import zlib
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

import pytest

from support.collection_replicas import (
    ANN,
    COLLECTION,
    MODEL,
    CollectionWriter,
    files_in,
    open_indexes,
    wait_for_writes,
)
from weftline.app.diagnostics.checks import CheckStatus, check_index
from weftline.app.search.replica import DamageAlarm
from weftline.search.model import CollectionQuery
from weftline.search_index.segment_file import FORMAT, Damaged, Stamp, open_segment
from weftline.search_index.segment_store import SegmentStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from support.world import World

pytestmark = [pytest.mark.both_databases, pytest.mark.req("CE-E", part="index corruption")]


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weftline.app.search.replica._FLUSH_ROWS", 30)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "index"


@pytest.fixture
async def collection(world: World, folder: Path) -> AsyncIterator[CollectionWriter]:
    """Return a collection with one segment on disk."""
    alarm = DamageAlarm(world.app.database, world.clock, world.app.metrics)
    async with open_indexes(world, folder, alarm) as indexes:
        collection = CollectionWriter(world, indexes)
        await collection.add(80)
        await collection.check()
        await wait_for_writes(indexes)
        yield collection


async def alerts(world: World) -> list[str]:
    events = (await world.admin.events())["events"]
    return [event["subject"] for event in events if event["type"] == "index.damaged"]


def names(view: Any) -> list[str]:
    return [file.name for file in view._snapshot.files]


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0x10
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip_the_middle(path: Path) -> None:
    flip(path, path.stat().st_size // 2)


def downgrade_format(path: Path) -> None:
    """Rewrite a file with an older format version and valid checksums."""
    content = path.read_bytes()
    written, older = (b'{"format":%d' % number for number in (FORMAT, FORMAT - 1))
    start = content.index(written)
    contents = content[start:-20].replace(written, older)
    path.write_bytes(content[:start] + contents + len(contents).to_bytes(8, "little"))
    with path.open("ab") as file:
        file.write(zlib.crc32(contents).to_bytes(4, "little") + b"WEFTLINE")


DAMAGES = (truncate, empty, flip_the_middle, downgrade_format, lambda path: path.unlink())


@pytest.mark.req("CE-F52")
@pytest.mark.req("CE-L2")
@pytest.mark.parametrize("damage", DAMAGES, ids=["truncated", "empty", "flipped", "older", "missing"])
async def test_damage_at_rest_is_detected_reported_and_repaired(
    world: World,
    collection: CollectionWriter,
    folder: Path,
    damage: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    (file,) = files_in(folder)
    damage(file)
    alarm = DamageAlarm(world.app.database, world.clock, world.app.metrics)
    async with open_indexes(world, folder, alarm) as collection.indexes:
        with caplog.at_level(logging.ERROR, "weftline.search_index"):
            await collection.check()
        assert [record.message for record in caplog.records if record.name == "weftline.search_index"] == [
            "index damaged"
        ]
        assert await alerts(world) == [COLLECTION]
        opened = (await world.admin.call("alerts.list"))["alerts"]
        assert [(each["condition"], "on the disk" in each["message"]) for each in opened] == [("index.damaged", True)]
        assert b"weftline_damaged_indexes_total 1.0" in world.app.metrics.exposition()
        await wait_for_writes(collection.indexes)
        (rebuilt,) = files_in(folder)
        assert rebuilt.name != file.name
    async with open_indexes(world, folder, alarm) as collection.indexes:
        view = await collection.check()
        assert names(view) == [rebuilt.name]
        assert await alerts(world) == [COLLECTION]


@pytest.mark.parametrize("damage", DAMAGES[2:], ids=["flipped", "older", "missing"])
async def test_damage_after_opening_is_detected_by_the_next_search(
    world: World, collection: CollectionWriter, folder: Path, damage: Callable[[Path], None]
) -> None:
    (file,) = files_in(folder)
    copy = file.with_suffix(".copy")
    shutil.copy(file, copy)
    if damage is not DAMAGES[4]:
        damage(copy)
    # Replace the file without changing the pages that are mapped.
    file.unlink()
    if damage is not DAMAGES[4]:
        copy.rename(file)
    await collection.check()
    assert await alerts(world) == [COLLECTION]
    await wait_for_writes(collection.indexes)
    await collection.check()
    assert await alerts(world) == [COLLECTION]


async def test_a_file_truncated_while_mapped_is_not_read(
    world: World, collection: CollectionWriter, folder: Path
) -> None:
    # Reading beyond the end of a mapped file kills the process.
    truncate(files_in(folder)[0])
    await collection.check()
    assert await alerts(world) == [COLLECTION]


async def test_a_file_with_a_new_mtime_only_is_kept(world: World, collection: CollectionWriter, folder: Path) -> None:
    (file,) = files_in(folder)
    file.touch()
    view = await collection.check()
    assert names(view) == [file.name]
    assert await alerts(world) == []


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_any_flipped_byte_or_truncation_is_detected(collection: CollectionWriter, folder: Path) -> None:
    (file,) = files_in(folder)
    sound = file.read_bytes()
    for place in (*range(0, len(sound), 97), len(sound) - 1):
        flip(file, place)
        with pytest.raises(Damaged):
            await asyncio.to_thread(open_segment, file)
        file.write_bytes(sound)
    for size in (*range(0, len(sound), 997), len(sound) - 1):
        file.write_bytes(sound[:size])
        with pytest.raises(Damaged):
            open_segment(file)
    file.write_bytes(sound)
    assert open_segment(file).segment.size == len(collection.plain.chunks)


@pytest.mark.parametrize(
    "content", [b"", b"00000000\n{}", b"nonsense", None], ids=["empty", "wrong checksum", "nonsense", "missing"]
)
async def test_a_damaged_manifest_is_rebuilt(
    world: World, collection: CollectionWriter, folder: Path, content: bytes | None
) -> None:
    manifest = files_in(folder)[0].with_name("list")
    if content is None:
        manifest.unlink()
    else:
        manifest.write_bytes(content)
    alarm = DamageAlarm(world.app.database, world.clock, world.app.metrics)
    async with open_indexes(world, folder, alarm) as collection.indexes:
        await collection.check()
        await wait_for_writes(collection.indexes)
        assert len(files_in(folder)) == 1
    # A missing manifest is not damage.
    assert await alerts(world) == ([] if content is None else [COLLECTION])


async def test_a_deleted_index_folder_is_rebuilt(world: World, collection: CollectionWriter, folder: Path) -> None:
    shutil.rmtree(folder)
    await collection.check()
    await collection.add(40)
    await collection.check()
    await wait_for_writes(collection.indexes)
    await collection.check()
    assert files_in(folder)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_doctor_reports_damaged_files(world: World, collection: CollectionWriter, folder: Path) -> None:
    assert check_index(folder) == []
    flip_the_middle(files_in(folder)[0])
    async with open_indexes(world, folder) as collection.indexes:
        await collection.check()
    (finding,) = check_index(folder)
    assert (finding.state, "1 damaged" in finding.detail) == (CheckStatus.WARNING, True)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_full_disk_does_not_change_search_results(
    world: World, collection: CollectionWriter, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("weftline.app.search.replica._RETRY_SECONDS", 0.0)
    monkeypatch.setattr("weftline.search_index.segment_store.write_segment", fail)
    await collection.add(60)
    await collection.check()
    await wait_for_writes(collection.indexes)
    await collection.check()
    await wait_for_writes(collection.indexes)
    monkeypatch.undo()
    monkeypatch.setattr("weftline.app.search.replica._FLUSH_ROWS", 30)
    await collection.check()
    await wait_for_writes(collection.indexes)
    view = await collection.check()
    assert view._snapshot.in_memory == 0


async def test_only_admins_receive_the_alert(world: World, collection: CollectionWriter, folder: Path) -> None:
    flip_the_middle(files_in(folder)[0])
    await collection.check()
    events: list[Any] = (await world.planner.events())["events"]
    assert "index.damaged" not in json.dumps(events)


@pytest.mark.parametrize("content", [b"nonsense", b"%08x\n[1]" % zlib.crc32(b"[1]")], ids=["nonsense", "another shape"])
async def test_a_manifest_damaged_after_opening_is_detected_by_the_next_search(
    world: World, collection: CollectionWriter, folder: Path, content: bytes
) -> None:
    files_in(folder)[0].with_name("list").write_bytes(content)
    await collection.check()
    assert await alerts(world) == [COLLECTION]
    await wait_for_writes(collection.indexes)
    async with open_indexes(world, folder) as collection.indexes:
        view = await collection.check()
        assert view._snapshot.files
    assert await alerts(world) == [COLLECTION]


async def test_a_manifest_damaged_during_a_flush_is_detected(
    world: World, collection: CollectionWriter, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = files_in(folder)[0].with_name("list")
    build = SegmentStore.build

    def damage_and_build(self: SegmentStore, *args: Any) -> Any:
        manifest.write_bytes(b"nonsense")
        return build(self, *args)

    monkeypatch.setattr(SegmentStore, "build", damage_and_build)
    await collection.add(60)
    await collection.check()
    await wait_for_writes(collection.indexes)
    assert await alerts(world) == [COLLECTION]
    monkeypatch.setattr(SegmentStore, "build", build)
    await collection.check()
    await wait_for_writes(collection.indexes)
    assert (await collection.check())._snapshot.in_memory == 0
    assert await alerts(world) == [COLLECTION]


async def test_a_changed_byte_is_detected_despite_an_unchanged_mtime(
    world: World, collection: CollectionWriter, folder: Path
) -> None:
    (file,) = files_in(folder)
    before = file.stat()
    with file.open("r+b") as content:
        content.seek(before.st_size // 2)
        byte = content.read(1)
        content.seek(before.st_size // 2)
        content.write(bytes([byte[0] ^ 1]))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    await collection.check()
    assert await alerts(world) == [COLLECTION]


async def test_silent_damage_is_found_by_the_scheduled_check(
    world: World, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file's metadata is unchanged, as after bit rot."""
    monkeypatch.setattr(
        "weftline.search_index.segment_file._stamp", lambda status: Stamp(status.st_ino, status.st_size, 0, 0)
    )
    monkeypatch.setattr("weftline.search_index.segment_file._BLOCK_BYTES", 512)
    monkeypatch.setattr("weftline.search_index.segment_file._VERIFY_BATCH_SIZE", 3)
    monkeypatch.setattr("weftline.app.search.replica._VERIFY_SECONDS", 0.0)
    alarm = DamageAlarm(world.app.database, world.clock, world.app.metrics)
    async with open_indexes(world, folder, alarm) as indexes:
        collection = CollectionWriter(world, indexes)
        await collection.add(80)
        await collection.check()
        await wait_for_writes(indexes)
        (file,) = files_in(folder)
        for _ in range(file.stat().st_size // 512):
            await collection.check()
            await wait_for_writes(indexes)
        assert await alerts(world) == []
        with file.open("r+b") as content:
            content.seek(1_500)
            content.write(b"other")
        searches = 0
        while not await alerts(world):
            searches += 1
            assert searches < file.stat().st_size // 512
            await indexes.open(world.tenant, CollectionQuery(COLLECTION), ANN, MODEL)
            await wait_for_writes(indexes)
        await collection.check()
        await wait_for_writes(indexes)
        assert (await collection.check())._snapshot.in_memory == 0
        assert await alerts(world) == [COLLECTION]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_file_deleted_by_another_process_is_not_damage(collection: CollectionWriter, folder: Path) -> None:
    (path,) = files_in(folder)
    file = open_segment(path).file
    file.verify_some()
    path.unlink()
    file.verify_some()
    assert file.rounds == 1


@pytest.mark.parametrize("is_lagging", [True, False], ids=["lagging", "current"])
async def test_a_truncated_file_is_never_served(
    world: World,
    collection: CollectionWriter,
    folder: Path,
    is_lagging: bool,  # noqa: FBT001 - a parameter of the test
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reading beyond the end of a mapped file kills the process."""
    monkeypatch.setattr("weftline.search_index.segment_file._MIN_MAPPED_BYTES", 0)
    async with open_indexes(world, folder) as indexes:
        view = await indexes.open(world.tenant, CollectionQuery(COLLECTION), ANN, MODEL)
        assert view.size
        (replica,) = indexes._replicas.values()
        if is_lagging:
            replica._is_lagging = True
            await replica._lock.acquire()
            truncate(files_in(folder)[0])
        else:
            monkeypatch.setattr(replica, "_check", AsyncMock(side_effect=lambda: truncate(files_in(folder)[0])))
        view = await indexes.open(world.tenant, CollectionQuery(COLLECTION), ANN, MODEL)
        assert (view.size, view.lag) == (0, replica.goal)
        if is_lagging:
            replica._lock.release()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_small_file_stays_readable_after_truncation(collection: CollectionWriter, folder: Path) -> None:
    (file,) = files_in(folder)
    opened_file = open_segment(file)
    file.write_bytes(b"")
    assert opened_file.file.is_whole()
    assert opened_file.segment.vectors.halves.astype(float).sum() != 0
    assert opened_file.segment.columns.number.tolist() == sorted(collection.plain.chunks)
