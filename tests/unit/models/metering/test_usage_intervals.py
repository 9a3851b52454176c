"""Spans of time are covered by whole days, hours and minutes, and exports are safe to open."""

from __future__ import annotations

import random

from weftline.insight.usage import write_rows
from weftline.models.metering import (
    UNIT_SECONDS,
    Interval,
    KeptFrom,
    UsageDetail,
    UsageKey,
    UsageSums,
    cover,
    units_for,
    widened,
)
from weftline.transports.cli.formatters.usage import sparkline

DAY = 86_400


def test_a_span_is_covered_once_with_the_largest_units() -> None:
    assert list(cover(3_540, 2 * DAY + 60, units_for("agent"))) == [
        Interval("minute", 3_540, 3_600),
        Interval("hour", 3_600, DAY),
        Interval("day", DAY, 2 * DAY),
        Interval("minute", 2 * DAY, 2 * DAY + 60),
    ]
    assert list(cover(60, 60, units_for("agent"))) == []
    assert [each.unit for each in cover(0, 3 * DAY, units_for("hour"))] == ["hour"]


def test_random_spans_have_neither_gaps_nor_overlaps_and_only_units_that_are_kept() -> None:
    rng = random.Random(1)
    for _ in range(300):
        kept = KeptFrom(*sorted((rng.randrange(9) * DAY for _ in range(3)), reverse=True))
        given = sorted(rng.randrange(10 * DAY) for _ in range(2))
        units = units_for(rng.choice(["agent", "day", "hour", "minute"]))
        since, until = widened(given[0], given[1], kept, units)
        covered = list(cover(since, until, units))
        assert [each.start for each in covered[1:]] == [each.end for each in covered[:-1]]
        if covered:
            assert (covered[0].start, covered[-1].end) == (since, until)
            assert until >= given[1]
        for each in covered:
            assert each.start >= getattr(kept, each.unit)
            assert each.start % UNIT_SECONDS[each.unit] == each.end % UNIT_SECONDS[each.unit] == 0


def test_cells_that_look_like_formulas_are_escaped_in_csv() -> None:
    key = UsageKey("assembly", "=cmd|' /C calc'!A0", "+1", "-1", "@sum(a)", ("a", "b"))
    row = UsageDetail(0, key, UsageSums(calls=2, cost_nanos=1_500_000_000))
    line = write_rows([row], "csv", header=False)
    assert line.startswith("1970-01-01T00:00:00Z,assembly,'=cmd|' /C calc'!A0,'+1,'-1,'@sum(a),a b,2,")
    assert ",1.5," in line
    assert '"agent":"=cmd|' in write_rows([row], "json", header=True)


def test_a_sparkline_goes_from_zero_to_the_largest_value() -> None:
    assert sparkline([0, 1, 4, 8]) == "▁▂▅█"
    assert sparkline([0, 0]) == "▁▁"
