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
        # Importing a __main__ module would run it.
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    answered = (error for error in _below(WeftlineError) if "code" in vars(error) or error is InternalError)
    return sorted(answered, key=lambda error: error.code)


def kind_of(error: type[WeftlineError]) -> type[WeftlineError]:
    """Return the kind of an error, or the base class."""
    return next((kind for kind in KINDS if issubclass(error, kind)), WeftlineError)


def errors_module() -> str:
    """Return the source of weftline.errors: all errors of all interfaces."""
    public = _public()
    imports = "\n".join(f"from {error.__module__} import {error.__name__}" for error in public)
    names = ", ".join(f'"{name}"' for name in sorted(error.__name__ for error in public))
    return (
        "# Written by scripts/generate.py from the error tree; change the errors instead.\n"
        '"""Every error that a call can end with; weftline.kernel.errors defines the base classes."""\n\n'
        f"{imports}\n\n__all__ = [{names}]\n"
    )


def error_index() -> str:
    """Return the source of the table from an error code to the module that defines its class."""
    modules = {error.code: error.__module__ for error in _public() if "code" in vars(error)}
    return (
        "# Written by scripts/generate.py from the error tree; change the errors instead.\n"
        '"""Module that defines the error class of each code; imported when the error occurs."""\n\n'
        "from __future__ import annotations\n\n"
        f"ERROR_MODULES: dict[str, str] = {dict(sorted(modules.items()))!r}\n"
    )


def _public() -> list[type[WeftlineError]]:
    return [error for error in {WeftlineError, *KINDS, *all_errors()} if error.__module__.startswith(_PUBLIC)]


def _below(kind: type[WeftlineError]) -> Iterator[type[WeftlineError]]:
    for error in kind.__subclasses__():
        yield error
        yield from _below(error)
