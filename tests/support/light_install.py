"""Hides the packages of weftline[search], as if they were not installed."""

from __future__ import annotations

import sys
import tomllib
from importlib import import_module
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def search_modules() -> set[str]:
    """Return the modules of the packages that weftline[search] brings."""
    extras = tomllib.loads(PYPROJECT.read_text("utf-8"))["project"]["optional-dependencies"]
    files = [file for line in extras["search"] for file in distribution(Requirement(line).name).files or ()]
    names = {file.parts[0].partition(".")[0] for file in files if not file.parts[0].endswith(".dist-info")}
    return {name for name in names if name.isidentifier() and name != "__pycache__"}


def hide_search_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    # Loaded before, so that later tests in this process have the fast products.
    import_module("weftline.search_index.quantized_vectors")
    hidden = search_modules()
    loaded = [name for name in sys.modules if name.partition(".")[0] in hidden]
    for name in {*hidden, *loaded}:
        # Python's own way to say that a module cannot be imported.
        monkeypatch.setitem(sys.modules, name, None)
