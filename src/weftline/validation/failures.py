"""Failure modes: with a part of the installation broken, answers are degraded as promised, and nothing is lost."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import sys
import tempfile
import threading
from typing import TYPE_CHECKING, Any

import apsw

from weftline.jobs.session_indexing import INDEX
from weftline.kernel.errors import WeftlineError
from weftline.testing.clock import FrozenClock
from weftline.validation.board_writer import SESSION as WRITING
from weftline.validation.compaction import PlantedSession
from weftline.validation.model import Figure, all_of
from weftline.validation.temporary_weftline import (
    SESSION,
    TENANT,
    TenantCaller,
    opened,
    prepare_documents,
    temporary_settings,
    temporary_weftline,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from weftline.settings import Settings

_AGENT = "analysis"
_QUESTION = "Has a short lifetime of the price cache caused slow orders before?"
_WRITES = 20
_LOCKED_SECONDS = 0.4
_ACKNOWLEDGED = 200
_PATIENCE_SECONDS = 60
_HISTORY = 100_000
_MODEL = "gpt-5.6"

_Expectation = tuple[str, bool]


async def measure(settings: Settings) -> Sequence[Figure]:
    injected: dict[str, Callable[[Settings], Awaitable[Iterable[_Expectation]]]] = {
        "language model down": _language_model_down,
        "embedding model down": _embedder_down,
        "database slow": _database_slow,
        "caches empty": _caches_empty,
        "index files lost": _index_lost,
        "process killed": _process_killed,
    }
    return [_figure(name, await _expectations(inject, settings)) for name, inject in injected.items()]


async def _expectations(
    inject: Callable[[Settings], Awaitable[Iterable[_Expectation]]], settings: Settings
) -> list[_Expectation]:
    """Inject a failure; an error that reaches the agent is a missed expectation too."""
    try:
        return list(await inject(settings))
    except WeftlineError as error:
        return [(f"no error reaches the agent, but {error.code}", False)]


def _figure(name: str, expectations: Sequence[_Expectation]) -> Figure:
    return all_of(f"{name}: what still holds", len(expectations), [what for what, held in expectations if not held])


async def _language_model_down(settings: Settings) -> list[_Expectation]:
    changed: dict[str, Any] = {
        "chat_model": "openai:unreachable",
        "chat_url": f"{_closed_port()}/v1",
        "chat_timeout_seconds": 1,
    }
    async with temporary_weftline(settings, session_indexing="off", **changed) as admin:
        session, fields = PlantedSession(0), {"session_id": SESSION}
        await admin.call("session.create", **fields, purpose="A failure.")
        await admin.call("window.create", **fields, model_max_tokens=_HISTORY)
        await admin.call("context.ingest", **fields, events=list(session.turns()))
        done = await admin.call("context.compact", **fields, wait_seconds=60)
        prompt = await _assembled(admin, "Go on.")
    text = _text(prompt)
    return [
        ("the compaction is applied", done["state"] == "applied"),
        ("it says that it is degraded", bool(done.get("degraded"))),
        ("planted facts are kept", all(fact.is_in(text) for fact in session.planted)),
    ]


async def _embedder_down(settings: Settings) -> list[_Expectation]:
    changed: dict[str, Any] = {
        "semantic_search": "on",
        "embedder": "remote",
        "embedding_url": f"{_closed_port()}/v1",
        "embedding_model": "unreachable",
        "embedding_dimensions": 8,
    }
    async with temporary_weftline(settings, **changed) as admin:
        await admin.call("session.create", session_id=SESSION, purpose="A failure.")
        await admin.call("board.write", session_id=SESSION, key="cause", value="The price cache was shortened.")
        await admin.app.scheduler.drain(INDEX)
        found = await admin.call("search.query", query="price cache", session_id=SESSION)
        prompt = await _assembled(admin, "What happened to the price cache?")
    return [
        ("search finds by words", any("price cache" in result["text"] for result in found["results"])),
        ("it says that only words were matched", bool(found.get("lexical_only"))),
        ("prompts are assembled", "price cache was shortened" in _text(prompt)),
    ]


async def _database_slow(settings: Settings) -> list[_Expectation]:
    """Write and read while another process keeps the database locked most of the time."""
    async with temporary_weftline(settings) as admin:
        await admin.call("session.create", session_id=SESSION, purpose="A failure.")
        with _LockedNowAndThen(admin.app.settings.database_url):
            written = await asyncio.gather(
                *(
                    admin.call("board.write", session_id=SESSION, key=f"k{number}", value=str(number))
                    for number in range(_WRITES)
                )
            )
            during = await admin.call("board.list_keys", session_id=SESSION)
        stored = await admin.call("board.list_keys", session_id=SESSION)
    return [
        ("every write is acknowledged", len(written) == _WRITES),
        ("acknowledged writes are readable at once", len(during["keys"]) == _WRITES),
        ("no write is lost", len(stored["keys"]) == _WRITES),
    ]


class _LockedNowAndThen:
    """Locks a SQLite file for writers, again and again, from a thread with a connection of its own."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._locked, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()
        self._locked.wait(_PATIENCE_SECONDS)

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        connection = apsw.Connection(self._path)
        connection.set_busy_timeout(_PATIENCE_SECONDS * 1_000)
        while not self._stop.is_set():
            connection.execute("BEGIN IMMEDIATE")
            self._locked.set()
            self._stop.wait(_LOCKED_SECONDS)
            connection.execute("COMMIT")
            self._stop.wait(_LOCKED_SECONDS / 4)
        connection.close()


