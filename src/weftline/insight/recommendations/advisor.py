"""Recommendations for an agent: what its last calls suggest, tried on these calls, best first."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from weftline.access.plan_warnings import Plans
from weftline.history.item_ids import DocumentName
from weftline.insight.recommendations import commands
from weftline.insight.recommendations.findings import ObservedCalls, RecommendationDraft, findings, model_findings
from weftline.insight.recommendations.model import (
    MIN_CALLS,
    Evidence,
    ProposedSettings,
    Recommendation,
    no_recommendation,
)
from weftline.insight.recommendations.recorded_calls import ReplayServices, ReplayStores, document_of
from weftline.insight.recommendations.trials import Control, try_proposal
from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.ports import TokenCounters, Transactions
from weftline.knowledge.sql import DocumentStore
from weftline.models.language_models.catalog import Catalog, Prices
from weftline.state.agent_context.permissions import may_read_context
from weftline.state.layers.service import Layers
from weftline.windows.agent_settings import agent_config
from weftline.windows.compaction.compactor import Compactor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from weftline.insight.recommendations.model import Trial
    from weftline.insight.recommendations.recorded_calls import RecordedWindow
    from weftline.insight.recommendations.trials import TrialResult
    from weftline.kernel.identity import Actor
    from weftline.state.layers.model import Layer
    from weftline.windows.service import Windows

# Calls that an analysis and a trial replay by default, and at most.
DEFAULT_CALLS = 50
MAX_CALLS = 200
# A recommendation that saves less than this part is not worth the change.
_MIN_SAVING = 0.01
_HASH_DIGITS = 6
# Last, whatever they save: others use a document or a key too, and the calls of one agent do not show it; what was
# learned may be needed by later tasks.
_DELETIONS = frozenset({"documents", "duplicate_documents", "board_keys", "learned_memory"})
_encode = msgspec.json.Encoder(order="deterministic").encode


class AdviceStores(msgspec.Struct, frozen=True):
    """Stores that an analysis reads, for one caller in one transaction."""

    replays: ReplayStores
    layers: Layers
    documents: DocumentStore
    plans: Plans


class _Loaded(NamedTuple):
    windows: list[RecordedWindow]
    layers: Sequence[Layer]
    duplicates: list[tuple[str, str]]
    config: dict[str, Any]


class Advisor(msgspec.Struct, frozen=True):
    """Analyses the calls of agents. Nothing is stored: the same calls give the same recommendations."""

    transactions: Transactions[AdviceStores]
    catalog: Catalog
    counters: TokenCounters
    prices: Prices
    clock: Clock

    async def recommendations(
        self, actor: Actor, agent_id: str, calls: int = DEFAULT_CALLS, session_id: str | None = None
    ) -> tuple[int, list[Recommendation]]:
        """Return the number of calls that were analysed, and what would save most, safe ones first, deletions last."""
        loaded = await self._load(actor, agent_id, calls, session_id)
        observed = ObservedCalls(agent_id, loaded.windows, loaded.config)
        return len(observed.calls), await self._recommendations(observed, self._all_findings(observed, loaded))

    async def find(self, actor: Actor, recommendation_id: str, calls: int = DEFAULT_CALLS) -> Recommendation:
        """Return a recommendation that still holds. Only its own kind is tried again."""
        agent_id, kind = parts_of(recommendation_id)
        loaded = await self._load(actor, agent_id, calls, None)
        observed = ObservedCalls(agent_id, loaded.windows, loaded.config)
        same_kind = (each for each in self._all_findings(observed, loaded) if each.kind == kind)
        for each in await self._recommendations(observed, same_kind):
            if each.recommendation_id == recommendation_id:
                return each
        raise no_recommendation(recommendation_id)

    async def try_settings(
        self, actor: Actor, agent_id: str, proposal: ProposedSettings, calls: int, session_id: str | None = None
    ) -> TrialResult:
        """Replay the last calls of an agent under other settings."""
        loaded = await self._load(actor, agent_id, calls, session_id)
        return await try_proposal(Control(loaded.windows, self._services), proposal, self._services, Compactor())

    async def _load(self, actor: Actor, agent_id: str, calls: int, session_id: str | None) -> _Loaded:
        await self.prices.load()
        work = partial(_load, agent_id, calls, session_id)
        return await self.transactions.read(actor, work, heavy=True)

    @property
    def _services(self) -> ReplayServices:
        return ReplayServices(self.catalog, self.counters, self.prices)

    def _all_findings(self, observed: ObservedCalls, loaded: _Loaded) -> Iterator[RecommendationDraft]:
        yield from findings(observed)
        yield from model_findings(observed, self._services, self.clock.now())
        yield from stale_findings(observed, loaded.layers)
        yield from duplicate_findings(loaded.duplicates, len(observed.calls))

    async def _recommendations(
        self, observed: ObservedCalls, drafts: Iterable[RecommendationDraft]
    ) -> list[Recommendation]:
        control = Control(observed.windows, self._services)
        found = [each for draft in drafts if (each := await self._tried(observed, draft, control)) is not None]
        return sorted(found, key=order)

    async def _tried(
        self, observed: ObservedCalls, finding: RecommendationDraft, control: Control
    ) -> Recommendation | None:
        """Return the recommendation of a finding with its best proposal; None if none of them saves anything."""
        if not finding.proposals:
            return self._recommendation(observed, finding, ProposedSettings(), None)
        best: tuple[ProposedSettings, Trial] | None = None
        for proposal in finding.proposals:
            result = await try_proposal(control, proposal, self._services, Compactor())
            if _is_worth_it(finding, result.trial) and (best is None or _rank(result.trial) > _rank(best[1])):
                best = proposal, result.trial
        return None if best is None else self._recommendation(observed, finding, *best)

    def _recommendation(
        self, observed: ObservedCalls, finding: RecommendationDraft, proposal: ProposedSettings, trial: Trial | None
    ) -> Recommendation:
        named = _encode((finding.kind, finding.subjects, proposal))
        digest = hashlib.sha256(named).hexdigest()[:_HASH_DIGITS]
        title, command = finding.title, finding.command
        if proposal.compaction is not None:
            settings = proposal.compaction
            title = f"Compact by {settings.strategy} at {settings.threshold:.0%} of the window"
            before = observed.config.get("compaction") or {}
            changed = {**before, **msgspec.to_builtins(settings)}
            command = commands.define(observed.agent_id, observed.config, compaction=changed)
        return Recommendation(
            recommendation_id=f"{observed.agent_id}.{finding.kind}.{digest}",
            kind=finding.kind,
            agent_id=observed.agent_id,
            title=title,
            reason=finding.reason,
            evidence=finding.evidence,
            subjects=finding.subjects,
            proposal=proposal,
            command=command,
            created_at=to_micros(self.clock.now()),
            # A replay cannot tell how another model would answer.
            safe=trial is None or (trial.safe and finding.kind != "model"),
            trial=trial,
        )


class RecommendationParts(NamedTuple):
    """The parts of an id that name what a recommendation is about."""

    agent_id: str
    kind: str


def parts_of(recommendation_id: str) -> RecommendationParts:
    """Return agent and kind of a recommendation."""
    agent_id, kind, _ = recommendation_id.rsplit(".", 2) if recommendation_id.count(".") > 1 else ("", "", "")
    if not agent_id:
        raise no_recommendation(recommendation_id)
    return RecommendationParts(agent_id, kind)


async def _load(agent_id: str, calls: int, session_id: str | None, stores: AdviceStores) -> _Loaded:
    windows = await stores.replays.recorded(agent_id, calls, session_id)
    layers = await stores.layers.current(agent_id) if windows else ()
    duplicates = await _equal_documents(windows, stores.documents)
    return _Loaded(windows, layers, duplicates, await _config(agent_id, stores.replays.windows))


async def _config(agent_id: str, windows: Windows) -> dict[str, Any]:
    """Return the configuration in an agent's definition, if the caller may read it."""
    agent = await windows.access.principal(agent_id)
    if agent is None or not await may_read_context(windows.actor, agent, windows.access):
        return {}
    return await agent_config(agent_id, windows.lines)


