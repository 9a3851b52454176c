"""One run of a compaction, in transactions: started, its cut frozen, its result applied, held or discarded."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import structs

from weftline.history.model import trunk_of
from weftline.history.signed_lists import LayerViolation
from weftline.kernel.ports import approximate_tokens
from weftline.models.language_models.chat_model import ChatCaller
from weftline.safety.trust.model import TrustPolicies
from weftline.windows.agent_settings import compaction_settings
from weftline.windows.compaction.compacted_events import compacted_tokens
from weftline.windows.compaction.model import DEFAULT_STRATEGY, CompactionSource, CompactionState
from weftline.windows.compaction.model_summariser import ModelSummariser, SummaryContext
from weftline.windows.compaction.service import Compactions
from weftline.windows.compaction.summariser import ExtractiveSummariser, SummariserFailed
from weftline.windows.compaction.trigger import NEAR_LIMIT, modelled_costs
from weftline.windows.line_events import redacted_items
from weftline.windows.model import window_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.models.language_models.catalog import CacheRules, Catalog
    from weftline.models.language_models.chat_model import ChatModel
    from weftline.safety.injection import InjectionDetector
    from weftline.safety.trust.model import TrustPolicy
    from weftline.sessions.model import Session
    from weftline.windows.compaction.model import CompactedView, Compaction, CompactionDraft
    from weftline.windows.compaction.summariser import Summariser, SummaryRequest, SummaryText
    from weftline.windows.model import WindowEvent


# Errors of a run after which a compaction has failed. A run that ends with its process, or is begun again because its
# events changed, is no error; but what was begun this often may be what ends the process. The next threshold queues
# another one.
MAX_FAILURES = 3
MAX_ATTEMPTS = 20
FAILED = "It failed several times. Prompts leave out older messages where they must."
_PAGE = 1_000
# Recent messages take at most this part of the limit after an automatic compaction.
_RECENT_PART = 0.4


class FrozenCut(NamedTuple):
    """A window as a run sees it: its events at commit ``seq``, and what counts for the decision about the result.

    ``redacted`` are the items of the session that were redacted then. ``policy`` says what may leave for a model; None
    if the tenant's layer was tampered with.
    """

    compaction: Compaction
    events: Sequence[WindowEvent]
    seq: int
    redacted: frozenset[str]
    limit: int
    cache: CacheRules
    view: CompactedView | None
    policy: TrustPolicy | None

    @property
    def number(self) -> int:
        return self.events[-1].number if self.events else 0

    @property
    def source(self) -> CompactionSource:
        compaction = self.compaction
        # A call says what stays; by itself a window must become smaller, however long its recent messages are.
        recent_tokens = int(self.limit * _RECENT_PART) if compaction.trigger == "threshold" else None
        return CompactionSource(
            self.events, (), compaction.target, compaction.keep_recent, approximate_tokens, recent_tokens
        )


class CompactionRuns(msgspec.Struct, frozen=True):
    """What a run needs of each transaction."""

    compactions: Compactions
    policies: TrustPolicies

    async def start(self, compaction_id: str) -> Compaction | None:
        """Begin a queued compaction, or one whose run was lost; None if there is nothing to run."""
        store = self.compactions.store
        found = await store.lock(compaction_id)
        if found is None or found.state not in {CompactionState.QUEUED, CompactionState.RUNNING}:
            return None
        if found.attempts >= MAX_ATTEMPTS:
            await self.fail(compaction_id)
            return None
        return await self.compactions.begin(await self._allowed(found))

    async def freeze(self, compaction: Compaction) -> FrozenCut | None:
        """Read the events of a window at its head; None if it is gone."""
        windows = self.compactions.windows
        line = await windows.lines.find(compaction.line_id)
        if line is None:
            return None
        owner = trunk_of(compaction.line_id).removeprefix(window_line(compaction.session_id, ""))
        settings = await windows.store.find(compaction.session_id, compaction.agent_id)
        current = await self.compactions.current(compaction.line_id)
        return FrozenCut(
            compaction,
            await windows.line_events(compaction.session_id, compaction.line_id),
            line.head.seq,
            frozenset(await windows.records.redactions_in(compaction.session_id)),
            await windows.shared_limit(compaction.session_id, owner),
            windows.catalog.find(None if settings is None else settings.model).cache,
            None if current is None else current.view,
            await self._policy(),
        )

    async def to_finish(self, cut: FrozenCut, draft: CompactionDraft) -> Session | None:
        """Lock the session and the compaction of a finished run.

        None if there is nothing to finish: it ended otherwise, or its events changed; then it is queued again.
        """
        compaction, windows = cut.compaction, self.compactions.windows
        # Lock order, the same as of writers of the window and of deletion: session, line, compaction.
        locked = await windows.sessions.find_locked(compaction.session_id)
        if locked is None or await windows.lines.lock(compaction.line_id) is None:
            return None
        found = await self.compactions.store.lock(compaction.compaction_id)
        if found is None or found.state is not CompactionState.RUNNING or found.attempts != compaction.attempts:
            return None
        if not await self._has_cut(cut, draft.view):
            await self.compactions.store.save(structs.replace(found, state=CompactionState.QUEUED))
            return None
        return locked[0]

    async def needs_review(self, compaction: Compaction, session: Session) -> bool:
        """Tell whether a human decides about a compaction, by the session or the settings of the agent."""
        windows = self.compactions.windows
        settings = await compaction_settings(compaction.agent_id, windows.lines, windows.access)
        return session.config.compaction_review or settings.review

    async def count_failure(self, compaction: Compaction) -> bool:
        """Note that a run ended with an error; return whether the compaction has failed by that."""
        found = await self.compactions.store.lock(compaction.compaction_id)
        if found is None or found.state is not CompactionState.RUNNING or found.attempts != compaction.attempts:
            return False
        await self.compactions.store.save(structs.replace(found, failures=found.failures + 1))
        if found.failures + 1 < MAX_FAILURES:
            return False
        await self.fail(compaction.compaction_id)
        return True

    async def fail(self, compaction_id: str) -> None:
        """End a compaction that cannot be made."""
        await self.compactions.end(compaction_id, CompactionState.FAILED, FAILED, ("truncation",))

    async def _policy(self) -> TrustPolicy | None:
        try:
            return await self.policies.current()
        except LayerViolation:
            return None

    async def _allowed(self, compaction: Compaction) -> Compaction:
        """Return a compaction by a strategy that the plan has."""
        allowance = await self.compactions.plans.allowance()
        if allowance.compaction_strategies or compaction.strategy == DEFAULT_STRATEGY:
            return compaction
        reason = f"The plan '{allowance.plan}' compacts by a sliding window only, not by {compaction.strategy}."
        return structs.replace(compaction, strategy=DEFAULT_STRATEGY, reason=reason)

    async def _has_cut(self, cut: FrozenCut, view: CompactedView) -> bool:
        """Tell whether the line still has the covered events as they were; new ones do not matter."""
        covered = {event_id for summary in view.summaries for event_id in summary.sources}
        covered |= {each.event_id for each in view.shortened}
        windows, line_id = self.compactions.windows, cut.compaction.line_id
        after = cut.seq
        while page := await windows.lines.changes_after(line_id, after, _PAGE):
            if any(version.change.key in covered for version in page):
                return False
            after = page[-1].seq
        redactions = await windows.records.redactions_in(cut.compaction.session_id)
        new = {item_id: redactions[item_id] for item_id in redactions.keys() - cut.redacted}
        items = [event.item_id for event in cut.events if event.event_id in covered] if new else []
        return not redacted_items(items, new)


def reason_to_skip(cut: FrozenCut, draft: CompactionDraft) -> str | None:
    """Return why a result is not used; None if it is. What was asked for is used whenever it saves something."""
    view = draft.view
    if draft.tokens_after >= draft.tokens_before or not (view.summaries or view.shortened):
        return "Nothing would be saved: the older messages are few, or must stay in full."
    is_near_limit = compacted_tokens(cut.events, cut.view) >= NEAR_LIMIT * cut.limit
    if cut.compaction.trigger == "request" or is_near_limit:
        return None
    costs = modelled_costs(cut.events, cut.view, view, cut.cache)
    if costs.is_worth_it:
        return None
    return (
        f"The prompt cache that would be lost is worth more than the tokens saved: modelled cost {costs.compacted:.0f} "
        f"tokens, {costs.unchanged:.0f} as it is."
    )


# Chooses what writes the summaries of a run: the configured language model, or the words of the original.

# As the setting ``model`` of an agent: summaries without a model.
NO_MODEL = "none"
NOT_CONFIGURED = "The server has no such model as the settings name; the words of the original were used."
NO_POLICY = "The tenant's policy cannot be read, so nothing leaves for the model; the words of the original were used."


class Summarisers(NamedTuple):
    """What summarisers need, for the life of the application. ``model`` is None if none is configured."""

    model: ChatModel | None
    catalog: Catalog
    detector: InjectionDetector

    def of(self, tenant: str, cut: FrozenCut) -> Summariser:
        """Return the summariser of a run. Facts alone need no model."""
        compaction = cut.compaction
        wanted = compaction.model
        if wanted == NO_MODEL or (self.model is None and wanted is None):
            return ExtractiveSummariser()
        if self.model is None or wanted not in {None, self.model.name}:
            return FailedSummariser(NOT_CONFIGURED)
        if cut.policy is None:
            return FailedSummariser(NO_POLICY)
        caller = ChatCaller(tenant, compaction.agent_id, compaction.session_id)
        context = SummaryContext(caller, cut.policy, self.detector, cut.view)
        return ModelSummariser(self.model, self.catalog.find(self.model.name), context)


class FailedSummariser(NamedTuple):
    """Has no text for any group, for one reason: another summariser takes its place, and the result says why."""

    reason: str

    async def summarise(self, request: SummaryRequest) -> SummaryText:
        del request
        raise SummariserFailed(self.reason)
