"""The largest values, with a defined order of ties."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from weftline.search.scoring import largest


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(0, 50), st.randoms(use_true_random=False))
def test_the_largest_are_the_same_in_any_layout(values: list[int], limit: int, random: object) -> None:
    names = list(range(len(values)))
    random.shuffle(names)  # type: ignore[attr-defined]
    chosen = largest(np.array([values[name] for name in names]), limit, np.array(names, np.int64).__getitem__)
    expected = sorted(range(len(values)), key=lambda name: (-values[name], name))[:limit]
    assert {names[index] for index in chosen.tolist()} == set(expected)
