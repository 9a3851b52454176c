from __future__ import annotations

import pytest

from weft.capabilities.records.item_ids import MessageName, VersionName
from weft.capabilities.records.record_ids import PullName, event_number

LOG = "urn:weft:0123456789"


@pytest.mark.req("AC-11")
@pytest.mark.parametrize("number", ["01", "00", "+1", "1_0", " 1", "²", "", "1" * 17])
def test_nothing_has_a_second_name(number: str) -> None:
    assert VersionName.parse(f"board:s1/goal/1.{number}") is None
    assert MessageName.parse(f"message:s1/{number}") is None
    assert PullName.parse(f"pull:s1/planner/1.{number}") is None
    assert event_number(f"{LOG}#{number}", LOG) is None


def test_names_are_read_as_they_are_written() -> None:
    for name in (VersionName("board:s1", "goal", 2, 10), VersionName("memory:a", "k", 1, 1, removed=True)):
        assert VersionName.parse(str(name)) == name
    assert MessageName.parse(str(MessageName("s1", 10))) == MessageName("s1", 10)
    pull = PullName("s1", "planner", 0, 1_763_212_345_678_901)
    assert PullName.parse(str(pull)) == pull
    assert event_number(f"{LOG}#10", LOG) == 10
