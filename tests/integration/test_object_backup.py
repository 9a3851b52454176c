"""Backups include object storage, from and to folders and buckets."""

from __future__ import annotations

import hashlib
import json
import secrets
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from support.databases import new_postgres_database
from support.full_run import FULL
from support.jobs import sweep_objects
from support.s3 import CREDENTIALS, REGION, SharedBucket, new_bucket, s3_service
from support.world import refused
from weftline.app.objects import Objects
from weftline.app.tenants import Tenants
from weftline.history.blobs import Blobs
from weftline.history.object_storage import ObjectIndex, ObjectStorageUnavailable, Pointer, hold_removals, keep_staged
from weftline.kernel.clock import to_micros
from weftline.kernel.errors import DiskFull
from weftline.providers.object_storage import Bucket, ObjectFolder
from weftline.storage.backup import Manifest, back_up, restore
from weftline.storage.backup import create as making
from weftline.storage.backup.archive import known_schema_steps, tables_of_schema
from weftline.storage.migrations.runner import migrate, status
from weftline.storage.sql.database import SYSTEM, Scope, connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path

    from weftline.history.object_storage import ObjectStore
    from weftline.kernel.transaction import Transaction
    from weftline.storage.sql.database import Database
    from weftline.testing.clock import FrozenClock

VALUE = b"a value too large for the database" * 1_000
OTHER = b"other bytes, as many as before!!!!" * 1_000
NOISE = secrets.token_bytes(2_500_000)


class ObservedStore:
    """A store that runs a callback before each call."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.before: Callable[[str], Awaitable[None]] | None = None
        self.acts: list[str] = []

    async def put(self, path: str, content: bytes) -> str | None:
        await self._act("put")
        return await self.store.put(path, content)

    async def get(self, path: str, version: str | None, size: int) -> bytes:
        await self._act("get")
        return await self.store.get(path, version, size)

    async def delete(self, path: str) -> None:
        await self._act("delete")
        await self.store.delete(path)

    async def _act(self, name: str) -> None:
        self.acts.append(name)
        if self.before is not None:
            await self.before(name)


@dataclass(frozen=True, slots=True)
class Installation:
    """A database with its object store."""

    database: Database
    store: ObservedStore
    clock: FrozenClock

    @property
    def objects(self) -> Objects:
        return Objects(self.database, self.store, self.clock)

    async def create_tenants(self, *names: str) -> None:
        await migrate(self.database, self.clock)
        for name in names:
            await Tenants(self.database, self.clock).create(name)

    async def push(self, content: bytes, tenant: str = "acme", owner: str = "planner") -> Pointer:
        """Store a value in object storage and a pointer in the database."""
        await self.objects.stage(tenant, owner, [content])
        pointer = Pointer.to(tenant, owner, content)

        async def refer(transaction: Transaction) -> None:
            text = pointer.encode()
            await keep_staged([pointer], ObjectIndex(transaction))
            await Blobs(transaction).put(hashlib.sha256(text.encode()).digest(), text, pointer.object)

        await self.database.write(Scope(tenant), refer)
        return pointer

    async def drop(self, pointer: Pointer) -> None:
        await self.database.write(Scope("acme"), lambda tx: ObjectIndex(tx).doom(pointer.object))

    async def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self.database.read(SYSTEM, lambda tx: tx.all(sql))]

    async def index(self) -> dict[str, str]:
        return dict(await self.rows("SELECT path, state FROM objects"))

    async def is_empty(self) -> bool:
        tables = ("tenants", "blobs", "principals")
        return not any([await self.rows(f"SELECT 1 FROM {table}") for table in tables])

    async def back_up(self, file: Path, *, skip_damaged: bool = False) -> Manifest:
        return await back_up(self.database, self.store, file, self.clock, skip_damaged=skip_damaged)

    async def restore(self, file: Path) -> Manifest:
        return await restore(self.database, self.objects, file, self.clock)


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with s3_service() as address:
        yield address


@pytest.fixture
def bucket(s3: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[SharedBucket]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with new_bucket(s3) as bucket:
        yield bucket


class Places:
    """Creates installations."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path, clock: FrozenClock) -> None:
        self._request = request
        self._folder = folder
        self._clock = clock
        self.opened: list[Database] = []

    async def installation(self, name: str, kind: str) -> Installation:
        database = connect(await self._url(name, kind))
        await database.open()
        self.opened.append(database)
        return Installation(database, ObservedStore(self._store(name, kind)), self._clock)

    async def _url(self, name: str, kind: str) -> str:
        if not kind.startswith("postgres"):
            return str(self._folder / name / "weftline.db")
        server = self._request.getfixturevalue("postgres")
        return await new_postgres_database(server, f"{name}_{secrets.token_hex(4)}", migrated=False)

    def _store(self, name: str, kind: str) -> ObjectStore:
        if kind.endswith("folder"):
            return ObjectFolder(self._folder / name / "objects")
        bucket: SharedBucket = self._request.getfixturevalue("bucket")
        service: str = self._request.getfixturevalue("s3")
        return Bucket(
            bucket.name, prefix=name, endpoint=service, region=REGION, versioning="required", timeout_seconds=20
        )


