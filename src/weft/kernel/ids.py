"""Identifiers: random where they must not be guessable, time-ordered where rows are read in order."""

from __future__ import annotations

import re
import secrets
import time

# Names are used in paths, keys and URIs: no separators, no dots, nothing that a shell or file system interprets.
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}\Z"
_NAME = re.compile(NAME_PATTERN)


def is_name(text: str) -> bool:
    return _NAME.match(text) is not None


def new_session_id() -> str:
    return f"session_{secrets.token_hex(8)}"


def new_id(prefix: str) -> str:
    """Return an unguessable id, such as a key id or a token id."""
    return f"{prefix}_{secrets.token_hex(8)}"


def new_ordered_id() -> str:
    """Return an id that sorts by creation time and never repeats."""
    return f"{time.time_ns():016x}{secrets.token_hex(6)}"
