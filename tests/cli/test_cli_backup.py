"""Backups: everything in one file, checked, and restored into an empty database of either kind."""

from __future__ import annotations

import asyncio
import fcntl
import json
import secrets
import stat
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest
from cli_support import CommandLine, free_port

from support.databases import new_postgres_database
from support.s3 import CREDENTIALS, REGION, new_bucket, s3_service
from weftline.app.objects import Objects
from weftline.history.object_storage import ObjectIndex, Pointer, keep_staged
from weftline.kernel.clock import SystemClock
from weftline.kernel.errors import WeftlineError
from weftline.providers.object_storage import ObjectFolder
from weftline.storage import backup
from weftline.storage.backup import create as making
from weftline.storage.sql.database import Scope, connect

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def filled(launch: CommandLine) -> CommandLine:
    """Return a command line on a folder with data of every kind."""
    launch.run("agent", "create", "planner")
    launch.run("board", "write", "goal", "Ship — ü 漢字", "--readable-by", "human:*")
    launch.run("board", "snapshot", "first")
    launch.run("board", "write", "goal", "Ship later", "--ttl-seconds", "3600")
    launch.run("conventions", "define", "sales", '[{"title": "t", "keys": [{"key": "goal", "purpose": "p"}]}]')
    launch.run("tenant", "create", "acme")
    launch.run("--tenant", "acme", "session", "create", "Work", "--session-id", "apart")
    return launch


@pytest.fixture
def file(filled: CommandLine, tmp_path: Path) -> Path:
    path = tmp_path / "weftline.zip"
    filled.run("db", "backup", str(path))
    return path


def _contents(cli: CommandLine) -> list[object]:
    inspection = cli.json("session", "inspect", "launch")
    inspection["entries"][0].pop("reads")
    return [
        inspection,
        cli.json("agent", "list"),
        cli.json("board", "read-history", "goal"),
        cli.json("events", "read", "--after", "0"),
        cli.json("conventions", "list"),
        cli.json("tenant", "list"),
        cli.json("--tenant", "acme", "session", "list"),
        [entry for entry in cli.json("audit", "list")["entries"] if entry["action"] != "session.inspect"],
    ]


def test_a_restored_folder_has_the_backed_up_data(filled: CommandLine, file: Path, tmp_path: Path) -> None:
    other = CommandLine(tmp_path / "other", dict(filled.env))
    other.run("db", "restore", str(file))
    assert _contents(other) == _contents(filled)
    assert other.json("session", "inspect", "launch")["history_intact"] is True


def test_sqlite_moves_to_postgresql_and_back(filled: CommandLine, file: Path, postgres: str, tmp_path: Path) -> None:
    url = asyncio.run(new_postgres_database(postgres, f"backup_{secrets.token_hex(4)}", migrated=False))
    server = CommandLine(tmp_path, {**filled.env, "WEFTLINE_DATABASE_URL": url})
    server.run("db", "restore", str(file))
    assert _contents(server) == _contents(filled)
    server.run("db", "backup", str(tmp_path / "back.zip"))
    restored = CommandLine(tmp_path / "restored", dict(filled.env))
    restored.run("db", "restore", str(tmp_path / "back.zip"))
    assert _contents(restored) == _contents(server)


def test_a_credential_is_valid_after_a_restore(filled: CommandLine, tmp_path: Path) -> None:
    key = filled.json("key", "create", "planner")["api_key"]
    filled.run("db", "backup", str(tmp_path / "late.zip"))
    other = CommandLine(tmp_path / "other")
    other.run("db", "restore", str(tmp_path / "late.zip"))
    assert other.json("token", "issue", "planner", "planner", "-", stdin=key)["success"]


def test_the_backup_file_is_private_has_a_manifest_and_is_not_overwritten(
    filled: CommandLine, file: Path, tmp_path: Path
) -> None:
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with zipfile.ZipFile(file) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        lines = {n: archive.read(f"tables/{n}.ndjson").count(b"\n") for n in manifest["tables"]}
    assert {name: table["rows"] for name, table in manifest["tables"].items()} == lines
    assert set(manifest) == {"format", "weftline", "created_at", "migrations", "tables", "objects"}
    assert "BACKUP_EXISTS" in filled.run("db", "backup", str(file), code=1).stderr
    assert "BACKUP_NOT_WRITTEN" in filled.run("db", "backup", str(tmp_path / "no" / "b.zip"), code=4).stderr
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


def test_restoring_into_a_database_with_data_is_refused(filled: CommandLine, file: Path) -> None:
    before = _contents(filled)
    assert "DATABASE_NOT_EMPTY" in filled.run("db", "restore", str(file), code=1).stderr
    assert _contents(filled) == before


def _rewrite(file: Path, member: str, change: Callable[[bytes], bytes]) -> None:
    with zipfile.ZipFile(file) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    content[member] = change(content[member])
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)


