"""Looking for what is missing in what was said already, and keeping what that came to as a selection."""

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

# A hit from this score on may hold the answer; a weaker one, with anything in common, is named as left out.
_SCORE, _ANY_SCORE = 60.0, 0.0
_MOST_CANDIDATES, _MOST_LOOKED_AT = 10, 30
_MOST_CHARACTERS = 500


async def look_for(gap: Gap, session_id: str, actor: Actor, searcher: Searcher) -> Choice:
    """Search the session's messages for what a gap asks, and take those that may hold the answer."""
    query = gap.record.question[:_MOST_CHARACTERS]
    # Only what everyone may read: what is found is told to all who may know of the gap.
    wanted = MessageQuery(query, _ANY_SCORE, _MOST_LOOKED_AT, False, ("public",))  # noqa: FBT003 - not their metadata
    return _judged(query, await searcher.find(actor, session_id, wanted), gap)


async def select(
    choice: Choice, gap: Gap, session: Session, recorder: Recorder, readable_by: tuple[str, ...] | None
) -> ContextSelection:
    """Put on record what was looked at for a gap, what was taken and what was not."""
    missing_id = gap.record.missing_id
    return await record_choice(
        choice,
        session,
        recorder,
        readable_by=readable_by,
        intent=f"resolve {missing_id}",
        rationale=f"Of {choice.searched} public messages, those that match the question best.",
        metadata={"weft": {"missing_id": missing_id}},
    )


def candidates(choice: Choice, gap: Gap, session_id: str) -> tuple[CandidateSource, ...]:
    """Return where the answer may be found, as far as it was known before and as it is known now."""
    known = {source.ref for source in gap.record.candidate_sources if source.ref}
    news = (
        CandidateSource(
            kind="message",
            hint=f"message {result.message.id} of {result.message.sender}, score {result.score}",
            uri=f"session://{session_id}#message-{result.message.id}",
            ref=item_of(result, session_id),
        )
        for result in choice.taken
    )
    return (*gap.record.candidate_sources, *(source for source in news if source.ref not in known))


def _judged(query: str, found: MessageSearchResult, gap: Gap) -> Choice:
    # What asks a question is no answer to it.
    questions = {asked.message_id for asked in gap.notes.requests}
    results = [result for result in found.results if result.message.id not in questions]
    taken = [result for result in results if result.score >= _SCORE][:_MOST_CANDIDATES]
    left = [result for result in results if result not in taken]
    return Choice(query, found.searched, taken, left, _SCORE, _MOST_CANDIDATES)
