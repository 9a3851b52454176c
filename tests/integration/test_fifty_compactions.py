"""Fifty compactions of growing sessions: every planted fact and every key fact survives each of them.

Ten sessions of different work, each compacted five times while it grows, always by the operation that agents use. What
counts is what prompts contain: summaries, facts listed next to them, and events that stay.
"""

from __future__ import annotations

import random
import sys
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from support.service_compactions import in_service
from support.windows import create, ingest
from weft.capabilities.compaction.compacted_events import SummaryOfEvents, compacted
from weft.capabilities.compaction.facts.extraction import extract_facts
from weft.capabilities.compaction.verification import verify

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.world import Caller, World

pytestmark = pytest.mark.req("CE-V", part="fifty compactions")
SESSIONS, ROUNDS = 10, 5
TURNS = 8
# Of all key facts that were found in the covered events.
LEAST_RETENTION = 0.99
WORK = ("incident", "migration", "release", "audit", "billing", "search", "mobile", "data", "support", "hiring")
MODULES = ("parser", "router", "mailer", "indexer", "gateway", "planner", "exporter", "scheduler", "auditor")
PROBLEMS = (
    "connection refused by the upstream",
    "disk quota exceeded",
    "column currency does not exist",
    "certificate has expired",
    "permission denied for role reader",
    "checksum mismatch in the archive",
    "out of memory while sorting",
    "deadlock detected, transaction aborted",
)
SMALL_TALK = (
    "Sure, let me have a look at that and come back to you in a moment.",
    "Thanks, that helps. I am going through the material one piece after the other.",
    "Good point. Let us see how far this gets us before we think about anything else.",
    "I see. That matches what I noticed earlier, so it should be fine for now.",
    "All right, on it. There is a bit of background to read first, which takes a while.",
)


class Planted(NamedTuple):
    """A sentence of a session, and what of it must be found."""

    text: str
    probes: tuple[str, ...]


class Script:
    """A session of generated work: facts in noise. The same number gives the same session."""

    def __init__(self, number: int) -> None:
        self._random = random.Random(number)
        self._work = WORK[number % len(WORK)]
        self._events = 0
        self._errors = iter(self._random.sample(list(product(MODULES, PROBLEMS)), ROUNDS * TURNS))
        self.planted: list[Planted] = []

    def turns(self, count: int) -> Iterator[dict[str, Any]]:
        for _ in range(count):
            fact = self._fact()
            self.planted.append(fact)
            yield self._event("user", f"{self._talk()} {fact.text} {self._talk()}")
            call_id = f"call-{self._events}"
            calls = [{"call_id": call_id, "name": "read_log", "arguments": '{"lines": 40}'}]
            yield self._event("assistant", self._talk(), tool_calls=calls)
            error = self._error()
            self.planted.append(error)
            yield self._event("tool", self._log(error.text), tool_call_id=call_id)
            yield self._event("assistant", f"{self._talk()} {self._talk()} {self._talk()}")

    def _event(self, role: str, content: str, **fields: Any) -> dict[str, Any]:
        self._events += 1
        return {"event_id": f"e{self._events}", "role": role, "content": content, **fields}

    def _number(self) -> int:
        return self._random.randint(1_000, 99_999)

    def _talk(self) -> str:
        return self._random.choice(SMALL_TALK)

    def _error(self) -> Planted:
        """Return an error that no other one repeats."""
        module, problem = next(self._errors)
        return Planted(f"ERROR in {module}: {problem}", (module, problem))

    def _log(self, error: str) -> str:
        lines = [f"2026-03-0{1 + n % 9} INFO {self._work}-worker heartbeat ok" for n in range(40)]
        lines[self._random.randrange(len(lines))] = error
        return "\n".join(lines)

    def _fact(self) -> Planted:
        number, day = self._number(), f"2026-{self._random.randint(1, 9):02}-{self._random.randint(10, 28)}"
        name = self._random.choice(("Tomas", "Ines", "Grace", "Omar"))
        texts = (
            Planted(f"We decided to use shard-{number} for the {self._work} database.", (f"shard-{number}",)),
            Planted(f"The deadline for the {self._work} report is {day}; {name} owns it.", (day, name)),
            Planted(f"You must not exceed {number} requests per minute.", (str(number), "not")),
            Planted(f"I prefer answers in tables of at most {number % 90 + 10} rows.", (str(number % 90 + 10),)),
            Planted(f"The file is /srv/{self._work}/part-{number}.csv.", (f"/srv/{self._work}/part-{number}.csv",)),
            Planted(f"See https://example.com/{self._work}/{number} for the contract.", (f"/{self._work}/{number}",)),
            Planted(f'The customer said "never call {number} again".', (f"never call {number} again",)),
            Planted(f"Open question: who pays for ticket OPS-{number}?", (f"OPS-{number}",)),
            Planted(f"We are blocked by the missing key {self._work}_key_{number}.", (f"{self._work}_key_{number}",)),
            Planted(f"The budget is {number} EUR, and it is final.", (str(number), "EUR")),
        )
        return self._random.choice(texts)


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
        script = Script(number)
        for _ in range(ROUNDS):
            await ingest(caller, *script.turns(TURNS))
            done = await caller.call("context.compact", session_id=caller.session, keep_recent=10, wait_seconds=60)
            assert done["state"] == "applied", done
            assert "degraded" not in done or not done["degraded"]
            text, retention = await shown_text(caller)
            lost = [fact.text for fact in script.planted if not all(probe in text for probe in fact.probes)]
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
