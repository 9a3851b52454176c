"""Data files are what the code that reads them says, and are read when they are first needed."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

import weftline
from weftline.kernel.data_files import JsonFile, WordFile

PACKAGE = Path(weftline.__file__).parent
NAMING = re.compile(r"= (?:Json|Word)File\(")


def data_files() -> dict[str, JsonFile[object] | WordFile]:
    """Return every data file that a module names, by its path below the package."""
    modules = [path for path in PACKAGE.rglob("*.py") if NAMING.search(path.read_text("utf-8"))]
    names = [".".join(("weftline", *path.relative_to(PACKAGE).with_suffix("").parts)) for path in modules]
    values = [value for name in names for value in vars(import_module(name)).values()]
    return {str(value.path.relative_to(PACKAGE)): value for value in values if isinstance(value, JsonFile | WordFile)}


def test_every_file_is_of_the_kind_that_its_module_names(subtests: pytest.Subtests) -> None:
    for path, file in data_files().items():
        with subtests.test(path):
            if isinstance(file, JsonFile):
                msgspec.json.decode(file.path.read_bytes(), type=file.kind)
            else:
                assert all(file().values()), "a list without words"
            assert file() is file()


def test_help_and_a_client_read_no_data_file_but_the_index() -> None:
    program = """
import sys
opened = []
sys.addaudithook(lambda event, given: opened.append(str(given[0])) if event == "open" else None)
from click.testing import CliRunner
from weftline.transports.cli.main import weftline
assert CliRunner().invoke(weftline, ["--help"]).exit_code == 0
from weftline import Client
Client("http://127.0.0.1:9", "key")
print(*sorted({name.rpartition("/weftline/")[2] for name in opened if name.endswith(".json") and "/weftline/" in name}))
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["generated/commands.json", "generated/operations.json"]
