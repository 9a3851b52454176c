"""Generated sessions of work with planted facts: what a compaction must keep."""

from __future__ import annotations

import random
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

TURNS = 8
_MAX_TURNS = 5 * TURNS
_WORK = ("incident", "migration", "release", "audit", "billing", "search", "mobile", "data", "support", "hiring")
_MODULES = ("parser", "router", "mailer", "indexer", "gateway", "planner", "exporter", "scheduler", "auditor")
_PROBLEMS = (
    "connection refused by the upstream",
    "disk quota exceeded",
    "column currency does not exist",
    "certificate has expired",
    "permission denied for role reader",
    "checksum mismatch in the archive",
    "out of memory while sorting",
    "deadlock detected, transaction aborted",
)
_SMALL_TALK = (
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

    def is_in(self, text: str) -> bool:
        return all(probe in text for probe in self.probes)


class PlantedSession:
    """A session of generated work: facts in noise. The same number gives the same session."""

    def __init__(self, number: int) -> None:
        self._random = random.Random(number)  # noqa: S311 - the same session each time, not a secret
        self._work = _WORK[number % len(_WORK)]
        self._events = 0
        self._errors = iter(self._random.sample(list(product(_MODULES, _PROBLEMS)), _MAX_TURNS))
        self.planted: list[Planted] = []

    def turns(self, count: int = TURNS) -> Iterator[dict[str, Any]]:
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

    def _event(self, role: str, content: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        self._events += 1
        return {"event_id": f"e{self._events}", "role": role, "content": content, **fields}

    def _number(self) -> int:
        return self._random.randint(1_000, 99_999)

    def _talk(self) -> str:
        return self._random.choice(_SMALL_TALK)

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
