"""History of Microsoft Agent Framework: the messages of a session as they were, for every process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weftline.adapters.bridge import Bridge, missing_framework
from weftline.adapters.entries import Entries
from weftline.adapters.keys import key_part
from weftline.adapters.packed import pack_json, unpack_json

try:
    from agent_framework import HistoryProvider, InMemoryHistoryProvider, Message
    from agent_framework._sessions import filter_new_messages  # what its own providers leave out of a repeated turn
except ImportError as error:
    raise missing_framework("agent-framework", error) from error

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from weftline.client._operations import Operations, SyncOperations


class WeftlineHistoryProvider(HistoryProvider):
    """A history provider over any client of Weftline: ``Agent(..., context_providers=[...])``.

    Messages are in the private memory of the agent that the client acts as, compressed. If Weftline fails, or a session
    has no id, they stay in the state of the session, with a warning for a failure; with ``strict``, the call fails.
    Other options are those of ``HistoryProvider``.
    """

    DEFAULT_SOURCE_ID = "weftline_history"

    def __init__(
        self,
        weftline: Operations | SyncOperations,
        source_id: str = DEFAULT_SOURCE_ID,
        *,
        strict: bool = False,
        **options: Any,  # noqa: ANN401 - those of HistoryProvider
    ) -> None:
        super().__init__(source_id, **options)
        self.bridge = Bridge(weftline, strict=strict)
        self._entries = Entries(self.bridge, "agent-framework-history", "History of Microsoft Agent Framework")
        self._local = InMemoryHistoryProvider(source_id)

    async def get_messages(
        self,
        session_id: str | None,
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,  # noqa: ANN401, ARG002 - of other providers
    ) -> list[Message]:
        stored: Sequence[Message] = ()
        if session_id:
            stored = await self.bridge.arun(self.bridge.guarded(self._stored(session_id), tuple))
        return [*stored, *await self._local.get_messages(session_id, state=state)]

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,  # noqa: ANN401, ARG002
    ) -> None:
        is_stored = False
        if session_id and messages:
            is_stored = await self.bridge.arun(self.bridge.guarded(self._save(session_id, messages), lambda: False))
        if not is_stored:
            await self._local.save_messages(session_id, messages, state=state)

    async def delete_messages(self, session_id: str) -> None:
        """Forget the messages of a session."""
        await self.bridge.arun(self.bridge.guarded(self._delete(session_id), lambda: None))

    def _stored(self, session_id: str) -> Generator[Any, Any, list[Message]]:
        entries = yield from self._entries.list(_prefix(session_id))
        return [Message.from_dict(unpack_json(entry.value)) for entry in entries]

    def _save(self, session_id: str, messages: Sequence[Message]) -> Generator[Any, Any, bool]:
        existing = yield from self._stored(session_id)
        for message in filter_new_messages(existing, messages):
            yield from self._entries.append(_prefix(session_id), pack_json(message.to_dict()))
        return True

    def _delete(self, session_id: str) -> Generator[Any, Any, None]:
        for entry in (yield from self._entries.list(_prefix(session_id), values=False)):
            yield from self._entries.delete(entry.key)


def _prefix(session_id: str) -> str:
    return f"messages/{key_part(session_id)}/"
