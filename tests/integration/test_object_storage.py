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
from weft.app.diagnostics.checks import CheckStatus, check_objects
from weft.app.objects import Objects
from weft.capabilities.object_storage.model import ObjectMissing, ObjectStorageUnavailable, Pointer
from weft.capabilities.object_storage.store import keep_staged
from weft.providers.object_storage import Bucket, ObjectFolder, connect_objects
from weft.settings import InvalidSetting, Settings
from weft.storage.sql.database import AccessChanged, Scope
from weft.storage.sql.object_storage import SqlObjectIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from weft.storage.sql.database import Transaction

VALUE = b"a value too large for the database" * 1_000
OTHER = b"another" * 1_000


class Killed(BaseException):
    """The process ends here."""


class Stumbling:
    """A folder before or behind whose every act something may happen."""

    def __init__(self, folder: ObjectFolder) -> None:
        self.folder = folder
        self.before: Callable[[str], Any] = lambda _: None
        self.behind: Callable[[str], Any] = lambda _: None
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
        self.behind(name)
        return done


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "objects"


@pytest.fixture
def store(folder: Path) -> Stumbling:
    return Stumbling(ObjectFolder(folder))


@pytest.fixture
def objects(world: World, store: Stumbling) -> Objects:
    return Objects(world.app.database, store, world.clock)


def pointer_in(world: World, content: bytes = VALUE, owner: str = "planner") -> Pointer:
    return Pointer.to(world.tenant, owner, content)


def end_at(name: str, error: BaseException) -> Callable[[str], None]:
    def act(happening: str) -> None:
        if happening == name:
            raise error

    return act


def unreachable(_: str) -> None:
    raise ObjectStorageUnavailable


async def keep(world: World, *pointers: Pointer) -> None:
    """Do what the transaction does that refers to staged values."""
    await world.app.database.write(Scope(world.tenant), lambda tx: keep_staged(pointers, SqlObjectIndex(tx)))


async def doom(world: World, *pointers: Pointer) -> None:
    async def each(transaction: Transaction) -> None:
        for pointer in pointers:
            await SqlObjectIndex(transaction).doom(pointer.object)

    await world.app.database.write(Scope(world.tenant), each)


async def doom_long_ago(world: World, objects: Objects, *pointers: Pointer) -> None:
    """Drop values, and let the time pass in which they can still be read."""
    await doom(world, *pointers)
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


async def check_nothing_is_amiss(world: World, folder: Path, kept: Iterable[Pointer] = ()) -> None:
    """Check that the index and the folder hold the same, and nothing but what is to be kept."""
    paths = {pointer.object for pointer in kept}
    assert await states(world) == dict.fromkeys(paths, "kept")
    assert files(folder) == paths


@pytest.mark.req("CE-F4")
@pytest.mark.req("CE-F2")
async def test_what_is_staged_and_kept_comes_back_byte_for_byte(world: World, objects: Objects, folder: Path) -> None:
    kept = await stage_and_keep(world, objects, VALUE, b"", bytes(range(256)))
    assert [await objects.fetch(world.tenant, pointer) for pointer in kept] == [VALUE, b"", bytes(range(256))]
    await check_nothing_is_amiss(world, folder, kept)


@pytest.mark.req("CE-F2")
async def test_every_tenant_and_every_agent_has_a_folder_and_content_its_name(
    world: World, objects: Objects, folder: Path
) -> None:
    await objects.stage(world.tenant, "planner", [VALUE])
    await objects.stage(world.tenant, "analysis", [VALUE])
    await objects.stage(world.other_tenant, "planner", [VALUE])
    name = hashlib.sha256(VALUE).hexdigest()
    assert files(folder) == {
        f"{world.tenant}/planner/{name}",
        f"{world.tenant}/analysis/{name}",
        f"{world.other_tenant}/planner/{name}",
    }


async def test_the_same_value_is_uploaded_once(world: World, objects: Objects, store: Stumbling) -> None:
    await stage_and_keep(world, objects, VALUE, VALUE)
    await stage_and_keep(world, objects, VALUE, OTHER)
    assert store.acts.count("put") == 2


@pytest.mark.req("CE-F4")
@pytest.mark.parametrize("damage", [b"X" + VALUE[1:], VALUE[:-1], b"", None])
async def test_a_damaged_value_is_repaired_by_storing_it_again(
    world: World, objects: Objects, store: Stumbling, folder: Path, damage: bytes | None
) -> None:
    [pointer] = await stage_and_keep(world, objects, VALUE)
    stored = folder / pointer.object
    stored.unlink()
    if damage is not None:
        stored.write_bytes(damage)
    await stage_and_keep(world, objects, VALUE)
    assert await objects.fetch(world.tenant, pointer) == VALUE
    assert store.acts.count("put") == 2
    await check_nothing_is_amiss(world, folder, [pointer])


