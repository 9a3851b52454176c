"""Every error class of the product, found by importing the product."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import weft
from weft.kernel.errors import Conflict, Forbidden, InternalError, NotFound, Rejected, Unavailable, WeftError

KINDS = (NotFound, Conflict, Rejected, Forbidden, Unavailable)
# What a client may import: the errors of these are public by name in weft.errors.
_PUBLIC = ("weft.kernel.", "weft.capabilities.", "weft.settings")


def all_errors() -> list[type[WeftError]]:
    """Return every error that a caller can be answered with, by code."""
    for module in pkgutil.walk_packages(weft.__path__, "weft."):
        # A __main__ runs something when it is imported, as python -m wants it.
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    answered = (error for error in _below(WeftError) if "code" in vars(error) or error is InternalError)
    return sorted(answered, key=lambda error: error.code)


def kind_of(error: type[WeftError]) -> type[WeftError]:
    """Return which of the five kinds an error is, or the base for none of them."""
    return next((kind for kind in KINDS if issubclass(error, kind)), WeftError)


def errors_module() -> str:
    """Return the source of weft.errors: the errors that callers of any face can meet, in one place."""
    public = [error for error in {WeftError, *KINDS, *all_errors()} if error.__module__.startswith(_PUBLIC)]
    imports = "\n".join(f"from {error.__module__} import {error.__name__}" for error in public)
    names = ", ".join(f'"{name}"' for name in sorted(error.__name__ for error in public))
    return (
        "# Written by scripts/generate.py from the error tree; change the errors instead.\n"
        '"""Every error a call can end with, to catch by name; weft.kernel.errors draws the tree."""\n\n'
        f"{imports}\n\n__all__ = [{names}]\n"
    )


def _below(kind: type[WeftError]) -> Iterator[type[WeftError]]:
    for error in kind.__subclasses__():
        yield error
        yield from _below(error)
