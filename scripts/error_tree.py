"""All error classes, found by importing the product."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import weft
from weft.kernel.errors import Conflict, Forbidden, InternalError, NotFound, Rejected, Unavailable, WeftError

KINDS = (NotFound, Conflict, Rejected, Forbidden, Unavailable)
# Modules that a client may import; their errors are exported by weft.errors.
_PUBLIC = ("weft.kernel.", "weft.capabilities.", "weft.settings")


def all_errors() -> list[type[WeftError]]:
    """Return every error that a call can end with, by code."""
    for module in pkgutil.walk_packages(weft.__path__, "weft."):
        # Importing a __main__ module would run it.
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    answered = (error for error in _below(WeftError) if "code" in vars(error) or error is InternalError)
    return sorted(answered, key=lambda error: error.code)


def kind_of(error: type[WeftError]) -> type[WeftError]:
    """Return the kind of an error, or the base class."""
    return next((kind for kind in KINDS if issubclass(error, kind)), WeftError)


def errors_module() -> str:
    """Return the source of weft.errors: all errors of all interfaces."""
    public = _public()
    imports = "\n".join(f"from {error.__module__} import {error.__name__}" for error in public)
    names = ", ".join(f'"{name}"' for name in sorted(error.__name__ for error in public))
    return (
        "# Written by scripts/generate.py from the error tree; change the errors instead.\n"
        '"""Every error that a call can end with; weft.kernel.errors defines the base classes."""\n\n'
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


def _public() -> list[type[WeftError]]:
    return [error for error in {WeftError, *KINDS, *all_errors()} if error.__module__.startswith(_PUBLIC)]


def _below(kind: type[WeftError]) -> Iterator[type[WeftError]]:
    for error in kind.__subclasses__():
        yield error
        yield from _below(error)
