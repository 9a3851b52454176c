"""Threads of proxied conversations in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weftline.kernel.transaction import SqlStore
from weftline.windows.conversations.model import StoredThread, Thread

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
_thread = msgspec.json.Decoder(Thread)
_encode = msgspec.json.Encoder().encode


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
        for table in ("proxied_conversations", "proxied_conversation_keys"):
            await self._tx.run(
                f"DELETE FROM {table} WHERE tenant = $1 AND agent_id = $2 AND session_id = $3",  # noqa: S608 - our own
                self._tenant,
                agent_id,
                session_id,
            )
