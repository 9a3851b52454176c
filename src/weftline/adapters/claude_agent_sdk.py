"""Claude Agent SDK: transcripts of sessions in Weftline, to resume them on another machine; and hooks.

Transcripts are in the private memory of the agent that the client acts as, compressed. The SDK itself logs a failure of
a session store and goes on, so errors are raised here.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from weftline.adapters.bridge import Bridge, missing_framework
from weftline.adapters.conversation import Conversations, Refusal
from weftline.adapters.entries import Entries
from weftline.adapters.keys import key_part
from weftline.adapters.packed import pack_json, unpack_json
from weftline.errors import VersionConflict

try:
    from claude_agent_sdk import HookMatcher, fold_session_summary
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


class WeftlineHooks:
    """Hooks of the SDK over any client of Weftline: ``ClaudeAgentOptions(hooks=WeftlineHooks(weftline).hooks)``.

    They record what the agent hears, does and says in its window, give each prompt what others wrote that matters for
    it, and let guardrails check tools before and after. Without ``session_id``, each session of the SDK is a session of
    the same name. ``clients``: by the type of a sub-agent, the client that acts as it. ``token_budget``: of what is
    given to a prompt. If Weftline fails, Claude goes on without it, with a warning; with ``strict``, the hook fails.
    """

    def __init__(
        self,
        weftline: Operations | SyncOperations,
        *,
        session_id: str | None = None,
        clients: Mapping[str, Operations | SyncOperations] | None = None,
        strict: bool = False,
        token_budget: int | None = None,
    ) -> None:
        self._conversations = Conversations(
            weftline, clients=clients, session_id=session_id, strict=strict, token_budget=token_budget
        )
        callbacks = {
            "UserPromptSubmit": self._prompt,
            "PreToolUse": self._before_tool,
            "PostToolUse": self._after_tool,
            "Stop": self._stop,
            "SubagentStop": self._stop,
        }
        self.hooks = {event: [HookMatcher(hooks=[callback])] for event, callback in callbacks.items()}

    async def _prompt(self, hook: Mapping[str, Any], *_: object) -> dict[str, Any]:
        text = await self._run(hook, "find", hook["prompt"])
        await self._run(hook, "record", [{"role": "user", "content": hook["prompt"]}])
        return _output("UserPromptSubmit", additionalContext=text) if text else {}

    async def _before_tool(self, hook: Mapping[str, Any], *_: object) -> dict[str, Any]:
        checked = await self._run(hook, "check", hook["tool_name"], hook["tool_input"])
        if isinstance(checked, Refusal):
            return _output("PreToolUse", permissionDecision="deny", permissionDecisionReason=checked.text)
        # Whether it may be called at all is still for the user to say.
        return {} if checked == hook["tool_input"] else _output("PreToolUse", updatedInput=checked)

    async def _after_tool(self, hook: Mapping[str, Any], *_: object) -> dict[str, Any]:
        name, given, answer = hook["tool_name"], hook["tool_input"], hook["tool_response"]
        shown = await self._run(hook, "check", name, given, answer)
        if isinstance(shown, Refusal):
            shown = _withheld(answer, shown.text)
        call_id = hook["tool_use_id"]
        call = {"call_id": call_id, "name": name, "arguments": json.dumps(given)}
        events = [
            {"event_id": f"{call_id}-call", "role": "assistant", "content": "", "tool_calls": [call]},
            {"event_id": call_id, "role": "tool", "name": name, "tool_call_id": call_id, "content": _text(shown)},
        ]
        await self._run(hook, "record", events)
        return {} if shown == answer else _output("PostToolUse", updatedToolOutput=shown)

    async def _stop(self, hook: Mapping[str, Any], *_: object) -> dict[str, Any]:
        if said := hook.get("last_assistant_message"):
            await self._run(hook, "record", [{"role": "assistant", "content": said}])
        return {}

    async def _run(self, hook: Mapping[str, Any], step: str, *arguments: object) -> Any:  # noqa: ANN401 - of the step
        conversation = self._conversations.of(hook.get("agent_type"))
        return await conversation.bridge.arun(getattr(conversation, step)(hook["session_id"], *arguments))


def _output(event: str, **fields: object) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event, **fields}}


def _withheld(answer: Any, text: str) -> Any:  # noqa: ANN401 - of any tool
    """Return an answer of the same shape without what it says: the SDK shows the original in place of another shape."""
    if isinstance(answer, dict):
        return {key: _withheld(value, text) for key, value in answer.items()}
    if isinstance(answer, list):
        return [_withheld(value, text) for value in answer]
    return text if isinstance(answer, str) else answer


def _text(answer: object) -> str:
    return answer if isinstance(answer, str) else json.dumps(answer, default=str)


def _session(key: Mapping[str, Any]) -> str:
    return f"{_LOG}/{key_part(key['project_key'])}/{key_part(key['session_id'])}/"


def _transcript(key: Mapping[str, Any]) -> str:
    return f"{_session(key)}{key_part(key.get('subpath') or '')}/"
