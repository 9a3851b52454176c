"""The commands that make a recommended change, by operations that exist."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import msgspec

from weftline.history.item_ids import DocumentName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BOARD = "board:"


def define(agent_id: str, config: Mapping[str, Any], **changes: Any) -> str:  # noqa: ANN401 - JSON
    """Return the command that changes fields of an agent's configuration. It names them all: the whole is replaced."""
    return _command("agent define", agent_id, "--config", _encoded({**config, **changes}))


def update(agent_id: str, min_score: float) -> str:
    return _command("agent update", agent_id, "--min-score", str(min_score))


def choose_tools(session_id: str, agent_id: str) -> str:
    arguments = ("TASK", "--session", session_id, "--agent-id", agent_id, "--tools", '"auto"')
    return _command("context assemble", *arguments)


def pull(agent_id: str, session_ids: Iterable[str]) -> str:
    """Return the commands with which the agent pulls its context in some sessions."""
    return "\n".join(_command("pull", "--session", session_id, as_agent=agent_id) for session_id in session_ids)


def update_window(session_id: str, agent_id: str, shares: Mapping[str, float]) -> str:
    arguments = ("--session", session_id, "--agent-id", agent_id, "--budgets", _encoded(shares))
    return _command("window update", *arguments)


def delete_documents(uris: Iterable[str]) -> str:
    """Return the commands that delete documents."""
    names = [name for uri in uris if (name := DocumentName.parse(uri)) is not None]
    return "\n".join(_command("knowledge delete-document", name.domain, name.document_id, "--yes") for name in names)


def delete_keys(refs: Iterable[str]) -> str:
    """Return the commands that delete entries of boards."""
    places = [ref.removeprefix(BOARD).partition("/") for ref in refs]
    return "\n".join(_command("board delete", "--session", session, key, "--yes") for session, _, key in places)


def forget(refs: Iterable[str]) -> str:
    """Return the commands with which agents remove entries from their persistent memory."""
    return "\n".join(filter(None, map(_forget, refs)))


def _forget(ref: str) -> str | None:
    line_id, _, key = ref.partition("/")
    kind, owner, memory_type, *workflow = [*line_id.split(":"), "", ""][:4]
    if kind != "context" or not memory_type:
        return None
    of_workflow = ("--workflow", workflow[0]) if any(workflow) else ()
    return _command("push", "--remove", key, "--type", memory_type, *of_workflow, as_agent=owner)


def push(agent_id: str, refs: Iterable[str]) -> str:
    """Return the commands with which an agent reads entries of sessions and saves them to its persistent memory."""
    places = [ref.split(":", 2)[2].partition("/")[::2] for ref in refs]
    return "\n".join(
        f"{_command('memory get', key, '--session', session, as_agent=agent_id)}\n"
        f"{_command('push', key, 'VALUE', as_agent=agent_id)}"
        for session, key in places
    )


def remove_pins(refs: Iterable[str]) -> str:
    """Return the commands that unpin items."""
    return "\n".join(filter(None, map(remove_pin, refs)))


def remove_pin(ref: str) -> str | None:
    """Return the command that unpins a message or a key of a memory; None for anything else.

    A board key that is not pinned stays in prompts. A document is pinned by how it was added.
    """
    line_id, _, key = ref.partition("/")
    kind, owner, *rest = [*line_id.split(":"), ""][:4]
    match kind, [part for part in rest if part]:
        case "message", []:
            return _command("pin remove", "--session", owner, "--message-id", key)
        case "memory", [session_id]:
            return _command("pin remove", "--session", session_id, "--memory-key", key, as_agent=owner)
        case "memory", []:
            return _command("pin remove", "--memory-key", key, as_agent=owner)
        case "context", [memory_type, *workflow]:
            of_workflow = ("--workflow-id", workflow[0]) if workflow else ()
            arguments = ("--memory-key", key, "--memory-type", memory_type, *of_workflow)
            return _command("pin remove", *arguments, as_agent=owner)
    return None


def _command(name: str, *arguments: str, as_agent: str | None = None) -> str:
    actor = "" if as_agent is None else f" --as {shlex.quote(as_agent)}"
    return f"weftline{actor} {name} {shlex.join(arguments)}"


def _encoded(value: Mapping[str, Any]) -> str:
    return msgspec.json.encode(value).decode()