async def _equal_documents(windows: Sequence[RecordedWindow], documents: DocumentStore) -> list[tuple[str, str]]:
    """Return pairs of documents in prompts whose content is the same, byte by byte: the older one first."""
    calls = [call for window in windows for call in window.calls]
    uris = {document_of(ref, call.receipt.documents) for call in calls for ref in call.receipt.documents}
    names = [name for uri in sorted(uris) if (name := DocumentName.parse(uri)) is not None]
    first: dict[str, str] = {}
    found: list[tuple[str, str]] = []
    for domain in sorted({name.domain for name in names}):
        ids = [name.document_id for name in names if name.domain == domain]
        stored = (await documents.find_all(domain, ids)).values()
        for document in sorted(stored, key=lambda each: (each.created_at, each.document_id)):
            uri = str(DocumentName(domain, document.document_id))
            if document.digest in first:
                found.append((first[document.digest], uri))
            first.setdefault(document.digest, uri)
    return found


def duplicate_findings(pairs: Sequence[tuple[str, str]], calls: int) -> Iterator[RecommendationDraft]:
    if pairs:
        copies = tuple(copy for _, copy in pairs)
        yield RecommendationDraft(
            "duplicate_documents",
            f"Delete {len(copies)} copies of documents" if len(copies) > 1 else f"Delete {copies[0]}, a copy",
            "Copies take places in the results of searches, and room in prompts.",
            tuple(Evidence(f"{copy} has the content of {original}", 1, calls) for original, copy in pairs),
            copies,
            (ProposedSettings(copies={copy: original for original, copy in pairs}),),
            commands.delete_documents(copies),
        )


