"""Helpers to apply a given compacted view to a window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import structs

from weftline.kernel.fields import new_ordered_id
from weftline.kernel.transaction import Transaction
from weftline.storage.sql.database import Scope
from weftline.windows.compaction.model import CompactedView, Compaction, CompactionState, Summary
from weftline.windows.compaction.service import version_of
from weftline.windows.compaction.sql import CompactionStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.world import World


def summary_of(event_ids: Sequence[str], text: str, **fields: Any) -> Summary:
    """Return a summary of events in their first version."""
    return Summary(
        **{
            "summary_id": f"{event_ids[0]}-{event_ids[-1]}",
            "title": "",
            "text": text,
            "method": "extractive_summary",
            "sources": dict.fromkeys(event_ids, "1.1"),
            "first_number": 1,
            "last_number": len(event_ids),
            "first_at": 0,
            "last_at": 0,
            "tokens_before": 100,
            "tokens": 10,
            **fields,
        }
    )


async def apply_view(
    world: World, view: CompactedView, agent: str = "analysis", session: str = "s1", saved_tokens: int = 0
) -> str:
    """Apply a view to the window of an agent and return the id of its compaction."""
    compaction = Compaction(
        compaction_id=new_ordered_id(),
        session_id=session,
        agent_id=agent,
        line_id=f"window:{session}:{agent}",
        requested_by=agent,
        trigger="request",
        state=CompactionState.APPLIED,
        strategy="sliding_window",
        target=0.4,
        keep_recent=2,
        created_at=1,
        version=version_of(view),
        saved_tokens=saved_tokens,
    )

    async def apply(transaction: Transaction) -> None:
        store = CompactionStore(transaction)
        await store.add(structs.replace(compaction, state=CompactionState.QUEUED))
        await store.save(compaction, view)

    await world.app.database.write(Scope(world.tenant), apply)
    return compaction.compaction_id
