"""The memory that a session has: one version of the agent's own, and of that of its teams and users.

A pull pins them, and so does the first prompt of a session that has not pulled. They move together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.history.composite_lines import PartVersion
from weftline.history.model import EMPTY, Head
from weftline.sessions.model import lock_active_session
from weftline.state.agent_context.model import ContextLine
from weftline.state.agent_context.owners import is_shared, readable_memory_owners
from weftline.state.agent_context.store import UNSEEN, PinnedContext

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weftline.state.agent_context.service import Contexts


async def pin_first_memory(contexts: Contexts, session_id: str) -> None:
    """Pin the current memory of the caller in a session, unless it has pinned one.

    The agent has not seen it, so a push still has to name the version that it is based on.
    """
    if await contexts.snapshots.find(session_id, contexts.actor.principal_id) is not None:
        return
    await lock_active_session(session_id, contexts.actor, contexts.sessions)
    # A concurrent first prompt may have pinned it before this one got the lock.
    if await contexts.snapshots.find(session_id, contexts.actor.principal_id) is None:
        root = await _head(contexts, contexts.actor.principal_id)
        # Pruning keeps the parts of a pinned root.
        await pin_memory(contexts, session_id, root, (), is_seen=False)


async def pin_memory(
    contexts: Contexts, session_id: str, root: Head, parts: Iterable[PartVersion], *, is_seen: bool
) -> PinnedContext:
    """Pin a version of the caller's context, with the current memory of its teams and users; the session is locked.

    History keeps every part of it.
    """
    held = PinnedContext(
        session_id=session_id,
        principal_id=contexts.actor.principal_id,
        line_id=root.line_id,
        held_line=await _line_of_commit(contexts, root),
        version=root.seq,
        hash=root.hash,
        known=root.seq if is_seen else UNSEEN,
        known_hash=root.hash if is_seen else EMPTY,
        pulled_at=contexts.now,
        shared=tuple([await _shared_version(contexts, owner) for owner in _shared_owners(contexts)]),
    )
    await contexts.snapshots.put(held, parts)
    return held


def _shared_owners(contexts: Contexts) -> list[str]:
    return sorted(filter(is_shared, readable_memory_owners(contexts.actor)))


async def _shared_version(contexts: Contexts, owner: str) -> PartVersion:
    root = await _head(contexts, owner)
    return PartVersion(await _line_of_commit(contexts, root), root.seq, root.hash.hex())


async def _head(contexts: Contexts, owner: str) -> Head:
    """Return the head of the branch that the caller uses; nothing of a branch that was deleted."""
    trunk = ContextLine(owner, None, None)
    switch = await contexts.checkouts.of(trunk.line_id, contexts.actor.principal_id)
    if switch is None:
        return await contexts.head(trunk)
    return Head.of_new_line(trunk.line_id) if switch.gone else await contexts.head(trunk._replace(branch=switch.branch))


async def _line_of_commit(contexts: Contexts, root: Head) -> str:
    """Return the line that a version was committed to: a branch inherits versions."""
    return (await contexts.lines.past(root.line_id, root.seq))[0].line_id
