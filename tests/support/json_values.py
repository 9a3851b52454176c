"""JSON values for round trips: arbitrary ones, and those that are altered most easily."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

TEXT = st.text(st.characters(exclude_categories=("Cs",)))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=20,
)


def typed(value: Any) -> Any:
    """Return a value with types, so that 1, 1.0 and true differ."""
    if isinstance(value, dict):
        return {key: typed(inner) for key, inner in value.items()}
    return [typed(inner) for inner in value] if isinstance(value, list) else (type(value), repr(value))


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


VALUES: tuple[Any, ...] = (
    None, False, True, "", 0, 1, 1.0, -0.0, 1e300, 2**64, -(2**80), [], {}, [None], {"": {"": [0, 0.0, False]}},
    "\x00", {"a\x00b": "\x00"}, "naïve 漢 🙂 \u2028", "all", '"quoted\\"', "1", "true", "null", '{"a": 1}',
    {"b": 1, "a": [1.5, {"c": None}]}, nested(32),
)  # fmt: skip
