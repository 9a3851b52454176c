"""Public names of ``weft`` and the cost of importing it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import weft
import weft.errors
import weft.types
from weft.app.registry import all_operations

ROOT = Path(__file__).parents[2]
HEAVY = {"apsw", "asyncio", "asyncpg", "click", "httpx2", "mcp", "msgspec", "obstore", "starlette", "uvicorn"}


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_all_lists_the_public_names() -> None:
    kinds = ["Conflict", "Forbidden", "NotFound", "Rejected", "Unavailable", "WeftError"]
    assert sorted(weft.__all__) == sorted([*kinds, "Client", "SyncClient", "Weft", "__version__"])


@pytest.mark.parametrize("name", weft.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(weft, name) is not None
    assert name in dir(weft)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Loom'"):
        weft.Loom  # noqa: B018


def test_the_version_is_the_project_s() -> None:
    assert weft.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_importing_weft_takes_under_30_milliseconds() -> None:
    # The processor time of a busy machine counts more than the import: one of ten must be quick.
    program = "import time; t = time.process_time(); import weft; print(time.process_time() - t)"
    assert any(float(run(program)) < 0.03 for _ in range(10))


def test_importing_weft_loads_no_heavy_module() -> None:
    loaded = run("import sys, weft; print(*sys.modules)").split()
    assert not HEAVY & set(loaded)


def test_the_clients_load_neither_a_database_nor_a_server() -> None:
    loaded = run("import sys; from weft import Client, SyncClient; print(*sys.modules)").split()
    assert not {"apsw", "asyncpg", "click", "mcp", "starlette", "uvicorn", "weft.app"} & set(loaded)


def test_every_request_part_and_answer_is_a_public_type() -> None:
    answers = {operation.response for operation in all_operations()}
    assert all(getattr(weft.types, answer.__name__) is answer for answer in answers)
    assert {"Knowledge", "ConflictResolution", "SessionConfig", "ConventionGroup"} <= set(weft.types.__all__)
    assert not {operation.request.__name__ for operation in all_operations()} & set(weft.types.__all__)


def test_every_error_can_be_caught_as_a_weft_error() -> None:
    assert all(issubclass(getattr(weft.errors, name), weft.WeftError) for name in weft.errors.__all__)
