"""Recommendations, the settings that they propose, and what a trial on earlier calls showed."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from weftline.kernel.errors import NotFound
from weftline.kernel.fields import Fraction
from weftline.state.agent_context.settings import CompactionSettings
from weftline.windows.model import Category

# Fewer observations may be a coincidence: what is never used in 20 calls is used in less than 14 % of them, with a
# certainty of 95 % (rule of three: 3 / n).
MIN_CALLS = 20
RecommendationKind = Literal[
    "compaction",
    "window_shares",
    "model",
    "min_score",
    "tools",
    "documents",
    "duplicate_documents",
    "board_keys",
    "pins",
    "learned_memory",
    "session_memory",
    "stale_context",
]


class RecommendationNotFound(NotFound):
    """There is no such recommendation, or it is about an agent that is not yours to read."""

    code = "RECOMMENDATION_NOT_FOUND"
    hint = "List recommendations with `advise.list`; the next analysis replaces those that no longer hold."
    related = ("advice",)


def no_recommendation(recommendation_id: str, *, denied: bool = False) -> RecommendationNotFound:
    """Return the error for a recommendation that the caller cannot see; ``denied`` if it exists."""
    shown = recommendation_id[:100]
    error = RecommendationNotFound(
        f"There is no recommendation '{shown}'.", resource_type="recommendation", resource_id=shown
    )
    error.denial = denied
    return error


_Subjects = Annotated[tuple[Annotated[str, msgspec.Meta(max_length=1_000)], ...], msgspec.Meta(max_length=100)]


_Uri = Annotated[str, msgspec.Meta(max_length=1_000)]
_Copies = Annotated[dict[_Uri, _Uri], msgspec.Meta(max_length=100)]


class ProposedSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a proposal changes; everything else stays as it was in each call.

    ``without_items`` are refs of board entries, memory and pins, and URIs of documents, that prompts would not have any
    more.
    """

    compaction: Annotated[
        CompactionSettings | None, msgspec.Meta(description="When and how windows are compacted.")
    ] = None
    shares: Annotated[
        dict[Category, Fraction] | None, msgspec.Meta(description="Shares of the window by category.")
    ] = None
    model: Annotated[
        Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None, msgspec.Meta(description="Another model.")
    ] = None
    token_budget: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] | None,
        msgspec.Meta(description="Maximum tokens of a prompt; that of the window and the model hold besides."),
    ] = None
    min_score: Annotated[Fraction | None, msgspec.Meta(description="Minimum relevance of passages.")] = None
    without_tools: Annotated[_Subjects, msgspec.Meta(description="Names of tools to leave out.")] = ()
    without_items: Annotated[
        _Subjects,
        msgspec.Meta(description="Refs of board entries, memory and pins, and URIs of documents, to leave out."),
    ] = ()
    copies: Annotated[
        _Copies, msgspec.Meta(description="URIs of documents to leave out, each with that of its original.")
    ] = {}


class TriedCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One earlier call, as it was and as it would have been. Money is in US dollars, null without a price.

    ``exact``: planned again with its own settings (the control) it comes out as it was sent. ``tokens`` are those of
    the control, ``tried_tokens`` those of the trial, ``drift_tokens`` by how many the control differs from the receipt.
    ``lost`` are useful items that the prompt would not have had, ``shortened`` those that it would have had in a
    shorter form only, ``doubtful`` items that would not be in it and may have been useful. ``error``: the prompt could
    not have been assembled. ``removed`` and ``gained`` are the refs of the ``dropped`` and ``added`` items, where one
    call was asked for.
    """

    receipt_id: str
    session_id: str
    created_at: int
    mode: str
    tokens: int
    tried_tokens: int
    cached_tokens: int
    tried_cached_tokens: int
    cost: float | None = None
    tried_cost: float | None = None
    exact: bool = False
    drift_tokens: int = 0
    changed: bool = False
    useful: int = 0
    kept: int = 0
    shortened: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    doubtful: tuple[str, ...] = ()
    dropped: int = 0
    added: int = 0
    scored: bool = False
    error: str | None = None
    removed: tuple[str, ...] = ()
    gained: tuple[str, ...] = ()


class Trial(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """What would have changed in the last calls under other settings.

    Every call is planned twice: with the settings that it had (the control) and with the proposed ones. The effect is
    the difference of the two. ``exact`` of the ``calls`` come out as they were sent in the control; ``drift_tokens`` is
    by how many tokens the others differ from their receipts. ``changed`` calls would have had another prompt.
    ``tokens`` and ``cost`` are those of the control, ``tried_*`` those of the trial. ``scored`` calls have evidence of
    which items the answer used: ``useful`` items in all, of which ``kept`` are still in the prompts, ``shortened`` in a
    shorter form only, ``lost`` not at all. ``dropped`` items were in prompts and would not be any more; ``doubtful`` of
    them may have been useful. ``risks`` are what speaks against the proposal, which is ``safe`` if there are none.
    ``assumptions`` say what was not replayed.
    """

    calls: int
    exact: int
    drift_tokens: int
    changed: int
    scored: int
    tokens: int
    tried_tokens: int
    cached_tokens: int
    tried_cached_tokens: int
    cost: float | None
    tried_cost: float | None
    useful: int
    kept: int
    shortened: int
    lost: int
    dropped: int
    doubtful: int
    added: int
    failed: int
    safe: bool
    risks: tuple[str, ...]
    assumptions: tuple[str, ...]

    @property
    def saved_tokens(self) -> int:
        return self.tokens - self.tried_tokens

    @property
    def saved_cost(self) -> float | None:
        return None if self.cost is None or self.tried_cost is None else self.cost - self.tried_cost


class Evidence(msgspec.Struct, frozen=True):
    """One observation that a recommendation rests on: what it is about, how often, and of how many."""

    statement: str
    count: int
    of: int


class Recommendation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change of settings for an agent, with the evidence for it and what it would have saved.

    ``subjects`` are what it is about: names of tools, URIs of documents, keys, pins. ``command`` makes the change, with
    an operation that exists. Without a trial (``trial`` is null) there is nothing to replay: the change concerns
    freshness, not size.
    """

    recommendation_id: str
    kind: RecommendationKind
    agent_id: str
    title: str
    reason: str
    evidence: tuple[Evidence, ...]
    subjects: tuple[str, ...]
    proposal: ProposedSettings
    command: str
    created_at: int
    safe: bool
    trial: Trial | None = None
