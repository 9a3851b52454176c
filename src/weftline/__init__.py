"""Weftline, the context layer for multi-agent systems.

``Client`` and ``SyncClient`` call a server; ``Weftline`` is the same API inside this process.
"""

from __future__ import annotations

from importlib import import_module

# Same as typing.TYPE_CHECKING: importing typing would take most of the time of importing weftline.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from weftline.client._client import Client
    from weftline.client._sync_client import SyncClient
    from weftline.kernel.errors import Conflict, Forbidden, NotFound, Rejected, Unavailable, WeftlineError
    from weftline.open import SyncWeftline, Weftline

    __version__: str

# Imported on first access, so that importing weftline is cheap.
_MODULES = {
    "Client": "weftline.client._client",
    "Conflict": "weftline.kernel.errors",
    "Forbidden": "weftline.kernel.errors",
    "NotFound": "weftline.kernel.errors",
    "Rejected": "weftline.kernel.errors",
    "SyncClient": "weftline.client._sync_client",
    "SyncWeftline": "weftline.open",
    "Unavailable": "weftline.kernel.errors",
    "Weftline": "weftline.open",
    "WeftlineError": "weftline.kernel.errors",
}

__all__ = [
    "Client",
    "Conflict",
    "Forbidden",
    "NotFound",
    "Rejected",
    "SyncClient",
    "SyncWeftline",
    "Unavailable",
    "Weftline",
    "WeftlineError",
    "__version__",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any exported name
    if name == "__version__":
        value = import_module("importlib.metadata").version("weftline")
    elif name in _MODULES:
        value = getattr(import_module(_MODULES[name]), name)
    else:
        raise AttributeError(f"module 'weftline' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
