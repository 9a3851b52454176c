"""Compaction accuracy: fifty compactions of growing sessions, and the facts that prompts still have after each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from weft.capabilities.compaction.facts.extraction import extract_facts
from weft.capabilities.compaction.verification import verify
from weft.capabilities.language_models.model import ConversationMessage
from weft.capabilities.windows.model import Category, WindowEvent
from weft.validation.model import Figure, all_of, share_at_least
from weft.validation.planted_session import PlantedSession
from weft.validation.temporary_weft import temporary_weft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.settings import Settings
    from weft.validation.temporary_weft import TenantCaller

_AGENT = "worker"
_SESSIONS, _ROUNDS = 10, 5
_KEEP_RECENT = 10
_WAIT_SECONDS = 60
# No limit of the prompt may hide what a compaction lost, or keep what it should not.
_WINDOW_TOKENS = 1_000_000
_LEAST_RETENTION = 99.0
_MOST_TOKENS = 70


@dataclass(slots=True)
class _Totals:
    """Sums over all compactions."""

    compactions: int = 0
    failed: list[str] = field(default_factory=list)
    planted: int = 0
    planted_kept: int = 0
    facts: int = 0
    facts_kept: int = 0
    lost: list[str] = field(default_factory=list)
    tokens_before: int = 0
    tokens_after: int = 0


async def measure(settings: Settings, sessions: int = _SESSIONS, rounds: int = _ROUNDS) -> Sequence[Figure]:
    """Compact each session several times while it grows; what counts is the text of the prompt after each time."""
    totals = _Totals()
    # Without an index no passage of a covered event comes back: the figures are those of the compaction alone.
    async with temporary_weft(settings, session_indexing="off") as admin:
        await admin.call("agent.create", agent_id=_AGENT)
        for number in range(sessions):
            await _compact_session(admin.acting_as(_AGENT), number, rounds, totals)
    planted, facts = f"planted facts kept, {totals.planted} looked for", f"key facts kept, {totals.facts} looked for"
    return [
        all_of("compactions that were applied", totals.compactions, totals.failed),
        share_at_least(planted, totals.planted_kept, totals.planted, _LEAST_RETENTION, totals.lost),
        share_at_least(facts, totals.facts_kept, totals.facts, _LEAST_RETENTION),
        _tokens_left(totals),
    ]


async def _compact_session(caller: TenantCaller, number: int, rounds: int, totals: _Totals) -> None:
    session, session_id = PlantedSession(number), f"work-{number}"
    await caller.call("session.create", session_id=session_id, purpose="A validation.")
    await caller.call("window.create", session_id=session_id, model_max_tokens=_WINDOW_TOKENS)
    ingested: list[dict[str, Any]] = []
    for _ in range(rounds):
        events = list(session.turns())
        ingested += events
        await caller.call("context.ingest", session_id=session_id, events=events)
        done = await caller.call(
            "context.compact", session_id=session_id, keep_recent=_KEEP_RECENT, wait_seconds=_WAIT_SECONDS
        )
        totals.compactions += 1
        totals.tokens_before += done.get("tokens_before", 0)
        totals.tokens_after += done.get("tokens_after", 0)
        if done["state"] != "applied" or done.get("degraded"):
            totals.failed.append(f"{session_id}: {done['state']}")
        _count_facts(session, ingested, await _prompt_text(caller, session_id), totals)


def _count_facts(session: PlantedSession, ingested: Sequence[dict[str, Any]], text: str, totals: _Totals) -> None:
    lost = [planted.text for planted in session.planted if not planted.is_in(text)]
    totals.planted += len(session.planted)
    totals.planted_kept += len(session.planted) - len(lost)
    totals.lost += lost
    events = [_window_event(number, event) for number, event in enumerate(ingested, 1)]
    facts = [fact for fact in extract_facts(events) if fact.status == "current"]
    totals.facts += len(facts)
    totals.facts_kept += len(verify(text, facts).found)


def _window_event(number: int, event: dict[str, Any]) -> WindowEvent:
    """Return an event as a window has it, for the rules that recognise key facts."""
    is_result = event["role"] == "tool"
    return WindowEvent(
        event_id=event["event_id"],
        number=number,
        category=Category.SYSTEM_OUTPUT if is_result else Category.DIALOG,
        message=msgspec.convert({key: value for key, value in event.items() if key != "event_id"}, ConversationMessage),
        kind="tool_output" if is_result else "message",
        at=number,
        author=_AGENT,
        agent_id=_AGENT,
        tokens=0,
    )


async def _prompt_text(caller: TenantCaller, session_id: str) -> str:
    prompt = await caller.call(
        "context.assemble", session_id=session_id, task_description="Go on.", token_budget=_WINDOW_TOKENS, fresh=True
    )
    return "\n\n".join(message.get("content") or "" for message in prompt["body"]["messages"])


def _tokens_left(totals: _Totals) -> Figure:
    """Return the tokens after compaction: one that shortens nothing keeps every fact."""
    value = 100 * totals.tokens_after / totals.tokens_before if totals.tokens_before else 100.0
    return Figure(
        measured="tokens after compaction",
        value=round(value, 1),
        unit="%",
        target=f"<= {_MOST_TOKENS} %",
        met=value <= _MOST_TOKENS,
    )