@pytest.fixture
async def places(request: pytest.FixtureRequest, tmp_path: Path, clock: FrozenClock) -> AsyncIterator[Places]:
    places = Places(request, tmp_path, clock)
    yield places
    for database in places.opened:
        await database.close()


@pytest.fixture(params=["sqlite folder", "postgres folder"] if FULL else ["sqlite folder"])
async def source(request: pytest.FixtureRequest, places: Places) -> Installation:
    """Return an installation with an object folder, in a full run on each database."""
    source = await places.installation("source", request.param)
    await source.create_tenants("acme")
    return source


@pytest.fixture
async def target(places: Places) -> Installation:
    return await places.installation("target", "sqlite folder")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder with the source's objects."""
    return tmp_path / "source" / "objects"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "weftline.zip"


def files(folder: Path) -> list[str]:
    return sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())


def backup_files(file: Path) -> list[str]:
    """Return the names of complete and partial backup files."""
    return [path.name for path in file.parent.iterdir() if file.name in path.name]


def flip_a_byte_of(part: bytes, file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[content.index(part)] ^= 1
    file.write_bytes(content)


def rewrite(file: Path, change: Callable[[dict[str, bytes]], object]) -> None:
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


@pytest.mark.req("CE-F4")
@pytest.mark.parametrize(
    ("origin", "destination"),
    [
        ("sqlite folder", "postgres bucket"),
        ("postgres bucket", "sqlite folder"),
        ("postgres folder", "sqlite bucket"),
        ("sqlite bucket", "postgres folder"),
    ],
)
async def test_values_are_restored_into_either_database_and_store(
    places: Places, origin: str, destination: str, file: Path
) -> None:
    source, target = [await places.installation(*each) for each in (("source", origin), ("target", destination))]
    await source.create_tenants("acme", "Umbrella")
    kept = [await source.push(VALUE), await source.push(NOISE), await source.push(b"", owner="Review")]
    others = await source.push(VALUE, tenant="Umbrella")
    manifest = await source.back_up(file)
    assert await target.restore(file) == manifest
    assert (manifest.objects.count, manifest.objects.bytes) == (4, 2 * len(VALUE) + len(NOISE))
    assert [await target.objects.fetch("acme", pointer) for pointer in kept] == [VALUE, NOISE, b""]
    assert await target.objects.fetch("Umbrella", others) == VALUE
    assert await target.index() == await source.index() == {p.object: "kept" for p in (*kept, others)}
    for table in ("blobs", "audit_log"):
        everything = f"SELECT * FROM {table} ORDER BY 1, 2"
        assert await target.rows(everything) == await source.rows(everything)


@pytest.mark.req("CE-F4")
async def test_the_versions_of_the_new_bucket_are_recorded(places: Places, bucket: SharedBucket, file: Path) -> None:
    source, target = [await places.installation(name, "sqlite bucket") for name in ("source", "target")]
    await source.create_tenants("acme")
    pointer = await source.push(VALUE)
    bucket.overwrite(f"source/{pointer.object}", OTHER)
    await source.back_up(file)
    await target.restore(file)
    assert bucket.versions(f"target/{pointer.object}") == [
        version for (version,) in await target.rows("SELECT version FROM objects")
    ]
    assert await target.objects.fetch("acme", pointer) == VALUE


async def test_progress_counts_rows_and_objects(source: Installation, target: Installation, file: Path) -> None:
    for number in range(5):
        await source.push(f"{number}".encode())
    made: list[tuple[int, int]] = []
    restored: list[tuple[int, int]] = []
    manifest = await back_up(source.database, source.store, file, source.clock, lambda *step: made.append(step))
    await restore(target.database, target.objects, file, target.clock, lambda *step: restored.append(step))
    assert made[-1] == restored[-1] == (manifest.rows, manifest.rows)
    assert [done for done, _ in made[-5:]] == list(range(manifest.rows - 4, manifest.rows + 1))
    assert restored[0] == (5, manifest.rows)


async def test_staged_and_dropped_objects_are_not_backed_up(
    source: Installation, target: Installation, file: Path
) -> None:
    kept, dropped = await source.push(VALUE), await source.push(OTHER)
    await source.drop(dropped)
    await source.objects.stage("acme", "planner", [NOISE])
    manifest = await source.back_up(file)
    await target.restore(file)
    assert manifest.tables["objects"].rows == manifest.objects.count == 1
    assert await target.index() == {kept.object: "kept"}
    with zipfile.ZipFile(file) as archive:
        assert [name for name in archive.namelist() if name.startswith("objects/")] == [f"objects/{kept.object}"]


@pytest.mark.req("CE-F4")
@pytest.mark.parametrize("damage", [None, b"", VALUE[:-1], OTHER])
async def test_a_missing_or_damaged_object_is_named_and_no_backup_is_written(
    source: Installation, folder: Path, file: Path, damage: bytes | None
) -> None:
    lost = await source.push(VALUE)
    await source.push(NOISE)
    place = folder / lost.object
    place.unlink() if damage is None else place.write_bytes(damage)
    with refused("BACKUP_INCOMPLETE") as caught:
        await source.back_up(file)
    assert caught.value.message.endswith(f"(1): {lost.object}.")
    assert backup_files(file) == []


async def test_many_missing_objects_are_counted_and_a_few_named(source: Installation, folder: Path, file: Path) -> None:
    for number in range(12):
        (folder / (await source.push(f"{number}".encode())).object).unlink()
    with refused("BACKUP_INCOMPLETE") as caught:
        await source.back_up(file)
    assert "(12): acme/planner/" in caught.value.message
    assert caught.value.message.endswith("and 2 more.")


@pytest.mark.req("CE-F4")
async def test_a_backup_that_skips_damaged_objects_contains_the_rest(
    source: Installation, target: Installation, folder: Path, file: Path
) -> None:
    lost, sound = await source.push(VALUE), await source.push(OTHER)
    (folder / lost.object).unlink()
    manifest = await source.back_up(file, skip_damaged=True)
    assert (manifest.objects.count, manifest.objects.omitted) == (1, [lost.object])
    assert (await target.restore(file)).objects.omitted == [lost.object]
    assert await target.objects.fetch("acme", sound) == OTHER
    with refused("OBJECT_MISSING"):
        await target.objects.fetch("acme", lost)
    await target.push(VALUE)
    assert await target.objects.fetch("acme", lost) == VALUE


async def test_an_unreachable_store_is_not_reported_as_damage(source: Installation, file: Path) -> None:
    await source.push(VALUE)
    source.store.before = unreachable
    with refused("OBJECT_STORAGE_UNAVAILABLE"):
        await source.back_up(file, skip_damaged=True)
    assert backup_files(file) == []


async def unreachable(_: str) -> None:
    raise ObjectStorageUnavailable


def _swap_content(members: dict[str, bytes]) -> None:
    [name] = [name for name in members if name.startswith("objects/")]
    members[name] = OTHER


def _cut_content(members: dict[str, bytes]) -> None:
    [name] = [name for name in members if name.startswith("objects/")]
    members[name] = members[name][:-1]


def _drop_content(members: dict[str, bytes]) -> None:
    [name] = [name for name in members if name.startswith("objects/")]
    del members[name]


def _raise_object_count(members: dict[str, bytes]) -> None:
    members["manifest.json"] = members["manifest.json"].replace(b'"count": 1', b'"count": 2')


def _change_paths(members: dict[str, bytes]) -> None:
    _change_index(members, b"acme/planner/", b"acme/../planner/")


def _change_tenant(members: dict[str, bytes]) -> None:
    _change_index(members, b'["acme",', b'["umbrella",')


def _change_index(members: dict[str, bytes], old: bytes, new: bytes) -> None:
    """Change the index of objects and update its checksum in the manifest."""
    index = members["tables/objects.ndjson"].replace(old, new)
    manifest = json.loads(members["manifest.json"])
    manifest["tables"]["objects"]["sha256"] = hashlib.sha256(index).hexdigest()
    members |= {"tables/objects.ndjson": index, "manifest.json": json.dumps(manifest).encode()}


@pytest.mark.req("CE-F4")
@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (_swap_content, "is damaged"),
        (_cut_content, "is damaged"),
        (_drop_content, "is damaged"),
        (_raise_object_count, "do not match its manifest"),
        (_change_paths, "is damaged"),
        (_change_tenant, "does not belong"),
    ],
)
async def test_changed_objects_are_found_before_anything_is_restored(
    places: Places,
    target: Installation,
    file: Path,
    change: Callable[[dict[str, bytes]], object],
    complaint: str,
) -> None:
    source = await places.installation("source", "sqlite folder")
    await source.create_tenants("acme")
    await source.push(VALUE)
    await source.back_up(file)
    rewrite(file, change)
    with refused("BACKUP_UNUSABLE") as caught:
        await target.restore(file)
    assert complaint in caught.value.message
    assert all(step.applied_at is None for step in await status(target.database))
    assert target.store.acts == []


