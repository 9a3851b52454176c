"""LlamaIndex: a chat store, and a block of its memory with what other agents wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weftline.adapters.bridge import Bridge, missing_framework, with_and_without_await
from weftline.adapters.entries import Entries
from weftline.adapters.keys import escape, key_part, unescape
from weftline.adapters.packed import pack_json, unpack_json

try:
    from llama_index.core.llms import ChatMessage
    from llama_index.core.storage.chat_store import BaseChatStore, SimpleChatStore
    from pydantic import PrivateAttr
except ImportError as error:
    raise missing_framework("llama-index", error) from error

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from weftline.client._operations import Operations, SyncOperations

_NAMES, _MESSAGES = "names/", "messages/"


class WeftlineChatStore(BaseChatStore):
    """A chat store over any client of Weftline: ``ChatMemoryBuffer.from_defaults(chat_store=..., chat_store_key=...)``.

    Messages are in the private memory of the agent that the client acts as, compressed. If Weftline fails, they stay in
    this process, with a warning; with ``strict``, the call fails.
    """

    _bridge: Bridge = PrivateAttr()
    _entries: Entries = PrivateAttr()
    _local: SimpleChatStore = PrivateAttr()

    def __init__(self, weftline: Operations | SyncOperations, *, strict: bool = False) -> None:
        super().__init__()
        self._bridge = Bridge(weftline, strict=strict)
        self._entries = Entries(self._bridge, "llama-index-chats", "Chats of LlamaIndex")
        self._local = SimpleChatStore()

    @classmethod
    def class_name(cls) -> str:
        return "WeftlineChatStore"

    @property
    def bridge(self) -> Bridge:
        return self._bridge

    # Steps of what LlamaIndex calls; at the end each becomes a method without and one with await.

    def _get(self, key: str) -> Generator[Any, Any, list[ChatMessage]]:
        stored: Sequence[Any] = yield from self._bridge.guarded(self._entries.list(_prefix(key)), tuple)
        messages = [ChatMessage.model_validate(unpack_json(entry.value)) for entry in stored]
        return [*messages, *self._local.get_messages(key)]

    def _add(self, key: str, message: ChatMessage) -> Generator[Any, Any, None]:
        yield from self._bridge.guarded(self._append(key, [message]), lambda: self._local.add_message(key, message))

    def _set(self, key: str, messages: list[ChatMessage]) -> Generator[Any, Any, None]:
        def replace() -> Generator[Any, Any, None]:
            before = yield from self._entries.list(_prefix(key), values=False)
            yield from self._append(key, messages)
            for entry in before:
                yield from self._entries.delete(entry.key)

        self._local.delete_messages(key)
        yield from self._bridge.guarded(replace(), lambda: self._local.set_messages(key, messages))

    def _delete_all(self, key: str) -> Generator[Any, Any, list[ChatMessage] | None]:
        messages = yield from self._get(key)

        def delete() -> Generator[Any, Any, None]:
            for entry in (yield from self._entries.list(_prefix(key), values=False)):
                yield from self._entries.delete(entry.key)
            yield from self._entries.delete(f"{_NAMES}{key_part(key)}")

        self._local.delete_messages(key)
        yield from self._bridge.guarded(delete(), lambda: None)
        return messages or None

    def _delete_one(self, key: str, idx: int) -> Generator[Any, Any, ChatMessage | None]:
        def delete() -> Generator[Any, Any, ChatMessage | None]:
            entries = yield from self._entries.list(_prefix(key))
            if not -len(entries) <= idx < len(entries):
                return self._local.delete_message(key, idx - len(entries))
            yield from self._entries.delete(entries[idx].key)
            return ChatMessage.model_validate(unpack_json(entries[idx].value))

        return (yield from self._bridge.guarded(delete(), lambda: self._local.delete_message(key, idx)))

    def _delete_last(self, key: str) -> Generator[Any, Any, ChatMessage | None]:
        if self._local.get_messages(key):
            return self._local.delete_last_message(key)
        return (yield from self._delete_one(key, -1))

    def _keys(self) -> Generator[Any, Any, list[str]]:
        stored: Sequence[Any] = yield from self._bridge.guarded(self._entries.list(_NAMES), tuple)
        return list(dict.fromkeys([*(unescape(str(entry.value)) for entry in stored), *self._local.get_keys()]))

    get_messages, aget_messages = with_and_without_await(_get)
    add_message, async_add_message = with_and_without_await(_add)
    set_messages, aset_messages = with_and_without_await(_set)
    delete_messages, adelete_messages = with_and_without_await(_delete_all)
    delete_message, adelete_message = with_and_without_await(_delete_one)
    delete_last_message, adelete_last_message = with_and_without_await(_delete_last)
    get_keys, aget_keys = with_and_without_await(_keys)

    def _append(self, key: str, messages: Sequence[ChatMessage]) -> Generator[Any, Any, None]:
        yield from self._entries.set(f"{_NAMES}{key_part(key)}", escape(key))
        for message in messages:
            yield from self._entries.append(_prefix(key), pack_json(message.model_dump(mode="json")))


def _prefix(key: str) -> str:
    return f"{_MESSAGES}{key_part(key)}/"
