"""Searches earlier messages for the answer to a gap, and records the search as a selection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.capabilities.messages.search.searcher import MessageQuery
from weft.capabilities.messages.search.selection_records import Choice, item_of, record_choice
from weft.capabilities.records.model import CandidateSource

if TYPE_CHECKING:
    from weft.capabilities.messages.search.searcher import MessageSearchResult, Searcher
    from weft.capabilities.missing_context.model import Gap
    from weft.capabilities.records.model import ContextSelection
    from weft.capabilities.records.recorder import Recorder
    from weft.capabilities.sessions.model import Session
    from weft.kernel.identity import Actor

# Results with at least this score are candidates; others are recorded as omitted.
_MIN_CANDIDATE_SCORE, _MIN_SCORE = 60.0, 0.0
_MAX_CANDIDATES, _MAX_RESULTS = 10, 30
_MAX_QUERY_CHARACTERS = 500


async def search_answers(gap: Gap, session_id: str, actor: Actor, searcher: Searcher) -> Choice:
    """Search the session's messages for the question of a gap."""
    query = gap.record.question[:_MAX_QUERY_CHARACTERS]
    # Only public messages: the results are visible to everyone who can see the gap.
    wanted = MessageQuery(query, _MIN_SCORE, _MAX_RESULTS, False, ("public",))  # noqa: FBT003 - not their metadata
    return _split_results(query, await searcher.find(actor, session_id, wanted), gap)


async def record_search(
    choice: Choice, gap: Gap, session: Session, recorder: Recorder, readable_by: tuple[str, ...] | None
) -> ContextSelection:
    """Record the search for a gap: selected and omitted messages."""
    missing_id = gap.record.missing_id
    return await record_choice(
        choice,
        session,
        recorder,
        readable_by=readable_by,
        intent=f"resolve {missing_id}",
        rationale=f"The best matches among {choice.searched} public messages.",
        metadata={"weft": {"missing_id": missing_id}},
    )


def merge_candidates(choice: Choice, gap: Gap, session_id: str) -> tuple[CandidateSource, ...]:
    """Return the candidate sources of a gap, with those that the search added."""
    known = {source.ref for source in gap.record.candidate_sources if source.ref}
    found = (
        CandidateSource(
            kind="message",
            hint=f"message {result.message.id} of {result.message.sender}, score {result.score}",
            uri=f"session://{session_id}#message-{result.message.id}",
            ref=item_of(result, session_id),
        )
        for result in choice.taken
    )
    return (*gap.record.candidate_sources, *(source for source in found if source.ref not in known))


def _split_results(query: str, found: MessageSearchResult, gap: Gap) -> Choice:
    # A message that asks the question is not an answer.
    questions = {request.message_id for request in gap.notes.requests}
    results = [result for result in found.results if result.message.id not in questions]
    taken = [result for result in results if result.score >= _MIN_CANDIDATE_SCORE][:_MAX_CANDIDATES]
    left = [result for result in results if result not in taken]
    return Choice(query, found.searched, taken, left, _MIN_CANDIDATE_SCORE, _MAX_CANDIDATES)
