"""Every Mermaid diagram in the documentation renders, with the real Mermaid in an embedded JavaScript engine."""

from __future__ import annotations

import re
from pathlib import Path

import mermaidx
import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```mermaid\n(.*?)^```", re.MULTILINE | re.DOTALL)


def diagrams() -> list[tuple[str, str]]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [
        (f"{page.relative_to(ROOT)}, diagram {number}", text)
        for page in pages
        for number, text in enumerate(BLOCK.findall(page.read_text("utf-8")), 1)
    ]


def test_every_diagram_renders(subtests: pytest.Subtests) -> None:
    found = diagrams()
    assert found
    for name, text in found:
        with subtests.test(name):
            assert mermaidx.render(text).svg().startswith("<svg")


def test_a_diagram_with_a_syntax_error_is_refused() -> None:
    with pytest.raises(RuntimeError, match="Parse error"):
        mermaidx.render("flowchart LR\n  app[App --> storage").svg()
