"""The estimate of the number of tokens of a text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weftline.kernel.ports import approximate_tokens

pytestmark = pytest.mark.req("SC-18")


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("a" * 4000, 1000), ("a" * 4001, 1001)]
)
def test_four_ascii_characters_make_a_token_rounded_up(text: str, tokens: int) -> None:
    assert approximate_tokens(text) == tokens


@pytest.mark.parametrize(("text", "tokens"), [("漢", 1), ("漢字" * 500, 1000), ("é", 1), ("🧵", 2), ("abcd漢", 2)])
def test_other_scripts_are_not_undercounted(text: str, tokens: int) -> None:
    assert approximate_tokens(text) == tokens


@given(st.text(), st.text())
def test_the_estimate_is_monotonic_and_subadditive(text: str, more: str) -> None:
    assert approximate_tokens(text) <= approximate_tokens(text + more)
    assert approximate_tokens(text + more) <= approximate_tokens(text) + approximate_tokens(more)


@given(st.text())
def test_the_estimate_is_at_least_characters_divided_by_four(text: str) -> None:
    assert approximate_tokens(text) * 4 >= len(text)
