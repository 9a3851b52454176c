"""Who gives an agent instructions: events of the role system or the category SYSTEM.

Those above it: its ancestors, and humans who may define it. An agent itself only hands over the system prompt that its
definition has. Whatever else it writes as system text is refused, or quoted as data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.kernel.errors import SelfModification
from weftline.kernel.identity import SYSTEM_ID, PrincipalKind, principal_of
from weftline.models.language_models.rendering import plain_text
from weftline.sessions.messages.categories import ProtectedCategory
from weftline.state.agent_context.permissions import EDITOR_CLEARANCE, check_may_define, find_agent
from weftline.state.agent_context.views import persona_text
from weftline.windows.agent_settings import defined_texts
from weftline.windows.model import is_from_agent, is_instruction

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from weftline.access.model import Principal
    from weftline.access.sql import AccessStore
    from weftline.history.store import LineStore
    from weftline.kernel.identity import Actor
    from weftline.windows.model import WindowEvent

_REGISTER = (
    "Leave it out: your prompts begin with what your definition says. To hand over the fixed system prompt of your "
    "runtime, let the agent above you, or a human, register the same text as your system_prompt with `agent.define`."
)


async def registered(events: Sequence[WindowEvent], agent_id: str, lines: LineStore) -> frozenset[str]:
    """Return the ids of the events whose text the definition of the agent has: all of it, or whole paragraphs."""
    if not events:
        return frozenset()
    defined = f"\n\n{persona_text(*await defined_texts(agent_id, lines))}\n\n"
    return frozenset(event.event_id for event in events if f"\n\n{_text(event)}\n\n" in defined or not _text(event))


async def check_may_instruct(actor: Actor, readers: AbstractSet[str], access: AccessStore) -> None:
    """Raise unless the caller may give instructions to every agent that reads the window."""
    if actor.is_subagent:
        raise ProtectedCategory(
            "Sub-agents add no SYSTEM events, and none of the role system, to the windows of others: only "
            "orchestrators and humans instruct others."
        )
    for reader in sorted(readers - {actor.principal_id}):
        await check_may_define(actor, await find_agent(reader, access), access)


def is_own(actor: Actor, readers: AbstractSet[str]) -> bool:
    """Tell whether the caller is an agent that would read its own instruction."""
    return actor.kind is PrincipalKind.AGENT and actor.principal_id in readers


def self_written() -> SelfModification:
    return SelfModification(
        "You cannot write your own system text: only those above you define it.", hint=_REGISTER, related=()
    )


def left_behind() -> SelfModification:
    return SelfModification(
        "You cannot remove the instructions that those above you gave you.",
        hint="Keep them: merge the branch that has them, or ask the agent above you, or a human, to make this change.",
        related=(),
    )


def is_from_above(event: WindowEvent, agent_id: str) -> bool:
    """Tell whether an event, as an agent reads it, is an instruction that somebody above the agent gave."""
    return is_instruction(event) and not _is_of_weftline(event) and principal_of(event.author) != agent_id


def doubtful(events: Sequence[WindowEvent], agent_id: str) -> list[WindowEvent]:
    """Return the instructions that are system text only if their authors may instruct the reader."""
    return [
        event
        for event in events
        if is_instruction(event) and not _is_registered(event, agent_id) and not _is_of_weftline(event)
    ]


def may_instruct(
    event: WindowEvent, reader: Principal, above: AbstractSet[str], authors: Mapping[str, Principal]
) -> bool:
    """Tell whether an instruction is of somebody who may define the agent that reads it.

    ``authors`` are the humans among the authors, by id.
    """
    author_id = principal_of(event.author)
    if is_from_agent(event):
        is_author = author_id in above
    else:
        author = authors.get(author_id)
        is_author = author_id == reader.principal_id or (
            author is not None and author.clearance >= max(EDITOR_CLEARANCE, reader.clearance)
        )
    return is_author


def _is_registered(event: WindowEvent, agent_id: str) -> bool:
    return event.registered and principal_of(event.author) == agent_id


def _is_of_weftline(event: WindowEvent) -> bool:
    return principal_of(event.author) == SYSTEM_ID


def _text(event: WindowEvent) -> str:
    return plain_text(event.message).strip()
