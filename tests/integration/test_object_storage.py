"""Object storage: values are stored completely or not at all, despite crashes."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from support.jobs import sweep_objects
from support.world import World, outcome, refused
from weftline.app.diagnostics.checks import CheckStatus, check_objects
from weftline.app.objects import Objects
from weftline.history.object_storage import ObjectIndex, ObjectMissing, ObjectStorageUnavailable, Pointer, keep_staged
from weftline.providers.object_storage import Bucket, ObjectFolder, connect_objects
from weftline.settings import InvalidSetting, Settings
from weftline.storage.sql.database import AccessChanged, Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from weftline.kernel.transaction import Transaction

VALUE = b"a value too large for the database" * 1_000
OTHER = b"another" * 1_000


class Killed(BaseException):
    """The process was killed."""


class ObservedFolder:
    """An object folder that runs callbacks before and after each call."""

    def __init__(self, folder: ObjectFolder) -> None:
        self.folder = folder
        self.before: Callable[[str], Any] = lambda _: None
        self.after: Callable[[str], Any] = lambda _: None
        self.acts: list[str] = []
        self.deleted: list[str] = []

    async def put(self, path: str, content: bytes) -> str | None:
        return await self._act("put", self.folder.put(path, content))

    async def get(self, path: str, version: str | None, size: int) -> bytes:
        return await self._act("get", self.folder.get(path, version, size))

    async def delete(self, path: str) -> None:
        self.deleted.append(path)
        await self._act("delete", self.folder.delete(path))

    async def _act(self, name: str, work: Any) -> Any:
        self.acts.append(name)
        try:
            self.before(name)
        except BaseException:
            work.close()
            raise
        done = await work
        self.after(name)
        return done


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "objects"


@pytest.fixture
def store(folder: Path) -> ObservedFolder:
    return ObservedFolder(ObjectFolder(folder))


@pytest.fixture
def objects(world: World, store: ObservedFolder) -> Objects:
    return Objects(world.app.database, store, world.clock)


def pointer_in(world: World, content: bytes = VALUE, owner: str = "planner") -> Pointer:
    return Pointer.to(world.tenant, owner, content)


def raise_at(name: str, error: BaseException) -> Callable[[str], None]:
    def act(call: str) -> None:
        if call == name:
            raise error

    return act


def unreachable(_: str) -> None:
    raise ObjectStorageUnavailable


async def keep(world: World, *pointers: Pointer) -> None:
    """Commit references to staged values."""
    await world.app.database.write(Scope(world.tenant), lambda tx: keep_staged(pointers, ObjectIndex(tx)))


async def drop(world: World, *pointers: Pointer) -> None:
    async def each(transaction: Transaction) -> None:
        for pointer in pointers:
            await ObjectIndex(transaction).doom(pointer.object)

    await world.app.database.write(Scope(world.tenant), each)


async def drop_after_grace_period(world: World, objects: Objects, *pointers: Pointer) -> None:
    """Drop values and let their grace period pass."""
    await drop(world, *pointers)
    await sweep_objects(objects)
    world.clock.advance(minutes=5)


async def stage_and_keep(world: World, objects: Objects, *contents: bytes) -> list[Pointer]:
    await objects.stage(world.tenant, "planner", contents)
    pointers = [pointer_in(world, content) for content in contents]
    await keep(world, *pointers)
    return pointers


async def states(world: World) -> dict[str, str]:
    return dict(await world.rows("SELECT path, state FROM objects WHERE tenant = $1", world.tenant))


def files(folder: Path) -> set[str]:
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}


async def check_consistent(world: World, folder: Path, kept: Iterable[Pointer] = ()) -> None:
    """Check that index and folder contain exactly the kept objects."""
    paths = {pointer.object for pointer in kept}
    assert await states(world) == dict.fromkeys(paths, "kept")
    assert files(folder) == paths


@pytest.mark.req("CE-F4")
@pytest.mark.req("CE-F2")
async def test_a_kept_value_is_read_back_unchanged(world: World, objects: Objects, folder: Path) -> None:
    kept = await stage_and_keep(world, objects, VALUE, b"", bytes(range(256)))
    assert [await objects.fetch(world.tenant, pointer) for pointer in kept] == [VALUE, b"", bytes(range(256))]
    await check_consistent(world, folder, kept)


@pytest.mark.req("CE-F2")
async def test_paths_are_tenant_agent_and_digest(world: World, objects: Objects, folder: Path) -> None:
    await objects.stage(world.tenant, "planner", [VALUE])
    await objects.stage(world.tenant, "analysis", [VALUE])
    await objects.stage(world.other_tenant, "planner", [VALUE])
    name = hashlib.sha256(VALUE).hexdigest()
    assert files(folder) == {
        f"{world.tenant}/planner/{name}",
        f"{world.tenant}/analysis/{name}",
        f"{world.other_tenant}/planner/{name}",
    }


async def test_the_same_value_is_uploaded_once(world: World, objects: Objects, store: ObservedFolder) -> None:
    await stage_and_keep(world, objects, VALUE, VALUE)
    await stage_and_keep(world, objects, VALUE, OTHER)
    assert store.acts.count("put") == 2


@pytest.mark.req("CE-F4")
@pytest.mark.parametrize("damage", [b"X" + VALUE[1:], VALUE[:-1], b"", None])
async def test_a_damaged_value_is_repaired_by_storing_it_again(
    world: World, objects: Objects, store: ObservedFolder, folder: Path, damage: bytes | None
) -> None:
    [pointer] = await stage_and_keep(world, objects, VALUE)
    stored = folder / pointer.object
    stored.unlink()
    if damage is not None:
        stored.write_bytes(damage)
    await stage_and_keep(world, objects, VALUE)
    assert await objects.fetch(world.tenant, pointer) == VALUE
    assert store.acts.count("put") == 2
    await check_consistent(world, folder, [pointer])


async def test_the_index_names_the_version_that_repaired_a_value(world: World, store: ObservedFolder) -> None:
    class Versioned(ObservedFolder):
        async def put(self, path: str, content: bytes) -> str | None:
            await super().put(path, content)
            return f"v{self.acts.count('put')}"

        async def get(self, path: str, version: str | None, size: int) -> bytes:
            if version == "v1":
                raise ObjectMissing
            return await super().get(path, version, size)

    objects = Objects(world.app.database, Versioned(store.folder), world.clock)
    [pointer] = await stage_and_keep(world, objects, VALUE)
    with refused("OBJECT_MISSING"):
        await objects.fetch(world.tenant, pointer)
    await stage_and_keep(world, objects, VALUE)
    assert await objects.fetch(world.tenant, pointer) == VALUE
    rows = await world.rows("SELECT state, version FROM objects WHERE tenant = $1", world.tenant)
    assert [tuple(row) for row in rows] == [("kept", "v2")]


async def test_uploads_run_with_bounded_concurrency(world: World, objects: Objects, store: ObservedFolder) -> None:
    under_way, most = 0, 0

    def begin(_: str) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)

    def end(_: str) -> None:
        nonlocal under_way
        under_way -= 1

    store.before, store.after = begin, end
    await stage_and_keep(world, objects, *(f"{number}".encode() for number in range(20)))
    assert (len(store.acts), most) == (20, 4)


async def test_staging_nothing_does_nothing(world: World, objects: Objects, store: ObservedFolder) -> None:
    await objects.stage(world.tenant, "planner", [])
    assert (store.acts, await states(world)) == ([], {})


def test_a_pointer_is_deterministic_and_round_trips() -> None:
    pointer = Pointer.to("acme", "planner", VALUE)
    assert pointer.encode() == Pointer.to("acme", "planner", bytes(VALUE)).encode()
    assert Pointer.decode(pointer.encode()) == pointer
    assert Pointer.to("acme", "review", VALUE).encode() != pointer.encode()


@pytest.mark.parametrize(
    ("tenant", "owner"), [("..", "a"), ("a", ".."), ("a/b", "c"), ("", "c"), ("a", ""), ("a", "é")]
)
def test_a_pointer_refuses_invalid_names(tenant: str, owner: str) -> None:
    with pytest.raises(ValueError, match="names"):
        Pointer.to(tenant, owner, VALUE)


@pytest.mark.parametrize(
    "change",
    [
        ("planner/", "../planner/"),
        ("planner/", "../"),
        ("acme/planner", "acme"),
        ("acme/", "/"),
        ("acme/", "../"),
        ('"size":', '"size":-'),
        ('"size":', '"more":1,"size":'),
        ("{", ""),
    ],
)
def test_a_pointer_to_another_path_is_refused(change: tuple[str, str]) -> None:
    with refused("OBJECT_DAMAGED"):
        Pointer.decode(Pointer.to("acme", "planner", VALUE).encode().replace(*change))


@pytest.mark.req("CE-F2")
async def test_a_tenant_cannot_reach_anothers_value_by_its_pointer(world: World, objects: Objects) -> None:
    [pointer] = await stage_and_keep(world, objects, VALUE)
    with refused("OBJECT_MISSING"):
        await objects.fetch(world.other_tenant, pointer)
    for forged in (
        pointer.object.replace(world.tenant, world.other_tenant),
        f"{world.other_tenant}/../{pointer.object}",
    ):
        with refused("OBJECT_MISSING"):
            await objects.fetch(world.other_tenant, Pointer(forged, pointer.sha256, pointer.size))


@pytest.mark.req("CE-F4")
@pytest.mark.parametrize("damage", [b"X" + VALUE[1:], VALUE[:-1], VALUE + b"X", b""])
async def test_damaged_bytes_are_never_returned(world: World, objects: Objects, folder: Path, damage: bytes) -> None:
    [pointer] = await stage_and_keep(world, objects, VALUE)
    (folder / pointer.object).write_bytes(damage)
    with refused("OBJECT_DAMAGED"):
        await objects.fetch(world.tenant, pointer)


async def test_an_absent_value_is_missing(world: World, objects: Objects, folder: Path) -> None:
    with refused("OBJECT_MISSING"):
        await objects.fetch(world.tenant, pointer_in(world))
    [pointer] = await stage_and_keep(world, objects, VALUE)
    (folder / pointer.object).unlink()
    with refused("OBJECT_MISSING"):
        await objects.fetch(world.tenant, pointer)


@pytest.mark.req("CE-F4")
async def test_values_not_uploaded_cannot_be_kept(world: World, objects: Objects, store: ObservedFolder) -> None:
    with refused("OBJECT_MISSING"):
        await keep(world, pointer_in(world))
    store.before = unreachable
    with refused("OBJECT_STORAGE_UNAVAILABLE"):
        await objects.stage(world.tenant, "planner", [VALUE])
    with refused("OBJECT_BUSY"):
        await keep(world, pointer_in(world))
    assert set((await states(world)).values()) == {"pending"}


async def test_one_failure_among_many_uploads_is_reported(
    world: World, objects: Objects, store: ObservedFolder
) -> None:
    def fail_at_the_third(_: str) -> None:
        if len(store.acts) == 3:
            raise ObjectStorageUnavailable

    store.before = fail_at_the_third
    contents = [f"{number}".encode() for number in range(20)]
    with refused("OBJECT_STORAGE_UNAVAILABLE"):
        await objects.stage(world.tenant, "planner", contents)
    await stage_and_keep(world, objects, *contents)


async def test_staging_needs_access(world: World, objects: Objects, store: ObservedFolder) -> None:
    with pytest.raises(AccessChanged):
        await objects.stage(world.tenant, "planner", [VALUE], epoch=(await world.epoch() or 0) + 1)
    assert store.acts == []


@pytest.mark.req("CE-F4")
@pytest.mark.parametrize("callback", ["before", "after"])
async def test_a_process_killed_during_its_upload_leaves_no_objects(
    world: World, objects: Objects, store: ObservedFolder, folder: Path, callback: str
) -> None:
    setattr(store, callback, raise_at("put", Killed()))
    with pytest.raises(Killed):
        await objects.stage(world.tenant, "planner", [VALUE])
    assert await states(world) == {pointer_in(world).object: "pending"}
    successor = Objects(world.app.database, ObjectFolder(folder), world.clock)
    assert await sweep_objects(successor) == 0
    world.clock.advance(hours=1)
    assert await sweep_objects(successor) == 1
    await check_consistent(world, folder)


@pytest.mark.req("CE-F4")
async def test_a_process_killed_between_upload_and_commit_leaves_no_objects(
    world: World, objects: Objects, folder: Path
) -> None:
    await objects.stage(world.tenant, "planner", [VALUE, OTHER])
    await keep(world, pointer_in(world, OTHER))
    world.clock.advance(hours=1)
    successor = Objects(world.app.database, ObjectFolder(folder), world.clock)
    assert await sweep_objects(successor) == 1
    await check_consistent(world, folder, [pointer_in(world, OTHER)])
    with refused("OBJECT_MISSING"):
        await keep(world, pointer_in(world))


@pytest.mark.req("CE-F4")
@pytest.mark.parametrize("callback", ["before", "after"])
async def test_a_deletion_interrupted_by_a_kill_is_completed_later(
    world: World, objects: Objects, store: ObservedFolder, folder: Path, callback: str
) -> None:
    [dropped, other] = await stage_and_keep(world, objects, VALUE, OTHER)
    await drop_after_grace_period(world, objects, dropped)
    setattr(store, callback, raise_at("delete", Killed()))
    with pytest.raises(Killed):
        await sweep_objects(objects)
    assert (await states(world))[dropped.object] == "deleting"
    successor = Objects(world.app.database, ObjectFolder(folder), world.clock)
    assert await sweep_objects(successor) == 0
    world.clock.advance(minutes=5)
    assert await sweep_objects(successor) == 1
    await check_consistent(world, folder, [other])


@pytest.mark.req("CE-F4")
async def test_an_interrupted_upload_can_be_repeated(
    world: World, objects: Objects, store: ObservedFolder, folder: Path
) -> None:
    store.after = raise_at("put", Killed())
    with pytest.raises(Killed):
        await objects.stage(world.tenant, "planner", [VALUE])
    store.after = lambda _: None
    kept = await stage_and_keep(world, objects, VALUE)
    await check_consistent(world, folder, kept)


async def test_a_dropped_value_stays_readable_for_a_grace_period(world: World, objects: Objects) -> None:
    [pointer] = await stage_and_keep(world, objects, VALUE)
    await drop(world, pointer)
    assert await sweep_objects(objects) == 0
    assert await objects.fetch(world.tenant, pointer) == VALUE
    world.clock.advance(minutes=5)
    assert await sweep_objects(objects) == 1
    with refused("OBJECT_MISSING"):
        await objects.fetch(world.tenant, pointer)


async def test_a_dropped_value_staged_again_is_uploaded_and_kept(
    world: World, objects: Objects, store: ObservedFolder, folder: Path
) -> None:
    [pointer] = await stage_and_keep(world, objects, VALUE)
    await drop(world, pointer)
    with refused("OBJECT_BUSY"):
        await keep(world, pointer)
    kept = await stage_and_keep(world, objects, VALUE)
    world.clock.advance(hours=2)
    assert await sweep_objects(objects) == 0
    assert store.acts.count("put") == 2
    await check_consistent(world, folder, kept)


async def test_staging_waits_for_a_deletion_in_progress(
    world: World, objects: Objects, store: ObservedFolder, folder: Path
) -> None:
    [pointer] = await stage_and_keep(world, objects, VALUE)
    await drop_after_grace_period(world, objects, pointer)
    staging: list[asyncio.Task[None]] = []

    def stage_too(name: str) -> None:
        if name == "delete":
            staging.append(asyncio.create_task(objects.stage(world.tenant, "planner", [VALUE])))

    store.before = stage_too
    assert await sweep_objects(objects) == 1
    await staging[0]
    await keep(world, pointer)
    await check_consistent(world, folder, [pointer])


async def test_a_deletion_that_does_not_finish_is_a_conflict(
    world: World, objects: Objects, store: ObservedFolder, folder: Path
) -> None:
    [pointer] = await stage_and_keep(world, objects, VALUE)
    await drop_after_grace_period(world, objects, pointer)
    store.before = unreachable
    assert await sweep_objects(objects) == 0
    store.before = lambda _: None
    with refused("OBJECT_BUSY"):
        await objects.stage(world.tenant, "planner", [VALUE])
    world.clock.advance(minutes=5)
    assert await sweep_objects(objects) == 1
    kept = await stage_and_keep(world, objects, VALUE)
    await check_consistent(world, folder, kept)


@pytest.mark.req("CE-F4")
async def test_an_upload_deleted_concurrently_is_repeated(
    world: World, objects: Objects, store: ObservedFolder, folder: Path
) -> None:
    """Another process stores, drops and sweeps the value while this one uploads it."""
    pointer = pointer_in(world)

    async def other_process_stores_and_sweeps() -> None:
        other = Objects(world.app.database, ObjectFolder(folder), world.clock)
        await stage_and_keep(world, other, VALUE)
        await drop_after_grace_period(world, other, pointer)
        assert await sweep_objects(other) == 1

    class Slow(ObservedFolder):
        async def put(self, path: str, content: bytes) -> str | None:
            if not self.acts:
                await super().put(path, content)
                await other_process_stores_and_sweeps()
                return None
            return await super().put(path, content)

    slow = Slow(store.folder)
    await stage_and_keep(world, Objects(world.app.database, slow, world.clock), VALUE)
    assert slow.acts == ["put", "put"]
    await check_consistent(world, folder, [pointer])


async def test_an_expired_deletion_claim_deletes_nothing(
    world: World, objects: Objects, store: ObservedFolder, folder: Path
) -> None:
    kept = await stage_and_keep(world, objects, *(f"{number}".encode() for number in range(9)))
    await drop_after_grace_period(world, objects, *kept)
    store.after = lambda _: world.clock.advance(minutes=3)
    assert 1 <= await sweep_objects(objects) <= 4
    assert len(files(folder)) >= 5


async def test_concurrent_sweeps_delete_each_object_once(
    world: World, objects: Objects, store: ObservedFolder, folder: Path
) -> None:
    kept = await stage_and_keep(world, objects, *(f"{number}".encode() for number in range(12)))
    await drop_after_grace_period(world, objects, *kept[:10])
    app = await world.another_app()
    other_store = ObservedFolder(ObjectFolder(folder))
    await asyncio.gather(sweep_objects(objects), sweep_objects(Objects(app.database, other_store, world.clock)))
    deleted = [path for path in store.deleted + other_store.deleted if path.startswith(world.tenant)]
    assert sorted(deleted) == sorted(pointer.object for pointer in kept[:10])
    await check_consistent(world, folder, kept[10:])


async def test_concurrent_stage_keep_and_drop_lose_no_value(world: World, folder: Path) -> None:
    contents = [f"{number}".encode() for number in range(3)]
    apps = [world.app, await world.another_app()]
    services = [Objects(app.database, ObjectFolder(folder), world.clock) for app in apps]

    async def work(objects: Objects, number: int) -> None:
        for content in contents[number % 3 :] + contents[: number % 3]:
            await outcome(stage_and_keep(world, objects, content))
            if number % 2:
                await drop(world, pointer_in(world, content))
                world.clock.advance(minutes=2)
            await sweep_objects(objects)

    await asyncio.gather(*(work(services[number % 2], number) for number in range(8)))
    kept = await asyncio.gather(*(stage_and_keep(world, services[0], content) for content in contents))
    world.clock.advance(hours=2)
    await sweep_objects(services[0])
    assert [await services[1].fetch(world.tenant, pointer) for [pointer] in kept] == contents
    await check_consistent(world, folder, [pointer for [pointer] in kept])


async def test_every_tenant_is_swept(world: World, objects: Objects, folder: Path) -> None:
    await objects.stage(world.tenant, "planner", [VALUE])
    await objects.stage(world.other_tenant, "planner", [VALUE])
    world.clock.advance(hours=1)
    assert await sweep_objects(objects) == 2
    assert files(folder) == set()


@pytest.mark.req("CE-F4")
async def test_a_value_is_synced_to_disk_before_it_counts_as_stored(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced: list[int] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        fsync(descriptor)
        forced.append(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", note)
    path = Pointer.to("acme", "planner", VALUE).object
    await ObjectFolder(folder).put(path, VALUE)
    made = [folder.parent.parent, folder.parent, folder, folder / "acme"]
    assert {each.stat().st_ino for each in made} <= set(forced)
    assert forced[-2:] == [(folder / path).stat().st_ino, (folder / path).parent.stat().st_ino]


async def test_the_folder_is_private(folder: Path) -> None:
    path = Pointer.to("acme", "planner", VALUE).object
    await ObjectFolder(folder).put(path, VALUE)
    for place in (folder, folder / "acme", folder / "acme" / "planner", folder / path):
        assert place.stat().st_mode & 0o077 == 0


async def test_names_that_differ_by_case_have_separate_files(folder: Path) -> None:
    store = ObjectFolder(folder)
    for owner in ("Planner", "planner", "PLANNER"):
        await store.put(Pointer.to("acme", owner, VALUE).object, VALUE)
    assert len({file.lower() for file in files(folder)}) == 3


async def test_a_full_disk_is_reported_and_leaves_no_partial_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ObjectFolder(folder)
    path = Pointer.to("acme", "planner", VALUE).object

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, refused("DISK_FULL"):
        await store.put(path, OTHER)
        patch.setattr(os, "fsync", full)
        await store.put(path, VALUE)
    assert await store.get(path, None, len(OTHER)) == OTHER
    assert files(folder) == {path}


async def test_partial_files_of_a_killed_process_are_deleted(folder: Path) -> None:
    store = ObjectFolder(folder)
    path = Pointer.to("acme", "planner", VALUE).object
    await store.put(path, OTHER)
    for name, age in (("old", 4_000), ("new", 0)):
        part = folder / ".incoming" / name
        part.write_bytes(b"half")
        os.utime(part, (part.stat().st_mtime - age,) * 2)
    await store.put(path, VALUE)
    assert files(folder) == {path, ".incoming/new"}


async def test_an_unusable_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "objects").write_text("a file")
    store = ObjectFolder(tmp_path / "objects")
    path = Pointer.to("acme", "planner", VALUE).object
    for work in (store.put(path, VALUE), store.get(path, None, 1), store.delete(path)):
        with refused("OBJECT_STORAGE_UNAVAILABLE"):
            await work


def test_settings_select_a_folder_or_a_bucket(tmp_path: Path) -> None:
    assert isinstance(connect_objects(Settings(data_dir=str(tmp_path))), ObjectFolder)
    assert isinstance(connect_objects(Settings(object_store_url="s3://bucket/some/prefix")), Bucket)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("URL", {"object_store_url": "gs://bucket"}),
        ("URL", {"object_store_url": "s3://"}),
        ("VERSIONING", {"object_store_versioning": "required"}),
        ("VERSIONING", {"object_store_url": "s3://bucket", "object_store_versioning": "maybe"}),
        ("TIMEOUT_SECONDS", {"object_store_url": "s3://bucket", "object_store_timeout_seconds": 0}),
        ("TIMEOUT_SECONDS", {"object_store_url": "s3://bucket", "object_store_timeout_seconds": 121}),
    ],
)
def test_invalid_settings_are_refused_by_name(name: str, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting, match=f"WEFTLINE_OBJECT_STORE_{name}"):
        connect_objects(Settings(**settings))


def test_obstore_is_loaded_only_when_a_bucket_is_used() -> None:
    program = (
        "import sys, weftline.app.objects, weftline.app.diagnostics.checks; from weftline.settings import Settings\n"
        "from weftline.providers.object_storage import connect_objects\n"
        "connect_objects(Settings(object_store_url='s3://bucket')); print('obstore' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "False"


async def test_the_doctor_checks_an_existing_folder(tmp_path: Path) -> None:
    settings = Settings(data_dir=str(tmp_path))
    finding = await check_objects(settings)
    assert (finding.state, files(tmp_path), settings.object_store_folder.exists()) == (CheckStatus.OK, set(), False)
    settings.object_store_folder.mkdir()
    assert (await check_objects(settings)).state is CheckStatus.OK
    assert files(tmp_path) == set()
    settings.object_store_folder.joinpath("_doctor").rmdir()
    settings.object_store_folder.joinpath("_doctor").write_text("in the way")
    finding = await check_objects(settings)
    assert (finding.state, "weftline doctor" in finding.next_step) == (CheckStatus.PROBLEM, True)
