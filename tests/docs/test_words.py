"""The product speaks of itself in its own words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Names of our own working papers, which mean nothing to anyone who uses the product.
FOREIGN = re.compile(r"seed|ledger", re.IGNORECASE)
TEXT = {".css", ".html", ".js", ".json", ".md", ".py", ".sql", ".toml", ".txt", ".yaml", ".yml"}


def spoken() -> list[Path]:
    files = [path for folder in ("src", "docs", "changes") for path in (ROOT / folder).rglob("*")]
    return sorted(path for path in [*files, ROOT / "README.md", ROOT / "pyproject.toml"] if path.suffix in TEXT)


@pytest.mark.parametrize("path", spoken(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_speaks_of_our_working_papers(path: Path) -> None:
    lines = [line.strip() for line in path.read_text("utf-8").splitlines() if FOREIGN.search(line)]
    assert not lines