def stale_findings(observed: ObservedCalls, layers: Sequence[Layer]) -> Iterator[RecommendationDraft]:
    """Find sessions whose newest call has older layers than the agent has now."""
    current = {layer.line_id: layer.version for layer in layers if layer.line_id is not None}
    stale: dict[str, int] = {}
    for window in observed.windows:
        for call in window.calls:
            versions = call.receipt.versions
            if any(versions.get(line_id, str(version)) != str(version) for line_id, version in current.items()):
                stale[window.session_id] = stale.get(window.session_id, 0) + 1
    newest = {window.session_id: window.calls[-1].receipt.versions for window in observed.windows}
    behind = [
        session_id
        for session_id in stale
        if any(newest[session_id].get(line, str(version)) != str(version) for line, version in current.items())
    ]
    if behind:
        yield RecommendationDraft(
            "stale_context",
            f"Pull the current context in {len(behind)} session{'s' if len(behind) > 1 else ''}",
            "A session keeps the layers that it began with until its agent pulls them again.",
            tuple(
                Evidence(f"session {each}: calls with outdated layers", stale[each], len(observed.calls))
                for each in behind
            ),
            tuple(behind),
            (),
            commands.pull(observed.agent_id, behind),
        )


def _is_worth_it(finding: RecommendationDraft, trial: Trial) -> bool:
    if trial.calls < MIN_CALLS:
        return False
    if finding.kind in {"duplicate_documents", "window_shares"}:
        return trial.saved_tokens >= 0 or trial.added > 0
    if finding.kind == "model":
        return bool(trial.failed == 0 and (trial.saved_cost or 0) > 0) or trial.added > 0
    return trial.saved_tokens >= trial.tokens * _MIN_SAVING


def _rank(trial: Trial) -> tuple[bool, float, int]:
    return trial.safe, trial.saved_cost or 0.0, trial.saved_tokens


def order(each: Recommendation) -> tuple[bool, bool, float, str]:
    """Sort key: deletions last, safe ones first, then what saves most."""
    saved = 0 if each.trial is None else each.trial.saved_tokens
    return each.kind in _DELETIONS, not each.safe, -saved, each.recommendation_id
