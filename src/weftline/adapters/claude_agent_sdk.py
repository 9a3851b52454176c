"""Claude Agent SDK: transcripts of sessions in Weftline, to resume them on another machine.

Transcripts are in the private memory of the agent that the client acts as, compressed. The SDK itself logs a failure of
a session store and goes on, so errors are raised here.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, Any

from weftline.adapters.bridge import Bridge, missing_framework
from weftline.adapters.keys import escape
from weftline.adapters.packed import pack, unpack
from weftline.errors import MemoryNotFound, SessionNotFound, VersionConflict

try:
    from claude_agent_sdk import fold_session_summary
except ImportError as error:
    raise missing_framework("claude-agent-sdk", error) from error

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from weftline.client._operations import Operations, SyncOperations

_PLACE = "claude-agent-sessions"
_LOG, _SUMMARY = "log", "summary"
_PAGE = 200
_MAX_PART = 60


class WeftlineSessionStore:
    """A session store of the SDK over any client of Weftline: ``ClaudeAgentOptions(session_store=...)``."""

    def __init__(self, weftline: Operations | SyncOperations) -> None:
        self.bridge = Bridge(weftline, strict=True)
        self._weftline = self.bridge.weftline
        self._numbers = count()

    async def append(self, key: Mapping[str, Any], entries: list[Any]) -> None:
        if entries:
            await self.bridge.arun(self._append(key, entries))

    async def load(self, key: Mapping[str, Any]) -> list[Any] | None:
        parts = await self.bridge.arun(self._list(_transcript(key)))
        entries: list[Any] = []
        known = set[str]()
        for part in parts:
            for entry in json.loads(unpack(part.value["entries"])):
                # A batch that the SDK repeats is stored twice.
                if (name := entry.get("uuid")) is None or name not in known:
                    known.add(name)
                    entries.append(entry)
        return entries if parts else None

    async def list_sessions(self, project_key: str) -> list[Any]:
        summaries = await self.list_session_summaries(project_key)
        return [{"session_id": each["session_id"], "mtime": each["mtime"]} for each in summaries]

    async def list_session_summaries(self, project_key: str) -> list[Any]:
        entries = await self.bridge.arun(self._list(f"{_SUMMARY}/{_part(project_key)}/"))
        return [json.loads(unpack(entry.value)) for entry in entries]

    async def delete(self, key: Mapping[str, Any]) -> None:
        await self.bridge.arun(self._delete(key))

    async def list_subkeys(self, key: Mapping[str, Any]) -> list[str]:
        parts = await self.bridge.arun(self._list(_session(key)))
        subpaths = (part.value["subpath"] for part in parts)
        return sorted({subpath for subpath in subpaths if subpath})

    def _append(self, key: Mapping[str, Any], entries: Sequence[Any]) -> Generator[Any, Any, None]:
        lock = self.bridge.lock(_session(key))
        yield lock.acquire()
        try:
            # In the order of time, also after what other processes have stored.
            name = f"{_transcript(key)}{time.time_ns():020}-{next(self._numbers):06}"
            value = {"subpath": key.get("subpath"), "entries": pack(json.dumps(entries).encode())}
            yield from self._set(name, value)
            if not key.get("subpath"):
                yield from self._fold(key, entries)
        finally:
            lock.release()

    def _fold(self, key: Mapping[str, Any], entries: Sequence[Any]) -> Generator[Any, Any, None]:
        """Bring the summary of a session up to date, again if another process was faster."""
        name = f"{_SUMMARY}/{_part(key['project_key'])}/{_part(key['session_id'])}"
        while True:
            found = None
            with suppress(MemoryNotFound):
                found = yield self._weftline.memory.get(name, session_id=_PLACE)
            before = json.loads(unpack(found.value)) if found else None
            summary = {**fold_session_summary(before, key, list(entries)), "mtime": int(time.time() * 1000)}
            with suppress(VersionConflict):
                return (yield from self._set(name, pack(json.dumps(summary).encode()), found.version if found else 0))

    def _set(self, name: str, value: object, if_version: int | None = None) -> Generator[Any, Any, None]:
        options: dict[str, Any] = {"session_id": _PLACE, "if_version": if_version}
        try:
            yield self._weftline.memory.set(name, value, **options)
        except SessionNotFound:
            yield self._weftline.session.create("Sessions of the Claude Agent SDK", session_id=_PLACE, exist_ok=True)
            yield self._weftline.memory.set(name, value, **options)

    def _list(self, prefix: str) -> Generator[Any, Any, list[Any]]:
        entries: list[Any] = []
        cursor = None
        while True:
            try:
                page = yield self._weftline.memory.list(
                    session_id=_PLACE, prefix=prefix, values=True, limit=_PAGE, cursor=cursor
                )
            except SessionNotFound:
                return []
            entries += page.entries
            if not page.has_more:
                return entries
            cursor = page.next_cursor

    def _delete(self, key: Mapping[str, Any]) -> Generator[Any, Any, None]:
        entries = yield from self._list(_transcript(key) if key.get("subpath") else _session(key))
        names = [entry.key for entry in entries]
        if not key.get("subpath"):
            names.append(f"{_SUMMARY}/{_part(key['project_key'])}/{_part(key['session_id'])}")
        for name in names:
            with suppress(MemoryNotFound, SessionNotFound):
                yield self._weftline.memory.delete(name, session_id=_PLACE)


def _session(key: Mapping[str, Any]) -> str:
    return f"{_LOG}/{_part(key['project_key'])}/{_part(key['session_id'])}/"


def _transcript(key: Mapping[str, Any]) -> str:
    return f"{_session(key)}{_part(key.get('subpath') or '')}/"


def _part(name: str) -> str:
    """Return a name as a part of a key; a long one as its hash."""
    part = escape(name)
    return part if len(part) <= _MAX_PART else f"sha256-{sha256(name.encode()).hexdigest()[:32]}"
