"""Public names of ``weftline`` and the cost of importing it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import weftline
import weftline.errors
import weftline.types
from weftline.app.registry import all_operations

ROOT = Path(__file__).parents[2]
HEAVY = {"apsw", "asyncio", "asyncpg", "click", "httpx2", "mcp", "msgspec", "obstore", "starlette", "uvicorn"}


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_all_lists_the_public_names() -> None:
    kinds = ["Conflict", "Forbidden", "NotFound", "Rejected", "Unavailable", "WeftlineError"]
    assert sorted(weftline.__all__) == sorted([*kinds, "Client", "SyncClient", "Weftline", "__version__"])


@pytest.mark.parametrize("name", weftline.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(weftline, name) is not None
    assert name in dir(weftline)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Loom'"):
        weftline.Loom  # noqa: B018


def test_the_version_is_the_project_s() -> None:
    assert weftline.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_importing_weftline_takes_under_30_milliseconds() -> None:
    # The processor time of a busy machine counts more than the import: one of ten must be quick.
    program = "import time; t = time.process_time(); import weftline; print(time.process_time() - t)"
    assert any(float(run(program)) < 0.03 for _ in range(10))


def test_importing_weftline_loads_no_heavy_module() -> None:
    loaded = run("import sys, weftline; print(*sys.modules)").split()
    assert not HEAVY & set(loaded)


def test_the_clients_load_neither_a_database_nor_a_server() -> None:
    loaded = run("import sys; from weftline import Client, SyncClient; print(*sys.modules)").split()
    assert not {"apsw", "asyncpg", "click", "mcp", "starlette", "uvicorn", "weftline.app"} & set(loaded)


def test_every_request_part_and_answer_is_a_public_type() -> None:
    answers = {operation.response for operation in all_operations()}
    assert all(getattr(weftline.types, answer.__name__) is answer for answer in answers)
    assert {"Knowledge", "ConflictResolution", "SessionConfig", "ConventionGroup"} <= set(weftline.types.__all__)
    assert not {operation.request.__name__ for operation in all_operations()} & set(weftline.types.__all__)


def test_every_error_can_be_caught_as_a_weftline_error() -> None:
    assert all(issubclass(getattr(weftline.errors, name), weftline.WeftlineError) for name in weftline.errors.__all__)
