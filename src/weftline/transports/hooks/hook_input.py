"""What coding agents hand to their hooks, in one form for all of them, and the form of what they take back."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

import weftline

HookKind = Literal["start", "prompt", "tool", "answer", "subagent_start", "subagent_stop", "compact", "end"]
CLIENTS = ("claude-code", "codex", "cursor", "gemini", "opencode")
# The names of Claude Code, which Codex and our plugin for opencode use too, then those of Gemini CLI and of Cursor.
_KINDS: dict[str, HookKind] = {
    "SessionStart": "start",
    "UserPromptSubmit": "prompt",
    "PostToolUse": "tool",
    "PostToolUseFailure": "tool",
    "Stop": "answer",
    "SubagentStart": "subagent_start",
    "SubagentStop": "subagent_stop",
    "PreCompact": "compact",
    "SessionEnd": "end",
    "BeforeAgent": "prompt",
    "AfterTool": "tool",
    "AfterAgent": "answer",
    "PreCompress": "compact",
    "sessionStart": "start",
    "beforeSubmitPrompt": "prompt",
    "postToolUse": "tool",
    "postToolUseFailure": "tool",
    "afterAgentResponse": "answer",
    "subagentStart": "subagent_start",
    "subagentStop": "subagent_stop",
    "preCompact": "compact",
    "sessionEnd": "end",
}
# Cursor takes no context for a sub-agent or a prompt.
_TAKES_CONTEXT = frozenset({"SessionStart", "UserPromptSubmit", "SubagentStart", "BeforeAgent", "sessionStart"})


class UnreadableHook(ValueError):
    """The input is not that of a hook."""


@dataclass(frozen=True, slots=True)
class HookInput:
    """One event of a conversation; ``name`` is the client's name of it."""

    client: str
    name: str
    kind: HookKind | None
    conversation: str
    folder: Path
    subagent: str = ""
    text: str = ""
    tool: str = ""
    call_id: str = ""
    arguments: str = ""
    failed: bool = False
    # When it happened, if it is sent again later.
    at: datetime | None = None

    @property
    def takes_context(self) -> bool:
        return self.name in _TAKES_CONTEXT


def read_hook(client: str, body: bytes, folder: str) -> HookInput:
    """Read an input; ``folder`` is where the hook runs, for clients that do not say it."""
    try:
        given = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise UnreadableHook("it is not JSON") from error
    if not isinstance(given, dict):
        raise UnreadableHook("it is not an object")
    name = str(given.get("hook_event_name") or "")
    kind = _KINDS.get(name)
    roots = given.get("workspace_roots")
    if not given.get("cwd") and isinstance(roots, list) and roots:
        folder = str(roots[0])
    return HookInput(
        client=client,
        name=name,
        kind=kind,
        conversation=str(given.get("session_id") or given.get("conversation_id") or "unknown"),
        folder=Path(str(given.get("cwd") or folder)),
        subagent=str(given.get("agent_id") or given.get("subagent_id") or ""),
        text=_text(kind, given),
        tool=str(given.get("tool_name") or ""),
        call_id=str(given.get("tool_use_id") or ""),
        arguments=_json_text(given.get("tool_input")),
        failed="error" in given,
    )


def hook_answer(hook: HookInput, context: str, notice: str) -> bytes:
    """Return what the client reads: context for its model, and a notice for its user. Nothing is no answer at all."""
    if hook.client == "cursor":
        return msgspec.json.encode({"additional_context": context}) if context and hook.takes_context else b""
    answer: dict[str, Any] = {}
    if context and hook.takes_context:
        answer["hookSpecificOutput"] = {"hookEventName": hook.name, "additionalContext": context}
    if notice:
        answer["systemMessage"] = notice
    return msgspec.json.encode(answer) if answer else b""


def _text(kind: HookKind | None, given: dict[str, Any]) -> str:
    if kind == "prompt":
        return _shown(given.get("prompt"))
    if kind == "tool":
        names: tuple[str, ...] = ("error", "tool_response", "tool_output")
    else:
        names = ("last_assistant_message", "prompt_response", "text", "summary", "task", "prompt")
    return _shown(next((given[name] for name in names if given.get(name)), ""))