@pytest.mark.parametrize(
    ("member", "change", "complaint"),
    [
        ("tables/entries.ndjson", lambda data: data.replace(b"goal", b"gaol"), "SHA-256 differs"),
        ("tables/events.ndjson", lambda data: data.split(b"\n", 1)[1], "rows; the manifest has"),
        ("tables/blobs.ndjson", lambda _: b'["default",1,2]\n', "is damaged"),
        ("manifest.json", lambda _: b"{}", "is damaged"),
        ("manifest.json", lambda data: data.replace(b'"format": 2', b'"format": 9'), "format 9"),
        ("manifest.json", lambda data: data.replace(b'"entries":', b'"entires":'), "do not match its schema"),
    ],
)
def test_a_changed_backup_is_refused_before_anything_is_written(
    member: str, change: Callable[[bytes], bytes], complaint: str, file: Path, tmp_path: Path
) -> None:
    _rewrite(file, member, change)
    other = CommandLine(tmp_path / "other")
    stderr = other.run("db", "restore", str(file), code=1).stderr
    assert "BACKUP_UNUSABLE" in stderr
    assert complaint in stderr
    assert other.json("tenant", "list") == {"tenants": []}


def test_a_backup_of_another_schema_is_refused(file: Path, tmp_path: Path) -> None:
    _rewrite(file, "manifest.json", lambda data: data.replace(b"0001_foundation", b"0099_future"))
    stderr = CommandLine(tmp_path / "other").run("db", "restore", str(file), code=1).stderr
    assert "SCHEMA_MISMATCH" in stderr
    assert "it has 0099_future" in stderr


@pytest.mark.parametrize("content", [b"", b"not a zip", None])
def test_a_file_that_is_no_backup_is_refused(content: bytes | None, cli: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "file.zip"
    if content is not None:
        path.write_bytes(content)
    assert "BACKUP_UNUSABLE" in cli.run("db", "restore", str(path), code=1).stderr


def test_a_truncated_backup_is_refused(file: Path, tmp_path: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])
    assert "BACKUP_UNUSABLE" in CommandLine(tmp_path / "other").run("db", "restore", str(file), code=1).stderr


def test_a_full_disk_leaves_no_partial_file(cli: CommandLine, tmp_path: Path) -> None:
    cli.run(
        "session",
        "create",
        "Big",
        "--session-id",
        "big",
        "--config",
        '{"max_value_tokens": 100000, "max_total_tokens": 1000000}',
    )
    cli.run("board", "write", "noise", "-", "-s", "big", stdin=secrets.token_hex(150_000))
    small = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))"
    program = f"{small}; from weftline.transports.cli.main import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", program, "--data-dir", str(cli.data), "db", "backup", str(tmp_path / "b.zip")],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert ended.returncode == 4, ended.stderr
    assert "BACKUP_NOT_WRITTEN: The backup cannot be written: File too large." in ended.stderr
    assert [path.name for path in tmp_path.iterdir() if "b.zip" in path.name] == []


_KILLED = """
import os, signal, sys
from weftline.storage.backup import create
from weftline.transports.cli.main import main

def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)

create._BackupWriter.write_manifest = killed
main()
"""


def killed_backup(cli: CommandLine, file: Path) -> Path:
    """Kill a backup in the middle, and return the file that it leaves."""
    command = [sys.executable, "-c", _KILLED, "--data-dir", str(cli.data), "db", "backup", str(file)]
    ended = subprocess.run(command, capture_output=True, timeout=180, check=False)
    assert ended.returncode == -9, ended.stderr
    (left,) = [path for path in file.parent.iterdir() if path.name.endswith(".partial")]
    return left


def unfinished(cli: CommandLine) -> list[str]:
    cli.env["WEFTLINE_PORT"] = str(free_port())
    return [each["detail"] for each in cli.json("doctor")["checks"] if each["check"] == "Unfinished files"]


