"""What the last calls of an agent suggest: one finding for each kind of recommendation, not tried yet.

Each rests on observations of the calls themselves. What an answer used is known only for calls with a reported answer;
findings about unused content count these alone. Tools that it called are known from the conversation too.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from weftline.insight.recommendations import commands
from weftline.insight.recommendations.model import MIN_CALLS, Evidence, ProposedSettings
from weftline.insight.recommendations.recorded_calls import document_of
from weftline.insight.recommendations.recorded_candidates import candidates_of
from weftline.insight.recommendations.trials import calls_with_known_answers, tool_calls
from weftline.state.agent_context.settings import STRATEGIES, CompactionSettings
from weftline.windows.budget import budgets_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime
    from decimal import Decimal

    from weftline.insight.recommendations.model import RecommendationKind
    from weftline.insight.recommendations.recorded_calls import RecordedCall, RecordedWindow, ReplayServices
    from weftline.models.language_models.catalog import ModelInfo


# At most this many subjects in one recommendation, those with the most tokens.
_MAX_SUBJECTS = 20
# A conversation that takes less than this part of the prompts is not worth a compaction.
_MIN_CONVERSATION = 0.3
_THRESHOLDS = (0.2, 0.35, 0.5)
# Below the lowest score of a passage that was used.
_SCORE_MARGIN = 0.02
_DATA = frozenset({"retrieved", "board", "pins"})
# An entry of a session is worth keeping when this many answers used it: one may be a coincidence, and what was used
# once only is as likely as not to be used never again.
_MIN_USES = 3


class RecommendationDraft(NamedTuple):
    """A proposal, or several of which the best one that is safe is to be chosen."""

    kind: RecommendationKind
    title: str
    reason: str
    evidence: tuple[Evidence, ...]
    subjects: tuple[str, ...]
    proposals: tuple[ProposedSettings, ...]
    command: str = ""


class ObservedCalls:
    """The last calls of one agent, and what they have in common. ``config``: that of its definition."""

    def __init__(self, agent_id: str, windows: Sequence[RecordedWindow], config: Mapping[str, Any]) -> None:
        self.agent_id = agent_id
        self.windows = windows
        self.config = config
        self.calls = [call for window in windows for call in window.calls]
        self.scored = [call for call in self.calls if call.useful is not None]

    @cached_property
    def called_tools(self) -> set[str]:
        """Return the tools that the agent has called: in its conversation, or by the answers that were reported."""
        return set(tool_calls(self.windows))

    @cached_property
    def documents(self) -> dict[str, str]:
        return {ref: uri for call in self.calls for ref, uri in call.receipt.documents.items()}

    def unused(self, kind: str) -> list[tuple[str, int]]:
        """Return refs in blocks of a kind that were in enough scored prompts and used in none, with their calls."""
        return self._never_used(frozenset({kind}), lambda ref: ref)

    def unused_documents(self) -> list[tuple[str, int]]:
        """Return URIs of documents with passages in enough scored prompts, of which no answer used any."""
        return self._never_used(_DATA, lambda ref: document_of(ref, self.documents))

    def _never_used(self, kinds: frozenset[str], subject_of: Callable[[str], str]) -> list[tuple[str, int]]:
        """Return subjects that no answer used; if some of them were never in doubt either, only these."""
        sent: Counter[str] = Counter()
        used: set[str] = {""}
        in_doubt: set[str] = set()
        for call in self.scored:
            refs = {ref for block in call.blocks if block.kind in kinds for ref in block.items}
            sent.update({subject_of(ref) for ref in refs})
            used |= {subject_of(ref) for ref in refs & (call.useful or frozenset())}
            in_doubt |= {subject_of(ref) for ref in refs if call.may_have_used(ref)}
        found = [(name, calls) for name, calls in sent.most_common() if name not in used and calls >= MIN_CALLS]
        return [each for each in found if each[0] not in in_doubt] or found


def findings(observed: ObservedCalls) -> list[RecommendationDraft]:
    """Return what the calls suggest."""
    return list(_findings(observed))


def _findings(observed: ObservedCalls) -> Iterator[RecommendationDraft]:
    if len(observed.calls) >= MIN_CALLS:
        yield from _tools(observed)
        yield from _compaction(observed)
        yield from _shares(observed)
    if len(observed.scored) >= MIN_CALLS:
        yield from _unused_content(observed)
        yield from _min_score(observed)
        yield from _session_memory(observed)


def _tools(observed: ObservedCalls) -> Iterator[RecommendationDraft]:
    known = calls_with_known_answers(observed.windows)
    offered: Counter[str] = Counter(tool.name for call in known for tool in call.tools)
    never = [(name, calls) for name, calls in offered.most_common() if name not in observed.called_tools]
    never = [(name, calls) for name, calls in never if calls >= MIN_CALLS][:_MAX_SUBJECTS]
    if never:
        names = tuple(name for name, _ in never)
        yield RecommendationDraft(
            "tools",
            f"Do not offer {_listed(names, 'tools')} that the agent never calls",
            "Each definition is in every prompt. `tools: auto` of `context.assemble` loads registered tools by task.",
            tuple(Evidence(f"{name}: offered, never called", calls, len(known)) for name, calls in never),
            names,
            (ProposedSettings(without_tools=names),),
            commands.choose_tools(observed.windows[-1].session_id, observed.agent_id),
        )


def _unused_content(observed: ObservedCalls) -> Iterator[RecommendationDraft]:
    scored = len(observed.scored)
    documents = observed.unused_documents()[:_MAX_SUBJECTS]
    if documents:
        uris = tuple(uri for uri, _ in documents)
        yield RecommendationDraft(
            "documents",
            f"Review {_listed(uris, 'documents')} that no answer of this agent uses",
            "Passages of them are retrieved and sent, and take the room of others. Other agents may need them: delete "
            "only what is of no use to anyone.",
            tuple(Evidence(f"{uri}: sent, not used", calls, scored) for uri, calls in documents),
            uris,
            (ProposedSettings(without_items=uris),),
            commands.delete_documents(uris),
        )
    pins = [pin for pin in observed.unused("pins") if commands.remove_pin(pin[0]) is not None][:_MAX_SUBJECTS]
    if pins:
        refs = tuple(ref for ref, _ in pins)
        yield RecommendationDraft(
            "pins",
            f"Unpin {_listed(refs, 'items')} that no answer uses",
            "A pin is in every prompt, whatever the task. Search finds the item when a task needs it.",
            tuple(Evidence(f"{ref}: pinned, not used", calls, scored) for ref, calls in pins),
            refs,
            (ProposedSettings(without_items=refs),),
            commands.remove_pins(refs),
        )
    own = f"context:{observed.agent_id}:"
    learned = [each for each in observed.unused("retrieved") if each[0].startswith(own)][:_MAX_SUBJECTS]
    if learned:
        refs = tuple(ref for ref, _ in learned)
        yield RecommendationDraft(
            "learned_memory",
            f"Forget {_listed(refs, 'entries of memory')} that no answer uses",
            "Memory is searched for every prompt of the sessions that pulled it. Earlier versions stay in its history.",
            tuple(Evidence(f"{ref}: sent, not used", calls, scored) for ref, calls in learned),
            refs,
            (ProposedSettings(without_items=refs),),
            commands.forget(refs),
        )
    keys = observed.unused("board")[:_MAX_SUBJECTS]
    if keys:
        refs = tuple(ref for ref, _ in keys)
        yield RecommendationDraft(
            "board_keys",
            f"Delete {_listed(refs, 'board keys')} that no answer uses",
            "Entries of the board are in every prompt of the session, as far as there is room.",
            tuple(Evidence(f"{ref}: sent, not used", calls, scored) for ref, calls in keys),
            refs,
            (ProposedSettings(without_items=refs),),
            commands.delete_keys(refs),
        )


def _session_memory(observed: ObservedCalls) -> Iterator[RecommendationDraft]:
    """Propose to push what the agent noted in a session and its answers use: other sessions do not have it."""
    own = f"memory:{observed.agent_id}:"
    used = Counter(ref for call in observed.scored for ref in call.useful or () if ref.startswith(own))
    notes = [(ref, calls) for ref, calls in used.most_common(_MAX_SUBJECTS) if calls >= _MIN_USES]
    if notes:
        refs = tuple(ref for ref, _ in notes)
        yield RecommendationDraft(
            "session_memory",
            f"Push {_listed(refs, 'entries of session memory')} that answers use",
            "The memory of a session ends with it. What is pushed is found in every session that pulls it.",
            tuple(Evidence(f"{ref}: used by answers", calls, len(observed.scored)) for ref, calls in notes),
            refs,
            (),
            commands.push(observed.agent_id, refs),
        )


def _min_score(observed: ObservedCalls) -> Iterator[RecommendationDraft]:
    """Propose a minimum score just below the lowest one of a passage that an answer used."""
    used: list[float] = []
    below: list[float] = []
    for call in observed.scored:
        sent = {ref for block in call.blocks if block.kind == "retrieved" for ref in block.items}
        for each in candidates_of(call.receipt, "passage"):
            if each.score is not None and each.ref in sent:
                (used if each.ref in (call.useful or frozenset()) else below).append(each.score)
    if not used:
        return
    floor = math.floor((min(used) - _SCORE_MARGIN) * 100) / 100
    weak = sum(score < floor for score in below)
    if floor > 0 and weak >= MIN_CALLS:
        yield RecommendationDraft(
            "min_score",
            f"Raise the minimum relevance of passages to {floor:.2f}",
            f"The lowest score of a passage that an answer used is {min(used):.2f}.",
            (Evidence(f"passages below {floor:.2f} that were sent, and not used", weak, len(used) + len(below)),),
            (f"min_score={floor:.2f}",),
            (ProposedSettings(min_score=floor),),
            commands.update(observed.agent_id, floor),
        )


def _compaction(observed: ObservedCalls) -> Iterator[RecommendationDraft]:
    """Propose other strategies and thresholds; the trial chooses among them."""
    tokens = sum(call.receipt.tokens for call in observed.calls)
    talk = sum(block.tokens for call in observed.calls for block in call.blocks if block.kind == "conversation")
    if not tokens or talk / tokens < _MIN_CONVERSATION:
        return
    current = observed.windows[-1].compaction
    proposals = tuple(
        ProposedSettings(
            compaction=CompactionSettings(
                strategy=strategy, threshold=threshold, keep_recent=current.keep_recent, target=current.target
            )
        )
        for strategy in STRATEGIES
        for threshold in _THRESHOLDS
        if (strategy, threshold) != (current.strategy, current.threshold) and strategy != "auto"
    )
    yield RecommendationDraft(
        "compaction",
        "Compact the conversation earlier",
        f"It is compacted by {current.strategy} at {current.threshold:.0%} of the window.",
        (Evidence("tokens of the conversation, of all that were sent", talk, tokens),),
        (),
        proposals,
    )


def _shares(observed: ObservedCalls) -> Iterator[RecommendationDraft]:
    """Propose shares of the window by what the answers used, if events had to be left out."""
    trimmed = [call for call in observed.scored if _is_trimmed(call)]
    if len(trimmed) < MIN_CALLS:
        return
    window = observed.windows[-1]
    useful: Counter[str] = Counter()
    categories = {event.event_id: event.category for each in observed.windows for event in each.events}
    for call in trimmed:
        for block in call.blocks:
            if block.kind == "conversation" and not block.items.keys().isdisjoint(call.useful or ()):
                name = next(iter(block.items)).rpartition("/")[2]
                if name in categories:
                    useful[categories[name]] += block.tokens
    total = sum(useful.values())
    if not total:
        return
    budgets = budgets_for(1_000, window.shares)
    # Half of the present share stays: what was not used so far may be used later.
    shares = {category: (part + useful[category] * 1_000 // total) // 2 / 1_000 for category, part in budgets.items()}
    named: Mapping[str, float] = {category.value: share for category, share in shares.items()}
    yield RecommendationDraft(
        "window_shares",
        "Divide the window by what the answers use",
        "Events were left out of prompts for lack of room, while other categories had more than was used.",
        (Evidence("calls with events that had no room", len(trimmed), len(observed.scored)),),
        tuple(f"{name}={share:.3f}" for name, share in named.items()),
        (ProposedSettings(shares=shares),),
        commands.update_window(window.session_id, observed.agent_id, named),
    )


def _is_trimmed(call: RecordedCall) -> bool:
    events = {each.ref for each in call.receipt.candidates if each.kind == "event"}
    return any(each.reason == "budget" and each.ref in events for each in call.receipt.omitted)


def _listed(names: Sequence[str], noun: str) -> str:
    if len(names) == 1:
        return names[0]
    return f"{len(names)} {noun}"


# Other models of the same provider: a cheaper one that prompts fit into, or a larger one where they did not fit.

# A model that costs more than this part of the present one is not worth a test.
_CHEAPER = 2
# The largest prompt may fill this part of the other model's window.
_FILL = 0.5


def model_findings(observed: ObservedCalls, services: ReplayServices, at: datetime) -> Iterator[RecommendationDraft]:
    """Return the next cheaper model, and the next larger one if prompts had no room for something."""
    used = Counter(call.receipt.model for call in observed.calls if call.receipt.model)
    if not used or len(observed.calls) < MIN_CALLS:
        return
    model, calls = used.most_common(1)[0]
    info = services.catalog.find(model)
    priced = _priced(info, services, at)
    own = services.prices.rates(info, at)
    if own is None:
        return
    largest = max(call.receipt.tokens for call in observed.calls)
    cheaper = [
        (price, name)
        for name, (price, other) in priced.items()
        if price * _CHEAPER <= own.input and largest <= other.context_window * _FILL
    ]
    if cheaper:
        price, name = max(cheaper)
        reason = f"Its input costs ${price:.2f} for a million tokens instead of ${own.input:.2f}. Compare the answers."
        yield _finding(observed, f"Try {name}, a smaller model", reason, name, "calls with this model", calls)
    full = sum(any(each.reason == "budget" for each in call.receipt.omitted) for call in observed.calls)
    larger = [(price, name) for name, (price, other) in priced.items() if other.context_window > info.context_window]
    bound = sum(call.receipt.limits.limit >= call.receipt.limits.model_tokens // 2 for call in observed.calls)
    if larger and full >= MIN_CALLS and bound >= MIN_CALLS:
        _, name = min(larger)
        reason = f"Prompts had no room for something; its window is larger than that of {model}."
        yield _finding(observed, f"Try {name}, with a larger window", reason, name, "calls without room", full)


def _finding(observed: ObservedCalls, title: str, reason: str, name: str, what: str, count: int) -> RecommendationDraft:
    evidence = (Evidence(what, count, len(observed.calls)),)
    command = commands.define(observed.agent_id, observed.config, model=name)
    return RecommendationDraft("model", title, reason, evidence, (name,), (ProposedSettings(model=name),), command)


def _priced(info: ModelInfo, services: ReplayServices, at: datetime) -> dict[str, tuple[Decimal, ModelInfo]]:
    """Return the other models of a provider that have a price and read the same media."""
    found: dict[str, tuple[Decimal, ModelInfo]] = {}
    for name in services.catalog.families:
        other = services.catalog.find(name)
        if name.endswith("-") or not other.known or other.provider != info.provider or other.model == info.model:
            continue
        rates = services.prices.rates(other, at)
        if rates is not None and set(info.input) <= set(other.input):
            found[name] = rates.input, other
    return found
