"""Claude Agent SDK: transcripts of sessions in Weftline, to resume them on another machine.

Transcripts are in the private memory of the agent that the client acts as, compressed. The SDK itself logs a failure of
a session store and goes on, so errors are raised here.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from weftline.adapters.bridge import Bridge, missing_framework
from weftline.adapters.entries import Entries
from weftline.adapters.keys import key_part
from weftline.adapters.packed import pack_json, unpack_json
from weftline.errors import VersionConflict

try:
    from claude_agent_sdk import fold_session_summary
except ImportError as error:
    raise missing_framework("claude-agent-sdk", error) from error

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from weftline.client._operations import Operations, SyncOperations

_LOG, _SUMMARY = "log", "summary"


class WeftlineSessionStore:
    """A session store of the SDK over any client of Weftline: ``ClaudeAgentOptions(session_store=...)``."""

    def __init__(self, weftline: Operations | SyncOperations) -> None:
        self.bridge = Bridge(weftline, strict=True)
        self._entries = Entries(self.bridge, "claude-agent-sessions", "Sessions of the Claude Agent SDK")

    async def append(self, key: Mapping[str, Any], entries: list[Any]) -> None:
        if entries:
            await self.bridge.arun(self._append(key, entries))

    async def load(self, key: Mapping[str, Any]) -> list[Any] | None:
        parts = await self.bridge.arun(self._entries.list(_transcript(key)))
        entries: list[Any] = []
        known = set[str]()
        for part in parts:
            for entry in unpack_json(part.value["entries"]):
                # A batch that the SDK repeats is stored twice.
                if (name := entry.get("uuid")) is None or name not in known:
                    known.add(name)
                    entries.append(entry)
        return entries if parts else None

    async def list_sessions(self, project_key: str) -> list[Any]:
        summaries = await self.list_session_summaries(project_key)
        return [{"session_id": each["session_id"], "mtime": each["mtime"]} for each in summaries]

    async def list_session_summaries(self, project_key: str) -> list[Any]:
        entries = await self.bridge.arun(self._entries.list(f"{_SUMMARY}/{key_part(project_key)}/"))
        return [unpack_json(entry.value) for entry in entries]

    async def delete(self, key: Mapping[str, Any]) -> None:
        await self.bridge.arun(self._delete(key))

    async def list_subkeys(self, key: Mapping[str, Any]) -> list[str]:
        parts = await self.bridge.arun(self._entries.list(_session(key)))
        subpaths = (part.value["subpath"] for part in parts)
        return sorted({subpath for subpath in subpaths if subpath})

    def _append(self, key: Mapping[str, Any], entries: Sequence[Any]) -> Generator[Any, Any, None]:
        lock = self.bridge.lock(_session(key))
        yield lock.acquire()
        try:
            value = {"subpath": key.get("subpath"), "entries": pack_json(entries)}
            yield from self._entries.append(_transcript(key), value)
            if not key.get("subpath"):
                yield from self._fold(key, entries)
        finally:
            lock.release()

    def _fold(self, key: Mapping[str, Any], entries: Sequence[Any]) -> Generator[Any, Any, None]:
        """Bring the summary of a session up to date, again if another process was faster."""
        name = f"{_SUMMARY}/{key_part(key['project_key'])}/{key_part(key['session_id'])}"
        while True:
            stored = yield from self._entries.get(name)
            before = unpack_json(stored.value) if stored else None
            summary = {**fold_session_summary(before, key, list(entries)), "mtime": int(time.time() * 1000)}
            with suppress(VersionConflict):
                version = stored.version if stored else 0
                return (yield from self._entries.set(name, pack_json(summary), if_version=version))

    def _delete(self, key: Mapping[str, Any]) -> Generator[Any, Any, None]:
        entries = yield from self._entries.list(_transcript(key) if key.get("subpath") else _session(key))
        names = [entry.key for entry in entries]
        if not key.get("subpath"):
            names.append(f"{_SUMMARY}/{key_part(key['project_key'])}/{key_part(key['session_id'])}")
        for name in names:
            yield from self._entries.delete(name)


def _session(key: Mapping[str, Any]) -> str:
    return f"{_LOG}/{key_part(key['project_key'])}/{key_part(key['session_id'])}/"


def _transcript(key: Mapping[str, Any]) -> str:
    return f"{_session(key)}{key_part(key.get('subpath') or '')}/"
