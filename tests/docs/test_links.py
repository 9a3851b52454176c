"""Every relative link in the documentation leads to a file, and its anchor to a heading of that file."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\[([^\]\[]*)\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
SYMBOL = re.compile(r"`([A-Za-z_]\w*)`\Z")
ARCHITECTURE = ROOT / "docs" / "architecture.md"


def pages() -> list[Path]:
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def links(page: Path) -> list[tuple[str, str, str]]:
    """Return text, path and anchor of the page's relative links."""
    text = CODE_BLOCK.sub("", page.read_text("utf-8"))
    found = [(label, *target.partition("#")[::2]) for label, target in LINK.findall(text) if "://" not in target]
    return [(label, path, anchor) for label, path, anchor in found if not path.startswith("mailto:")]


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors of a page as GitHub makes them from its headings."""
    headings = HEADING.findall(CODE_BLOCK.sub("", page.read_text("utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def test_every_relative_link_has_a_target(subtests: pytest.Subtests) -> None:
    for page in pages():
        with subtests.test(str(page.relative_to(ROOT))):
            for label, path, anchor in links(page):
                target = (page.parent / path).resolve() if path else page
                assert target.exists(), f"[{label}]({path})"
                if anchor and target.suffix == ".md":
                    assert anchor in anchors(target), f"[{label}]({path}#{anchor})"


def test_every_name_on_the_architecture_page_is_defined_in_the_file_it_links_to() -> None:
    named = [
        (name[1], (ARCHITECTURE.parent / path).resolve())
        for label, path, _ in links(ARCHITECTURE)
        if (name := SYMBOL.match(label)) and path.endswith(".py")
    ]
    assert named
    assert [(name, file.name) for name, file in named if name not in defined_in(file)] == []


@cache
def defined_in(file: Path) -> set[str]:
    """Return the names that a module defines: classes, functions, methods and constants."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                names.add(node.name)
            case ast.Assign():
                names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return names
