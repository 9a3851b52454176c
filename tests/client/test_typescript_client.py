"""The TypeScript client has what the Python client has, and its guide shows the same in both languages. Needs no node.

That its generated source is current shows tests/docs/test_generated_files.py; make typescript runs it.
"""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

import pytest

from weftline import Client, __version__
from weftline.app.registry import all_operations

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "clients" / "typescript"
GUIDE = (ROOT / "docs" / "guides" / "use-typescript.md").read_text("utf-8")
# Names that differ: a client of fetch has no connections to close.
COUNTERPARTS = {"aclose": "close"}
# Routes that only describe the API.
DESCRIPTIONS = {"schemas.get", "schemas.list"}
CALL = re.compile(r"\b(?:weftline|task)\.((?:[a-z_]+\.)?[a-z_]+)\(")


def source(name: str) -> str:
    return (PACKAGE / "src" / f"{name}.ts").read_text("utf-8")


@pytest.mark.req("WX-12")
def test_every_operation_has_a_typed_method_and_a_route() -> None:
    operations = {operation.name: operation.route for operation in all_operations()}
    generated = source("generated")
    routes = dict(re.findall(r'^  "([a-z_]+\.[a-z_]+)": "([A-Z]+ [^"]+)",$', generated, re.MULTILINE))
    assert routes.keys() - DESCRIPTIONS == operations.keys()
    interface = generated.partition("export interface Operations {\n")[2].partition("\n}\n")[0]
    groups = re.findall(r"^  ([a-z_]+): \{\n(.*?)^  \};$", interface, re.MULTILINE | re.DOTALL)
    typed = {
        f"{group}.{verb}" for group, body in groups for verb in re.findall(r"^    ([a-z_]+)\(", body, re.MULTILINE)
    }
    assert typed == routes.keys()


def test_every_other_method_of_the_python_client_has_a_counterpart() -> None:
    public = {name for name, _ in inspect.getmembers(Client, inspect.isfunction) if not name.startswith("_")}
    written = set(re.findall(r"^  (?:async \*?)?([a-z_]+)\(", source("client"), re.MULTILINE)) - {"constructor"}
    assert {COUNTERPARTS.get(name, name) for name in public} == written


@pytest.mark.req("WX-12")
def test_the_guide_shows_the_same_examples_in_both_languages() -> None:
    sections = [section for section in re.split(r"^## ", GUIDE, flags=re.MULTILINE) if "```" in section]
    assert len(sections) >= 8
    for section in sections:
        python, typescript = blocks(section, "python"), blocks(section, "ts")
        assert len(python) == len(typescript) == 1, section.splitlines()[0]
        assert calls(python[0]) == calls(typescript[0]) != [], section.splitlines()[0]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def calls(example: str) -> list[str]:
    return [COUNTERPARTS.get(name, name) for name in CALL.findall(example)]


def test_the_readme_of_the_package_begins_like_the_guide() -> None:
    (shown,) = blocks((PACKAGE / "README.md").read_text("utf-8"), "ts")
    assert shown == blocks(GUIDE, "ts")[0]


def test_the_package_runs_nothing_when_it_is_installed_and_its_lock_names_no_host() -> None:
    package = json.loads((PACKAGE / "package.json").read_text("utf-8"))
    assert (package["version"], package["license"]) == (__version__, "Apache-2.0")
    assert "dependencies" not in package
    assert all(package["peerDependenciesMeta"][name]["optional"] for name in package["peerDependencies"])
    assert package["scripts"].keys() <= {"build", "test"}
    lock = json.loads((PACKAGE / "package-lock.json").read_text("utf-8"))
    assert lock["version"] == __version__
    assert [name for name, part in lock["packages"].items() if "resolved" in part] == []
    assert all("integrity" in part for name, part in lock["packages"].items() if name)
    assert (PACKAGE / "LICENSE").read_text("utf-8") == (ROOT / "LICENSE").read_text("utf-8")
