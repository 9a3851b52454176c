"""The commands that make a recommended change, by operations that exist."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import msgspec

from weft.capabilities.records.item_refs import DocumentName
from weft.capabilities.records.record_ids import MessageItemId

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BOARD = "board:"


def define(agent_id: str, config: Mapping[str, Any]) -> str:
    """Return the command that sets fields of an agent's configuration."""
    return _command("weft agent define", agent_id, "--config", msgspec.json.encode(config).decode())


def update(agent_id: str, min_score: float) -> str:
    return _command("weft agent update", agent_id, "--min-score", str(min_score))


def choose_tools(session_id: str) -> str:
    return _command("weft context assemble", "TASK", "--session", session_id, "--tools", '"auto"')


def pull(session_ids: Iterable[str]) -> str:
    """Return the commands with which the agent pulls its context in some sessions."""
    return "\n".join(_command("weft pull", "--session", session_id) for session_id in session_ids)


def update_window(session_id: str, agent_id: str, shares: Mapping[str, float]) -> str:
    encoded = msgspec.json.encode(shares).decode()
    return _command("weft window update", "--session", session_id, "--agent-id", agent_id, "--shares", encoded)


def delete_documents(uris: Iterable[str]) -> str:
    """Return the commands that delete documents."""
    names = [name for uri in uris if (name := DocumentName.parse(uri)) is not None]
    return "\n".join(_command("weft knowledge delete-document", name.domain, name.document_id) for name in names)


def delete_keys(refs: Iterable[str]) -> str:
    """Return the commands that delete entries of boards."""
    places = [ref.removeprefix(BOARD).partition("/") for ref in refs]
    return "\n".join(_command("weft board delete", "--session", session, key) for session, _, key in places)


def remove_pins(refs: Iterable[str]) -> str:
    """Return the commands that unpin items. The pins of documents are settings of the document."""
    return "\n".join(filter(None, map(_remove_pin, refs)))


def _remove_pin(ref: str) -> str:
    item = MessageItemId.parse(ref)
    if item is not None:
        return _command("weft pin remove", "--session", item.session_id, "--message-id", str(item.message_id))
    return f"weft pin list    # then unpin {ref}"


def _command(name: str, *arguments: str) -> str:
    return f"{name} {shlex.join(arguments)}"
