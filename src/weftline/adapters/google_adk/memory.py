"""The memory of Google ADK: what was said, found by words and meaning, apart for each app and user."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from weftline.adapters.bridge import Bridge, missing_framework
from weftline.adapters.entries import Entries
from weftline.adapters.google_adk.contents import text_of_parts
from weftline.adapters.keys import key_part
from weftline.adapters.packed import pack_json, unpack_json
from weftline.errors import SessionNotFound

try:
    from google.adk.memory import BaseMemoryService, InMemoryMemoryService
    from google.adk.memory.base_memory_service import SearchMemoryResponse
    from google.adk.memory.memory_entry import MemoryEntry
except ImportError as error:
    raise missing_framework("google-adk", error) from error

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from google.adk.events.event import Event
    from google.adk.sessions import Session

    from weftline.client._operations import Operations, SyncOperations

_MEMORIES, _DELETED = "memories", "deleted"
_MAX_RESULTS = 10


class WeftlineMemoryService(BaseMemoryService):
    """A memory service over any client of Weftline: ``Runner(..., memory_service=...)``.

    Each event with text is an entry of the private memory of the agent that the client acts as. What was deleted stays
    deleted if its session is added again. If Weftline fails, memories stay in this process, with a warning; with
    ``strict``, the call fails.
    """

    def __init__(self, weftline: Operations | SyncOperations, *, strict: bool = False) -> None:
        self.bridge = Bridge(weftline, strict=strict)
        self._weftline = self.bridge.weftline
        self._entries = Entries(self.bridge, "google-adk-memory", "Memory of Google ADK")
        self._local = InMemoryMemoryService()

    async def add_session_to_memory(self, session: Session) -> None:
        await self.add_events_to_memory(
            app_name=session.app_name, user_id=session.user_id, events=session.events, session_id=session.id
        )

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        memories = (
            MemoryEntry(
                id=event.id,
                content=event.content,
                author=event.author,
                timestamp=datetime.fromtimestamp(event.timestamp, UTC).isoformat(),
                custom_metadata=dict(custom_metadata or {}),
            )
            for event in events
            if event.content and not event.partial
        )
        stored = await self.bridge.arun(
            self.bridge.guarded(self._add(_place(app_name, user_id), memories), lambda: False)
        )
        if not stored:
            await self._local.add_events_to_memory(
                app_name=app_name, user_id=user_id, events=events, session_id=session_id
            )

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        named = (
            each.model_copy(
                update={
                    "id": each.id or uuid4().hex,
                    "custom_metadata": each.custom_metadata | dict(custom_metadata or {}),
                }
            )
            for each in memories
        )
        await self.bridge.arun(self.bridge.guarded(self._add(_place(app_name, user_id), named), lambda: False))

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        stored: Sequence[MemoryEntry]
        stored = await self.bridge.arun(self.bridge.guarded(self._search(_place(app_name, user_id), query), tuple))
        local = await self._local.search_memory(app_name=app_name, user_id=user_id, query=query)
        return SearchMemoryResponse(memories=[*stored, *local.memories][:_MAX_RESULTS])

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        if memory_id:
            await self._local.delete_memory(app_name=app_name, user_id=user_id, memory_id=memory_id)
            place = _place(app_name, user_id)
            await self.bridge.arun(self.bridge.guarded(self._delete(place, memory_id), lambda: None))

    def _add(self, place: str, memories: Iterable[MemoryEntry]) -> Generator[Any, Any, bool]:
        known = set[str]()
        for kind in (_MEMORIES, _DELETED):
            entries = yield from self._entries.list(f"{kind}/{place}", values=False)
            known |= {entry.key.removeprefix(f"{kind}/{place}") for entry in entries}
        for memory in memories:
            text, name = text_of_parts(memory.content.parts or []), key_part(memory.id or "")
            if text and name not in known:
                known.add(name)
                about = pack_json(memory.model_dump(mode="json", exclude_none=True))
                yield from self._entries.set(f"{_MEMORIES}/{place}{name}", text, metadata={"memory": about})
        return True

    def _search(self, place: str, query: str) -> Generator[Any, Any, list[MemoryEntry]]:
        if not query.strip():
            return []
        try:
            answer = yield self._weftline.search.query(
                query,
                session_id=self._entries.session_id,
                sources=["memory"],
                prefix=f"{_MEMORIES}/{place}",
                top_k=_MAX_RESULTS,
            )
        except SessionNotFound:
            return []
        memories: list[MemoryEntry] = []
        for key in dict.fromkeys(passage.key for passage in answer.results if passage.key):
            entry = yield from self._entries.get(key)
            if entry is not None:
                memories.append(MemoryEntry.model_validate(unpack_json(entry.metadata["memory"])))
        return memories

    def _delete(self, place: str, memory_id: str) -> Generator[Any, Any, None]:
        name = key_part(memory_id)
        if (yield from self._entries.delete(f"{_MEMORIES}/{place}{name}")):
            yield from self._entries.set(f"{_DELETED}/{place}{name}", "deleted")


def _place(app_name: str, user_id: str) -> str:
    return f"{key_part(app_name)}/{key_part(user_id)}/"