def _shown(value: object) -> str:
    """Return the text of a result: that of the fields in which tools put it, else its JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        for field in ("llmContent", "stdout", "output", "text"):
            text = value.get(field)
            if isinstance(text, str) and text:
                errors = value.get("stderr")
                return f"{text}\n{errors}" if isinstance(errors, str) and errors else text
    if isinstance(value, list) and value and all(isinstance(part, dict) and "text" in part for part in value):
        return "\n".join(str(part["text"]) for part in value)
    return msgspec.json.encode(value).decode()


def _json_text(value: object) -> str:
    if value is None:
        return "{}"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


# The configuration of hooks in each coding agent, and what each has hooks for.

_SCRIPT = "weftline-hook"
_CLAUDE_NAMES = (
    "SessionStart",
    "UserPromptSubmit",
    "PostToolUse",
    "SubagentStart",
    "SubagentStop",
    "Stop",
    "PreCompact",
)
_CODEX_NAMES = (*_CLAUDE_NAMES, "SessionEnd")
_GEMINI_NAMES = ("SessionStart", "BeforeAgent", "AfterTool", "AfterAgent", "PreCompress", "SessionEnd")
_CURSOR_NAMES = (
    "sessionStart",
    "beforeSubmitPrompt",
    "postToolUse",
    "postToolUseFailure",
    "afterAgentResponse",
    "subagentStop",
    "preCompact",
    "sessionEnd",
)
_SECONDS, _MILLISECONDS = 5, 5_000


@dataclass(frozen=True, slots=True)
class HooksFile:
    """The file in which an agent's hooks are, in the folder of the project."""

    file: str
    next_step: str


HOOK_FILES = {
    "claude-code": HooksFile(
        ".claude/settings.local.json", "Start claude here, trust the folder, and accept the plugin weftline."
    ),
    "codex": HooksFile(".codex/hooks.json", "Start codex here and trust the hooks when it asks (or in /hooks)."),
    "cursor": HooksFile(".cursor/hooks.json", "Restart Cursor; its settings list the hooks."),
    "gemini": HooksFile(".gemini/settings.json", "Start gemini here, and trust the folder."),
    "opencode": HooksFile(".opencode/plugins/weftline.js", "Start opencode here."),
}


class UnmergeableConfigError(Exception):
    """The configuration file cannot be changed without losing something."""


class PluginFilesMissing(Exception):
    """The installation has no plugins."""


def plugin_folder(name: str) -> Path:
    """Return the folder of a plugin: in the package, or in a checkout."""
    package = Path(weftline.__file__).parent
    for place in (package / "plugins", package.parent.parent / "plugins"):
        if (place / name).is_dir():
            return place / name
    raise PluginFilesMissing(name)


def hooks_in(client: str, content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of an agent's file with our hooks in it: ours of before replaced, others kept."""
    sections = ("hooks",) if client != "claude-code" else ("extraKnownMarketplaces", "enabledPlugins")
    if not isinstance(content, dict) or not all(isinstance(content.get(name, {}), dict) for name in sections):
        raise UnmergeableConfigError(f"its '{sections[0]}' is not an object")
    if client == "claude-code":
        source = {"source": "directory", "path": str(plugin_folder("claude-code"))}
        known = {**content.get("extraKnownMarketplaces", {}), "weftline": {"source": source}}
        enabled = {**content.get("enabledPlugins", {}), "weftline@weftline": True}
        return {**content, "extraKnownMarketplaces": known, "enabledPlugins": enabled}
    hooks = {event: [each for each in given if not _is_ours(each)] for event, given in content.get("hooks", {}).items()}
    for event, entry in _entries(client).items():
        hooks[event] = [*hooks.get(event, []), entry]
    version = {"version": 1} if client == "cursor" else {}
    return {**version, **content, "hooks": {event: given for event, given in hooks.items() if given}}


def _entries(client: str) -> dict[str, dict[str, Any]]:
    script = plugin_folder("claude-code") / "hooks" / _SCRIPT
    # An agent goes on if the script is not there any more.
    command = f"sh {shlex.quote(str(script))} {client} || true"
    if client == "cursor":
        return {name: {"command": command, "timeout": _SECONDS} for name in _CURSOR_NAMES}
    names, timeout = (_GEMINI_NAMES, _MILLISECONDS) if client == "gemini" else (_CODEX_NAMES, _SECONDS)
    hook = {"type": "command", "command": command, "timeout": timeout}
    return {name: {"hooks": [{**hook, "name": "weftline"} if client == "gemini" else hook]} for name in names}


def _is_ours(entry: object) -> bool:
    return _SCRIPT in str(entry)
