"""Usage against a reference model: sums of roll-ups equal the entries, whatever happened between them."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from support.full_run import examples
from weftline.app.app import App
from weftline.jobs.figures import ROLL_UP
from weftline.kernel.clock import from_micros, to_micros
from weftline.models.metering import (
    DELETED,
    MAX_KEYS,
    UNITS,
    KeptFrom,
    NewUsageEntry,
    Retention,
    UsageKey,
    UsageQuery,
    UsageSums,
    floor_to,
    units_for,
)
from weftline.models.sql import UsageStore
from weftline.settings import Settings
from weftline.storage.sql.database import Scope
from weftline.testing.clock import FrozenClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from weftline.kernel.transaction import Transaction
    from weftline.models.metering import GroupBy, UsageTotals

SECOND = 1_000_000
HOUR, DAY = 3_600 * SECOND, 86_400 * SECOND
MODELS = ("claude-sonnet-4-5", "gpt-5-mini", "")
GROUPS: tuple[GroupBy, ...] = ("tenant", "team", "agent", "session", "step", "model", "kind", "minute", "hour", "day")
TEAMS = ((), ("red",), ("blue", "red"))
AGES = st.one_of(st.integers(0, HOUR), st.integers(0, 3 * DAY), st.integers(0, 30 * DAY))
CALLS = st.lists(
    st.tuples(
        AGES,
        st.builds(
            UsageKey,
            st.sampled_from(["assembly", "compaction"]),
            st.sampled_from(["planner", "analysis", "review"]),
            st.sampled_from("stu"),
            st.sampled_from(["", "plan"]),
            st.sampled_from(MODELS),
            st.sampled_from(TEAMS),
        ),
        st.integers(0, 10**6),
        st.integers(0, 10**12),
    ),
    min_size=1,
    max_size=8,
)
DAYS_KEPT = st.builds(Retention, st.integers(0, 3), st.integers(3, 10), st.one_of(st.none(), st.integers(10, 40)))


class Killed(Exception):
    """Ends a transaction before its commit, as the death of its process does."""


class MeteringMachine(RuleBasedStateMachine):
    """Two processes on one database add calls, correct them, roll them up and prune, also at the same time."""

    def __init__(self, url: str | None) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = FrozenClock()
        folder = Path(self.folder.name)
        self.settings = Settings(
            database_url=url or str(folder / "weftline.db"),
            data_dir=str(folder),
            rate_limits="off",
            session_indexing="off",
        )
        self.apps = [self.run(self.opened()), self.run(self.opened())]
        self.tenant = f"usage{secrets.token_hex(6)}"
        self.run(self.apps[0].tenants.create(self.tenant))
        self.entries: list[NewUsageEntry] = []
        self.kept = KeptFrom()
        self.calls = 0

    def teardown(self) -> None:
        for app in self.apps:
            self.run(app.close())
        self.loop.close()
        self.folder.cleanup()

    # Calls.

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    async def opened(self) -> App:
        app = App(self.settings, clock=self.clock)
        # Without jobs: rules decide when they run.
        await app.open(background=False)
        return app

    def write(self, app: int, change: Callable[[UsageStore], Any], *, killed: bool = False) -> Any:
        return self.run(self.writing(app, change, killed=killed))

    async def writing(self, app: int, change: Callable[[UsageStore], Any], *, killed: bool = False) -> Any:
        async def work(transaction: Transaction) -> Any:
            answer = await change(UsageStore(transaction))
            if killed:
                raise Killed
            return answer

        try:
            return await self.apps[app].database.write(Scope(self.tenant), work)
        except Killed:
            return None

    def new_entries(self, calls: list[tuple[int, UsageKey, int, int]]) -> list[NewUsageEntry]:
        now, made = to_micros(self.clock.now()), []
        for age, key, tokens, cost in calls:
            self.calls += 1
            sums = UsageSums(calls=1, total_tokens=tokens, engine_assembled_tokens=tokens, cost_nanos=cost)
            made.append(NewUsageEntry("call", f"c{self.calls}", now - age, key, sums))
        return made

    # Rules.

    @rule(app=st.integers(0, 1), calls=CALLS, killed=st.booleans())
    def call(self, app: int, calls: list[tuple[int, UsageKey, int, int]], *, killed: bool) -> None:
        made = self.new_entries(calls)
        self.write(app, lambda usage: usage.add(*made), killed=killed)
        self.entries += [] if killed else made

    @precondition(lambda self: self.entries)
    @rule(data=st.data(), app=st.integers(0, 1), tokens=st.integers(0, 10**6), model=st.sampled_from(MODELS))
    def report(self, data: st.DataObject, app: int, tokens: int, model: str) -> None:
        """Report a call, also one that was rolled up or pruned long ago; its figures move to the reported model."""
        call = data.draw(st.sampled_from(self.entries))
        key = call.key._replace(model=model)
        made = [
            call._replace(entry="move", sums=call.sums.negated()),
            call._replace(entry="move", key=key),
            NewUsageEntry("report", call.call_id, call.at, key, UsageSums(reported_calls=1, input_tokens=tokens)),
        ]
        self.write(app, lambda usage: usage.add(*made))
        self.entries += made

    @rule(app=st.integers(0, 1), limit=st.integers(1, 12), killed=st.booleans())
    def roll_up(self, app: int, limit: int, *, killed: bool) -> None:
        self.write(app, lambda usage: usage.roll_up(limit), killed=killed)

    @rule(calls=CALLS, limits=st.lists(st.integers(1, 5), min_size=2, max_size=4))
    def roll_up_in_both_processes_while_calls_are_added(
        self, calls: list[tuple[int, UsageKey, int, int]], limits: list[int]
    ) -> None:
        made = self.new_entries(calls)

        async def at_once() -> None:
            await asyncio.gather(
                *(self.writing(0, lambda usage, each=each: usage.add(each)) for each in made),  # type: ignore[misc]
                *(
                    self.writing(number % 2, lambda usage, limit=limit: usage.roll_up(limit))  # type: ignore[misc]
                    for number, limit in enumerate(limits)
                ),
                *(app.scheduler.drain(ROLL_UP) for app in self.apps),
            )

        self.run(at_once())
        self.entries += made

    @rule(app=st.integers(0, 1))
    def restart(self, app: int) -> None:
        self.run(self.apps[app].close())
        self.apps[app] = self.run(self.opened())

    @rule(hours=st.one_of(st.integers(0, 5), st.integers(20, 200)))
    def time_passes(self, hours: int) -> None:
        self.clock.advance(hours=hours)

    @rule(app=st.integers(0, 1), retention=DAYS_KEPT, rounds=st.integers(1, 3), limit=st.integers(1, 5))
    def prune(self, app: int, retention: Retention, rounds: int, limit: int) -> None:
        """Prune, often not to the end."""
        now = to_micros(self.clock.now())
        for _ in range(rounds):
            self.write(app, lambda usage: usage.prune(now, retention, limit))
        today = floor_to("day", now // SECOND)
        days = zip(self.kept, retention, strict=True)
        self.kept = KeptFrom(*(old if keep is None else max(old, today - keep * 86_400) for old, keep in days))

    @rule(app=st.integers(0, 1), session=st.sampled_from("stu"), limit=st.integers(1, 5))
    def delete_session(self, app: int, session: str, limit: int) -> None:
        while self.write(app, lambda usage: usage.forget_session(session, limit)):
            pass
        self.entries = [
            each._replace(key=each.key._replace(session_id=DELETED)) if each.key.session_id == session else each
            for each in self.entries
        ]

    @rule(
        app=st.integers(0, 1),
        by=st.sampled_from(GROUPS),
        ages=st.tuples(AGES, AGES),
        agents=st.sampled_from([None, ("analysis",), ("planner", "nobody")]),
        session=st.sampled_from([None, "s", DELETED]),
        kind=st.sampled_from([None, "assembly"]),
    )
    def ask(self, app: int, by: GroupBy, ages: tuple[int, int], **filters: Any) -> None:
        now = to_micros(self.clock.now())
        query = UsageQuery(
            by,
            now - max(ages),
            now - min(ages) + 1,
            agents=filters["agents"],
            session_id=filters["session"],
            kind=filters["kind"],
        )
        self.check(app, query)

    @invariant()
    def everything_adds_up(self) -> None:
        for by in ("tenant", "session"):
            self.check(0, UsageQuery(by))  # type: ignore[arg-type]

    def check(self, app: int, query: UsageQuery) -> None:
        found: UsageTotals = self.write(app, lambda usage: usage.totals(query))
        first_kept = getattr(self.kept, units_for(query.by)[0]) * SECOND
        # Widened, never narrowed, to what is kept.
        assert first_kept <= found.since
        assert found.since <= max(query.since, first_kept)
        assert min(query.until, to_micros(self.clock.now()) + 1) <= found.until or found.until == found.since
        counted = [each for each in self.entries if found.since <= each.at < found.until and _matches(query, each)]
        assert {each.group: each.sums for each in found.groups if any(each.sums.values)} == _grouped(query.by, counted)
        assert found.total == _total(counted)


def _matches(query: UsageQuery, entry: NewUsageEntry) -> bool:
    return (
        (query.agents is None or entry.key.agent_id in query.agents)
        and query.session_id in (None, entry.key.session_id)
        and query.kind in (None, entry.key.kind)
    )


def _grouped(by: GroupBy, entries: Iterable[NewUsageEntry]) -> dict[str, UsageSums]:
    sums: dict[str, UsageSums] = {}
    for each in entries:
        for name in _names(by, each):
            sums[name] = sums.get(name, UsageSums()).plus(each.sums)
    return {name: each for name, each in sums.items() if any(each.values)}


def _names(by: GroupBy, entry: NewUsageEntry) -> tuple[str, ...]:
    key = entry.key
    match by:
        case "minute" | "hour" | "day":
            start = floor_to(by, entry.at // SECOND) * SECOND
            return (from_micros(start).strftime("%Y-%m-%dT%H:%M:%SZ"),)
        case "team":
            return key.teams or ("",)
        case _:
            names = {"agent": key.agent_id, "session": key.session_id, "step": key.step, "model": key.model}
            return ({"tenant": "", "kind": key.kind, **names}[by],)


def _total(entries: Iterable[NewUsageEntry]) -> UsageSums:
    total = UsageSums()
    for each in entries:
        total = total.plus(each.sums)
    return total


@pytest.mark.req("CE-M")
@pytest.mark.req("CE-F54")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_sums_of_roll_ups_equal_the_entries(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    for unit in UNITS:
        # More than the machine has names: those beyond the limit would be added up as (other).
        monkeypatch.setitem(MAX_KEYS, unit, 1_000)
    url = request.getfixturevalue("postgres_url") if kind == "postgres" else None
    run_state_machine_as_test(
        lambda: MeteringMachine(url),
        settings=settings(
            max_examples=examples(60 if kind == "sqlite" else 30),
            stateful_step_count=15,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
