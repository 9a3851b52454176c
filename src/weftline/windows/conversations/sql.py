"""Threads of proxied conversations in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weftline.kernel.transaction import SqlStore
from weftline.windows.conversations.model import StoredThread, Thread

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weftline.kernel.transaction import Transaction

_FIND = """
SELECT c.session_id, c.branch, c.state FROM proxied_conversations c
WHERE c.tenant = $1 AND c.agent_id = $2 AND EXISTS (
    SELECT 1 FROM proxied_conversation_keys k
    WHERE k.tenant = $1 AND k.agent_id = $2 AND k.session_id = c.session_id AND k.branch = c.branch
      AND k.key_hash {among_texts}$3{end_among_texts})
ORDER BY c.updated_at DESC, c.session_id, c.branch LIMIT $4
"""
_SAVE = """
INSERT INTO proxied_conversations (tenant, agent_id, session_id, branch, state, updated_at)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (tenant, agent_id, session_id, branch) DO UPDATE SET state = excluded.state,
    updated_at = excluded.updated_at
"""
_ADD_KEY = """
INSERT INTO proxied_conversation_keys (tenant, agent_id, key_hash, session_id, branch) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT DO NOTHING
"""
_FIND_EDITS = """
SELECT anchor, edit FROM proxied_edits
WHERE tenant = $1 AND agent_id = $2 AND conversation = $3 AND anchor {among_texts}$4{end_among_texts}
"""
_ADD_EDIT = """
INSERT INTO proxied_edits (tenant, agent_id, conversation, anchor, edit, session_id, created_at)
VALUES ($1, $2, $3, $4, $5, '', $6) ON CONFLICT DO NOTHING
"""
_SET_WHOLE = """
INSERT INTO proxied_edits (tenant, agent_id, conversation, anchor, edit, session_id, created_at)
VALUES ($1, $2, $3, $4, '', '', $5) ON CONFLICT (tenant, agent_id, conversation, anchor) DO UPDATE SET edit = ''
"""
_ADD_OUTPUT = """
INSERT INTO proxied_outputs (tenant, agent_id, handle, conversation, content, session_id, created_at)
VALUES ($1, $2, $3, $4, $5, '', $6) ON CONFLICT DO NOTHING
"""
_KEEP_ANSWER = """
INSERT INTO proxied_outputs (tenant, agent_id, handle, conversation, content, session_id, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (tenant, agent_id, handle, conversation) DO UPDATE SET created_at = excluded.created_at,
    session_id = excluded.session_id
"""
_PRUNE_ANSWERS = """
DELETE FROM proxied_outputs WHERE tenant = $1 AND conversation = $2 AND created_at < $3 AND created_at <= (
    SELECT MAX(created_at) FROM (
        SELECT created_at FROM proxied_outputs WHERE tenant = $1 AND conversation = $2 ORDER BY created_at LIMIT $4
    ) AS oldest)
"""
# Of calls whose conversation was never recorded: nothing else would remove them.
_PRUNE_UNRECORDED = tuple(
    f"""
    DELETE FROM {table} WHERE tenant = $1 AND session_id = '' AND created_at < $2 AND created_at <= (
        SELECT MAX(created_at) FROM (
            SELECT created_at FROM {table} WHERE tenant = $1 AND session_id = '' ORDER BY created_at LIMIT $3
        ) AS oldest)
    """  # noqa: S608 - constants
    for table in ("proxied_edits", "proxied_outputs")
)
_FIND_OUTPUTS = """
SELECT handle, content FROM proxied_outputs
WHERE tenant = $1 AND agent_id = $2 AND handle {among_texts}$3{end_among_texts} AND NOT EXISTS (
    SELECT 1 FROM redactions r
    WHERE r.tenant = $1 AND r.session_id = proxied_outputs.session_id AND r.state <> 'none'
      AND r.redacted_at >= created_at)
"""
_ADOPT_EDITS = """
UPDATE proxied_edits SET session_id = $1
WHERE tenant = $2 AND agent_id = $3 AND conversation = $4 AND session_id = ''
  AND anchor {among_texts}$5{end_among_texts}
"""
_ADOPT_OUTPUTS = """
UPDATE proxied_outputs SET session_id = $1
WHERE tenant = $2 AND agent_id = $3 AND conversation = $4 AND session_id = ''
  AND handle {among_texts}$5{end_among_texts}
"""
_thread = msgspec.json.Decoder(Thread)
_encode = msgspec.json.Encoder().encode
# In place of a conversation: texts of answers through the gateway.
_GATEWAY = "gateway"
_TABLES = ("proxied_conversations", "proxied_conversation_keys", "proxied_edits", "proxied_outputs")


class ConversationStore(SqlStore):
    """Threads of the conversations of one tenant's agents, and the keys by which requests find them."""

    async def find(self, agent_id: str, keys: Sequence[str], limit: int) -> Sequence[StoredThread]:
        """Return the threads of an agent with one of these keys, the latest first."""
        rows = await self._tx.all(_FIND, self._tenant, agent_id, _encode(keys).decode(), limit)
        return [StoredThread(session_id, branch, _thread.decode(state)) for session_id, branch, state in rows]

    async def save(self, agent_id: str, stored: StoredThread, keys: Iterable[str], at: int) -> None:
        """Keep a thread, and let these keys lead to it."""
        where = self._tenant, agent_id, stored.session_id, stored.branch
        await self._tx.run(_SAVE, *where, _encode(stored.thread).decode(), at)
        await self._tx.many(
            _ADD_KEY, [(self._tenant, agent_id, key, stored.session_id, stored.branch) for key in dict.fromkeys(keys)]
        )

    async def forget(self, agent_id: str, session_id: str) -> None:
        """Remove the threads of a session that is gone."""
        for table in _TABLES:
            await self._tx.run(
                f"DELETE FROM {table} WHERE tenant = $1 AND agent_id = $2 AND session_id = $3",  # noqa: S608 - our own
                self._tenant,
                agent_id,
                session_id,
            )


class EditStore(SqlStore):
    """Edits of the requests of one tenant's agents, and the whole texts of what was shortened."""

    async def has_any(self, agent_id: str) -> bool:
        """Tell whether anything was decided for an agent's requests."""
        found = "SELECT 1 FROM proxied_edits WHERE tenant = $1 AND agent_id = $2 LIMIT 1"
        return await self._tx.one(found, self._tenant, agent_id) is not None

    async def has_additions(self, agent_id: str) -> bool:
        """Tell whether anything but shortened results was put into an agent's requests."""
        found = (
            "SELECT 1 FROM proxied_edits "
            "WHERE tenant = $1 AND agent_id = $2 AND edit <> '' AND anchor NOT LIKE 'r%' LIMIT 1"
        )
        return await self._tx.one(found, self._tenant, agent_id) is not None

    async def find(self, agent_id: str, conversation: str, anchors: Iterable[str]) -> dict[str, str]:
        """Return the stored edits of a conversation at these anchors."""
        rows = await self._tx.all(_FIND_EDITS, self._tenant, agent_id, conversation, _encode([*anchors]).decode())
        return {str(anchor): str(edit) for anchor, edit in rows}

    async def add(self, agent_id: str, conversation: str, edits: Mapping[str, str], at: int) -> dict[str, str]:
        """Keep edits where there are none yet; return those that hold."""
        owner = self._tenant, agent_id, conversation
        await self._tx.many(_ADD_EDIT, [(*owner, anchor, edit, at) for anchor, edit in edits.items()])
        return await self.find(agent_id, conversation, edits)

    async def set_whole(self, agent_id: str, conversation: str, anchors: Iterable[str], at: int) -> None:
        """Note that what is at these anchors was forwarded whole."""
        await self._tx.many(_SET_WHOLE, [(self._tenant, agent_id, conversation, anchor, at) for anchor in anchors])

    async def add_outputs(self, agent_id: str, conversation: str, outputs: Mapping[str, str], at: int) -> None:
        """Keep whole texts by their handles."""
        await self._tx.many(
            _ADD_OUTPUT,
            [(self._tenant, agent_id, handle, conversation, text.encode(), at) for handle, text in outputs.items()],
        )

    async def keep_answer(self, agent_id: str, session_id: str, handle: str, text: str, at: int) -> None:
        """Keep the whole answer of a server behind the gateway, from now on if it is known."""
        owner = self._tenant, agent_id, handle, _GATEWAY
        await self._tx.run(_KEEP_ANSWER, *owner, text.encode(), session_id, at)

    async def prune_answers(self, before: int, limit: int) -> int:
        """Delete about this many of the oldest whole answers from before a time; return how many."""
        return await self._tx.changed(_PRUNE_ANSWERS, self._tenant, _GATEWAY, before, limit)

    async def prune_unrecorded(self, before: int, limit: int) -> int:
        """Delete about this many of the oldest edits, and whole texts, from before a time that belong to no session."""
        return max([await self._tx.changed(prune, self._tenant, before, limit) for prune in _PRUNE_UNRECORDED])

    async def outputs(self, agent_id: str, handles: Iterable[str]) -> dict[str, str]:
        """Return the whole texts of an agent with these handles.

        None of a session in which anything was redacted since: a text may hold it, in parts.
        """
        rows = await self._tx.all(_FIND_OUTPUTS, self._tenant, agent_id, _encode([*handles]).decode())
        return {str(handle): bytes(content).decode() for handle, content in rows}

    async def adopt(
        self, agent_id: str, conversation: str, session_id: str, anchors: Iterable[str], handles: Iterable[str]
    ) -> None:
        """Let edits and texts go with a session when it is deleted."""
        owner = session_id, self._tenant, agent_id, conversation
        await self._tx.run(_ADOPT_EDITS, *owner, _encode([*anchors]).decode())
        await self._tx.run(_ADOPT_OUTPUTS, *owner, _encode([*handles]).decode())


async def tenants_with_answers_before(before: int, transaction: Transaction) -> list[str]:
    """Return the tenants with whole answers from before a time, or with what belongs to no session."""
    rows = await transaction.all(
        "SELECT t.tenant FROM tenants t WHERE EXISTS (SELECT 1 FROM proxied_outputs p "
        "WHERE p.tenant = t.tenant AND p.conversation = $1 AND p.created_at < $2) "
        "OR EXISTS (SELECT 1 FROM proxied_outputs p "
        "WHERE p.tenant = t.tenant AND p.session_id = '' AND p.created_at < $2) "
        "OR EXISTS (SELECT 1 FROM proxied_edits p "
        "WHERE p.tenant = t.tenant AND p.session_id = '' AND p.created_at < $2)",
        _GATEWAY,
        before,
    )
    return [str(row[0]) for row in rows]
