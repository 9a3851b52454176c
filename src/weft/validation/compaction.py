"""Compaction accuracy: fifty compactions of growing sessions, and the facts that prompts still have after each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.capabilities.compaction.model import FactKind, KeyFact
from weft.capabilities.compaction.verification import verify
from weft.validation.model import Figure, all_of, share_at_least
from weft.validation.planted_session import PlantedSession
from weft.validation.temporary_weft import temporary_weft

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from weft.settings import Settings
    from weft.validation.temporary_weft import Caller

_AGENT = "worker"
_SESSIONS, _ROUNDS = 10, 5
_KEEP_RECENT = 10
_PAGE = 200
# No limit of the prompt may hide what a compaction lost, or keep what it should not.
_WINDOW_TOKENS = 1_000_000
_LEAST_RETENTION = 99.0
_MOST_TOKENS = 70


async def measure(settings: Settings, sessions: int = _SESSIONS, rounds: int = _ROUNDS) -> Sequence[Figure]:
    """Compact each session several times while it grows; what counts is the text of the prompt after each time."""
    made = planted = kept = facts = found = before = after = 0
    failed = []
    # Without an index no passage of a covered event comes back: the figures are those of the compaction alone.
    async with temporary_weft(settings, session_indexing="off") as admin:
        await admin.call("agent.create", agent_id=_AGENT)
        for number in range(sessions):
            session = PlantedSession(number)
            caller, session_id = admin.acting_as(_AGENT), f"work-{number}"
            await caller.call("session.create", session_id=session_id, purpose="A validation.")
            await caller.call("window.create", session_id=session_id, model_max_tokens=_WINDOW_TOKENS)
            for _ in range(rounds):
                await caller.call("context.ingest", session_id=session_id, events=list(session.turns()))
                done = await caller.call(
                    "context.compact", session_id=session_id, keep_recent=_KEEP_RECENT, wait_seconds=60
                )
                made += 1
                if done["state"] != "applied" or done.get("degraded"):
                    failed.append(f"{session_id}: {done['state']}")
                text = await _prompt_text(caller, session_id)
                current = [fact async for fact in _current_facts(caller, session_id)]
                planted, kept = planted + len(session.planted), kept + sum(each.is_in(text) for each in session.planted)
                facts, found = facts + len(current), found + len(verify(text, current).found)
                before, after = before + done["tokens_before"], after + done["tokens_after"]
    return [
        all_of("compactions that were applied", made, failed),
        share_at_least(f"planted facts kept, {planted} looked for", kept, planted, _LEAST_RETENTION),
        share_at_least(f"key facts kept, {facts} looked for", found, facts, _LEAST_RETENTION),
        _tokens_left(before, after),
    ]


async def _prompt_text(caller: Caller, session_id: str) -> str:
    prompt = await caller.call(
        "context.assemble",
        session_id=session_id,
        task_description="Go on.",
        token_budget=_WINDOW_TOKENS,
        fresh=True,
    )
    return "\n\n".join(message.get("content") or "" for message in prompt["body"]["messages"])


async def _current_facts(caller: Caller, session_id: str) -> AsyncIterator[KeyFact]:
    offset: int | None = 0
    while offset is not None:
        page = await caller.call(
            "compaction.facts", session_id=session_id, status="current", limit=_PAGE, offset=offset
        )
        for fact in page["facts"]:
            yield _key_fact(fact)
        offset = page.get("next_offset")


def _key_fact(fact: dict[str, Any]) -> KeyFact:
    return KeyFact(
        fact_id=fact["fact_id"],
        kind=FactKind(fact["kind"]),
        text=fact["text"],
        who=fact["who"],
        at=0,
        event_ids=tuple(fact["event_ids"]),
    )


def _tokens_left(before: int, after: int) -> Figure:
    """Return the tokens after compaction: one that shortens nothing keeps every fact."""
    value = 100 * after / before if before else 100.0
    return Figure(
        measured="tokens after compaction",
        value=round(value, 1),
        unit="%",
        target=f"<= {_MOST_TOKENS} %",
        met=value <= _MOST_TOKENS,
    )