def test_the_file_of_a_killed_backup_is_named_by_doctor_and_removed_by_the_next(
    filled: CommandLine, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    left = killed_backup(filled, elsewhere / "a.zip")
    assert left.stat().st_mode & 0o077 == 0
    (detail,) = unfinished(filled)
    assert str(left) in detail
    # Also by a backup to another folder.
    filled.run("db", "backup", str(tmp_path / "b.zip"))
    assert not left.exists()
    assert unfinished(filled) == []
    assert [path.name for path in elsewhere.iterdir()] == []


def test_a_backup_does_not_remove_the_file_of_one_that_runs(filled: CommandLine, tmp_path: Path) -> None:
    left = killed_backup(filled, tmp_path / "a.zip")
    with left.open("rb") as running:
        fcntl.flock(running, fcntl.LOCK_EX)
        filled.run("db", "backup", str(tmp_path / "b.zip"))
        assert left.exists()
        assert unfinished(filled) == []
    filled.run("db", "backup", str(tmp_path / "c.zip"))
    assert not left.exists()


def test_an_export_removes_what_a_killed_one_left(filled: CommandLine, tmp_path: Path) -> None:
    left = killed_backup(filled, tmp_path / "a.zip")
    other = tmp_path / "notes.partial"
    other.write_text("of another program")
    filled.run("export", "--session", "launch", "--output", str(tmp_path / "launch.ndjson"))
    assert not left.exists()
    assert other.exists()


def test_tables_are_backed_up_in_small_pages(
    filled: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "_PAGE_BYTES", 300)
    monkeypatch.setattr(making, "_FIRST_PAGE_ROWS", 1)
    seen: list[tuple[int, int]] = []

    async def run() -> backup.Manifest:
        database = connect(str(filled.data / "weftline.db"))
        await database.open()
        try:
            store = ObjectFolder(filled.data / "objects")
            return await backup.back_up(database, store, tmp_path / "p.zip", SystemClock(), lambda *s: seen.append(s))
        finally:
            await database.close()

    manifest = asyncio.run(run())
    assert seen[-1] == (manifest.rows, manifest.rows)
    assert len(seen) > sum(content.rows > 0 for content in manifest.tables.values())
    other = CommandLine(tmp_path / "other", dict(filled.env))
    other.run("db", "restore", str(tmp_path / "p.zip"))
    assert _contents(other) == _contents(filled)


async def test_a_database_with_pending_migrations_is_not_backed_up(tmp_path: Path) -> None:
    database = connect(str(tmp_path / "weftline.db"))
    await database.open()
    with pytest.raises(WeftlineError, match="lacks migrations"):
        await backup.back_up(database, ObjectFolder(tmp_path), tmp_path / "b.zip", SystemClock())
    await database.close()


def test_the_schema_is_migrated_and_shown(cli: CommandLine) -> None:
    assert cli.json("db", "status", code=1)["code"] == "INSTALLATION_NOT_FOUND"
    assert cli.json("db", "migrate")["applied"][0] == "0001_foundation"
    assert cli.json("db", "migrate")["applied"] == []
    status = cli.json("db", "status")
    assert status["current"] is True
    assert all(step["applied_at"] for step in status["steps"])


LARGE = b"a value too large for the database" * 1_000


def _store_large_value(cli: CommandLine) -> Pointer:
    """Store a value in the command line's object folder."""
    pointer = Pointer.to("acme", "planner", LARGE)

    async def run() -> None:
        database = connect(str(cli.data / "weftline.db"))
        await database.open()
        await Objects(database, ObjectFolder(cli.data / "objects"), SystemClock()).stage("acme", "planner", [LARGE])
        await database.write(Scope("acme"), lambda tx: keep_staged([pointer], ObjectIndex(tx)))
        await database.close()

    asyncio.run(run())
    return pointer


@pytest.mark.req("CE-F4")
def test_large_values_move_from_folder_to_bucket_and_back(filled: CommandLine, tmp_path: Path) -> None:
    pointer = _store_large_value(filled)
    made = filled.json("db", "backup", str(tmp_path / "there.zip"))
    assert (made["objects"], made["object_bytes"]) == (1, len(LARGE))
    with s3_service() as service, new_bucket(service) as bucket:
        settings = {
            "WEFTLINE_OBJECT_STORE_URL": f"s3://{bucket.name}/weftline",
            "WEFTLINE_OBJECT_STORE_ENDPOINT": service,
            "WEFTLINE_OBJECT_STORE_REGION": REGION,
            "WEFTLINE_OBJECT_STORE_VERSIONING": "required",
        }
        other = CommandLine(tmp_path / "other", filled.env | CREDENTIALS | settings)
        other.run("db", "restore", str(tmp_path / "there.zip"))
        assert bucket.names() == [f"weftline/{pointer.object}"]
        assert not (other.data / "objects").exists()
        other.run("db", "backup", str(tmp_path / "back.zip"))
    restored = CommandLine(tmp_path / "restored", dict(filled.env))
    restored.run("db", "restore", str(tmp_path / "back.zip"))
    assert (restored.data / "objects" / pointer.object).read_bytes() == LARGE
    assert _contents(restored) == _contents(filled)


def test_a_missing_large_value_fails_the_backup_or_is_skipped(filled: CommandLine, tmp_path: Path) -> None:
    pointer = _store_large_value(filled)
    (filled.data / "objects" / pointer.object).unlink()
    path = tmp_path / "weftline.zip"
    stderr = filled.run("db", "backup", str(path), code=1).stderr
    assert "BACKUP_INCOMPLETE" in stderr
    assert pointer.object in stderr
    assert "--skip-damaged" in stderr
    made = filled.json("db", "backup", str(path), "--skip-damaged")
    assert (made["objects"], made["omitted"]) == (0, [pointer.object])
    other = CommandLine(tmp_path / "other", dict(filled.env))
    assert other.json("db", "restore", str(path))["omitted"] == [pointer.object]