async def test_a_flipped_byte_of_an_object_is_found(source: Installation, target: Installation, file: Path) -> None:
    await source.push(NOISE)
    await source.back_up(file)
    flip_a_byte_of(NOISE[1_000:1_050], file)
    with refused("BACKUP_UNUSABLE"):
        await target.restore(file)
    assert target.store.acts == []


@pytest.mark.req("CE-F4")
@pytest.mark.parametrize("kind", ["sqlite folder", "postgres folder"])
async def test_a_restore_that_fails_leaves_the_database_empty_and_can_be_repeated(
    source: Installation, places: Places, file: Path, kind: str
) -> None:
    kept = [await source.push(NOISE), await source.push(NOISE[1:])]
    await source.back_up(file)
    target = await places.installation("other", kind)

    async def fail_at_the_second(_: str) -> None:
        if len(target.store.acts) == 2:
            raise ObjectStorageUnavailable

    target.store.before = fail_at_the_second
    with refused("OBJECT_STORAGE_UNAVAILABLE"):
        await target.restore(file)
    assert await target.is_empty()
    assert set((await target.index()).values()) == {"pending"}
    await target.restore(file)
    assert [act for act in target.store.acts if act == "put"] == ["put", "put", "put"]
    assert await target.index() == {pointer.object: "kept" for pointer in kept}


