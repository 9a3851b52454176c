"""Data files of the package: word lists, texts, tables and the generated index, read when they are first needed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Generic, TypeVar, cast

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
