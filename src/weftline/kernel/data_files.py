"""Data files of the package: word lists, texts, tables and the generated index, read when they are first needed."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NotRequired, TypedDict, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


_T = TypeVar("_T")
_PACKAGE = Path(__file__).parents[1]


class JsonFile(Generic[_T]):
    """A JSON file below the package, read when it is first called for, and once.

    The standard library decodes it: msgspec would take a quarter of the time of ``weftline --help`` to import.
    Tests check that each file is of its kind.
    """

    def __init__(self, path: str, kind: type[_T]) -> None:
        self.path, self.kind = _PACKAGE / path, kind
        self._content: list[_T] = []

    def __call__(self) -> _T:
        if not self._content:
            self._content.append(cast("_T", json.loads(self.path.read_bytes())))
        return self._content[0]


class WordFile:
    """Lists of words in a text file below the package: a name in brackets above each, ``#`` before comments."""

    def __init__(self, path: str) -> None:
        self.path = _PACKAGE / path
        self._lists: dict[str, frozenset[str]] = {}

    def __call__(self) -> dict[str, frozenset[str]]:
        if not self._lists:
            text = re.sub(r"^#.*\n", "", self.path.read_text("utf-8"), flags=re.MULTILINE)
            names, words = (re.split(r"^\[(.+)\]\n", text, flags=re.MULTILINE)[start::2] for start in (1, 2))
            self._lists = {name: frozenset(listed.split()) for name, listed in zip(names, words, strict=True)}
        return self._lists


# Public names of a module that are imported from where they are defined when they are first used.


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


# Every operation, error and public type by name: known without importing the modules that define them.


class Parameter(TypedDict):
    """Parameter of a method; one without a default is required. Types are source code."""

    name: str
    type: str
    default: NotRequired[Any]
    keyword: NotRequired[bool]


class IndexedOperation(TypedDict):
    """An operation: where it is defined, its route, and its method in the Python clients."""

    module: str
    method: str
    path: str
    parameters: list[Parameter]
    response: str
    response_module: str
    doc: str


class IndexedError(TypedDict):
    """An error class; the base classes have no code."""

    module: str
    code: NotRequired[str]


operation_index = JsonFile("generated/operations.json", dict[str, IndexedOperation])
error_index = JsonFile("generated/errors.json", dict[str, IndexedError])
# The module of each type of weftline.types.
type_index = JsonFile("generated/types.json", dict[str, str])
