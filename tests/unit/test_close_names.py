"""Suggestions for mistyped names."""

from __future__ import annotations

from support.processor_time import at_most
from weftline.kernel.errors import close_names


def test_the_most_similar_names_are_suggested() -> None:
    assert close_names("serch", ["search", "get_memory"]) == ["search"]


def test_a_name_of_megabytes_is_not_compared_in_full() -> None:
    with at_most(4):
        assert close_names("abcdefgh" * 500_000, ["search"] * 100) == []
