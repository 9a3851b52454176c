"""Every Mermaid diagram in the documentation renders, with the real Mermaid in an embedded JavaScript engine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from mermaidx.engines.quickjs_engine import Engine

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```mermaid\n(.*?)^```", re.MULTILINE | re.DOTALL)


def diagrams() -> list[tuple[str, str]]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [
        (f"{page.relative_to(ROOT)}, diagram {number}", text)
        for page in pages
        for number, text in enumerate(BLOCK.findall(page.read_text("utf-8")), 1)
    ]


class SharedContext(Engine):
    """An engine that loads Mermaid once: a new context for each diagram takes longer than drawing it."""

    def _ensure_fresh_context(self) -> None:
        """Keep the context; only the ids in later diagrams differ, which continue from earlier ones."""

    def draw(self, text: str) -> str:
        return self.render_svg(text, "default", None, None)


@pytest.fixture(scope="module")
def mermaid() -> Iterator[SharedContext]:
    engine = SharedContext()
    engine.start()
    yield engine
    engine.close()


def test_every_diagram_renders(mermaid: SharedContext, subtests: pytest.Subtests) -> None:
    found = diagrams()
    assert found
    for name, text in found:
        with subtests.test(name):
            assert mermaid.draw(text).startswith("<svg")


def test_a_diagram_with_a_syntax_error_is_refused(mermaid: SharedContext) -> None:
    with pytest.raises(RuntimeError, match="Parse error"):
        mermaid.draw("flowchart LR\n  app[App --> storage")
