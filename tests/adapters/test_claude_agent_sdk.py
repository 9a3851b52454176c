"""The session store of the Claude Agent SDK over Weftline. ``make adapters`` installs the SDK, which is large."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from weftline import SyncClient, Weftline
from weftline.errors import SystemUnavailable

pytest.importorskip("claude_agent_sdk", reason="make adapters installs the Claude Agent SDK")

from claude_agent_sdk.testing import run_session_store_conformance

from weftline.adapters.claude_agent_sdk import WeftlineSessionStore

KEY: Any = {"project_key": "-home-bo-project", "session_id": "5f84"}


def entry(name: str, **more: Any) -> Any:
    return {"type": "user", "uuid": name, **more}


async def test_it_keeps_the_fourteen_contracts_of_the_sdk(
    opened: Weftline, record_property: Callable[[str, object], None]
) -> None:
    agents = count()

    async def store() -> WeftlineSessionStore:
        agent = f"claude-{next(agents)}"
        await opened.agent.create(agent)
        place = "claude-agent-sessions"
        await opened.session.create("Sessions", session_id=place, members=["*"], exist_ok=True)
        return WeftlineSessionStore(opened.acting_as(agent))

    await run_session_store_conformance(store)
    contracts = next(agents) - 1
    record_property("conformance", f"{contracts} contracts of 14")
    assert contracts == 14


async def test_a_session_is_resumed_with_every_client(any_client: Any) -> None:
    store = WeftlineSessionStore(any_client)
    await store.delete(KEY)
    long = entry("b", message={"content": "words and more words " * 5_000}, zeros=[0, None, 1.0, "é"])
    await store.append(KEY, [entry("a"), long])
    assert await WeftlineSessionStore(any_client).load(KEY) == [entry("a"), long]
    assert [each["session_id"] for each in await store.list_sessions(KEY["project_key"])] == ["5f84"]
    await store.delete(KEY)
    assert await store.load(KEY) is None


async def test_a_batch_that_the_sdk_repeats_is_loaded_once(opened: Weftline) -> None:
    store = WeftlineSessionStore(opened)
    for _ in range(2):
        await store.append(KEY, [entry("a"), {"type": "mode"}])
    assert await store.load(KEY) == [entry("a"), {"type": "mode"}, {"type": "mode"}]


async def test_processes_that_append_at_once_lose_nothing(opened: Weftline) -> None:
    stores = [WeftlineSessionStore(opened) for _ in range(3)]
    await asyncio.gather(*(store.append(KEY, [entry(f"{n}")]) for n, store in enumerate(stores * 3)))
    assert len(await stores[0].load(KEY) or ()) == 9


async def test_the_sdk_hears_of_a_failure() -> None:
    with SyncClient("http://127.0.0.1:9", "weftline.k.k", retries=0) as nobody, pytest.raises(SystemUnavailable):
        await WeftlineSessionStore(nobody).append(KEY, [entry("a")])
