"""Record ids: canonical numbers and round trips."""

from __future__ import annotations

import pytest

from weftline.history.item_ids import MessageItemId, VersionId
from weftline.records.record_ids import PullId, event_seq_of

LOG = "urn:weftline:0123456789"


@pytest.mark.req("AC-11")
@pytest.mark.parametrize("number", ["01", "00", "+1", "1_0", " 1", "²", "", "1" * 17])
def test_record_ids_with_non_canonical_numbers_are_refused(number: str) -> None:
    assert VersionId.parse(f"board:s1/goal/1.{number}") is None
    assert MessageItemId.parse(f"message:s1/{number}") is None
    assert PullId.parse(f"pull:s1/planner/1.{number}") is None
    assert event_seq_of(f"{LOG}#{number}", LOG) is None


def test_record_ids_round_trip() -> None:
    for name in (VersionId("board:s1", "goal", 2, 10), VersionId("memory:a", "k", 1, 1, removed=True)):
        assert VersionId.parse(str(name)) == name
    assert MessageItemId.parse(str(MessageItemId("s1", 10))) == MessageItemId("s1", 10)
    pull = PullId("s1", "planner", 0, 1_763_212_345_678_901)
    assert PullId.parse(str(pull)) == pull
    assert event_seq_of(f"{LOG}#10", LOG) == 10