@pytest.mark.req("CE-F4")
async def test_a_sweep_removes_what_a_failed_restore_stored(
    source: Installation, target: Installation, file: Path, tmp_path: Path
) -> None:
    await source.push(VALUE)
    await source.back_up(file)

    # A duplicate tenant passes every check of the file but not the database's unique key.
    def double_a_row(members: dict[str, bytes]) -> None:
        members["tables/tenants.ndjson"] *= 2
        manifest = json.loads(members["manifest.json"])
        sha256 = hashlib.sha256(members["tables/tenants.ndjson"]).hexdigest()
        manifest["tables"]["tenants"] |= {"rows": 2, "sha256": sha256}
        members["manifest.json"] = json.dumps(manifest).encode()

    rewrite(file, double_a_row)
    with pytest.raises(Exception, match="UNIQUE"):
        await target.restore(file)
    assert await target.is_empty()
    assert len(files(tmp_path / "target" / "objects")) == 1
    target.clock.advance(hours=1)
    assert await sweep_objects(target.objects) == 1
    assert (files(tmp_path / "target" / "objects"), await target.index()) == ([], {})


async def test_nothing_is_stored_for_a_database_that_is_not_empty(
    source: Installation, target: Installation, file: Path
) -> None:
    await source.push(VALUE)
    await source.back_up(file)
    await target.create_tenants("someone")
    with refused("DATABASE_NOT_EMPTY"):
        await target.restore(file)
    assert (target.store.acts, await target.index()) == ([], {})


@pytest.mark.req("CE-F4")
async def test_no_object_is_deleted_during_a_backup(source: Installation, target: Installation, file: Path) -> None:
    kept = [await source.push(VALUE), await source.push(OTHER)]
    sweeper = Objects(source.database, source.store.store, source.clock)

    async def remove_all(_: str) -> None:
        for pointer in kept:
            await source.drop(pointer)
        for _ in range(2):
            assert await sweep_objects(sweeper) == 0
            source.clock.advance(hours=1)

    source.store.before = remove_all
    await source.back_up(file)
    await target.restore(file)
    assert [await target.objects.fetch("acme", pointer) for pointer in kept] == [VALUE, OTHER]
    assert await target.rows("SELECT 1 FROM jobs WHERE tenant = ''") == []
    await sweep_objects(sweeper)
    source.clock.advance(minutes=5)
    assert await sweep_objects(sweeper) == 2


