"""Operations on recommendations: list them, show one, and try one or other settings on earlier calls."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import structs

from weftline.insight.recommendations.advisor import (
    DEFAULT_CALLS,
    MAX_CALLS,
    AdviceStores,
    Advisor,
    order,
    parts_of,
)
from weftline.insight.recommendations.model import (
    Evidence,
    ProposedSettings,
    RecommendationKind,
    RecommendationNotFound,
    Trial,
    TriedCall,
    no_recommendation,
)
from weftline.kernel.clock import DAY_MICROS, Clock, from_micros, to_micros
from weftline.kernel.errors import InvalidInput, PermissionDenied, QuotaExceeded
from weftline.kernel.fields import Name
from weftline.kernel.identity import Actor, Permission
from weftline.kernel.operation import Effect, RateClass, Request, Response, SessionUse, operation
from weftline.prompts.assembly.receipt_operations import ReceiptId, agent_to_read
from weftline.prompts.assembly.receipts import ReceiptNotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.insight.recommendations.model import Recommendation

_operation = partial(
    operation,
    tool="advice",
    permission=Permission.READ,
    rate=RateClass.SEARCH,
    effect=Effect.OWN_TRANSACTIONS,
    session=SessionUse.FINDS,
    heavy=True,
)
# Agents that a list without an agent covers: those whose prompts had the most tokens of late.
_MAX_AGENTS = 5
# Calls that a list analyses in all.
_MAX_LISTED_CALLS = 250
_DAYS = 30
_LATEST = 2**62
_TRY_HINT = "Give a recommendation_id that `advise.list` names, or settings such as a token_budget."
RecommendationId = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=200,
        pattern=r"^[A-Za-z0-9_.:-]+\Z",
        description="Id of a recommendation: agent, kind and a hash, such as analysis.tools.1f9a3c.",
    ),
]
Calls = Annotated[
    int, msgspec.Meta(ge=1, le=MAX_CALLS, description="How many of the agent's last calls to analyse or replay.")
]
AdviceAgent = Annotated[Name | None, msgspec.Meta(description="The agent; default: you, for admins the busiest.")]


class ListAdvice(Request):
    """Whose calls to analyse."""

    agent_id: AdviceAgent = None
    calls: Calls = DEFAULT_CALLS


class AdviceItem(Response, kw_only=True, omit_defaults=False):
    """A recommendation in a list. ``safe``: in the trial no prompt loses anything that was useful or required.

    Tokens and money, in US dollars, are those that the last calls would have saved; null where nothing was replayed.
    """

    recommendation_id: str
    kind: RecommendationKind
    agent_id: str
    title: str
    safe: bool
    saved_tokens: int | None
    saved_ratio: float | None
    saved_cost: float | None
    calls: int


class AdviceList(Response, kw_only=True, omit_defaults=False):
    """Recommendations, safe ones first, then by tokens saved. ``analysed``: calls of each agent that were replayed."""

    recommendations: list[AdviceItem]
    analysed: dict[str, int]


class ShowAdvice(Request):
    """The recommendation to show."""

    recommendation_id: RecommendationId
    calls: Calls = DEFAULT_CALLS


class AdviceShown(Response, kw_only=True, omit_defaults=False):
    """A recommendation with its evidence. ``command`` makes the change; nothing is switched by showing or trying it.

    ``trial``: what would have changed in the last calls; null if there is nothing to replay.
    """

    recommendation_id: str
    kind: RecommendationKind
    agent_id: str
    title: str
    reason: str
    safe: bool
    evidence: tuple[Evidence, ...]
    subjects: tuple[str, ...]
    proposal: ProposedSettings
    command: str
    trial: Trial | None
    analysed_at: datetime


class TryAdvice(Request):
    """A recommendation to try, or settings of your own for an agent."""

    recommendation_id: Annotated[RecommendationId | None, msgspec.Meta(description="The recommendation to try.")] = None
    agent_id: AdviceAgent = None
    settings: Annotated[
        ProposedSettings | None, msgspec.Meta(description="Settings to try instead of those of a recommendation.")
    ] = None
    calls: Calls = DEFAULT_CALLS
    receipt_id: Annotated[
        ReceiptId | None,
        msgspec.Meta(description="Answer for this one of the calls only, and list the items it would lose and gain."),
    ] = None


class AdviceTried(Response, kw_only=True, omit_defaults=False):
    """The last calls as they were sent and as they would have been. Nothing was switched.

    ``tried``: each call that the replay reproduces, oldest first.
    """

    recommendation_id: str | None
    agent_id: str
    title: str
    proposal: ProposedSettings
    command: str
    trial: Trial
    tried: list[TriedCall]


@_operation("advise.list", action="list", http="GET /v1/advice", errors=(PermissionDenied, QuotaExceeded))
async def list_advice(request: ListAdvice, actor: Actor, advisor: Advisor) -> AdviceList:
    """List what would make prompts smaller or cheaper, with what the last calls would have saved.

    Each recommendation was tried by planning these calls again: compaction, shares of the window, models, tools never
    called, documents, pins and board keys that no answer uses, copies, outdated context.
    """
    agents = await advisor.transactions.read(actor, partial(_agents, request.agent_id, advisor.clock))
    found: list[Recommendation] = []
    analysed: dict[str, int] = {}
    calls = min(request.calls, _MAX_LISTED_CALLS // max(1, len(agents)))
    for agent_id in agents:
        analysed[agent_id], recommendations = await advisor.recommendations(actor, agent_id, calls)
        found += recommendations
    found.sort(key=order)
    return AdviceList(recommendations=[_item(each) for each in found], analysed=analysed)


@_operation(
    "advise.show",
    action="show",
    http="GET /v1/advice/{recommendation_id}",
    errors=(RecommendationNotFound, QuotaExceeded),
)
async def show_advice(request: ShowAdvice, actor: Actor, advisor: Advisor) -> AdviceShown:
    """Show a recommendation: its evidence, what it would have saved, and the command that makes the change."""
    found = await _find(request.recommendation_id, request.calls, actor, advisor)
    return AdviceShown(
        recommendation_id=found.recommendation_id,
        kind=found.kind,
        agent_id=found.agent_id,
        title=found.title,
        reason=found.reason,
        safe=found.safe,
        evidence=found.evidence,
        subjects=found.subjects,
        proposal=found.proposal,
        command=found.command,
        trial=found.trial,
        analysed_at=from_micros(found.created_at),
    )


@_operation(
    "advise.try",
    action="try",
    http="POST /v1/advice/try",
    errors=(RecommendationNotFound, ReceiptNotFound, PermissionDenied, QuotaExceeded),
)
async def try_advice(request: TryAdvice, actor: Actor, advisor: Advisor) -> AdviceTried:
    """Try a recommendation, or settings of your own, on the last calls before anything is switched.

    The calls are planned again by the planner that made them, from their receipts: tokens, money, cache, and which
    items that the answers used are kept or lost. The assumptions of the trial say what is not replayed.
    """
    if (request.recommendation_id is None) == (request.settings is None):
        raise InvalidInput(
            "Give either a recommendation or settings of your own.", hint=_TRY_HINT, field="recommendation_id"
        )
    if request.settings is not None:
        (agent_id, *_), title, command = await _one_agent(request.agent_id, actor, advisor), "Settings of your own", ""
        proposal, name = request.settings, None
    else:
        name = request.recommendation_id or ""
        found = await _find(name, request.calls, actor, advisor)
        agent_id, title, command, proposal = found.agent_id, found.title, found.command, found.proposal
    result = await advisor.try_settings(actor, agent_id, proposal, request.calls)
    return AdviceTried(
        recommendation_id=name,
        agent_id=agent_id,
        title=title,
        proposal=proposal,
        command=command,
        trial=result.trial,
        tried=_answered(result.calls, request.receipt_id),
    )


def _answered(calls: Sequence[TriedCall], receipt_id: str | None) -> list[TriedCall]:
    """Return the calls without the refs of what changed in each, which are many; or one call with them."""
    if receipt_id is None:
        return [structs.replace(each, removed=(), gained=()) for each in calls]
    found = [each for each in calls if each.receipt_id == receipt_id]
    if not found:
        raise ReceiptNotFound(
            f"None of the last calls of this agent that can be replayed has the receipt '{receipt_id}'."
        )
    return found


async def _one_agent(agent_id: str | None, actor: Actor, advisor: Advisor) -> list[str]:
    wanted = agent_id or actor.principal_id
    return await advisor.transactions.read(actor, partial(_agents, wanted, advisor.clock))


async def _find(recommendation_id: str, calls: int, actor: Actor, advisor: Advisor) -> Recommendation:
    try:
        await advisor.transactions.read(actor, partial(_agents, parts_of(recommendation_id).agent_id, advisor.clock))
    except PermissionDenied:
        raise no_recommendation(recommendation_id, denied=True) from None
    return await advisor.find(actor, recommendation_id, calls)


async def _agents(agent_id: str | None, clock: Clock, stores: AdviceStores) -> list[str]:
    """Return the agents whose calls to analyse, if the plan has recommendations and the caller may read them."""
    (await stores.plans.allowance()).check_insight("recommendations")
    windows, receipts = stores.replays.windows, stores.replays.receipts
    chosen = await agent_to_read(agent_id, windows)
    if chosen is not None:
        return [chosen]
    since = to_micros(clock.now()) - _DAYS * DAY_MICROS
    rows = await receipts.totals("agent", None, None, since, _LATEST, max_clearance=windows.actor.clearance)
    return [row.group for row in rows[:_MAX_AGENTS]]


def _item(found: Recommendation) -> AdviceItem:
    trial = found.trial
    return AdviceItem(
        recommendation_id=found.recommendation_id,
        kind=found.kind,
        agent_id=found.agent_id,
        title=found.title,
        safe=found.safe,
        saved_tokens=None if trial is None else trial.saved_tokens,
        saved_ratio=None if trial is None or not trial.tokens else round(trial.saved_tokens / trial.tokens, 4),
        saved_cost=None if trial is None else trial.saved_cost,
        calls=0 if trial is None else trial.calls,
    )
