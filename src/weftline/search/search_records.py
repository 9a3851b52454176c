"""Records a search on request: its selection and budget, and the assembly of a text that was built from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from msgspec import UNSET

from weftline.kernel.errors import PermissionDenied
from weftline.kernel.fields import new_id
from weftline.kernel.identity import PRINCIPAL, Permission
from weftline.records.model import ContextBudget, Omission
from weftline.records.vocabulary import SCHEMA_VERSION
from weftline.sessions.messages.search_operations import record_selection
from weftline.sessions.model import lock_active_session

if TYPE_CHECKING:
    from weftline.kernel.identity import Actor
    from weftline.records.model import ContextAssembly, ContextSelection
    from weftline.search.persistent_memory import SearchStores
    from weftline.search.retriever import RetrievalResult

RecordOption = Annotated[
    bool, msgspec.Meta(description="Also record what was selected, in session_id if given; needs write.")
]


class Searched(NamedTuple):
    """Items that a search found, by id, and those that it returned. ``result`` is None if there was no query."""

    query: str | None
    result: RetrievalResult | None
    candidates: tuple[str, ...]
    selected: tuple[str, ...]

    @property
    def fields(self) -> dict[str, Any]:
        """Return the fields of a selection record."""
        taken = set(self.selected)
        return {
            "query": self.query or UNSET,
            "candidate_item_refs": self.candidates,
            "selected_item_refs": self.selected,
            "omitted_item_refs": tuple(
                Omission(item_ref=x, reason="budget") for x in self.candidates if x not in taken
            ),
            **({} if self.result is None else _ranking_fields(self.result)),
        }


def check_may_record(actor: Actor) -> None:
    if Permission.WRITE not in actor.permissions:
        raise PermissionDenied("Recording a search needs the permission 'write'.")


def search_budget(stores: SearchStores, **fields: Any) -> ContextBudget:  # noqa: ANN401 - fields of a budget
    """Return the budget of a search by the caller."""
    return ContextBudget(
        schema_version=SCHEMA_VERSION,
        budget_id=new_id("budget"),
        target=stores.actor.participant,
        created_at=stores.clock.now(),
        overflow_strategy="truncate_tail",
        **fields,
    )


async def record_search(
    stores: SearchStores,
    session_id: str | None,
    searched: Searched,
    budget: ContextBudget,
    assembly: ContextAssembly | None = None,
) -> ContextSelection:
    """Record a search in one transaction, in a session if one is given.

    Only the caller may read the records: other participants may not be allowed to read what it found.
    """
    session = None
    if session_id is not None:
        session, _ = await lock_active_session(session_id, stores.actor, stores.sessions)
    return await record_selection(
        stores.recorder,
        session,
        readable_by=(f"{PRINCIPAL}{stores.actor.principal_id}",),
        budget=budget,
        assembly=assembly,
        budget_ref=budget.budget_id,
        **searched.fields,
    )


def _ranking_fields(result: RetrievalResult) -> dict[str, Any]:
    ranking = result.ranking
    return {
        "ranking_signals": {
            # Of several passages of one item the best score.
            "score": {hit.passage.uri: hit.ranked.score for hit in reversed([*result.hits, *result.pinned])},
            "confidence": ranking.confidence,
        },
        "selection_policy": {
            "min_score": ranking.min_score,
            "unsure": ranking.unsure,
        },
        "rationale": f"Best of {ranking.searched} chunks.",
    }