async def test_a_crashed_backup_delays_deletions_by_at_most_a_day(source: Installation, file: Path) -> None:
    await source.drop(await source.push(VALUE))
    now = to_micros(source.clock.now())
    await source.database.write(SYSTEM, lambda tx: hold_removals(tx, "dead", now))
    await sweep_objects(source.objects)
    source.clock.advance(hours=23)
    assert await sweep_objects(source.objects) == 0
    source.clock.advance(hours=1)
    await sweep_objects(source.objects)
    source.clock.advance(minutes=5)
    assert await sweep_objects(source.objects) == 1
    await source.back_up(file)
    assert await source.rows("SELECT 1 FROM jobs WHERE tenant = ''") == []


async def test_a_failed_backup_does_not_delay_deletions(source: Installation, file: Path) -> None:
    await source.push(VALUE)
    source.store.before = unreachable
    with refused("OBJECT_STORAGE_UNAVAILABLE"):
        await source.back_up(file)
    assert await source.rows("SELECT 1 FROM jobs WHERE tenant = ''") == []


async def test_a_full_database_can_be_backed_up(
    source: Installation, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await source.push(VALUE)

    async def refuse(*_: object) -> None:
        raise DiskFull

    monkeypatch.setattr(making, "hold_removals", refuse)
    monkeypatch.setattr(making, "release_removals", refuse)
    assert (await source.back_up(file)).objects.count == 1


def _make_first_format(members: dict[str, bytes]) -> None:
    manifest = json.loads(members["manifest.json"])
    del manifest["objects"]
    members["manifest.json"] = json.dumps(manifest | {"format": 1}).encode()


async def test_a_backup_of_the_first_format_is_restored(source: Installation, target: Installation, file: Path) -> None:
    await source.back_up(file)
    rewrite(file, _make_first_format)
    assert (await target.restore(file)).format == 1
    assert await target.rows("SELECT tenant FROM tenants") == [("acme",)]


async def test_a_backup_with_missing_object_content_is_refused(
    source: Installation, target: Installation, file: Path
) -> None:
    await source.push(VALUE)
    await source.back_up(file)
    rewrite(file, lambda members: (_make_first_format(members), _drop_content(members)))
    with refused("BACKUP_UNUSABLE"):
        await target.restore(file)


def make_backup_of(steps: int, file: Path) -> None:
    """Make a backup as an older version with only the first migrations did."""
    lines = {"tenants": b'["acme",1,0,0]\n'}
    tables = tables_of_schema(steps)
    manifest = {
        "format": 1,
        "weftline": "0.0.1",
        "created_at": "2026-01-01T00:00:00Z",
        "migrations": [{"name": step.name, "checksum": step.checksum} for step in known_schema_steps()[:steps]],
        "tables": {
            table.name: {
                "columns": table.columns,
                "rows": lines.get(table.name, b"").count(b"\n"),
                "sha256": hashlib.sha256(lines.get(table.name, b"")).hexdigest(),
            }
            for table in tables
        },
    }
    with zipfile.ZipFile(file, "w") as archive:
        for table in tables:
            archive.writestr(table.member, lines.get(table.name, b""))
        archive.writestr("manifest.json", json.dumps(manifest))


@pytest.mark.parametrize("kind", ["sqlite folder", "postgres folder"])
async def test_a_backup_of_an_older_version_is_restored_and_migrated(places: Places, file: Path, kind: str) -> None:
    make_backup_of(3, file)
    target = await places.installation("target", kind)
    await target.restore(file)
    assert all(step.applied_at is not None for step in await status(target.database))
    await target.push(VALUE)
    assert await target.rows("SELECT tenant FROM tenants") == [("acme",)]


async def test_a_backup_of_an_older_version_needs_a_new_database(target: Installation, file: Path) -> None:
    make_backup_of(3, file)
    await migrate(target.database, target.clock)
    with refused("SCHEMA_MISMATCH") as caught:
        await target.restore(file)
    assert "newer schema" in caught.value.message
