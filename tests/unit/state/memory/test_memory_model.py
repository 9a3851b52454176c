"""The model of memories: key ranges, line ids, sizes, expiry and JSON values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weftline.kernel.errors import InvalidInput
from weftline.kernel.json_input import encode_json_field
from weftline.state.memory.model import KeyRange, MemoryEntry, MemoryScope, scope_of

KEYS = st.text("AZaz09_-", min_size=1, max_size=4)


@given(keys=st.sets(KEYS), prefix=st.text("AZaz09_-", max_size=2), after=KEYS | st.just(""))
def test_a_range_holds_keys_with_a_prefix_after_a_cursor(keys: set[str], prefix: str, after: str) -> None:
    key_range = KeyRange.of(prefix, after)
    assert {key for key in keys if key_range.first <= key < key_range.end} == {
        key for key in keys if key.startswith(prefix) and key > after
    }


@pytest.mark.parametrize("scope", [MemoryScope("planner", None), MemoryScope("a-b_c", "session_1")])
def test_a_line_id_maps_back_to_its_memory(scope: MemoryScope) -> None:
    assert scope_of(scope.line_id) == scope


def test_the_line_id_of_a_board_is_not_a_memory() -> None:
    assert scope_of("board:s1") is None


def test_the_size_of_an_entry_counts_key_value_and_metadata() -> None:
    entry = MemoryEntry(None, "key", 1, 1, b"", 10, None, 0, 0, None)
    assert entry.weight == 13
    assert MemoryEntry(None, "key", 1, 1, b"", 10, '{"m":"é"}', 0, 0, None).weight == 23


def test_an_entry_expires_exactly_at_its_expiry_time() -> None:
    entry = MemoryEntry(None, "key", 1, 1, b"", 10, None, 0, 0, 5)
    assert (entry.is_live(4), entry.is_live(5)) == (True, False)


def nested_value(levels: int, wrap: Any) -> Any:
    value: Any = wrap([]) if wrap is list else {}
    for _ in range(levels - 1):
        value = [value] if wrap is list else {"a": value}
    return value


@pytest.mark.parametrize("wrap", [list, dict])
def test_json_nesting_has_a_limit(wrap: Any) -> None:
    assert encode_json_field("value", nested_value(32, wrap))
    for levels in (33, 5_000):
        with pytest.raises(InvalidInput, match="levels"):
            encode_json_field("value", nested_value(levels, wrap))


@pytest.mark.parametrize(
    "value", [float("nan"), [float("inf")], {"a": float("-inf")}, {1: 1}, [{None: 1}], b"", {1}, object(), "\ud800"]
)
def test_values_without_a_json_form_are_refused(value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        encode_json_field("value", value)
    assert caught.value.context == {"field": "value"}


def test_tuples_are_encoded_as_lists() -> None:
    assert encode_json_field("value", (1, (2.0, None))) == b"[1,[2.0,null]]"
