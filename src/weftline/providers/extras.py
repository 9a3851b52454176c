"""Optional packages: which of them are installed, and what to say about those that are not."""

from __future__ import annotations

from importlib.util import find_spec

NOT_INSTALLED = "weftline[search] is not installed"
INSTALL = "Run pip install 'weftline[search]' where Weftline runs, and restart it."


def is_installed(*modules: str) -> bool:
    """Return whether all of these modules can be imported, without importing them."""
    return all(find_spec(module) is not None for module in modules)