async def test_the_index_names_the_version_that_repaired_a_value(world: World, store: Stumbling) -> None:
    class Versioned(Stumbling):
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


async def test_many_values_are_uploaded_a_few_at_a_time(world: World, objects: Objects, store: Stumbling) -> None:
    under_way, most = 0, 0

    def begin(_: str) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)

    def end(_: str) -> None:
        nonlocal under_way
        under_way -= 1

    store.before, store.behind = begin, end
    await stage_and_keep(world, objects, *(f"{number}".encode() for number in range(20)))
    assert (len(store.acts), most) == (20, 4)


async def test_nothing_to_stage_is_nothing_done(world: World, objects: Objects, store: Stumbling) -> None:
    await objects.stage(world.tenant, "planner", [])
    assert (store.acts, await states(world)) == ([], {})


def test_a_pointer_is_the_same_for_the_same_value_and_reads_back() -> None:
    pointer = Pointer.to("acme", "planner", VALUE)
    assert pointer.encode() == Pointer.to("acme", "planner", bytes(VALUE)).encode()
    assert Pointer.decode(pointer.encode()) == pointer
    assert Pointer.to("acme", "review", VALUE).encode() != pointer.encode()


@pytest.mark.parametrize(
    ("tenant", "owner"), [("..", "a"), ("a", ".."), ("a/b", "c"), ("", "c"), ("a", ""), ("a", "é")]
)
def test_a_path_is_made_of_names_alone(tenant: str, owner: str) -> None:
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
def test_a_pointer_that_leads_elsewhere_is_refused(change: tuple[str, str]) -> None:
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


async def test_a_value_that_is_not_there_is_missing(world: World, objects: Objects, folder: Path) -> None:
    with refused("OBJECT_MISSING"):
        await objects.fetch(world.tenant, pointer_in(world))
    [pointer] = await stage_and_keep(world, objects, VALUE)
    (folder / pointer.object).unlink()
    with refused("OBJECT_MISSING"):
        await objects.fetch(world.tenant, pointer)


@pytest.mark.req("CE-F4")
async def test_nothing_is_kept_that_was_not_uploaded(world: World, objects: Objects, store: Stumbling) -> None:
    with refused("OBJECT_MISSING"):
        await keep(world, pointer_in(world))
    store.before = unreachable
    with refused("OBJECT_STORAGE_UNAVAILABLE"):
        await objects.stage(world.tenant, "planner", [VALUE])
    with refused("OBJECT_BUSY"):
        await keep(world, pointer_in(world))
    assert set((await states(world)).values()) == {"pending"}


async def test_one_failure_among_many_uploads_is_reported(world: World, objects: Objects, store: Stumbling) -> None:
    def fail_at_the_third(_: str) -> None:
        if len(store.acts) == 3:
            raise ObjectStorageUnavailable

    store.before = fail_at_the_third
    contents = [f"{number}".encode() for number in range(20)]
    with refused("OBJECT_STORAGE_UNAVAILABLE"):
        await objects.stage(world.tenant, "planner", contents)
    await stage_and_keep(world, objects, *contents)


async def test_who_lost_its_access_stages_nothing(world: World, objects: Objects, store: Stumbling) -> None:
    with pytest.raises(AccessChanged):
        await objects.stage(world.tenant, "planner", [VALUE], epoch=(await world.epoch() or 0) + 1)
    assert store.acts == []


@pytest.mark.req("CE-F4")
@pytest.mark.parametrize("moment", ["before", "behind"])
async def test_a_process_killed_during_its_upload_leaves_no_objects(
    world: World, objects: Objects, store: Stumbling, folder: Path, moment: str
) -> None:
    setattr(store, moment, end_at("put", Killed()))
    with pytest.raises(Killed):
        await objects.stage(world.tenant, "planner", [VALUE])
    assert await states(world) == {pointer_in(world).object: "pending"}
    successor = Objects(world.app.database, ObjectFolder(folder), world.clock)
    assert await sweep_objects(successor) == 0
    world.clock.advance(hours=1)
    assert await sweep_objects(successor) == 1
    await check_nothing_is_amiss(world, folder)


@pytest.mark.req("CE-F4")
async def test_a_process_killed_between_upload_and_commit_leaves_no_objects(
    world: World, objects: Objects, folder: Path
) -> None:
    await objects.stage(world.tenant, "planner", [VALUE, OTHER])
    await keep(world, pointer_in(world, OTHER))
    world.clock.advance(hours=1)
    successor = Objects(world.app.database, ObjectFolder(folder), world.clock)
    assert await sweep_objects(successor) == 1
    await check_nothing_is_amiss(world, folder, [pointer_in(world, OTHER)])
    with refused("OBJECT_MISSING"):
        await keep(world, pointer_in(world))


