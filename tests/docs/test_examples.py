"""Every Python example in the documentation runs, page by page, against a server of its own."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
SERVE = (
    "from weft.settings import Settings; from weft.transports.server import serve; serve(Settings.from_environment())"
)


# test_write_an_operation.py runs this page in an application that has its operation.
TESTED_ELSEWHERE = ROOT / "docs" / "guides" / "write-a-new-operation.md"


def pages() -> list[Path]:
    every = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in every if page != TESTED_ELSEWHERE and BLOCK.search(page.read_text("utf-8"))]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page_run_in_order(page: Path, tmp_path: Path) -> None:
    with serving(tmp_path / "server") if "Client(" in page.read_text("utf-8") else without_server() as environment:
        run(page, tmp_path, environment)


def test_what_the_readme_shows_can_be_done_again(tmp_path: Path) -> None:
    for _ in range(2):
        run(ROOT / "README.md", tmp_path, {})


@pytest.mark.req("CE-U3")
@pytest.mark.req("CE-U4")
@pytest.mark.req("CE-U5")
def test_the_stories_of_persistent_memory_run_and_end_well(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, ROOT / "examples" / "remember_and_go_back.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert "the next session knows: The price cache went" in told
    assert "Context pulled: snapshot v2 -> v3" in told
    assert "rolled back: v2 -> v3" in told
    assert told.endswith("every hash matches: True\n")


@pytest.mark.req("AC-14")
def test_a_task_is_handed_over_between_two_installations(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, ROOT / "examples" / "hand_over_a_task.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert "refused: The bundle is damaged at line" in told
    assert "findings: The price cache was shortened from 300 s to 3 s." in told
    assert "open, blocking: Who shortened the price cache, and why?" in told
    assert "resolved by board:slow-orders/answer_" in told
    both = told.splitlines()[-1]
    assert "board:slow-orders/findings/1.1, message:slow-orders/1" in both
    assert both.endswith("board:slow-orders/findings/1.2")


@pytest.mark.req("CE-F39")
@pytest.mark.req("CE-F40")
@pytest.mark.req("CE-F41")
def test_a_knowledge_base_answers_those_who_may_look_into_it(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, ROOT / "examples" / "knowledge_base.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert "found in leave.md, under 'Leave'\nsays: Everyone has thirty days" in told
    assert "leave.md is at version 2 now\nsays: Everyone has thirty-two days" in told
    assert "an admin finds: The salary bands" in told
    assert told.endswith("finds something of it: False\nand if it asks there: There is no domain 'salaries'.\n")


def run(page: Path, folder: Path, environment: dict[str, str]) -> None:
    """Run the examples of a page in a process of their own."""
    example = subprocess.run(
        [sys.executable, __file__, page],
        cwd=folder,
        env={**os.environ, "WEFT_DATA_DIR": str(folder / "data"), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert example.returncode == 0, example.stderr


@contextmanager
def without_server() -> Iterator[dict[str, str]]:
    yield {}


@contextmanager
def serving(folder: Path) -> Iterator[dict[str, str]]:
    """Run the product and yield what a client must know, as the environment would say it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {"WEFT_DATA_DIR": str(folder), "WEFT_PORT": str(port)}
    with subprocess.Popen(
        [sys.executable, "-c", SERVE], env={**os.environ, **settings}, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stderr is not None
        key = next(line.strip() for line in server.stderr if line.strip().startswith("weft."))
        wait_for(port)
        yield {"WEFT_URL": f"http://127.0.0.1:{port}", "WEFT_API_KEY": key}
        server.terminate()
        server.communicate(timeout=20)


def wait_for(port: int) -> None:
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        asyncio.run(asyncio.sleep(0.05))
    raise TimeoutError("the server did not start")


def run_page(page: Path) -> None:
    """Run a page's blocks as one program that may await at the top, each error showing its line of the page."""
    text = page.read_text("utf-8")
    names: dict[str, object] = {"__name__": "__main__"}

    async def run() -> None:
        for block in BLOCK.finditer(text):
            source = "\n" * text.count("\n", 0, block.start(1)) + block[1]
            code = compile(source, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
            result = eval(code, names)
            if inspect.isawaitable(result):
                await result

    asyncio.run(run())


if __name__ == "__main__":
    run_page(Path(sys.argv[1]))
