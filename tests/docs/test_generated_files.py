"""Generated files are current and complete."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from keyword import iskeyword
from pathlib import Path

import pytest

from weftline.app.registry import all_operations
from weftline.kernel.errors import WeftlineError, shown_path
from weftline.kernel.operation import Operation
from weftline.settings import Settings
from weftline.transports.cli.command_names import command_name

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"


def page(name: str) -> str:
    return (REFERENCE / f"{name}.md").read_text("utf-8")


def test_generated_files_are_current() -> None:
    check = subprocess.run(
        [sys.executable, ROOT / "scripts" / "generate.py", "--check"], capture_output=True, text=True, check=False
    )
    assert check.returncode == 0, f"run scripts/generate.py\n{check.stdout}{check.stderr}"


def test_every_operation_is_documented_with_its_interfaces(subtests: pytest.Subtests) -> None:
    index = page("operations")
    for operation in all_operations():
        with subtests.test(operation.name):
            group = operation.group.replace("_", "-")
            assert f"[`{operation.name}`](operations/{group}.md#" in index
            reference = page(f"operations/{group}")
            expect_documented(operation, reference.partition(f"\n## {operation.name}\n")[2].partition("\n## ")[0])


def expect_documented(operation: Operation, section: str) -> None:
    command = f"weftline {command_name(operation.name)}"
    assert f"`{operation.route.method} {shown_path(operation.route.path)}`" in section
    assert f"`{operation.tool}`" in section
    assert f"`{command}`" in section
    assert f"weftline.{operation.group}.{operation.verb}{'_' * iskeyword(operation.verb)}(" in section
    assert all(f"| `{name}` |" in section for name in operation.request.__struct_fields__)
    assert all(error.code in section for error in operation.errors)


def test_every_setting_is_documented() -> None:
    text = page("settings")
    assert all(f"`{item.metadata['env']}`" in text for item in fields(Settings))


def test_every_variable_the_product_reads_is_documented() -> None:
    text = page("settings")
    variables = {
        name
        for path in (ROOT / "src").rglob("*.py")
        for name in re.findall(r'"(WEFTLINE_[A-Z_]+)"', path.read_text("utf-8"))
    }
    assert {name for name in variables if f"`{name}`" not in text} == set()


def test_every_error_is_documented() -> None:
    text = page("errors")
    codes = {error.code for error in _subclasses(WeftlineError) if error.__module__.startswith("weftline.")}
    assert {code for code in codes if f"\n## {code}\n" not in text} == set()


def _subclasses(kind: type[WeftlineError]) -> list[type[WeftlineError]]:
    return [error for child in kind.__subclasses__() for error in [child, *_subclasses(child)]]
