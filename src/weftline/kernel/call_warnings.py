"""Warnings about a call that was performed: collected while it runs, shown by its interface."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

# Header of HTTP answers with the warnings about a call, as a JSON list.
WARNING_HEADER = "weftline-warning"


class CallWarning(UserWarning):
    """A rule warns about a call that was performed."""


_warnings: ContextVar[list[str] | None] = ContextVar("weftline_warnings", default=None)


class _Collector:
    """Context manager as a class: around every call, a generator costs several times as much."""

    __slots__ = ("_token",)

    def __enter__(self) -> list[str]:
        found: list[str] = []
        self._token = _warnings.set(found)
        return found

    def __exit__(self, *_: object) -> None:
        _warnings.reset(self._token)


def collected_warnings() -> AbstractContextManager[list[str]]:
    """Collect the warnings about the calls made inside, for an interface that can show them."""
    return _Collector()


def warn_caller(text: str) -> None:
    """Add a warning to the answer of the current call, if its interface can show it."""
    found = _warnings.get()
    if found is not None and text not in found:
        found.append(text)
