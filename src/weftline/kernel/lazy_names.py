"""Public names of a module that are imported from where they are defined when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy_names(
    module: dict[str, Any], modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and ``__dir__`` of a module, given its globals and the module of each public name."""

    def get(name: str) -> Any:  # noqa: ANN401 - any exported name
        if name not in modules:
            raise AttributeError(f"module {module['__name__']!r} has no attribute {name!r}")
        value = module[name] = getattr(import_module(modules[name]), name)
        return value

    return get, lambda: sorted({*module, *modules})
