"""The portable form of everything, with the public names of ``weftline.public_records``.

They are imported when they are first used: a module of this room needs none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_PUBLIC = "weftline.public_records"


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any exported name
    if name.startswith("_") and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    exported = import_module(_PUBLIC)
    if name != "__all__" and name not in exported.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(exported, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *import_module(_PUBLIC).__all__})
