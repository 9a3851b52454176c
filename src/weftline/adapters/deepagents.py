"""Files of deepagents over the board of a session and the agent's private memory.

``/board/KEY`` is an entry of the board, which agents of every framework read and write; ``/board/NAMESPACE/KEY``, too,
where the session allows namespaces. ``/memories/`` is the private memory of the agent that the client acts as, in every
session; all other files are its private memory in this session. What files are, and how they are searched, is
deepagents' own ``StoreBackend``.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from weftline.adapters.bridge import Bridge, missing_framework
from weftline.adapters.entries import Entries
from weftline.adapters.keys import escape, unescape
from weftline.errors import Conflict, Forbidden, InvalidKey, KeyNotFound, Rejected, SessionNotFound, VersionConflict

try:
    from deepagents.backends import StoreBackend
    from deepagents.backends.protocol import DeleteResult, EditResult, WriteResult
    from deepagents.backends.utils import perform_string_replacement
    from langgraph.store.base import BaseStore, GetOp, Item, PutOp, Result, SearchItem, SearchOp
    from langgraph.store.memory import InMemoryStore
except ImportError as error:
    raise missing_framework("deepagents", error) from error

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from langgraph.store.base import Op

    from weftline.client._operations import Operations, SyncOperations

_BOARD, _MEMORIES, _FILES = "/board/", "/memories/", "files/"
_BOARD_PATH = re.compile(r"(?:[a-z0-9_]{1,64}/)?[a-z0-9_]{1,64}")
_NAMESPACE = ("weftline",)
# What the model reads as the result of its call: somebody decided, or the call was wrong.
_ANSWERS = (Conflict, Forbidden, Rejected, ValueError)


class _File(NamedTuple):
    """A file: its text, or base64 of another content."""

    path: str
    content: str
    encoding: str
    version: int
    created_at: datetime
    modified_at: datetime

    def item(self) -> dict[str, Any]:
        times = {"created_at": self.created_at.isoformat(), "modified_at": self.modified_at.isoformat()}
        return {
            "namespace": _NAMESPACE,
            "key": self.path,
            "value": {"content": self.content, "encoding": self.encoding, **times},
            "created_at": self.created_at,
            "updated_at": self.modified_at,
        }


class WeftlineBackend(StoreBackend):
    """A backend over any client of Weftline: ``create_deep_agent(backend=WeftlineBackend(weftline, session_id))``.

    An edit is made again if somebody has changed the file meanwhile. If Weftline fails, files stay in this process,
    with a warning; with ``strict``, the call fails. What Weftline refuses is an error that the model reads.
    """

    def __init__(self, weftline: Operations | SyncOperations, session_id: str, *, strict: bool = False) -> None:
        self.bridge = Bridge(weftline, strict=strict, raised=_ANSWERS)
        self._files = _Files(self.bridge, session_id)
        super().__init__(namespace=lambda _: _NAMESPACE, store=self._files)
        self._local = StoreBackend(namespace=lambda _: _NAMESPACE, store=self._files.local)

    def write(self, file_path: str, content: str) -> WriteResult:
        try:
            return super().write(file_path, content)
        except _ANSWERS as refused:
            return WriteResult(error=_told(refused))

    async def awrite(self, file_path: str, content: str) -> WriteResult:
        try:
            return await super().awrite(file_path, content)
        except _ANSWERS as refused:
            return WriteResult(error=_told(refused))

    def edit(
        self,
        file_path: str,
        old_string: str,
        new_string: str,
        replace_all: bool = False,  # noqa: FBT001, FBT002 - deepagents' signature
    ) -> EditResult:
        return self.bridge.run(self._edit(file_path, old_string, new_string, replace_all=replace_all))

    async def aedit(
        self,
        file_path: str,
        old_string: str,
        new_string: str,
        replace_all: bool = False,  # noqa: FBT001, FBT002
    ) -> EditResult:
        return await self.bridge.arun(self._edit(file_path, old_string, new_string, replace_all=replace_all))

    def delete(self, file_path: str) -> DeleteResult:
        try:
            return super().delete(file_path)
        except _ANSWERS as refused:
            return DeleteResult(error=_told(refused))

    async def adelete(self, file_path: str) -> DeleteResult:
        try:
            return await super().adelete(file_path)
        except _ANSWERS as refused:
            return DeleteResult(error=_told(refused))

    def _edit(self, path: str, old: str, new: str, *, replace_all: bool) -> Generator[Any, Any, EditResult]:
        try:
            return (
                yield from self.bridge.guarded(
                    self._replace(path, old, new, replace_all=replace_all),
                    lambda: self._local.edit(path, old, new, replace_all),
                )
            )
        except _ANSWERS as refused:
            return EditResult(error=_told(refused))

    def _replace(self, path: str, old: str, new: str, *, replace_all: bool) -> Generator[Any, Any, EditResult]:
        while True:
            file = yield from self._files.read(path)
            if file is None:
                return EditResult(error=f"Error: File '{path}' not found")
            if file.encoding != "utf-8":
                return EditResult(error="Error: Cannot edit binary files with text replacements.")
            changed = perform_string_replacement(file.content, old, new, replace_all)
            if isinstance(changed, str):
                return EditResult(error=changed)
            try:
                yield from self._files.write(path, changed[0], if_version=file.version)
            except VersionConflict:
                continue
            return EditResult(path=path, occurrences=changed[1])


class _Files(BaseStore):
    """The files as a store of LangGraph, which ``StoreBackend`` reads whole and writes by path."""

    def __init__(self, bridge: Bridge, session_id: str) -> None:
        self.local = InMemoryStore()
        self._bridge = bridge
        self._weftline = bridge.weftline
        self._session_id = session_id
        self._scratch = Entries(bridge, session_id, "A deep agent")
        self._memories = Entries(bridge, None, "")

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        return self._bridge.run(self._batch([*ops]))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return await self._bridge.arun(self._batch([*ops]))

    def _batch(self, ops: Sequence[Op]) -> Generator[Any, Any, list[Result]]:
        return (yield from self._bridge.guarded(self._perform(ops), lambda: self.local.batch(ops)))

    def _perform(self, ops: Sequence[Op]) -> Generator[Any, Any, list[Result]]:
        results: list[Result] = []
        for op in ops:
            result: Result = None
            if isinstance(op, GetOp):
                file = yield from self.read(op.key)
                result = Item(**file.item()) if file else None
            elif isinstance(op, SearchOp):
                # All at once: each page would read them all.
                files = [] if op.offset else (yield from self._all())
                result = [SearchItem(**file.item()) for file in files]
            elif isinstance(op, PutOp) and op.value is None:
                yield from self._delete(op.key)
            elif isinstance(op, PutOp) and op.value:
                content, encoding = op.value["content"], op.value["encoding"]
                yield from self.write(op.key, content if encoding == "utf-8" else {"base64": content})
            results.append(result)
        return results

    def read(self, path: str) -> Generator[Any, Any, _File | None]:
        """Return a file; None if there is none."""
        if not path.startswith(_BOARD):
            entry = yield from self._place(path).get(_memory_key(path))
            return _of_memory(entry) if entry else None
        if not _BOARD_PATH.fullmatch(path.removeprefix(_BOARD)):
            return None
        try:
            return _of_board((yield self._weftline.board.read(self._session_id, _board_key(path))))
        except (InvalidKey, KeyNotFound, SessionNotFound):
            return None

    def write(self, path: str, value: object, *, if_version: int | None = None) -> Generator[Any, Any, None]:
        if not path.startswith(_BOARD):
            return (yield from self._place(path).set(_memory_key(path), value, if_version=if_version))
        key, content = _board_key(path), cast("Any", value)
        try:
            yield self._weftline.board.write(self._session_id, key, content, if_version=if_version)
        except SessionNotFound:
            yield self._weftline.session.create("A deep agent", session_id=self._session_id, exist_ok=True)
            yield self._weftline.board.write(self._session_id, key, content, if_version=if_version)
        return None

    def _delete(self, path: str) -> Generator[Any, Any, None]:
        if path.startswith(_BOARD):
            with suppress(KeyNotFound):  # somebody else has deleted it
                yield self._weftline.board.delete(self._session_id, _board_key(path))
        else:
            yield from self._place(path).delete(_memory_key(path))

    def _all(self) -> Generator[Any, Any, list[_File]]:
        files: list[_File] = []
        for place in (self._memories, self._scratch):
            files += [_of_memory(entry) for entry in (yield from place.list(_FILES))]
        try:
            board = yield self._weftline.board.list_keys(self._session_id, values=True)
        except SessionNotFound:
            return files
        return files + [_of_board(entry) for entry in board.keys]

    def _place(self, path: str) -> Entries:
        return self._memories if path.startswith(_MEMORIES) else self._scratch


def _of_memory(entry: Any) -> _File:  # noqa: ANN401 - of a list, or read alone
    path = "/" + "/".join(unescape(part) for part in entry.key.removeprefix(_FILES).split("/"))
    return _file(path, entry.value, entry.version, datetime.fromtimestamp(entry.created_at, UTC), entry.updated_at)


def _of_board(entry: Any) -> _File:  # noqa: ANN401
    path = _BOARD + entry.key.replace(":", "/")
    return _file(path, entry.value, entry.version, entry.written_at, entry.written_at)


def _file(path: str, value: Any, version: int, created: Any, modified: Any) -> _File:  # noqa: ANN401 - JSON, times
    if isinstance(value, dict) and value.keys() == {"base64"}:
        return _File(path, value["base64"], "base64", version, created, modified)
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    return _File(path, text, "utf-8", version, created, modified)


def _memory_key(path: str) -> str:
    return _FILES + "/".join(escape(part) for part in path.lstrip("/").split("/"))


def _board_key(path: str) -> str:
    name = path.removeprefix(_BOARD)
    if not _BOARD_PATH.fullmatch(name):
        raise ValueError(
            f"{path} cannot be on the board: use {_BOARD}NAME of lower-case letters, digits and underscores, "
            "without an extension. Other paths are files of your own."
        )
    return name.replace("/", ":")


def _told(refused: Exception) -> str:
    hint = getattr(refused, "hint", None)
    return f"Error: {getattr(refused, 'message', refused)}" + (f" {hint}" if hint else "")
