"""The comparison with other projects: every claim about one of them has a link and a date."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "compare.md"
PEERS = (
    *(
        "mem0",
        "Zep and Graphiti",
        "Letta",
        "LangGraph: checkpointers and stores",
        "Redis",
        "LangMem",
        "Hindsight",
        "Cognee",
    ),
    *("Supermemory", "Langfuse", "The memory of a framework"),
)
# Pages that the figures come from.
MEASURED = ("docs/concepts/assembly.md", "docs/reference/performance.md")
SOURCE = re.compile(r"\]\(https://[^)\s]+\), 11/2026\)")

pytestmark = pytest.mark.req("WX-07")


def sections() -> dict[str, str]:
    parts = PAGE.read_text("utf-8").split("\n## ")
    return dict(part.split("\n", 1) for part in parts[1:])


@pytest.mark.parametrize("peer", PEERS)
def test_every_claim_about_another_project_has_a_source_and_a_date(peer: str) -> None:
    claims, _, judgement = sections()[peer].strip().partition("\n\n")
    points = [point for point in f"\n{claims}".split("\n- ") if point.strip()]
    assert len(points) >= 2
    assert not [point for point in points if not SOURCE.search(point)]
    # What it does better comes first, what Weftline does better second.
    judgement = " ".join(judgement.split())
    assert judgement.index("Better than Weftline: ") < judgement.index("Weftline instead: ")


def test_the_page_says_when_it_was_written_and_where_weftline_is_behind() -> None:
    assert "As of November 2026" in PAGE.read_text("utf-8")
    assert sections()["Where Weftline is behind"].count("\n- ") >= 3


def test_the_figures_are_those_of_the_pages_that_they_link_to() -> None:
    rows = [line for line in sections()["What we measured"].splitlines() if line.startswith("| ")]
    sources = "".join((PAGE.parents[1] / page).read_text("utf-8") for page in MEASURED)
    assert len(rows) >= 6
    assert [row for row in rows if row not in sources] == []


def test_every_peer_is_in_the_table_and_told_when_it_is_enough() -> None:
    table, advice = sections()["In one table"], sections()["Use which"]
    for peer in ("mem0", "Graphiti", "Letta", "LangMem", "Hindsight", "Cognee", "Supermemory", "Langfuse", "framework"):
        assert peer in table
    for peer in ("mem0", "Graphiti", "Letta", "Hindsight", "Cognee", "Supermemory", "Langfuse", "framework's memory"):
        assert f"**{peer}" in advice or peer in advice
