"""``Weftline.open_sync``: Weftline in the same process, for code without await."""

from __future__ import annotations

import asyncio
import inspect
import io
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from support.correlation import events_of
from weftline import SyncClient, SyncWeftline, Weftline
from weftline.errors import KeyNotFound, SessionNotFound, SystemUnavailable
from weftline.kernel.guards import warn_caller


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SyncWeftline]:
    with Weftline.open_sync(tmp_path_factory.mktemp("sync")) as weftline:
        weftline.session.create("try it", session_id="s", members=["*"])
        weftline.agent.create("planner")
        yield weftline


def own_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "weftline"]


def test_it_has_the_methods_of_the_blocking_client() -> None:
    own = {name: method for name, method in inspect.getmembers(SyncWeftline, callable) if not name.startswith("_")}
    client = {name: method for name, method in inspect.getmembers(SyncClient, callable) if not name.startswith("_")}
    del client["close"]
    assert own.keys() == {*client, "acting_as", "with_key"}
    for name, method in client.items():
        assert [*inspect.signature(own[name]).parameters] == [*inspect.signature(method).parameters]


def test_calls_return_their_answers_and_raise_their_errors(opened: SyncWeftline) -> None:
    assert opened.board.write("s", "goal", "ship").written_by == "human:admin"
    assert opened.acting_as("planner").board.read("s", "goal").value == "ship"
    key = opened.key.create("planner").api_key
    assert opened.with_key(key).board.write("s", "plan", "x").written_by == "orchestrator:planner"
    with pytest.raises(KeyNotFound):
        opened.board.read("s", "absent")


def test_correlation_ids_are_recorded(opened: SyncWeftline) -> None:
    opened.with_correlation(task_id="audit").board.write("s", "task", "x")
    (recorded,) = opened._loop.run(events_of(opened._weftline.app, "default", task_id="audit"))
    assert recorded.event.subject == "task"


def test_threads_may_call_at_the_same_time(opened: SyncWeftline) -> None:
    with ThreadPoolExecutor(8) as pool:
        versions = list(pool.map(lambda n: opened.board.write("s", "shared", str(n)).version, range(40)))
    assert sorted(versions) == list(range(1, 41))


async def test_code_inside_an_event_loop_may_call_it(opened: SyncWeftline) -> None:
    assert asyncio.get_running_loop().is_running()
    assert opened.session.get("s").session.purpose == "try it"


def test_bundles_and_files_are_read_and_written(opened: SyncWeftline) -> None:
    file = io.BytesIO()
    opened.export_to(file, session_id="s")
    file.seek(0)
    assert opened.import_from(file, session_id="copy").session_id == "copy"
    opened.knowledge.create_domain("handbook")
    assert opened.add_file("handbook", "a.md", io.BytesIO(b"# Fuel")).document_id == "a.md"


def test_a_warning_names_the_line_that_called(opened: SyncWeftline, monkeypatch: pytest.MonkeyPatch) -> None:
    called = opened._weftline.app.call

    async def warn(*arguments: Any) -> Any:
        warn_caller("mind the gap")
        return await called(*arguments)

    monkeypatch.setattr(opened._weftline.app, "call", warn)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        opened.session.get("s")
    assert [(str(each.message), each.filename) for each in caught] == [("mind the gap", __file__)]


def test_events_are_followed(opened: SyncWeftline) -> None:
    written = opened.board.write("s", "news", "1")
    events = opened.follow("s", keys=["news"], after=0)
    assert next(events).subject == "news"
    events.close()
    assert written.version == 1


def test_a_thread_that_runs_weftline_cannot_wait_for_it(opened: SyncWeftline) -> None:
    async def call_inside() -> None:
        opened.session.list()

    with pytest.raises(RuntimeError, match="call it from another thread"):
        opened._loop.run(call_inside())


def test_a_forked_process_is_told_to_open_it_anew(opened: SyncWeftline, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as forked:
        forked.setattr("os.getpid", lambda: -1)
        with pytest.raises(RuntimeError, match="open it in the new process"):
            opened.session.list()
    assert opened.session.list().count


def test_the_end_of_the_block_ends_the_thread_and_what_still_runs(tmp_path: Path) -> None:
    before = own_threads()
    with Weftline.open_sync(tmp_path) as weftline, ThreadPoolExecutor(1) as pool:
        weftline.session.create("try it", session_id="s")
        waiting = weftline.follow("s")
        following = pool.submit(next, waiting)
        while not weftline._loop._running:
            pass
        weftline._loop.stop()
        with pytest.raises(RuntimeError, match="was closed while this call ran"):
            following.result(30)
        with pytest.raises(RuntimeError, match="is closed"):
            weftline.session.list()
    assert own_threads() == before
    with Weftline.open_sync(tmp_path) as again:
        assert again.session.get("s").session.purpose == "try it"


def test_errors_in_the_block_and_at_opening_reach_the_caller(tmp_path: Path) -> None:
    before = own_threads()
    with pytest.raises(SessionNotFound), Weftline.open_sync(tmp_path) as weftline:
        weftline.session.get("absent")
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(SystemUnavailable), Weftline.open_sync(tmp_path / "file" / "data"):
        pass
    assert own_threads() == before
