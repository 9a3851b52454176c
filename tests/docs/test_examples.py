"""Every Python example in the documentation runs, page by page, each with its own server."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support import forked_python

ROOT = Path(__file__).parents[2]
RUNNER = ROOT / "tests" / "support" / "page_runner.py"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

# Guides whose framework is not in the development environment: make adapters runs them.
LARGE_FRAMEWORKS = {
    "use-with-agent-framework": "agent_framework",
    "use-with-autogen": "autogen_core",
    "use-with-deepagents": "deepagents",
    "use-with-google-adk": "google.adk",
    "use-with-llamaindex": "llama_index.core",
    "use-with-strands": "strands",
}
# test_write_an_operation.py runs this page in an application that has its operation.
TESTED_ELSEWHERE = ROOT / "docs" / "guides" / "write-a-new-operation.md"


def pages() -> list[Path]:
    all_pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in all_pages if page != TESTED_ELSEWHERE and BLOCK.search(page.read_text("utf-8"))]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page_run_in_order(page: Path, tmp_path: Path) -> None:
    if page.stem in LARGE_FRAMEWORKS:
        pytest.importorskip(LARGE_FRAMEWORKS[page.stem], reason="make adapters installs it and runs the page")
    with (
        server_environment(tmp_path / "server")
        if "Client(" in page.read_text("utf-8")
        else without_server() as environment
    ):
        run(page, tmp_path, environment)


def test_the_readme_example_can_be_run_twice(tmp_path: Path) -> None:
    for _ in range(2):
        run(ROOT / "README.md", tmp_path, {})


@pytest.mark.req("CE-U3")
@pytest.mark.req("CE-U4")
@pytest.mark.req("CE-U5")
def test_the_persistent_memory_example_runs(tmp_path: Path) -> None:
    output = run_example("persistent_memory", tmp_path)
    assert "the next session knows: The price cache went" in output
    assert "Context pulled: snapshot v2 -> v3" in output
    assert "rolled back: v2 -> v3" in output
    assert output.endswith("every hash matches: True\n")


@pytest.mark.req("AC-14")
def test_the_handover_example_moves_a_task_between_installations(tmp_path: Path) -> None:
    output = run_example("hand_over_a_task", tmp_path)
    assert "refused: The bundle is damaged at line" in output
    assert "findings: The price cache was shortened from 300 s to 3 s." in output
    assert "open, blocking: Who shortened the price cache, and why?" in output
    assert "resolved by board:slow-orders/answer_" in output
    items = output.splitlines()[-1]
    assert "board:slow-orders/findings/1.1, message:slow-orders/1" in items
    assert items.endswith("board:slow-orders/findings/1.2")


@pytest.mark.req("CE-F39")
@pytest.mark.req("CE-F40")
@pytest.mark.req("CE-F41")
def test_the_knowledge_base_example_hides_restricted_domains(tmp_path: Path) -> None:
    output = run_example("knowledge_base", tmp_path)
    assert "found in leave.md, under 'Leave'\ntext: Everyone has thirty days" in output
    assert "leave.md is at version 2 now\ntext: Everyone has thirty-two days" in output
    assert "the admin finds: The salary bands" in output
    assert output.endswith("the assistant finds it: False\na search in the domain: There is no domain 'salaries'.\n")


def run_example(name: str, folder: Path) -> str:
    example = [forked_python.python(), ROOT / "examples" / f"{name}.py"]
    return subprocess.run(example, cwd=folder, capture_output=True, text=True, timeout=180, check=True).stdout


def run(page: Path, folder: Path, environment: dict[str, str]) -> None:
    """Run the examples of a page in a separate process."""
    example = subprocess.run(
        [forked_python.python(), RUNNER, page],
        cwd=folder,
        env={**os.environ, "WEFTLINE_DATA_DIR": str(folder / "data"), **environment},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert example.returncode == 0, example.stderr


@contextmanager
def without_server() -> Iterator[dict[str, str]]:
    yield {}


@contextmanager
def server_environment(folder: Path) -> Iterator[dict[str, str]]:
    """Run a server and yield the environment of a client."""
    folder.mkdir()
    with forked_python.server_process(folder) as server:
        yield {"WEFTLINE_URL": server.url, "WEFTLINE_API_KEY": server.admin_key}
