"""Looking for what is missing in what was said already, and keeping what that came to as a selection."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weft.capabilities.records.item_names import MessageName
from weft.capabilities.records.model import CandidateSource, ContextSelection, Omission
from weft.capabilities.records.words import SCHEMA_VERSION
from weft.capabilities.search.searching import Wanted
from weft.kernel.ids import new_id

if TYPE_CHECKING:
    from weft.capabilities.missing.gaps import Gaps
    from weft.capabilities.missing.model import Gap
    from weft.capabilities.search.searching import Found, Searcher, SearchResult
    from weft.kernel.identity import Actor

# A hit from this score on may hold the answer; a weaker one, with anything in common, is named as left out.
_SCORE, _ANY_SCORE = 60.0, 0.0
_MOST_CANDIDATES, _MOST_LOOKED_AT = 10, 30
_MOST_CHARACTERS = 500


class Retrieved(NamedTuple):
    """What a search for an answer came to: hits that may hold it, and weaker ones."""

    query: str
    searched: int
    selected: list[SearchResult]
    omitted: list[SearchResult]


async def look_for(gap: Gap, session_id: str, actor: Actor, searcher: Searcher) -> Retrieved:
    """Search the session's messages for what a gap asks."""
    query = gap.record.question[:_MOST_CHARACTERS]
    # Only what everyone may read: what is found is told to all who may know of the gap.
    wanted = Wanted(query, _ANY_SCORE, _MOST_LOOKED_AT, False, ("public",))  # noqa: FBT003 - not their metadata
    return _judged(query, await searcher.find(actor, session_id, wanted), gap)


def selection_of(found: Retrieved, gap: Gap, session_id: str, gaps: Gaps) -> ContextSelection:
    """Return what was looked at, what was taken and what was not."""
    looked_at = [*found.selected, *found.omitted]
    return ContextSelection(
        schema_version=SCHEMA_VERSION,
        selection_id=new_id("selection"),
        surface_id=f"session:{session_id}",
        created_at=gaps.clock.now(),
        query=found.query,
        intent=f"resolve {gap.record.missing_id}",
        candidate_item_refs=tuple(_item(result, session_id) for result in looked_at),
        selected_item_refs=tuple(_item(result, session_id) for result in found.selected),
        omitted_item_refs=tuple(
            Omission(item_ref=_item(result, session_id), reason="low_relevance", detail=f"score {result.score}")
            for result in found.omitted
        ),
        ranking_signals={
            "score": {_item(result, session_id): result.score for result in looked_at},
            "matched_by": {_item(result, session_id): result.matched_by for result in looked_at},
        },
        selection_policy={"least_score": _SCORE, "most_items": _MOST_CANDIDATES},
        rationale=f"Of {found.searched} public messages, those that match the question best.",
        actor_ref=gaps.actor.participant,
        metadata={"weft": {"missing_id": gap.record.missing_id}},
    )


def candidates(found: Retrieved, gap: Gap, session_id: str) -> tuple[CandidateSource, ...]:
    """Return where the answer may be found, as far as it was known before and as it is known now."""
    known = {source.ref for source in gap.record.candidate_sources if source.ref}
    news = (
        CandidateSource(
            kind="message",
            hint=f"message {result.message.id} of {result.message.sender}, score {result.score}",
            uri=f"session://{session_id}#message-{result.message.id}",
            ref=_item(result, session_id),
        )
        for result in found.selected
    )
    return (*gap.record.candidate_sources, *(source for source in news if source.ref not in known))


def _judged(query: str, found: Found, gap: Gap) -> Retrieved:
    # What asks a question is no answer to it.
    questions = {asked.message_id for asked in gap.notes.requests}
    results = [result for result in found.results if result.message.id not in questions]
    selected = [result for result in results if result.score >= _SCORE][:_MOST_CANDIDATES]
    return Retrieved(query, found.searched, selected, [result for result in results if result not in selected])


def _item(result: SearchResult, session_id: str) -> str:
    return str(MessageName(session_id, result.message.id))
