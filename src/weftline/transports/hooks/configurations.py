"""The configuration of hooks in each coding agent, and what each has hooks for."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import weftline

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
