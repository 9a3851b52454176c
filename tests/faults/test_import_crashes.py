"""A failure during import or export leaves everything or nothing, and no temporary file."""

from __future__ import annotations

import asyncio
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

from support.bundles import exported, imported, records
from support.crash_injection import Crash, CrashingTransaction, CrashPoint, crash_in_writes
from support.world import SESSION, Caller
from weftline.exchange.transfer import restore_plan
from weftline.exchange.transfer.bundle_format import BundleDamaged
from weftline.kernel.errors import InternalError
from weftline.storage.sql.database import SYSTEM, Scope

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


async def crashes_at(world: World, patch: pytest.MonkeyPatch, at: int, act: Callable[[], Awaitable[Any]]) -> bool:
    """Run ``act`` with a crash at one statement of every attempt; return whether it crashed."""
    crash_points: list[CrashPoint] = []

    def next_crash_point() -> CrashPoint:
        crash_points.append(CrashPoint(at, after=at % 2 == 0))
        return crash_points[-1]

    with crash_in_writes(world, patch, next_crash_point):
        try:
            await act()
        except InternalError:
            assert any(crash_point.run >= at for crash_point in crash_points), "it failed before the crash point"
            return True
    return False


async def all_rows(world: World, tenant: str) -> dict[str, list[str]]:
    """Return every row of a tenant."""

    async def rows(table: str) -> Any:
        return await world.app.database.read(Scope(tenant), lambda tx: tx.all(_EVERY_ROW.format(table), tenant))

    return {table: sorted(str(tuple(row)) for row in await rows(table)) for table in TABLES}


def files_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def fill_session(world: World) -> None:
    await world.planner.write("goal", "ship")
    await world.planner.write("goal", "ship soon", ttl_seconds=600)
    await world.planner.write("large", "word " * 500)
    await world.planner.delete("large")
    await world.planner.snapshot("mark")
    await world.planner.say("hello")
    await world.planner.call("missing.report", session_id=SESSION, question="When?")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder for temporary files."""
    folder = tmp_path / "files"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


async def test_an_import_that_crashes_at_any_statement_is_rolled_back(
    world: World, monkeypatch: pytest.MonkeyPatch, files: Path
) -> None:
    # One row per statement, so that it can crash between any two.
    monkeypatch.setattr(restore_plan, "_MAX_ROWS", 1)
    await fill_session(world)
    bundle = await exported(world.admin)
    before = await all_rows(world, world.other_tenant)
    crashed_statements = 0
    while await crashes_at(world, monkeypatch, crashed_statements + 1, lambda: imported(world.stranger, bundle)):
        crashed_statements += 1
        assert await all_rows(world, world.other_tenant) == before, (
            f"statement {crashed_statements} was not rolled back"
        )
        assert not files_in(files)
    assert crashed_statements > 40
    assert await world.stranger.value("goal") == "ship soon"
    assert (await world.stranger.inspect())["history_intact"]
    assert not files_in(files)


@pytest.mark.parametrize("what", [{"scope": "session"}, {"scope": "handoff", "recipient": "closer"}])
async def test_an_export_that_crashes_at_any_statement_leaves_no_file_and_no_partial_record(
    world: World, monkeypatch: pytest.MonkeyPatch, files: Path, what: dict[str, Any]
) -> None:
    await fill_session(world)
    before = await all_rows(world, world.tenant)
    crashed_statements = 0
    while await crashes_at(world, monkeypatch, crashed_statements + 1, lambda: exported(world.admin, **what)):
        crashed_statements += 1
        assert await all_rows(world, world.tenant) == before, f"statement {crashed_statements} was not rolled back"
        assert not files_in(files)
    assert crashed_statements > 3
    assert not files_in(files)


async def test_an_export_that_fails_midway_is_not_delivered(
    world: World, monkeypatch: pytest.MonkeyPatch, files: Path
) -> None:
    await fill_session(world)
    database = world.app.database
    read = database.read
    for at in (2, 5, 9):
        crash_point = CrashPoint(at, after=False)
        with monkeypatch.context() as patched:

            def failing(scope: Any, work: Any, *, heavy: bool = False, crash_point: CrashPoint = crash_point) -> Any:
                # Background jobs read as well, for the whole installation.
                crashes = heavy and scope != SYSTEM
                return read(
                    scope, lambda tx: work(CrashingTransaction(tx, crash_point) if crashes else tx), heavy=heavy
                )

            patched.setattr(database, "read", failing)
            with pytest.raises((Crash, InternalError)):
                await exported(world.admin)
        assert not files_in(files)
    assert records(await exported(world.admin))


async def test_a_truncated_bundle_imports_nothing(world: World, files: Path) -> None:
    await fill_session(world)
    bundle = await exported(world.admin)
    before = await all_rows(world, world.other_tenant)
    with pytest.raises(BundleDamaged, match="ends before its seal"):
        await imported(world.stranger, bundle[: len(bundle) // 2])
    after = await all_rows(world, world.other_tenant)
    assert after == before
    assert not files_in(files)


async def test_concurrent_imports_of_a_bundle_create_one_session(world: World) -> None:
    await fill_session(world)
    bundle = await exported(world.admin)
    caller: Caller = world.stranger
    outcomes = await asyncio.gather(*(imported(caller, bundle) for _ in range(3)), return_exceptions=True)
    failures = [each for each in outcomes if isinstance(each, BaseException)]
    assert not failures, failures
    assert sorted(each.unchanged for each in outcomes if not isinstance(each, BaseException)) == [False, True, True]
    assert (await caller.inspect())["history_intact"]
