"""The comparison with other projects: every claim about one of them has a link and a date."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "compare.md"
PEERS = ("mem0", "Zep and Graphiti", "Letta", "LangGraph: checkpointers and stores", "Redis")
SOURCE = re.compile(r"\]\(https://[^)\s]+\), 11/2026\)")

pytestmark = pytest.mark.req("WX-07")


def sections() -> dict[str, str]:
    parts = PAGE.read_text("utf-8").split("\n## ")
    return dict(part.split("\n", 1) for part in parts[1:])


@pytest.mark.parametrize("peer", PEERS)
def test_every_claim_about_another_project_has_a_source_and_a_date(peer: str) -> None:
    claims, _, judgement = sections()[peer].partition("\nBetter than Weftline: ")
    points = [point for point in claims.split("\n- ") if point.strip()]
    assert len(points) >= 2
    assert not [point for point in points if not SOURCE.search(point)]
    # What it does better comes first, what Weftline does better second.
    assert "Weftline instead: " in judgement


def test_the_page_says_when_it_was_written_and_where_weftline_is_behind() -> None:
    assert "As of November 2026" in PAGE.read_text("utf-8")
    assert sections()["Where Weftline is behind"].count("\n- ") >= 3
