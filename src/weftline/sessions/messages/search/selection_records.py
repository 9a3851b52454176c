"""Records searches as selections: of message search with its budget, and of retrieval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from weftline.kernel.fields import new_id
from weftline.kernel.identity import ANYONE, PRINCIPAL
from weftline.records.model import ContextAssembly, ContextBudget, ContextSelection, Omission
from weftline.records.record_ids import MessageItemId, SurfaceId
from weftline.records.vocabulary import SCHEMA_VERSION
from weftline.sessions.recorder import Recorder
from weftline.sessions.store import SessionStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.sessions.messages.search.searcher import MessageMatch
    from weftline.sessions.model import Session

T = TypeVar("T")


class MessageSelection(NamedTuple):
    """Messages that a search selected and rejected, by minimum score and maximum number."""

    query: str
    searched: int
    selected: Sequence[MessageMatch]
    rejected: Sequence[MessageMatch]
    least_score: float
    most_items: int

    @property
    def candidates(self) -> list[MessageMatch]:
        return [*self.selected, *self.rejected]

    @property
    def is_public(self) -> bool:
        return all(result.message.visibility == "public" for result in self.candidates)


class SelectionRecorder(msgspec.Struct, frozen=True):
    """Recorder and stores of one transaction."""

    recorder: Recorder
    sessions: SessionStore

    async def add(self, selection: MessageSelection, session: Session) -> ContextSelection:
        """Record a search: readable by all participants if it saw only public messages, else by the caller."""
        own = (f"{PRINCIPAL}{self.recorder.actor.principal_id}",)
        return await record_message_selection(
            selection,
            session,
            self.recorder,
            readable_by=ANYONE if selection.is_public else own,
            rationale=f"Of {selection.searched} messages, those that match the query best.",
        )


async def record_message_selection(
    selection: MessageSelection,
    session: Session,
    recorder: Recorder,
    *,
    readable_by: tuple[str, ...] | None,
    **more: Any,  # noqa: ANN401 - further fields of a selection
) -> ContextSelection:
    """Record a message search: its budget and its selection."""
    budget = _budget(selection, recorder)
    fields = _selection_fields(selection, session.session_id) | {"budget_ref": budget.budget_id} | more
    return await record_selection(recorder, session, readable_by=readable_by, budget=budget, **fields)


async def record_selection(
    recorder: Recorder,
    session: Session | None,
    *,
    readable_by: tuple[str, ...] | None,
    budget: ContextBudget | None = None,
    assembly: ContextAssembly | None = None,
    **fields: Any,  # noqa: ANN401 - fields of a selection
) -> ContextSelection:
    """Record a selection, with its budget and the assembly of what was selected if there are any.

    Without a session its surface is the agent.
    """
    selection = ContextSelection(
        schema_version=SCHEMA_VERSION,
        selection_id=new_id("selection"),
        surface_id=f"agent:{recorder.actor.principal_id}" if session is None else str(SurfaceId(session.session_id)),
        created_at=recorder.clock.now(),
        actor_ref=recorder.actor.participant,
        **fields,
    )
    await recorder.begin(selection, session, readable_by=readable_by)
    await recorder.add_all([*filter(None, (budget, selection, assembly))], session, readable_by=readable_by)
    return selection


def _budget(selection: MessageSelection, recorder: Recorder) -> ContextBudget:
    return ContextBudget(
        schema_version=SCHEMA_VERSION,
        budget_id=new_id("budget"),
        target=recorder.actor.participant,
        created_at=recorder.clock.now(),
        max_items=selection.most_items,
        actual_items=len(selection.selected),
        overflow_strategy="truncate_tail",
    )


def _selection_fields(selection: MessageSelection, session_id: str) -> dict[str, Any]:
    named = [(item_of(result, session_id), result) for result in selection.candidates]
    selected = tuple(item_of(result, session_id) for result in selection.selected)
    return {
        "query": selection.query,
        "candidate_item_refs": tuple(name for name, _ in named),
        "selected_item_refs": selected,
        "omitted_item_refs": tuple(
            _omission(name, result, selection) for name, result in named if name not in selected
        ),
        "ranking_signals": {
            "score": {name: result.score for name, result in named},
            "matched_by": {name: result.matched_by for name, result in named},
        },
        "selection_policy": {"least_score": selection.least_score, "most_items": selection.most_items},
    }


def _omission(name: str, result: MessageMatch, selection: MessageSelection) -> Omission:
    good_enough = result.score >= selection.least_score
    return Omission(item_ref=name, reason="budget" if good_enough else "low_relevance", detail=f"score {result.score}")


def item_of(result: MessageMatch, session_id: str) -> str:
    """Return the item id of a result's message."""
    return str(MessageItemId(session_id, result.message.id))
