"""A search put on record: what was found for which question, and how well each of it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.capabilities.records.model import ContextSelection
from weft.capabilities.records.record_ids import SurfaceId
from weft.capabilities.records.vocabulary import SCHEMA_VERSION
from weft.capabilities.sessions.model import lock_active_session
from weft.kernel.identity import PRINCIPAL
from weft.kernel.ids import new_id

if TYPE_CHECKING:
    from weft.capabilities.search.retriever import RetrievalResult, Retriever
    from weft.capabilities.search.stores import SearchStores
    from weft.kernel.identity import Actor


async def record_search(
    retriever: Retriever, actor: Actor, query: str, session_id: str | None, found: RetrievalResult
) -> str:
    """Put a search on record, for the caller alone: what it may see is not for all. Return the record's id."""

    async def keep(library: SearchStores) -> str:
        session = None
        if session_id is not None:
            session, _ = await lock_active_session(session_id, actor, library.sessions)
        own = (f"{PRINCIPAL}{actor.principal_id}",)
        selection = _selection(query, session_id, found, library)
        await library.recorder.begin(selection, session, readable_by=own)
        await library.recorder.add(selection, session, readable_by=own)
        return selection.selection_id

    return await retriever.libraries.write(actor, keep)


def _selection(query: str, session_id: str | None, found: RetrievalResult, library: SearchStores) -> ContextSelection:
    scores = {hit.passage.uri: hit.ranked.score for hit in reversed(found.hits)}
    named = tuple(dict.fromkeys(hit.passage.uri for hit in found.hits))
    return ContextSelection(
        schema_version=SCHEMA_VERSION,
        selection_id=new_id("selection"),
        surface_id=str(SurfaceId(session_id)) if session_id else f"agent:{library.actor.principal_id}",
        created_at=library.clock.now(),
        query=query,
        candidate_item_refs=named,
        selected_item_refs=named,
        ranking_signals={"score": scores, "confidence": found.ranking.confidence},
        selection_policy={"min_score": found.ranking.min_score, "widened": found.ranking.widened},
        actor_ref=library.actor.participant,
        rationale=f"Of {found.ranking.searched} chunks, those that answer best.",
    )
