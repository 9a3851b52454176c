"""Handles of whole texts: how a shortened result names its text, and how calls of tools ask for it or some lines."""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

_HANDLE = re.compile(r"\bwl-([0-9a-f]{16})(?::([0-9]{1,9})(?:-([0-9]{1,9}))?)?(?![0-9a-f])")
HANDLE_PATTERN = r"^wl-[0-9a-f]{16}\Z"
_START = b"wl-"
# Whoever asks for more at a time asks again.
_MAX_NAMED = 5


class NamedLines(NamedTuple):
    """A handle in the arguments of a call, and the lines it asks for, counted from 1; None: all."""

    handle: str
    first: int | None = None
    last: int | None = None

    def select(self, text: str) -> str:
        """Return the lines of a text that are asked for."""
        if self.first is None:
            return text
        last = self.first if self.last is None else self.last
        return "\n".join(text.splitlines()[max(self.first - 1, 0) : last])

    @property
    def place(self) -> str:
        """Return what is asked for in words."""
        if self.first is None:
            return self.handle
        lines = f"{self.first}" if self.last is None else f"{self.first} to {self.last}"
        return f"{self.handle}, line{'' if self.last is None else 's'} {lines}"


def handle_of(text: str) -> str:
    """Return the handle of a text. It opens nothing by itself: texts are looked up among those of one agent."""
    return f"wl-{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"


def named_handles(arguments: bytes) -> list[NamedLines]:
    """Return the handles that the arguments of a call name, each once."""
    if _START not in arguments:
        return []
    found = (
        NamedLines(f"wl-{match[1]}", *(int(each) if each else None for each in match.groups()[1:]))
        for match in _HANDLE.finditer(arguments.decode(errors="replace"))
    )
    return list(dict.fromkeys(found))[:_MAX_NAMED]
