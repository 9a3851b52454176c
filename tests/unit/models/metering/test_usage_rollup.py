"""Keys of an interval are bounded, and shared between agents."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from weftline.models.metering import (
    MAX_INTERVALS,
    MAX_KEYS,
    OTHER,
    UsageEntry,
    UsageKey,
    UsageSums,
    max_rows,
    within_intervals,
    within_limit,
)

if TYPE_CHECKING:
    from weftline.models.metering import Unit

UNIT: Unit = "hour"
LIMIT = MAX_KEYS[UNIT]
DAY = 86_400_000_000
NAMES = st.integers(0, 40).map(lambda number: f"n{number}")
KEYS = st.lists(
    st.builds(
        UsageKey,
        st.sampled_from(["assembly", "compaction"]),
        NAMES,
        NAMES,
        NAMES,
        st.one_of(NAMES, st.just(OTHER)),
        st.sampled_from([(), ("red",)]),
    ),
    max_size=120,
)


@given(batches=st.lists(KEYS, max_size=4))
def test_sums_stay_the_same_and_rows_within_their_limit(batches: list[list[UsageKey]]) -> None:
    stored: Counter[UsageKey] = Counter()
    for keys in batches:
        sums = {key: (count,) for key, count in Counter(keys).items()}
        for key, (count,) in within_limit(UNIT, list(stored), sums).items():
            stored[key] += count
        assert len(stored) <= max_rows(UNIT)
    assert stored.total() == sum(map(len, batches))
    by_kind = Counter(key.kind for keys in batches for key in keys)
    assert by_kind == _added(stored, "kind")
    # Few enough agents: each keeps its name.
    assert _added(stored, "agent_id") == Counter(key.agent_id for keys in batches for key in keys)


def _added(stored: Counter[UsageKey], name: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for key, count in stored.items():
        counts[getattr(key, name)] += count
    return counts


def test_one_agent_has_half_of_the_names() -> None:
    greedy = {UsageKey("assembly", "greedy", f"s{n}", f"step{n}", f"m{n}"): (1,) for n in range(5 * LIMIT)}
    stored = within_limit(UNIT, (), greedy)
    assert Counter(_folded(key) for key in stored) == {0: LIMIT // 2, 1: LIMIT // 4, 2: 1}
    others = {UsageKey("assembly", f"a{n}", "s", "step", "m"): (1,) for n in range(LIMIT // 2)}
    assert within_limit(UNIT, list(stored), others) == others


def test_a_key_that_is_stored_stays_where_it_is() -> None:
    known = [UsageKey("assembly", f"a{n}", "s", "", "m") for n in range(LIMIT)]
    assert within_limit(UNIT, known, {known[7]: (3,)}) == {known[7]: (3,)}
    folded = within_limit(UNIT, known, {UsageKey("assembly", "late", "s", "", "m"): (3,)})
    assert folded == {UsageKey("assembly", "late", OTHER, "", "m"): (3,)}


def _folded(key: UsageKey) -> int:
    return (key.session_id == OTHER) + (key.model == OTHER)


def _entry(seq: int, at: int) -> UsageEntry:
    return UsageEntry(seq, "call", f"c{seq}", at, UsageKey("assembly", "a"), UsageSums(calls=1))


def test_a_roll_up_has_a_bounded_number_of_intervals() -> None:
    of_one_minute = [_entry(seq, DAY) for seq in range(200)]
    assert len(within_intervals(of_one_minute)) == 200
    of_many_days = [_entry(seq, seq * DAY) for seq in range(200)]
    assert len(within_intervals(of_many_days)) == MAX_INTERVALS // 3
    assert within_intervals([]) == []
