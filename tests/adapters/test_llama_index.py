"""LlamaIndex with Weftline: a chat store equal to its own, and a chat engine with its mock model."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from weftline import SyncClient, Weftline
from weftline.adapters.bridge import AdapterWarning
from weftline.errors import SystemUnavailable

pytest.importorskip("llama_index.core", reason="make adapters installs LlamaIndex")

from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.llms import ChatMessage, ImageBlock, MessageRole, MockLLM, TextBlock
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.storage.chat_store import SimpleChatStore

from weftline.adapters.llama_index import WeftlineChatStore


def message(text: str) -> ChatMessage:
    return ChatMessage(role=MessageRole.USER, content=text)


async def test_it_answers_as_the_simple_store_does_with_every_client(any_client: Any) -> None:
    answers = []
    store = WeftlineChatStore(any_client, strict=True)
    for key in await store.aget_keys():
        await store.adelete_messages(key)
    image = ChatMessage(
        role=MessageRole.ASSISTANT,
        blocks=[TextBlock(text="1.0"), ImageBlock(image=b"aW1hZ2U=", image_mimetype="image/png")],
        additional_kwargs={"zero": 0.0, "none": None},
    )
    for each in (store, SimpleChatStore()):
        heard: list[Any] = []
        await each.aset_messages("talk/é", [message("one"), image])
        await each.async_add_message("talk/é", message("three"))
        heard.append([said.model_dump() for said in await each.aget_messages("talk/é")])
        heard.append(await each.aget_messages("nobody"))
        heard.append((await each.adelete_message("talk/é", 0)).model_dump())
        heard.append((await each.adelete_last_message("talk/é")).model_dump())
        heard.append(await each.adelete_message("talk/é", 7))
        await each.aset_messages("talk/é", [message("new")])
        heard.append([said.content for said in await each.aget_messages("talk/é")])
        heard.append(await each.aget_keys())
        heard.append([said.content for said in await each.adelete_messages("talk/é") or []])
        heard.append([await each.aget_messages("talk/é"), await each.aget_keys()])
        answers.append(heard)
    assert answers[0] == answers[1]


async def test_a_chat_goes_on_in_another_process(opened: Weftline) -> None:
    for said in ("I am Bo.", "Who am I?"):
        memory = ChatMemoryBuffer.from_defaults(
            chat_store=WeftlineChatStore(opened, strict=True), chat_store_key="bo", tokenizer_fn=str.split
        )
        engine = SimpleChatEngine.from_defaults(llm=MockLLM(), memory=memory)
        await engine.achat(said)
    stored = await WeftlineChatStore(opened, strict=True).aget_messages("bo")
    assert [each.role.value for each in stored] == ["user", "assistant", "user", "assistant"]
    # The mock model repeats its whole prompt.
    assert "I am Bo." in str(stored[-1].content)


async def test_a_chat_goes_on_without_weftline_and_its_user_is_warned_once() -> None:
    with SyncClient("http://127.0.0.1:9", "weftline.k.k", retries=0) as nobody:
        store = WeftlineChatStore(nobody)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", AdapterWarning)
            await store.async_add_message("k", message("one"))
            assert [each.content for each in await store.aget_messages("k")] == ["one"]
            assert (await store.adelete_last_message("k") or message("")).content == "one"
        assert len([each for each in warned if each.category is AdapterWarning]) == 1
        with pytest.raises(SystemUnavailable):
            await WeftlineChatStore(nobody, strict=True).aget_messages("k")