@pytest.mark.req("CE-F4")
@pytest.mark.parametrize("moment", ["before", "behind"])
async def test_a_process_killed_around_a_removal_leaves_it_to_the_next(
    world: World, objects: Objects, store: Stumbling, folder: Path, moment: str
) -> None:
    [doomed, other] = await stage_and_keep(world, objects, VALUE, OTHER)
    await doom_long_ago(world, objects, doomed)
    setattr(store, moment, end_at("delete", Killed()))
    with pytest.raises(Killed):
        await sweep_objects(objects)
    assert (await states(world))[doomed.object] == "deleting"
    successor = Objects(world.app.database, ObjectFolder(folder), world.clock)
    assert await sweep_objects(successor) == 0
    world.clock.advance(minutes=5)
    assert await sweep_objects(successor) == 1
    await check_nothing_is_amiss(world, folder, [other])


@pytest.mark.req("CE-F4")
async def test_an_interrupted_upload_can_simply_be_repeated(
    world: World, objects: Objects, store: Stumbling, folder: Path
) -> None:
    store.behind = end_at("put", Killed())
    with pytest.raises(Killed):
        await objects.stage(world.tenant, "planner", [VALUE])
    store.behind = lambda _: None
    kept = await stage_and_keep(world, objects, VALUE)
    await check_nothing_is_amiss(world, folder, kept)


async def test_a_doomed_value_stays_readable_for_those_who_are_reading(world: World, objects: Objects) -> None:
    [pointer] = await stage_and_keep(world, objects, VALUE)
    await doom(world, pointer)
    assert await sweep_objects(objects) == 0
    assert await objects.fetch(world.tenant, pointer) == VALUE
    world.clock.advance(minutes=5)
    assert await sweep_objects(objects) == 1
    with refused("OBJECT_MISSING"):
        await objects.fetch(world.tenant, pointer)


async def test_a_doomed_value_that_is_wanted_again_is_uploaded_again_and_stays(
    world: World, objects: Objects, store: Stumbling, folder: Path
) -> None:
    [pointer] = await stage_and_keep(world, objects, VALUE)
    await doom(world, pointer)
    with refused("OBJECT_BUSY"):
        await keep(world, pointer)
    kept = await stage_and_keep(world, objects, VALUE)
    world.clock.advance(hours=2)
    assert await sweep_objects(objects) == 0
    assert store.acts.count("put") == 2
    await check_nothing_is_amiss(world, folder, kept)


async def test_a_value_that_is_just_being_removed_is_waited_for(
    world: World, objects: Objects, store: Stumbling, folder: Path
) -> None:
    [pointer] = await stage_and_keep(world, objects, VALUE)
    await doom_long_ago(world, objects, pointer)
    staging: list[asyncio.Task[None]] = []

    def stage_too(name: str) -> None:
        if name == "delete":
            staging.append(asyncio.create_task(objects.stage(world.tenant, "planner", [VALUE])))

    store.before = stage_too
    assert await sweep_objects(objects) == 1
    await staging[0]
    await keep(world, pointer)
    await check_nothing_is_amiss(world, folder, [pointer])


async def test_a_removal_that_does_not_end_is_a_conflict(
    world: World, objects: Objects, store: Stumbling, folder: Path
) -> None:
    [pointer] = await stage_and_keep(world, objects, VALUE)
    await doom_long_ago(world, objects, pointer)
    store.before = unreachable
    assert await sweep_objects(objects) == 0
    store.before = lambda _: None
    with refused("OBJECT_BUSY"):
        await objects.stage(world.tenant, "planner", [VALUE])
    world.clock.advance(minutes=5)
    assert await sweep_objects(objects) == 1
    kept = await stage_and_keep(world, objects, VALUE)
    await check_nothing_is_amiss(world, folder, kept)


@pytest.mark.req("CE-F4")
async def test_an_upload_overtaken_by_a_removal_is_made_again(
    world: World, objects: Objects, store: Stumbling, folder: Path
) -> None:
    """Another process stores, drops and sweeps the same value while ours is still uploading it."""
    pointer = pointer_in(world)

    async def meanwhile() -> None:
        other = Objects(world.app.database, ObjectFolder(folder), world.clock)
        await stage_and_keep(world, other, VALUE)
        await doom_long_ago(world, other, pointer)
        assert await sweep_objects(other) == 1

    class Slow(Stumbling):
        async def put(self, path: str, content: bytes) -> str | None:
            if not self.acts:
                await super().put(path, content)
                await meanwhile()
                return None
            return await super().put(path, content)

    slow = Slow(store.folder)
    await stage_and_keep(world, Objects(world.app.database, slow, world.clock), VALUE)
    assert slow.acts == ["put", "put"]
    await check_nothing_is_amiss(world, folder, [pointer])


