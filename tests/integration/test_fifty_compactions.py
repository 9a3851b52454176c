"""Fifty compactions of growing sessions: every planted fact and every key fact survives each of them.

Ten sessions of different work, or three where the run is not full, each compacted five times while it grows, always by
the operation that agents use. What counts is what prompts contain: summaries, facts listed next to them, and events
that stay.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from support.full_run import FULL
from support.service_compactions import in_service
from support.windows import create, ingest
from weftline.validation.compaction import PlantedSession
from weftline.windows.compaction.compacted_events import SummaryOfEvents, compacted
from weftline.windows.compaction.facts.extraction import extract_facts
from weftline.windows.compaction.verification import verify

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = [
    pytest.mark.req("CE-V", part="fifty compactions"),
    pytest.mark.req("CE-S", part="compactions keep at least 99 % of planted and of key facts"),
]
SESSIONS, ROUNDS = 10 if FULL else 3, 5
# Of all key facts that were found in the covered events.
LEAST_RETENTION = 0.99


async def shown_text(caller: Caller) -> tuple[str, float]:
    """Return what prompts contain of the window, and the part of its key facts that is in it."""

    async def read(service: Any) -> tuple[str, float]:
        window = await service.windows.open(caller.session)
        events = await service.windows.own_events(window)
        applied = await service.current(window.line_id)
        assert applied is not None
        parts = compacted(events, applied.view)
        assert any(isinstance(part, SummaryOfEvents) for part in parts)
        text = "\n\n".join(part.text if isinstance(part, SummaryOfEvents) else part.message.content for part in parts)
        facts = [fact for fact in extract_facts(events) if fact.status == "current"]
        return text, 1 - len(verify(text, facts).missing) / len(facts)

    return await in_service(caller, read)


async def test_fifty_compactions_keep_every_planted_fact(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    lowest, before, after, planted = 1.0, 0, 0, 0
    for number in range(SESSIONS):
        caller = await world.planner.create_session(f"work-{number}")
        await create(caller, model_max_tokens=1_000_000)
        script = PlantedSession(number)
        for _ in range(ROUNDS):
            await ingest(caller, *script.turns())
            done = await caller.call("context.compact", session_id=caller.session, keep_recent=10, wait_seconds=60)
            assert done["state"] == "applied", done
            assert "degraded" not in done or not done["degraded"]
            text, retention = await shown_text(caller)
            lost = [fact.text for fact in script.planted if not fact.is_in(text)]
            assert lost == [], (number, lost)
            lowest = min(lowest, retention)
            before, after = before + done["tokens_before"], after + done["tokens_after"]
        planted += len(script.planted)
    assert lowest >= LEAST_RETENTION
    assert after < 0.7 * before
    with capsys.disabled():
        sys.stdout.write(
            f"\n{SESSIONS * ROUNDS} compactions: {planted} planted facts, all kept; at least {lowest:.2%} of the key "
            f"facts in every one; {before:,} tokens became {after:,} ({after / before:.0%}).\n"
        )
