"""The session store and the hooks of the Claude Agent SDK. ``make adapters`` installs the SDK, which is large."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from weftline import SyncClient, Weftline
from weftline.adapters.bridge import AdapterWarning
from weftline.client._operations import SyncOperations
from weftline.errors import SystemUnavailable

pytest.importorskip("claude_agent_sdk", reason="make adapters installs the Claude Agent SDK")

from claude_agent_sdk.testing import run_session_store_conformance

from weftline.adapters.claude_agent_sdk import WeftlineHooks, WeftlineSessionStore

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


async def fire(hooks: WeftlineHooks, event: str, **fields: Any) -> Any:
    """Call the hooks of an event as the SDK does."""
    (matcher,) = hooks.hooks[event]
    (callback,) = matcher.hooks
    sent = {"hook_event_name": event, "session_id": "5f84", "transcript_path": "", "cwd": "/", **fields}
    answer = await callback(sent, fields.get("tool_use_id"), {"signal": None})
    return answer.get("hookSpecificOutput", {})


def tool(name: str, **fields: Any) -> dict[str, Any]:
    return {"tool_name": "Bash", "tool_input": {"command": name}, "tool_use_id": f"toolu_{name}", **fields}


async def test_hooks_record_a_turn_and_give_it_what_others_wrote_with_every_client(any_client: Any) -> None:
    async def done(step: Any) -> Any:
        return step if isinstance(any_client, SyncOperations) else await step

    await done(any_client.session.create("Slow orders", session_id="slow", exist_ok=True))
    await done(any_client.board.write("slow", "cause", "Orders are slow because the price cache was shortened."))
    hooks = WeftlineHooks(any_client, session_id="slow", strict=True)
    told = await fire(hooks, "UserPromptSubmit", prompt="Why are orders slow? Is it the price cache?")
    assert "was shortened" in told["additionalContext"]
    assert await fire(hooks, "PreToolUse", **tool("ls")) == {}
    assert await fire(hooks, "PostToolUse", **tool("ls", tool_response={"stdout": "a.py", "stderr": ""})) == {}
    assert await fire(hooks, "Stop", stop_hook_active=False, last_assistant_message="The cache.") == {}
    events = (await done(any_client.window.events("slow"))).events
    assert [each.role for each in events][:4] == ["user", "assistant", "tool", "assistant"]
    assert "a.py" in events[2].content


async def test_guardrails_deny_a_tool_and_mask_or_keep_back_what_one_answers(opened: Weftline) -> None:
    rules = [
        {"name": "no-rm", "prohibited_action": ["Bash"], "condition": "arguments.command == 'rm'"},
        {
            "name": "hide",
            "prohibited_action": ["Bash"],
            "condition": "has(answer.content) && arguments.command == 'env'",
        },
        {
            "name": "mask",
            "prohibited_action": ["Bash"],
            "condition": "has(answer.content)",
            "violation_response": "redact",
        },
    ]
    await opened.layer.define("tenant", guardrails=rules)
    hooks = WeftlineHooks(opened, strict=True)
    denied = await fire(hooks, "PreToolUse", **tool("rm"))
    assert denied["permissionDecision"] == "deny"
    assert "no-rm" in denied["permissionDecisionReason"]
    answer = {"stdout": "key AKIAIOSFODNN7EXAMPLE", "stderr": "", "interrupted": False}
    masked = (await fire(hooks, "PostToolUse", **tool("cat", tool_response=answer)))["updatedToolOutput"]
    kept_back = (await fire(hooks, "PostToolUse", **tool("env", tool_response=answer)))["updatedToolOutput"]
    # The SDK shows an answer of another shape as it was.
    assert masked.keys() == kept_back.keys() == answer.keys()
    assert "AKIA" not in str([masked, kept_back])
    assert "hide" in kept_back["stdout"]
    assert "AKIA" not in str((await opened.window.events("5f84")).events)


async def test_sub_agents_with_clients_of_their_own_have_windows_of_their_own(opened: Weftline) -> None:
    await opened.agent.create("lead")
    await opened.agent.create("reviewer", parent_id="lead")
    await opened.session.create("Review", session_id="review", members=["lead", "reviewer"])
    clients = {"code-reviewer": opened.acting_as("reviewer")}
    hooks = WeftlineHooks(opened.acting_as("lead"), session_id="review", clients=clients, strict=True)
    await fire(hooks, "UserPromptSubmit", prompt="Review it")
    await fire(hooks, "PostToolUse", **tool("ls", tool_response="a.py"), agent_id="a1", agent_type="code-reviewer")
    await fire(hooks, "SubagentStop", agent_type="code-reviewer", last_assistant_message="Good.")
    windows = {each.agent_id: each.last_number for each in (await opened.window.list("review")).windows}
    assert windows == {"lead": 1, "reviewer": 3}


async def test_claude_goes_on_without_weftline_and_its_user_is_warned_once() -> None:
    with SyncClient("http://127.0.0.1:9", "weftline.k.k", retries=0) as nobody:
        hooks = WeftlineHooks(nobody)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", AdapterWarning)
            assert await fire(hooks, "UserPromptSubmit", prompt="Go") == {}
            assert await fire(hooks, "PreToolUse", **tool("ls")) == {}
            assert await fire(hooks, "PostToolUse", **tool("ls", tool_response="a.py")) == {}
        assert len([each for each in warned if each.category is AdapterWarning]) == 1
        with pytest.raises(SystemUnavailable):
            await fire(WeftlineHooks(nobody, strict=True), "UserPromptSubmit", prompt="Go")
