"""What items are called that the engine keeps anyway: versions of keys, and messages."""

from __future__ import annotations

from typing import NamedTuple

from weft.kernel.fields import LARGEST

# The sorts of lines whose versions are items.
SORTS = frozenset({"board", "memory", "context", "agent"})
_DIGITS = len(str(LARGEST))


class VersionName(NamedTuple):
    """What an item that is a version of a key is called."""

    line_id: str
    key: str
    life: int
    version: int
    removed: bool = False

    def __str__(self) -> str:
        return f"{self.line_id}/{self.key}/{self.life}.{self.version}{'/removed' if self.removed else ''}"

    @classmethod
    def parse(cls, item_id: str) -> VersionName | None:
        """Return what an id means; None if it is not that of a version."""
        body, removed = item_id.removesuffix("/removed"), item_id.endswith("/removed")
        line_id, _, rest = body.partition("/")
        key, _, numbers = rest.rpartition("/")
        life, _, version = numbers.partition(".")
        if line_id.partition(":")[0] not in SORTS or not (key and is_number(life) and is_number(version)):
            return None
        return cls(line_id, key, int(life), int(version), removed)


class MessageName(NamedTuple):
    """What an item that is a message is called."""

    session_id: str
    message_id: int

    def __str__(self) -> str:
        return f"message:{self.session_id}/{self.message_id}"

    @classmethod
    def parse(cls, item_id: str) -> MessageName | None:
        session_id, _, number = item_id.removeprefix("message:").partition("/")
        if not item_id.startswith("message:") or not session_id or not is_number(number):
            return None
        return cls(session_id, int(number))


def is_engine_item(item_id: str) -> bool:
    """Tell whether an item is one that the engine itself makes, so that what it says beside its content is known."""
    return MessageName.parse(item_id) is not None or VersionName.parse(item_id) is not None


def memory_line(owner: str, session_id: str | None) -> str:
    """Return the line that keeps a part of an agent's memory. Names hold no colon, so no two parts share one."""
    return f"memory:{owner}" if session_id is None else f"memory:{owner}:{session_id}"


def is_number(text: str) -> bool:
    """Tell whether text is a whole number as Weft writes it.

    Nothing has two names: what is redacted under one of them would still be shown under the other.
    """
    plain = text.isascii() and text.isdigit() and len(text) <= _DIGITS
    return plain and (text == "0" or not text.startswith("0"))
