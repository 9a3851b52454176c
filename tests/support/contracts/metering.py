"""The contract of UsageStore."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from support.contracts.stores import ContractStores
from weftline.models.metering import DELETED, MAX_KEYS, OTHER, NewUsageEntry, Retention, UsageKey, UsageQuery, UsageSums

if TYPE_CHECKING:
    from collections.abc import Callable

SECOND = 1_000_000
DAY = 86_400 * SECOND
START = 20_000 * DAY


def entry(
    at: int, tokens: int = 1, *, call_id: str = "c", session_id: str = "s", agent_id: str = "a", **more: int
) -> NewUsageEntry:
    """Return the entry of a call with its tokens."""
    key = UsageKey("assembly", agent_id, session_id, "plan", "m", ("red", "team"))
    return NewUsageEntry("call", call_id, at, key, UsageSums(calls=1, total_tokens=tokens, **more))


class UsageStoreContract:
    """Sums are exact before, while and after entries are rolled up, whatever their order."""

    async def test_entries_are_numbered_in_order_and_followed_after_a_cursor(self, stores: ContractStores) -> None:
        await stores.usage.add(entry(START, call_id="one"), entry(START, call_id="two"))
        await stores.usage.add(entry(START, call_id="three"))
        first = await stores.usage.after(0, 2)
        rest = await stores.usage.after(first[-1].seq, 10)
        assert [each.call_id for each in [*first, *rest]] == ["one", "two", "three"]
        assert rest[-1].seq == await stores.usage.last_seq()
        assert first[0][1:] == entry(START, call_id="one")

    async def test_a_call_has_the_sums_of_all_its_entries(self, stores: ContractStores) -> None:
        call = entry(START, 70, call_id="one")
        report = NewUsageEntry("report", "one", START, call.key, UsageSums(reported_calls=1, total_tokens=5))
        await stores.usage.add(call, entry(START, call_id="two"))
        await stores.usage.add(report)
        found = await stores.usage.calls((await stores.usage.after(0, 10))[2:])
        assert found.keys() == {"one"}
        assert found["one"].sums == UsageSums(calls=1, reported_calls=1, total_tokens=75)

    async def test_sums_by_every_grouping_are_those_of_the_entries(self, stores: ContractStores) -> None:
        rng = random.Random(7)
        entries = [
            entry(
                START + rng.randrange(3 * DAY),
                rng.randrange(1, 100),
                call_id=f"c{number}",
                session_id=rng.choice("st"),
                agent_id=rng.choice("ab"),
                cost_nanos=rng.randrange(10**9),
            )
            for number in range(60)
        ]
        for place, each in enumerate(entries):
            await stores.usage.add(each)
            if rng.random() < 0.1:
                await stores.usage.roll_up(rng.randrange(1, 20))
            if place % 20 == 19:
                await self._check(stores, entries[: place + 1], rng)
        while await stores.usage.roll_up(10):
            pass
        await self._check(stores, entries, rng)

    async def _check(self, stores: ContractStores, entries: list[NewUsageEntry], rng: random.Random) -> None:
        bounds = sorted(START + rng.randrange(3 * 1440) * 60 * SECOND for _ in range(2))
        span = (bounds[0], bounds[1])
        inside = [each for each in entries if span[0] <= each.at < span[1]]
        for query, groups in (
            (UsageQuery("tenant"), _sums(entries, lambda _: "")),
            (UsageQuery("agent", *span), _sums(inside, lambda each: each.key.agent_id)),
            (UsageQuery("session", agents=("a", "z")), _sums(_of("a", entries), lambda each: each.key.session_id)),
            (UsageQuery("session"), _sums(entries, lambda each: each.key.session_id)),
            (UsageQuery("model", *span, kind="assembly"), _sums(inside, lambda each: each.key.model)),
            (UsageQuery("step", *span, session_id="t"), _sums(_in("t", inside), lambda each: each.key.step)),
            (UsageQuery("team", *span, team="red"), _sums(inside, lambda _: "red") | _sums(inside, lambda _: "team")),
            (UsageQuery("hour", *span, session_id="s"), None),
            (UsageQuery("day", *span), None),
        ):
            found = await stores.usage.totals(query)
            if groups is not None:
                assert {each.group: each.sums for each in found.groups} == groups, query
                assert found.total == _total(query, inside if query.since else entries), query
            else:
                chosen = [each for each in inside if query.session_id in (None, each.key.session_id)]
                assert found.total == _sums(chosen, lambda _: "").get("", UsageSums())
        assert (await stores.usage.totals(UsageQuery("agent", team="re"))).groups == []

    async def test_groups_beyond_the_limit_are_left_out_of_the_rows_only(self, stores: ContractStores) -> None:
        names = [entry(START + n * DAY, n + 1, session_id=f"s{n}", agent_id=f"a{n % 2}") for n in range(7)]
        await stores.usage.add(*names)
        await stores.usage.roll_up(3)
        largest = await stores.usage.totals(UsageQuery("session", limit=2))
        assert [each.group for each in largest.groups] == ["s6", "s5"]
        assert (largest.left_out, largest.total.calls, largest.total.total_tokens) == (5, 7, 28)
        some = await stores.usage.totals(UsageQuery("session", agents=("a0",), limit=2))
        assert [(each.group, each.sums.calls) for each in some.groups] == [("s6", 1), ("s4", 1)]
        assert (some.left_out, some.total.calls, some.total.total_tokens) == (2, 4, 16)
        first = await stores.usage.totals(UsageQuery("day", agents=("a1",), limit=2))
        assert [each.sums.total_tokens for each in first.groups] == [2, 4]
        assert (first.left_out, first.total.calls) == (1, 3)
        teams = await stores.usage.totals(UsageQuery("team", limit=1))
        assert ([each.sums.calls for each in teams.groups], teams.left_out, teams.total.calls) == ([7], 1, 7)

    async def test_hours_and_days_are_named_by_their_start(self, stores: ContractStores) -> None:
        await stores.usage.add(entry(START + 3_700 * SECOND), entry(START + 26 * 3_600 * SECOND))
        await stores.usage.roll_up(1)
        by_hour = await stores.usage.totals(UsageQuery("hour"))
        by_day = await stores.usage.totals(UsageQuery("day", agents=("a",)))
        assert [each.group for each in by_hour.groups] == ["2024-10-04T01:00:00Z", "2024-10-05T02:00:00Z"]
        assert [each.group for each in by_day.groups] == ["2024-10-04T00:00:00Z", "2024-10-05T00:00:00Z"]

    async def test_names_beyond_the_limit_are_summed_up_as_other(self, stores: ContractStores) -> None:
        limit, count = MAX_KEYS["minute"], 4 * MAX_KEYS["minute"]
        # One agent has half of the names of sessions, the others share the rest.
        sessions = [entry(START, session_id=f"s{number}") for number in range(limit)]
        agents = [entry(START, agent_id=f"a{number}", session_id=f"t{number}") for number in range(count)]
        await stores.usage.add(*sessions, *agents)
        while await stores.usage.roll_up(40):
            pass
        minute = await stores.usage.totals(UsageQuery("session", START, START + 60 * SECOND))
        named = {each.group for each in minute.groups} - {OTHER}
        assert (len(named), len([name for name in named if name.startswith("s")])) == (limit, limit // 2)
        assert minute.total.calls == len(sessions) + count
        by_agent = await stores.usage.totals(UsageQuery("agent", START, START + 60 * SECOND))
        calls = {each.group: each.sums.calls for each in by_agent.groups}
        assert calls["a"] == len(sessions)
        # Without their session, and then without model and step, further agents keep their name.
        assert len(calls) - 2 == limit // 2 + (limit // 2 - 1) + 2 * limit
        assert calls[OTHER] == count - (len(calls) - 2)

    async def test_what_is_past_retention_is_removed_and_coarser_sums_stay(self, stores: ContractStores) -> None:
        await stores.usage.add(*(entry(START + day * DAY + 90 * SECOND) for day in range(8)))
        while await stores.usage.roll_up(100):
            pass
        while await stores.usage.prune(START + 8 * DAY, Retention(2, 4, None), 3):
            pass
        assert (await stores.usage.totals(UsageQuery())).total.calls == 8
        assert len((await stores.usage.totals(UsageQuery("hour"))).groups) == 4
        assert len((await stores.usage.totals(UsageQuery("minute"))).groups) == 2
        # Widened to the hour and the day that are kept.
        old = await stores.usage.totals(UsageQuery("agent", START + 95 * SECOND, START + 96 * SECOND))
        assert (old.since, old.until, old.total.calls) == (START, START + DAY, 1)
        assert len(await stores.usage.after(0, 100)) == 2

    async def test_a_late_entry_corrects_sums_that_are_kept(self, stores: ContractStores) -> None:
        await stores.usage.add(entry(START), entry(START + 9 * DAY))
        await stores.usage.roll_up(100)
        await stores.usage.prune(START + 10 * DAY, Retention(1, 2, None), 100)
        call = entry(START)
        late = NewUsageEntry("report", call.call_id, START, call.key, UsageSums(reported_calls=1, total_tokens=9))
        await stores.usage.add(late)
        for _ in range(2):
            day = await stores.usage.totals(UsageQuery("day"))
            assert [each.sums.total_tokens for each in day.groups] == [10, 1]
            await stores.usage.roll_up(100)

    async def test_a_deleted_session_leaves_sums_without_its_name(self, stores: ContractStores) -> None:
        for session_id in ("gone", "kept", "gone too"):
            await stores.usage.add(entry(START, session_id=session_id))
        await stores.usage.roll_up(2)
        for session_id in ("gone", "gone too"):
            while await stores.usage.forget_session(session_id, 2):
                pass
        found = await stores.usage.totals(UsageQuery("session"))
        assert {each.group: each.sums.calls for each in found.groups} == {DELETED: 2, "kept": 1}
        assert {each.key.session_id for each in await stores.usage.after(0, 9)} == {DELETED, "kept"}

    async def test_tenants_have_separate_usage(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await stores.usage.add(entry(START))
        assert await elsewhere.usage.after(0, 9) == []
        assert (await elsewhere.usage.totals(UsageQuery())).total == UsageSums()


def _total(query: UsageQuery, entries: list[NewUsageEntry]) -> UsageSums:
    entries = entries if query.agents is None else _of(query.agents[0], entries)
    entries = entries if query.session_id is None else _in(query.session_id, entries)
    return _sums(entries, lambda _: "").get("", UsageSums())


def _in(session_id: str, entries: list[NewUsageEntry]) -> list[NewUsageEntry]:
    return [each for each in entries if each.key.session_id == session_id]


def _of(agent_id: str, entries: list[NewUsageEntry]) -> list[NewUsageEntry]:
    return [each for each in entries if each.key.agent_id == agent_id]


def _sums(entries: list[NewUsageEntry], name: Callable[[NewUsageEntry], str]) -> dict[str, UsageSums]:
    sums: dict[str, UsageSums] = {}
    for each in entries:
        sums[name(each)] = sums.get(name(each), UsageSums()).plus(each.sums)
    return sums