async def test_a_process_that_slept_on_its_claim_removes_nothing(
    world: World, objects: Objects, store: Stumbling, folder: Path
) -> None:
    kept = await stage_and_keep(world, objects, *(f"{number}".encode() for number in range(9)))
    await doom_long_ago(world, objects, *kept)
    store.behind = lambda _: world.clock.advance(minutes=3)
    assert 1 <= await sweep_objects(objects) <= 4
    assert len(files(folder)) >= 5


async def test_two_processes_that_sweep_at_once_do_each_thing_once(
    world: World, objects: Objects, store: Stumbling, folder: Path
) -> None:
    kept = await stage_and_keep(world, objects, *(f"{number}".encode() for number in range(12)))
    await doom_long_ago(world, objects, *kept[:10])
    app = await world.another_app()
    beside = Stumbling(ObjectFolder(folder))
    await asyncio.gather(sweep_objects(objects), sweep_objects(Objects(app.database, beside, world.clock)))
    deleted = [path for path in store.deleted + beside.deleted if path.startswith(world.tenant)]
    assert sorted(deleted) == sorted(pointer.object for pointer in kept[:10])
    await check_nothing_is_amiss(world, folder, kept[10:])


async def test_many_who_stage_keep_and_drop_the_same_values_lose_none(world: World, folder: Path) -> None:
    contents = [f"{number}".encode() for number in range(3)]
    apps = [world.app, await world.another_app()]
    services = [Objects(app.database, ObjectFolder(folder), world.clock) for app in apps]

    async def work(objects: Objects, number: int) -> None:
        for content in contents[number % 3 :] + contents[: number % 3]:
            await outcome(stage_and_keep(world, objects, content))
            if number % 2:
                await doom(world, pointer_in(world, content))
                world.clock.advance(minutes=2)
            await sweep_objects(objects)

    await asyncio.gather(*(work(services[number % 2], number) for number in range(8)))
    kept = await asyncio.gather(*(stage_and_keep(world, services[0], content) for content in contents))
    world.clock.advance(hours=2)
    await sweep_objects(services[0])
    assert [await services[1].fetch(world.tenant, pointer) for [pointer] in kept] == contents
    await check_nothing_is_amiss(world, folder, [pointer for [pointer] in kept])


async def test_each_tenant_is_swept(world: World, objects: Objects, folder: Path) -> None:
    await objects.stage(world.tenant, "planner", [VALUE])
    await objects.stage(world.other_tenant, "planner", [VALUE])
    world.clock.advance(hours=1)
    assert await sweep_objects(objects) == 2
    assert files(folder) == set()


@pytest.mark.req("CE-F4")
async def test_a_value_is_on_disk_with_its_name_before_it_counts_as_stored(
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


async def test_parts_of_files_that_a_killed_process_left_are_removed(folder: Path) -> None:
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


def test_settings_name_a_folder_or_a_bucket(tmp_path: Path) -> None:
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
def test_settings_that_cannot_be_are_refused_by_name(name: str, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting, match=f"WEFT_OBJECT_STORE_{name}"):
        connect_objects(Settings(**settings))


def test_obstore_is_loaded_only_when_a_bucket_is_used() -> None:
    program = (
        "import sys, weft.app.objects, weft.app.diagnostics.checks; from weft.settings import Settings\n"
        "from weft.providers.object_storage import connect_objects\n"
        "connect_objects(Settings(object_store_url='s3://bucket')); print('obstore' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "False"


async def test_the_doctor_tries_the_folder_once_there_is_one(tmp_path: Path) -> None:
    settings = Settings(data_dir=str(tmp_path))
    finding = await check_objects(settings)
    assert (finding.state, files(tmp_path), settings.object_store_folder.exists()) == (CheckStatus.OK, set(), False)
    settings.object_store_folder.mkdir()
    assert (await check_objects(settings)).state is CheckStatus.OK
    assert files(tmp_path) == set()
    settings.object_store_folder.joinpath("_doctor").rmdir()
    settings.object_store_folder.joinpath("_doctor").write_text("in the way")
    finding = await check_objects(settings)
    assert (finding.state, "weft doctor" in finding.next_step) == (CheckStatus.PROBLEM, True)
