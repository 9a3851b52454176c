"""The code of the guide on writing an operation works: its operation is registered and its test is run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.world import World, refused
from weftline.app.registry import LazyRegistry
from weftline.kernel.operation import Operation
from weftline.settings import Settings
from weftline.testing.clock import FrozenClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "write-a-new-operation.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def page_names() -> dict[str, Any]:
    """Return the names that the page's Python blocks define."""
    text = PAGE.read_text("utf-8")
    names: dict[str, Any] = {"__name__": "guide"}
    for block in BLOCK.finditer(text):
        source = "\n" * text.count("\n", 0, block.start(1)) + block[1]
        exec(compile(source, str(PAGE), "exec", dont_inherit=True), names)
    return names


@pytest.fixture
def operation(page_names: dict[str, Any]) -> Operation:
    (defined,) = (value for value in page_names.values() if isinstance(value, Operation))
    return defined


@pytest.fixture
async def extended_world(tmp_path: Path, operation: Operation) -> AsyncIterator[World]:
    """Yield a world on SQLite whose application has the page's operation."""
    url = str(tmp_path / "weftline.db")
    settings = Settings(database_url=url, data_dir=str(tmp_path), rate_limits="off", session_indexing="off")
    world = World(url, FrozenClock(), settings)
    await world.open()
    try:
        world.app.registry = LazyRegistry()
        world.app.registry.add(operation)
        yield world
    finally:
        await world.close()


async def test_the_test_on_the_page_passes(page_names: dict[str, Any], extended_world: World) -> None:
    (example,) = (value for name, value in page_names.items() if name.startswith("test_"))
    await example(extended_world)


async def test_the_operation_on_the_page_returns_what_the_page_shows(extended_world: World) -> None:
    await extended_world.planner.write("goal", "four tokens here")
    response = await extended_world.analysis.call("board.measure", session_id="s1")
    assert response == {"key_count": 1, "free_tokens": 9_996}
    with refused("SESSION_NOT_FOUND"):
        await extended_world.analysis.call("board.measure", session_id="unknown")


def test_the_interfaces_of_the_operation_are_those_named_on_the_page(operation: Operation) -> None:
    assert (operation.tool, operation.action, operation.name) == ("shared_context", "measure", "board.measure")
    assert f"`weftline {operation.group} {operation.verb}`" in PAGE.read_text("utf-8")
    assert operation.summary == "Count the keys of the board and the tokens that are left."
    assert {error.code for error in operation.errors} == {"SESSION_NOT_FOUND", "BRANCH_NOT_FOUND"}
