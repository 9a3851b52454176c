"""Weftline beside agent frameworks: the versions that pip chose for both, against the dependencies of now.

``make package ARGS=--record`` asks pip again; tests do not reach the registry.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
# By framework, the version of each package.
RECORDED = {
    path.stem: dict(line.split("==") for line in path.read_text().splitlines())
    for path in sorted((ROOT / "tests" / "data" / "frameworks").glob("*.txt"))
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def refused(requirements: list[str], chosen: dict[str, str]) -> list[str]:
    """Return the requirements that the chosen versions do not satisfy."""
    versions = {canonicalize_name(name): version for name, version in chosen.items()}
    needed = [each for each in map(Requirement, requirements) if each.marker is None or each.marker.evaluate()]
    return [
        str(each)
        for each in needed
        if not each.specifier.contains(versions.get(canonicalize_name(each.name), "0"), prereleases=True)
    ]


@pytest.mark.req("WX-09", part="beside eleven frameworks, by what pip chose")
@pytest.mark.parametrize("framework", RECORDED)
def test_weftline_and_a_framework_have_versions_that_fit_both(framework: str) -> None:
    assert {"weftline", framework} <= RECORDED[framework].keys()
    assert refused(PROJECT["dependencies"], RECORDED[framework]) == []


def test_the_record_would_show_a_conflict() -> None:
    assert len(RECORDED) >= 11
    server = [each for each in PROJECT["optional-dependencies"]["server"] if Requirement(each).name == "mcp"]
    older = [name for name, chosen in RECORDED.items() if "mcp" in chosen and refused(server, chosen)]
    assert "langchain-mcp-adapters" in older
