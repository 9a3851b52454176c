"""Threads of LangGraph on boards: a session each, and a key whose versions are the checkpoints of a namespace.

Old versions do not count as content of the board, so a thread may have thousands of checkpoints. Values are documents
as the saver makes them, with an ``id``, a namespace ``ns`` and a ``run_id``.
"""

from __future__ import annotations

import json
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from weftline.adapters.keys import session_name
from weftline.adapters.packed import pack, unpack
from weftline.errors import (
    BranchNotFound,
    ContentBlocked,
    ContentQuarantined,
    InvalidInput,
    KeyNotFound,
    QuotaExceeded,
    SessionNotFound,
    VersionConflict,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from weftline.adapters.bridge import Bridge

    # A stored write: task, index, channel, path of the task, type and content of the value.
    Write = tuple[str, int, str, str, str, str]

_THREAD, _SESSION = "langgraph_thread", "thread-"
_STATE, _WRITES, _REMOVED = "state", "writes", "removed_runs"
# The writes of a few checkpoints stay in one value: those of the last one may arrive after the next one.
_CHECKPOINTS_WITH_WRITES = 3
_PAGE = 200
# As much as the largest plan allows; the error of a smaller one says what it allows.
_LIMITS = {"max_value_tokens": 300_000, "max_total_tokens": 1_000_000, "keep_versions": 10_000}


class Line(NamedTuple):
    """A namespace of a thread: its checkpoints, oldest first, and the writes of each."""

    thread_id: str
    ns: str
    checkpoints: dict[str, dict[str, Any]]
    writes: dict[str, list[Write]]

    @property
    def latest(self) -> str | None:
        return next(reversed(self.checkpoints), None)


def session_of(thread_id: str) -> str:
    """Return the id of the session that has the checkpoints of a thread; its board is ``board:ID``."""
    return session_name(thread_id, prefix=_SESSION)


def _key(name: str, ns: str) -> str:
    """Return the board key of a namespace; the root graph has the plain name."""
    return f"{name}:{sha256(ns.encode()).hexdigest()[:32]}" if ns else name


class Threads:
    """Reads and writes threads, in steps."""

    def __init__(self, bridge: Bridge, branch: str | None) -> None:
        self._bridge = bridge
        self._weftline = bridge.weftline
        self._branch = branch

    def head(self, thread_id: str, ns: str, checkpoint_id: str | None) -> Generator[Any, Any, Line]:
        """Return the line with the newest checkpoint, or with the named one; only with others if it is an older one."""
        keys = (_key(_STATE, ns), _key(_WRITES, ns), _REMOVED)
        latest, writes, removed = yield from self._read(thread_id, keys)
        if latest and latest["id"] == (checkpoint_id or latest["id"]) and latest["run_id"] not in (removed or ()):
            rows = _rows((writes or {}).get("checkpoints", {}).get(latest["id"]))
            return Line(thread_id, ns, {latest["id"]: latest}, {latest["id"]: rows})
        return (yield from self.line(thread_id, ns))

    def line(self, thread_id: str, ns: str, *, pruned: bool = False) -> Generator[Any, Any, Line]:
        """Return what a namespace has had; ``pruned``: also what was before a prune, which delta channels may need."""
        (removed,) = yield from self._read(thread_id, (_REMOVED,))
        checkpoints: dict[str, dict[str, Any]] = {}
        for document in (yield from self._past(thread_id, _key(_STATE, ns))):
            if document["id"] in checkpoints:
                # Rolled back, or the thread was pruned to it: what lay between does not count any more.
                names = list(checkpoints)
                for later in names[names.index(document["id"]) :]:
                    del checkpoints[later]
            if document.get("pruned") and not pruned:
                checkpoints.clear()
            checkpoints[document["id"]] = document
        writes: dict[str, list[Write]] = {}
        for document in (yield from self._past(thread_id, _key(_WRITES, ns))):
            for checkpoint_id, packed in document["checkpoints"].items():
                writes[checkpoint_id] = _merged(writes.get(checkpoint_id, []), _rows(packed))
        retained = {name: each for name, each in checkpoints.items() if each["run_id"] not in (removed or ())}
        return Line(thread_id, ns, retained, writes)

    def lines(self, thread_id: str, *, pruned: bool = False) -> Generator[Any, Any, list[Line]]:
        """Return the lines of all namespaces of a thread."""
        try:
            listed = yield self._weftline.board.list_keys(
                session_of(thread_id), prefix=_STATE, values=True, branch=self._branch
            )
        except SessionNotFound:
            return []
        lines = []
        for each in listed.keys:
            line = yield from self.line(thread_id, each.value["ns"], pruned=pruned)
            lines += [line]
        return lines

    def all(self) -> Generator[Any, Any, list[str]]:
        """Return the ids of all threads."""
        cursor, found = None, list[str]()
        while True:
            page = yield self._weftline.session.list(limit=_PAGE, cursor=cursor)
            found += [each.metadata[_THREAD] for each in page.sessions if _THREAD in each.metadata]
            if not page.has_more:
                return found
            cursor = page.next_cursor

    def write_checkpoint(self, thread_id: str, document: dict[str, Any]) -> Generator[Any, Any, None]:
        """Write the next checkpoint of a thread."""
        shown = document.get("shown")
        reason = f"checkpoint {document['id']}"
        if shown:
            reason = f"step {shown['step']} ({shown['source']}), {reason}"
        weftline: Any = self._weftline  # all clients have a correlation
        if document["run_id"]:
            with suppress(InvalidInput):
                weftline = weftline.with_correlation(task_id=document["run_id"])
        plain = {name: value for name, value in document.items() if name != "shown"}
        for value in (document, plain):
            try:
                return (yield from self._write(thread_id, _key(_STATE, document["ns"]), value, reason, weftline))
            except (ContentBlocked, ContentQuarantined):
                # The words beside the state, which the policy refuses.
                if value is plain:
                    raise
        return None

    def add_writes(
        self, thread_id: str, ns: str, checkpoint_id: str, rows: Iterable[Write]
    ) -> Generator[Any, Any, None]:
        """Add writes to those of a checkpoint."""

        def add(known: dict[str, Any] | None) -> dict[str, Any]:
            checkpoints = dict((known or {}).get("checkpoints", {}))
            merged = _merged(_rows(checkpoints.pop(checkpoint_id, None)), rows)
            checkpoints[checkpoint_id] = pack(json.dumps(merged).encode())
            newest = list(checkpoints)[-_CHECKPOINTS_WITH_WRITES:]
            return {"checkpoints": {each: checkpoints[each] for each in newest}}

        yield from self._change(thread_id, _key(_WRITES, ns), add)

    def prune(self, thread_id: str) -> Generator[Any, Any, None]:
        """Leave only the newest checkpoint of each namespace."""
        for line in (yield from self.lines(thread_id)):
            if line.latest:
                yield from self.write_checkpoint(thread_id, {**line.checkpoints[line.latest], "pruned": True})

    def remove_run(self, run_id: str) -> Generator[Any, Any, None]:
        """Remove the checkpoints of a run from all threads."""
        for session_id in sorted((yield from self._sessions_of_run(run_id))):
            thread_id = (yield self._weftline.session.get(session_id)).session.metadata[_THREAD]
            yield from self._change(thread_id, _REMOVED, lambda known: sorted({*(known or []), run_id}))

    def delete(self, thread_id: str) -> Generator[Any, Any, None]:
        """Delete a thread with all that was stored of it, or the branch."""
        session_id = session_of(thread_id)
        with suppress(SessionNotFound, BranchNotFound):
            if self._branch is None:
                yield self._weftline.session.delete(session_id, force=True)
            else:
                yield self._weftline.history.delete_branch(f"board:{session_id}", self._branch, force=True)

    def _past(self, thread_id: str, key: str) -> Generator[Any, Any, list[dict[str, Any]]]:
        try:
            history = yield self._weftline.board.read_history(session_of(thread_id), key, branch=self._branch)
        except (SessionNotFound, KeyNotFound):
            return []
        return [] if history.ended else [each.value for each in history.versions if not each.pruned]

    def _read(self, thread_id: str, keys: tuple[str, ...]) -> Generator[Any, Any, list[Any]]:
        try:
            found = yield self._weftline.board.read_batch(session_of(thread_id), keys, branch=self._branch)
        except SessionNotFound:
            return [None] * len(keys)
        values = {each.key: each.value for each in found.entries}
        return [values.get(key) for key in keys]

    def _change(self, thread_id: str, key: str, change: Callable[[Any], Any]) -> Generator[Any, Any, None]:
        """Replace a value by what is made of it, again if another process was faster."""
        session_id = session_of(thread_id)
        lock = self._bridge.lock(f"{session_id}/{key}")
        yield lock.acquire()
        try:
            while True:
                entry = None
                with suppress(SessionNotFound):
                    found = yield self._weftline.board.read_batch(session_id, [key], branch=self._branch)
                    entry = next(iter(found.entries), None)
                value, version = (entry.value, entry.version) if entry else (None, 0)
                with suppress(VersionConflict):
                    return (yield from self._write(thread_id, key, change(value), None, self._weftline, version))
        finally:
            lock.release()

    def _write(
        self,
        thread_id: str,
        key: str,
        value: Any,  # noqa: ANN401 - JSON
        reason: str | None,
        weftline: Any,  # noqa: ANN401 - any client
        if_version: int | None = None,
    ) -> Generator[Any, Any, None]:
        session_id = session_of(thread_id)
        options = {"branch": self._branch, "reason": reason, "if_version": if_version}
        try:
            yield weftline.board.write(session_id, key, value, **options)
        except SessionNotFound:
            yield from self._create(thread_id)
            yield weftline.board.write(session_id, key, value, **options)

    def _create(self, thread_id: str) -> Generator[Any, Any, None]:
        """Create the session of a thread, with the limits that the tenant's plan allows."""
        limits = dict(_LIMITS)
        while True:
            size = limits["max_value_tokens"]
            config = {**limits, "warn_value_tokens": size, "advise_value_tokens": size, "namespaces": True}
            try:
                yield self._weftline.session.create(
                    f"Thread {thread_id} of LangGraph",
                    session_id=session_of(thread_id),
                    metadata={_THREAD: thread_id},
                    # The state is no text to find by its meaning.
                    config={**config, "semantic_search": False},
                    exist_ok=True,
                )
            except QuotaExceeded as refused:
                allowed = {"limit_keep_versions": refused.context.get("limit_versions"), **refused.context}
                lower = {name: allowed.get(f"limit_{name}") or limit for name, limit in limits.items()}
                if lower == limits:
                    raise
                limits = lower
            else:
                return

    def _sessions_of_run(self, run_id: str) -> Generator[Any, Any, set[str]]:
        after, found = None, set[str]()
        while True:
            page = yield self._weftline.records.list(task_id=run_id, types=["context_item"], limit=_PAGE, after=after)
            lines = [str(each.record["metadata"]["weftline"]["line"]) for each in page.records]
            found |= {
                line.removeprefix("board:").partition("@")[0] for line in lines if line.startswith("board:thread-")
            }
            after = page.next_after
            if after is None:
                return found


def _rows(packed: list[int] | None) -> list[Write]:
    return [] if packed is None else [tuple(row) for row in json.loads(unpack(packed))]


def _merged(known: Iterable[Write], new: Iterable[Write]) -> list[Write]:
    """Return writes of a checkpoint with more of them: what a task repeats stays, an error changes."""
    by_place = {(row[0], row[1]): row for row in known}
    for row in new:
        if row[1] < 0 or (row[0], row[1]) not in by_place:
            by_place[row[0], row[1]] = row
    return list(by_place.values())
