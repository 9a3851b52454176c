"""Mermaid accepts every diagram in the documentation: the real one, in an embedded JavaScript engine.

A full run draws them too. Drawing takes ten times as long, and shows nothing about the text of a diagram.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from mermaidx.engines._common import collect_svg, run_event_loop
from mermaidx.engines.quickjs_engine import Engine

from support.full_run import FULL

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

    def parse(self, text: str) -> None:
        """Raise RuntimeError if Mermaid does not understand a text."""
        assert self._executor is not None
        self._executor.submit(self._parse, text).result()

    def _parse(self, text: str) -> None:
        self._ctx.eval(
            "globalThis.__renderResult = null; globalThis.__renderError = null;"
            f"mermaid.parse({json.dumps(text)})"
            ".then(() => { globalThis.__renderResult = 'ok'; })"
            ".catch(error => { globalThis.__renderError = error.message; });"
        )
        run_event_loop(self._ctx.eval, self._run_job)
        assert collect_svg(lambda name: self._ctx.eval(f"__flat({name})")) == "ok"


@pytest.fixture(scope="module")
def mermaid() -> Iterator[SharedContext]:
    engine = SharedContext()
    engine.start()
    yield engine
    engine.close()


def test_every_diagram_is_understood(mermaid: SharedContext, subtests: pytest.Subtests) -> None:
    found = diagrams()
    assert found
    for name, text in found:
        with subtests.test(name):
            mermaid.parse(text)
            assert not FULL or mermaid.draw(text).startswith("<svg")


def test_a_diagram_with_a_syntax_error_is_refused(mermaid: SharedContext) -> None:
    with pytest.raises(RuntimeError, match="Parse error"):
        mermaid.parse("flowchart LR\n  app[App --> storage")
