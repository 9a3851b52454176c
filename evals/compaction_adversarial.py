"""Planted items in long noisy tool sessions: how many survive a compaction by each strategy, without a model.

Also the price of facts in ordinary talk, since each costs tokens: facts for every 1,000 tokens and their share of them,
on public conversations.
"""

from __future__ import annotations

import asyncio
import json
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple, get_args

from evals.compaction_sessions import SESSIONS, planted_session, statements, survives, text_of
from evals.results import Row
from weftline.kernel.ports import approximate_tokens
from weftline.models.language_models.content import ConversationMessage
from weftline.windows.compaction.compactor import Compactor
from weftline.windows.compaction.facts.extraction import extract_facts
from weftline.windows.compaction.model import CompactionSource, StrategyName, is_stated
from weftline.windows.compaction.summariser import ExtractiveSummariser
from weftline.windows.compaction.verification import verify
from weftline.windows.model import Category, WindowEvent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from evals.compaction_sessions import PlantedSession
    from weftline.windows.compaction.model import KeyFact

STRATEGIES: tuple[StrategyName, ...] = get_args(StrategyName)
TARGETS = (0.4, 0.25, 0.1)
# Part of the current key facts that a compaction must retain.
LEAST_RETENTION = 0.99
_KEEP_RECENT = 20
_TALK = {"ami": 20, "locomo": 10, "bfcl_memory": 10}
_MAX_FACTS = 6.0


class Outcome(NamedTuple):
    """What a compaction of a session lost of what was planted and of its key facts, and its size before and after."""

    lost: Sequence[str]
    planted: int
    lost_facts: Sequence[KeyFact]
    facts: int
    tokens: int
    tokens_before: int


async def compact_session(session: PlantedSession, strategy: StrategyName, target: float) -> Outcome:
    """Compact a session and look for what was planted in it."""
    facts = extract_facts(session.events)
    source = CompactionSource(session.events, facts, target, _KEEP_RECENT, approximate_tokens)
    draft = await Compactor().compact(source, strategy, ExtractiveSummariser())
    text = text_of(session, draft.view)
    lost = [f"{each.name}: {', '.join(each.probes)}" for each in session.planted if not survives(text, each)]
    current = [fact for fact in facts if fact.status == "current" and is_stated(fact)]
    lost_facts = verify(text, current).missing
    return Outcome(lost, len(session.planted), lost_facts, len(current), approximate_tokens(text), session.tokens)


def compaction_adversarial(folder: Path | None) -> Iterator[Row]:
    sessions = [planted_session(number) for number in range(SESSIONS)]
    for strategy in STRATEGIES:
        for target in TARGETS:
            yield from _survival(sessions, strategy, target)
    yield _recall("known", statements(), 0.95)
    yield _recall("held_out", statements(held_out=True), None)
    if folder is not None:
        for name in _TALK:
            yield from _price(folder, name)


def _survival(sessions: Sequence[PlantedSession], strategy: StrategyName, target: float) -> Iterator[Row]:
    outcomes = [asyncio.run(compact_session(session, strategy, target)) for session in sessions]
    lost = [each for outcome in outcomes for each in outcome.lost]
    for name in sorted({each.partition(":")[0] for each in lost}):
        of_name = [each for each in lost if each.startswith(name)]
        print(f"  lost by {strategy} at {target:.0%}: {len(of_name)}, such as {of_name[0]}")
    planted = sum(outcome.planted for outcome in outcomes)
    value = 1 - len(lost) / planted
    name = f"compaction_adversarial.{strategy}.{target:.0%}"
    yield Row(f"{name}.survive", value, f"of {planted}", None, "= 1", not lost)
    facts = sum(outcome.facts for outcome in outcomes)
    kept = 1 - sum(len(outcome.lost_facts) for outcome in outcomes) / facts
    yield Row(f"{name}.facts", kept, f"of {facts}", None, f">= {LEAST_RETENTION:.2f}", kept >= LEAST_RETENTION)
    share = sum(outcome.tokens for outcome in outcomes) / sum(outcome.tokens_before for outcome in outcomes)
    yield Row(f"{name}.tokens", share, "share", None, None, None)


def _recall(name: str, texts: Sequence[str], target: float | None) -> Row:
    """Count the statements in free wording that are facts, word for word."""
    value = fmean(
        any(fact.text == text for fact in extract_facts(_events([{"text": text, "speaker": "Ada"}]))) for text in texts
    )
    wanted, met = (None, None) if target is None else (f">= {target}", value >= target)
    return Row(f"compaction_adversarial.statements.{name}.recall", value, f"of {len(texts)}", None, wanted, met)


def _price(folder: Path, name: str) -> Iterator[Row]:
    tokens = facts = fact_tokens = 0
    with (folder / "compaction" / f"{name}_conversations.jsonl").open("r", encoding="utf-8") as lines:
        for _, line in zip(range(_TALK[name]), lines, strict=False):
            events = _events(json.loads(line)["messages"])
            current = [fact for fact in extract_facts(events) if fact.status == "current"]
            tokens += sum(event.tokens for event in events)
            facts += len(current)
            fact_tokens += sum(approximate_tokens(fact.text) for fact in current)
    density = facts / tokens * 1_000
    met = density <= _MAX_FACTS
    yield Row(
        f"compaction_adversarial.talk.{name}.facts", density, "per 1,000 tokens", None, f"<= {_MAX_FACTS:.0f}", met
    )
    yield Row(f"compaction_adversarial.talk.{name}.fact_tokens", fact_tokens / tokens, "share", None, None, None)


def _events(messages: Sequence[dict[str, str]]) -> list[WindowEvent]:
    return [
        WindowEvent(
            event_id=f"e{number}",
            number=number,
            category=Category.DIALOG,
            message=ConversationMessage(role="user", content=message["text"], name=message["speaker"]),
            kind="message",
            at=number * 1_000_000,
            author=message["speaker"],
            agent_id="assistant",
            tokens=approximate_tokens(message["text"]),
        )
        for number, message in enumerate(messages, start=1)
    ]
