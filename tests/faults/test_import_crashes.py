"""A failure during import or export leaves everything or nothing, and no temporary file."""

from __future__ import annotations

import asyncio
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

from support.bundles import exported, imported, records
from support.crash_injection import Crash, CrashingTransaction, CrashPoint, crash_in_writes
from support.world import SESSION, Caller
from weft.capabilities.transfer import restore_board
from weft.capabilities.transfer.bundle_format import BundleDamaged
from weft.kernel.errors import InternalError
from weft.storage.sql.database import Scope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from support.world import World

pytestmark = [pytest.mark.both_databases, pytest.mark.req("AC-14")]

TABLES = (
    *("lines", "commits", "changes", "blobs", "tags", "entries", "sessions", "messages", "message_audiences"),
    *("events", "records", "record_items", "record_contents", "redactions", "audit_log"),
)
_EVERY_ROW = "SELECT * FROM {} WHERE tenant = $1"


async def crashing(world: World, patch: pytest.MonkeyPatch, at: int, act: Callable[[], Awaitable[Any]]) -> bool:
    """Do something that crashes at a statement however often it is tried; tell whether it came that far."""
    fuses: list[CrashPoint] = []

    def another() -> CrashPoint:
        fuses.append(CrashPoint(at, after=at % 2 == 0))
        return fuses[-1]

    with crash_in_writes(world, patch, another):
        try:
            await act()
        except InternalError:
            assert any(fuse.run >= at for fuse in fuses), "it failed, but not because of the fuse"
            return True
    return False


async def picture(world: World, tenant: str) -> dict[str, list[str]]:
    """Return every row of a tenant."""

    async def rows(table: str) -> Any:
        return await world.app.database.read(Scope(tenant), lambda tx: tx.all(_EVERY_ROW.format(table), tenant))

    return {table: sorted(str(tuple(row)) for row in await rows(table)) for table in TABLES}


def left_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def lived_in(world: World) -> None:
    await world.planner.write("goal", "ship")
    await world.planner.write("goal", "ship soon", ttl_seconds=600)
    await world.planner.write("large", "word " * 500)
    await world.planner.delete("large")
    await world.planner.snapshot("mark")
    await world.planner.say("hello")
    await world.planner.call("missing.report", session_id=SESSION, question="When?")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder in which files are made that must not stay."""
    folder = tmp_path / "files"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


async def test_an_import_that_crashes_at_any_statement_leaves_no_trace(
    world: World, monkeypatch: pytest.MonkeyPatch, files: Path
) -> None:
    # So few at once that it can crash between any two.
    monkeypatch.setattr(restore_board, "_MAX_ROWS", 1)
    await lived_in(world)
    bundle = await exported(world.admin)
    before = await picture(world, world.other_tenant)
    blown = 0
    while await crashing(world, monkeypatch, blown + 1, lambda: imported(world.stranger, bundle)):
        blown += 1
        assert await picture(world, world.other_tenant) == before, f"statement {blown} left something"
        assert not left_in(files)
    assert blown > 40
    assert await world.stranger.value("goal") == "ship soon"
    assert (await world.stranger.inspect())["history_intact"]
    assert not left_in(files)


@pytest.mark.parametrize("what", [{"scope": "session"}, {"scope": "handoff", "recipient": "closer"}])
async def test_an_export_that_crashes_at_any_statement_leaves_no_file_and_no_half_record(
    world: World, monkeypatch: pytest.MonkeyPatch, files: Path, what: dict[str, Any]
) -> None:
    await lived_in(world)
    before = await picture(world, world.tenant)
    blown = 0
    while await crashing(world, monkeypatch, blown + 1, lambda: exported(world.admin, **what)):
        blown += 1
        assert await picture(world, world.tenant) == before, f"statement {blown} left something"
        assert not left_in(files)
    assert blown > 3
    assert not left_in(files)


async def test_an_export_that_fails_midway_is_not_delivered(
    world: World, monkeypatch: pytest.MonkeyPatch, files: Path
) -> None:
    await lived_in(world)
    database = world.app.database
    read = database.read
    for at in (2, 5, 9):
        fuse = CrashPoint(at, after=False)
        with monkeypatch.context() as patched:

            def failing(scope: Any, work: Any, *, heavy: bool = False, fuse: CrashPoint = fuse) -> Any:
                return read(scope, lambda tx: work(CrashingTransaction(tx, fuse) if heavy else tx), heavy=heavy)

            patched.setattr(database, "read", failing)
            with pytest.raises((Crash, InternalError)):
                await exported(world.admin)
        assert not left_in(files)
    assert records(await exported(world.admin))


async def test_a_bundle_cut_off_on_its_way_leaves_nothing(world: World, files: Path) -> None:
    await lived_in(world)
    bundle = await exported(world.admin)
    before = await picture(world, world.other_tenant)
    with pytest.raises(BundleDamaged, match="ends before its seal"):
        await imported(world.stranger, bundle[: len(bundle) // 2])
    after = await picture(world, world.other_tenant)
    assert after == before
    assert not left_in(files)


async def test_two_imports_of_one_session_at_once_make_one(world: World) -> None:
    await lived_in(world)
    bundle = await exported(world.admin)
    caller: Caller = world.stranger
    told = await asyncio.gather(*(imported(caller, bundle) for _ in range(3)), return_exceptions=True)
    failures = [each for each in told if isinstance(each, BaseException)]
    assert not failures, failures
    assert sorted(each.unchanged for each in told if not isinstance(each, BaseException)) == [False, True, True]
    assert (await caller.inspect())["history_intact"]
