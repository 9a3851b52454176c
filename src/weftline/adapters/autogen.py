"""AutoGen: a memory that is found by words and meaning, beside what other agents wrote in the session."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from weftline.adapters.bridge import Bridge, missing_framework
from weftline.errors import MemoryNotFound, SessionNotFound

try:
    from autogen_core.memory import (
        ListMemory,
        Memory,
        MemoryContent,
        MemoryMimeType,
        MemoryQueryResult,
        UpdateContextResult,
    )
    from autogen_core.models import SystemMessage, UserMessage
except ImportError as error:
    raise missing_framework("autogen", error) from error

if TYPE_CHECKING:
    from collections.abc import Generator

    from autogen_core import CancellationToken
    from autogen_core.model_context import ChatCompletionContext

    from weftline.client._operations import Operations, SyncOperations

_PREFIX = "autogen/"
_PAGE, _MAX_RESULTS = 200, 10
_TEXTS = {MemoryMimeType.TEXT, MemoryMimeType.MARKDOWN, MemoryMimeType.JSON}


class WeftlineMemory(Memory):
    """A memory over any client of Weftline: ``AssistantAgent(..., memory=[WeftlineMemory(weftline)])``.

    Contents are in the private memory of the agent that the client acts as. With ``session_id``, they belong to that
    session, and the board, messages and documents that its members see are found, too. If Weftline fails, contents stay
    in this process, with a warning; with ``strict``, the call fails.
    """

    def __init__(
        self,
        weftline: Operations | SyncOperations,
        *,
        session_id: str | None = None,
        limit: int = _MAX_RESULTS,
        strict: bool = False,
    ) -> None:
        self.bridge = Bridge(weftline, strict=strict)
        self._weftline = self.bridge.weftline
        self._session_id, self._limit = session_id, limit
        self._local = ListMemory()

    async def add(self, content: MemoryContent, cancellation_token: CancellationToken | None = None) -> None:
        if MemoryMimeType(content.mime_type) not in _TEXTS:
            raise ValueError(f"Unsupported content type: {content.mime_type}. Add text, Markdown or JSON.")
        if not await self.bridge.arun(self.bridge.guarded(self._add(content), lambda: False)):
            await self._local.add(content, cancellation_token)

    async def query(
        self,
        query: str | MemoryContent,
        cancellation_token: CancellationToken | None = None,  # noqa: ARG002 - AutoGen passes it
        **kwargs: Any,  # noqa: ANN401, ARG002
    ) -> MemoryQueryResult:
        text = query if isinstance(query, str) else _text(query.content)
        local = (await self._local.query("")).results
        stored: list[MemoryContent] = []
        if text.strip():
            stored = await self.bridge.arun(self.bridge.guarded(self._query(text), list))
        return MemoryQueryResult(results=[*stored, *local][: self._limit])

    async def update_context(self, model_context: ChatCompletionContext) -> UpdateContextResult:
        """Add what matters for the user's last message, as AutoGen's own memory does."""
        messages = await model_context.get_messages()
        asked = next((each for each in reversed(messages) if isinstance(each, UserMessage)), None)
        found = await self.query(_text(asked.content) if asked else "")
        if found.results:
            lines = "\n".join(f"{number}. {_text(each.content)}" for number, each in enumerate(found.results, 1))
            await model_context.add_message(SystemMessage(content=f"\nRelevant memory content:\n{lines}\n"))
        return UpdateContextResult(memories=found)

    async def clear(self) -> None:
        await self._local.clear()
        await self.bridge.arun(self.bridge.guarded(self._clear(), lambda: None))

    async def close(self) -> None:
        """Do nothing: the client belongs to whoever opened it."""

    def _add(self, content: MemoryContent) -> Generator[Any, Any, bool]:
        about = {"mime_type": MemoryMimeType(content.mime_type).value, "metadata": content.metadata}
        options: dict[str, Any] = {"session_id": self._session_id, "metadata": {"autogen": about}}
        key = f"{_PREFIX}{uuid4().hex}"
        try:
            yield self._weftline.memory.set(key, content.content, **options)
        except SessionNotFound:
            yield self._weftline.session.create("Memory of AutoGen", session_id=self._session_id, exist_ok=True)
            yield self._weftline.memory.set(key, content.content, **options)
        return True

    def _query(self, text: str) -> Generator[Any, Any, list[MemoryContent]]:
        options: dict[str, Any] = {"sources": ["memory"], "prefix": _PREFIX}
        if self._session_id:
            options = {"sources": ["board", "document", "memory", "message"], "session_id": self._session_id}
        try:
            answer: Any = yield self._weftline.search.query(text, top_k=self._limit, **options)
        except SessionNotFound:
            return []
        found: list[MemoryContent] = []
        for passage in answer.results:
            about = {"source": passage.source, "score": passage.score, "ref": passage.ref}
            found.append(MemoryContent(content=passage.text, mime_type=MemoryMimeType.TEXT, metadata=about))
        return found

    def _clear(self) -> Generator[Any, Any, None]:
        with suppress(SessionNotFound):
            while True:
                page: Any = yield self._weftline.memory.list(session_id=self._session_id, prefix=_PREFIX, limit=_PAGE)
                for entry in page.entries:
                    with suppress(MemoryNotFound):
                        yield self._weftline.memory.delete(entry.key, session_id=self._session_id)
                if not page.has_more:
                    return


def _text(content: object) -> str:
    if isinstance(content, list):
        return "\n".join(each for each in content if isinstance(each, str))
    return content if isinstance(content, str) else json.dumps(content)
