"""Warnings about a call that was performed: collected while it runs, shown by its interface."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Header of HTTP answers with the warnings about a call, as a JSON list.
WARNING_HEADER = "weft-warning"


class CallWarning(UserWarning):
    """A rule warns about a call that was performed."""


_warnings: ContextVar[list[str] | None] = ContextVar("weft_warnings", default=None)


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect the warnings about the calls made inside, for an interface that can show them."""
    found: list[str] = []
    token = _warnings.set(found)
    try:
        yield found
    finally:
        _warnings.reset(token)


def warn_caller(text: str) -> None:
    """Add a warning to the answer of the current call, if its interface can show it."""
    found = _warnings.get()
    if found is not None and text not in found:
        found.append(text)
