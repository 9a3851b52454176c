"""All error classes, found by importing the product."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import weftline
from weftline.kernel.errors import Conflict, Forbidden, InternalError, NotFound, Rejected, Unavailable, WeftlineError

KINDS = (NotFound, Conflict, Rejected, Forbidden, Unavailable)
# Modules that a client may import; their errors are exported by weftline.errors.
ROOMS = (
    "access",
    "models",
    "safety",
    "history",
    "indexing",
    "records",
    "sessions",
    "state",
    "knowledge",
    "windows",
    "search",
    "exchange",
    "prompts",
    "insight",
)
_PUBLIC = ("weftline.kernel.", "weftline.settings", *(f"weftline.{room}." for room in ROOMS))


def all_errors() -> list[type[WeftlineError]]:
    """Return every error that a call can end with, by code."""
    for module in pkgutil.walk_packages(weftline.__path__, "weftline."):
        # Importing a __main__ module would run it; weftline.errors reads the index that is written from this; adapters
        # need frameworks, and have no errors of their own.
        unread = module.name.endswith("__main__") or module.name == "weftline.errors" or ".adapters." in module.name
        if not unread:
            importlib.import_module(module.name)
    answered = (error for error in _below(WeftlineError) if "code" in vars(error) or error is InternalError)
    return sorted(answered, key=lambda error: error.code)


def kind_of(error: type[WeftlineError]) -> type[WeftlineError]:
    """Return the kind of an error, or the base class."""
    return next((kind for kind in KINDS if issubclass(error, kind)), WeftlineError)


def public_errors() -> list[type[WeftlineError]]:
    """Return the errors that weftline.errors exports, with their base classes."""
    return [error for error in {WeftlineError, *KINDS, *all_errors()} if error.__module__.startswith(_PUBLIC)]


def _below(kind: type[WeftlineError]) -> Iterator[type[WeftlineError]]:
    for error in kind.__subclasses__():
        yield error
        yield from _below(error)
