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
CLIENT_PACKAGES = {
    "anyio",
    "h11",
    "httpcore2",
    "httpx2",
    "idna",
    "msgspec",
    "truststore",
    "typing_extensions",
    "weftline",
}


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_all_lists_the_public_names() -> None:
    kinds = ["Conflict", "Forbidden", "NotFound", "Rejected", "Unavailable", "WeftlineError"]
    callers = ["Client", "SyncClient", "SyncWeftline", "Weftline"]
    assert sorted(weftline.__all__) == sorted([*kinds, *callers, "__version__"])


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


@pytest.mark.req("WX-09", part="a client")
@pytest.mark.parametrize("name", ["Client", "SyncClient"])
def test_a_client_loads_these_packages_and_no_others(name: str) -> None:
    program = f"""
import sys
before = {{*sys.modules}}
from weftline import {name}
try:
    {name}("http://127.0.0.1:9", "key")
finally:
    print(*{{*sys.modules}} - before)
"""
    loaded = run(program).split()
    # What frameworks bring may be looked for: anyio and httpcore use sniffio where it is installed.
    packages = {module.partition(".")[0] for module in loaded} - sys.stdlib_module_names
    assert packages - {"sniffio"} == CLIENT_PACKAGES
    assert {module.split(".")[1] for module in loaded if module.startswith("weftline.")} == {"client", "kernel"}


def test_every_request_part_and_answer_is_a_public_type() -> None:
    answers = {operation.response for operation in all_operations()}
    assert all(getattr(weftline.types, answer.__name__) is answer for answer in answers)
    assert {"Knowledge", "ConflictResolution", "SessionConfig", "ConventionGroup"} <= set(weftline.types.__all__)
    assert not {operation.request.__name__ for operation in all_operations()} & set(weftline.types.__all__)


def test_every_error_can_be_caught_as_a_weftline_error() -> None:
    assert all(issubclass(getattr(weftline.errors, name), weftline.WeftlineError) for name in weftline.errors.__all__)