async def _caches_empty(settings: Settings) -> list[_Expectation]:
    """Compare the prompt of a process that has served calls with that of one that has just started."""
    clock = FrozenClock()
    with tempfile.TemporaryDirectory(prefix="weftline-validate-") as folder:
        where = temporary_settings(settings, folder)
        async with opened(where, clock) as app:
            await app.tenants.create(TENANT)
            await prepare_documents(TenantCaller(app))
            agent = TenantCaller(app).acting_as(_AGENT)
            warm = [await _assembled(agent, _QUESTION) for _ in range(2)]
        async with opened(where, clock) as app:
            cold = await _assembled(TenantCaller(app).acting_as(_AGENT), _QUESTION)
    return [
        ("the same prompt from full caches", warm[0]["prompt_hash"] == warm[1]["prompt_hash"]),
        ("the same prompt from empty caches", warm[1]["prompt_hash"] == cold["prompt_hash"]),
    ]


async def _index_lost(settings: Settings) -> list[_Expectation]:
    with tempfile.TemporaryDirectory(prefix="weftline-validate-") as folder:
        where = temporary_settings(settings, folder)
        async with opened(where) as app:
            await app.tenants.create(TENANT)
            await prepare_documents(TenantCaller(app))
            before = await _search(TenantCaller(app))
        await asyncio.to_thread(shutil.rmtree, where.index_folder, ignore_errors=True)
        async with opened(where) as app:
            after = await _search(TenantCaller(app))
    return [("search finds something", bool(before)), ("it finds the same without the files", before == after)]


async def _process_killed(settings: Settings) -> list[_Expectation]:
    """Kill a process that writes, and look for everything that it had acknowledged."""
    with tempfile.TemporaryDirectory(prefix="weftline-validate-") as folder:
        where = temporary_settings(settings, folder)
        async with opened(where) as app:
            await app.tenants.create(TENANT)
            config = {"keep_versions": 10_000}
            await TenantCaller(app).call("session.create", session_id=WRITING, purpose="A failure.", config=config)
        acknowledged = await _killed_writes(folder)
        async with opened(where) as app:
            admin = TenantCaller(app)
            stored = {
                (key, str(version["version"]), version["value"])
                for key in {key for key, _, _ in acknowledged}
                for version in (await admin.call("board.read_history", session_id=WRITING, key=key))["versions"]
            }
            inspected = await admin.call("session.inspect", session_id=WRITING)
            await admin.call("board.write", session_id=WRITING, key="after", value="alive")
    return [
        ("it had written before it was killed", len(acknowledged) >= _ACKNOWLEDGED),
        ("every acknowledged write is there", acknowledged <= stored),
        ("the history verifies", bool(inspected["history_intact"])),
    ]


async def _killed_writes(folder: str) -> set[tuple[str, str, str]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "weftline.validation.board_writer", folder, stdout=asyncio.subprocess.PIPE
    )
    output = process.stdout
    if output is None:
        raise ValueError("the process has no output")
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            lines = [await output.readline() for _ in range(_ACKNOWLEDGED)]
    finally:
        process.send_signal(signal.SIGKILL)
    lines += (await output.read()).splitlines(keepends=True)
    await process.wait()
    # The last line may be cut off.
    complete = [line.decode().split() for line in lines if line.endswith(b"\n")]
    return {(key, version, value) for key, version, value in complete}


async def _assembled(caller: TenantCaller, task: str) -> Any:  # noqa: ANN401 - JSON
    return await caller.call(
        "context.assemble", session_id=SESSION, task_description=task, model=_MODEL, token_budget=50_000, fresh=True
    )


def _text(prompt: Any) -> str:  # noqa: ANN401 - JSON
    return "\n\n".join(message.get("content") or "" for message in prompt["body"]["messages"])


async def _search(caller: TenantCaller) -> list[str]:
    found = await caller.call("search.query", query=_QUESTION, top_k=5, low_confidence=True)
    return [result["text"] for result in found["results"]]


def _closed_port() -> str:
    """Return the URL of a port of this machine on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"http://127.0.0.1:{probe.getsockname()[1]}"
