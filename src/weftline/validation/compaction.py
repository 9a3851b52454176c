"""Compaction accuracy: fifty compactions of growing sessions, and the statements that prompts still have after each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from weftline.models.language_models.model import ConversationMessage
from weftline.validation.model import Figure, all_of, share_at_least
from weftline.validation.statements import Material, Passages, Said, as_events, packaged, spread
from weftline.validation.temporary_weftline import temporary_weftline
from weftline.windows.compaction.facts.extraction import extract_facts
from weftline.windows.compaction.model import is_stated
from weftline.windows.compaction.verification import verify
from weftline.windows.model import Category, WindowEvent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weftline.settings import Settings
    from weftline.validation.temporary_weftline import TenantCaller

_AGENT = "worker"
_SESSIONS, _ROUNDS = 10, 5
# Of each round: one statement in six messages.
_STATEMENTS, _TALK = 8, 40
_KEEP_RECENT = 10
_WAIT_SECONDS = 60
# No limit of the prompt may hide what a compaction lost, or keep what it should not.
_WINDOW_TOKENS = 1_000_000
_LEAST_STATEMENTS, _LEAST_BINDING, _LEAST_FACTS = 98.0, 99.0, 99.0
_BINDING = ("commitment", "constraint", "open_question")
_MOST_TOKENS = 70


@dataclass(slots=True)
class _Totals:
    """Sums over all compactions."""

    compactions: int = 0
    failed: list[str] = field(default_factory=list)
    # By kind.
    statements: Counter[str] = field(default_factory=Counter)
    survivors: Counter[str] = field(default_factory=Counter)
    # In order of loss, with the number of prompts that lacked them.
    lost: Counter[str] = field(default_factory=Counter)
    facts: int = 0
    facts_kept: int = 0
    tokens_before: int = 0
    tokens_after: int = 0


async def measure(
    settings: Settings, material: Material | None = None, sessions: int = _SESSIONS, rounds: int = _ROUNDS
) -> Sequence[Figure]:
    """Compact each session several times while it grows; what counts is the text of the prompt after each time."""
    totals = _Totals()
    # Without an index no passage of a covered event comes back: the figures are those of the compaction alone.
    async with temporary_weftline(settings, session_indexing="off") as admin:
        await admin.call("agent.create", agent_id=_AGENT)
        for number, told in enumerate(stated_sessions(material or Material(), sessions, rounds)):
            await _compact_session(admin.acting_as(_AGENT), f"work-{number}", told, totals)
    binding = sum(totals.statements[kind] for kind in _BINDING)
    return [
        all_of("compactions that were applied", totals.compactions, totals.failed),
        share_at_least(
            f"statements in the next prompt, {totals.statements.total()} looked for",
            totals.survivors.total(),
            totals.statements.total(),
            _LEAST_STATEMENTS,
            [statement for statement, _ in totals.lost.most_common()],
        ),
        share_at_least(
            f"commitments, constraints and open questions of them, {binding} looked for",
            sum(totals.survivors[kind] for kind in _BINDING),
            binding,
            _LEAST_BINDING,
        ),
        share_at_least(
            f"key facts that Weftline recognises, {totals.facts} looked for",
            totals.facts_kept,
            totals.facts,
            _LEAST_FACTS,
        ),
        _tokens_left(totals),
    ]


def stated_sessions(material: Material, sessions: int = _SESSIONS, rounds: int = _ROUNDS) -> Iterator[list[list[Said]]]:
    """Yield the rounds of each session: statements of others among talk, or among own messages in one session."""
    statements = [each for each in packaged() if each.statement]
    talk = [each for each in packaged() if not each.statement]
    for number in range(1 if material.own else sessions):
        draw = material.draw(number)
        said = list(material.own) or draw.sample(talk, _TALK * rounds)
        stated = iter(draw.sample(statements, min(len(statements), _STATEMENTS * rounds)))
        size = -(-len(said) // rounds)
        parts = [said[start : start + size] for start in range(0, len(said), size)]
        yield [spread([*_first(stated, _STATEMENTS)], part, draw) for part in parts]


def _first(stated: Iterator[Said], count: int) -> Iterator[Said]:
    for _, statement in zip(range(count), stated, strict=False):
        yield statement


async def _compact_session(
    caller: TenantCaller, session_id: str, told: Sequence[Sequence[Said]], totals: _Totals
) -> None:
    await caller.call("session.create", session_id=session_id, purpose="A validation.")
    await caller.call("window.create", session_id=session_id, model_max_tokens=_WINDOW_TOKENS)
    ingested: list[dict[str, Any]] = []
    said: list[Said] = []
    for part in told:
        events = list(as_events(part, first=len(said) + 1))
        said += part
        stored = await caller.call("context.ingest", session_id=session_id, events=events)
        # What the gate marks is never a key fact, and its call is not one without a result.
        marked = {each["event_id"][1:] for each in stored["events"] if each.get("trust")}
        ingested += [event for event in events if event["event_id"][1:] not in marked]
        done = await caller.call(
            "context.compact", session_id=session_id, keep_recent=_KEEP_RECENT, wait_seconds=_WAIT_SECONDS
        )
        totals.compactions += 1
        totals.tokens_before += done.get("tokens_before", 0)
        totals.tokens_after += done.get("tokens_after", 0)
        if done["state"] != "applied" or done.get("degraded"):
            totals.failed.append(f"{session_id}: {done['state']}")
        _count(said, ingested, await _prompt_texts(caller, session_id), totals)


def _count(said: Sequence[Said], ingested: Sequence[dict[str, Any]], texts: Sequence[str], totals: _Totals) -> None:
    prompt = Passages(texts)
    for each in said:
        if each.statement:
            survives = prompt.have(each.statement)
            totals.statements[each.kind] += 1
            totals.survivors[each.kind] += survives
            if not survives:
                totals.lost[each.statement] += 1
    events = [_window_event(number, event) for number, event in enumerate(ingested, 1)]
    facts = [fact for fact in extract_facts(events) if fact.status == "current" and is_stated(fact)]
    totals.facts += len(facts)
    totals.facts_kept += len(verify("\n\n".join(texts), facts).found)


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


async def _prompt_texts(caller: TenantCaller, session_id: str) -> list[str]:
    prompt = await caller.call(
        "context.assemble", session_id=session_id, task_description="Go on.", token_budget=_WINDOW_TOKENS, fresh=True
    )
    return [message.get("content") or "" for message in prompt["body"]["messages"]]


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
