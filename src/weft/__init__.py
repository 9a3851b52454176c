"""Weft, the context layer for multi-agent systems.

``Client`` and ``SyncClient`` call a server; ``Weft`` is the same API inside this process.
"""

from __future__ import annotations

from importlib import import_module

# Same as typing.TYPE_CHECKING: importing typing would take most of the time of importing weft.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from weft.client import Client, SyncClient
    from weft.kernel.errors import Conflict, Forbidden, NotFound, Rejected, Unavailable, WeftError
    from weft.open import Weft

    __version__: str

# Imported on first access, so that importing weft is cheap.
_MODULES = {
    "Client": "weft.client",
    "Conflict": "weft.kernel.errors",
    "Forbidden": "weft.kernel.errors",
    "NotFound": "weft.kernel.errors",
    "Rejected": "weft.kernel.errors",
    "SyncClient": "weft.client",
    "Unavailable": "weft.kernel.errors",
    "Weft": "weft.open",
    "WeftError": "weft.kernel.errors",
}

__all__ = [
    "Client",
    "Conflict",
    "Forbidden",
    "NotFound",
    "Rejected",
    "SyncClient",
    "Unavailable",
    "Weft",
    "WeftError",
    "__version__",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any exported name
    if name == "__version__":
        value = import_module("importlib.metadata").version("weft")
    elif name in _MODULES:
        value = getattr(import_module(_MODULES[name]), name)
    else:
        raise AttributeError(f"module 'weft' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
