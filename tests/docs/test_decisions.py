"""The index of decisions: every page is listed once, below the area that it is about."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"


def test_every_decision_is_listed_once_and_below_an_area() -> None:
    before, *areas = (FOLDER / "index.md").read_text("utf-8").split("\n## ")
    assert "](0" not in before
    listed = [name for area in areas for name in re.findall(r"\]\((\d{4}-[^)]+)\)", area)]
    assert sorted(listed) == sorted(path.name for path in FOLDER.glob("0*.md"))
