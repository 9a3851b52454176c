"""Names of any characters as parts of keys of memory, and as ids of sessions."""

from __future__ import annotations

from hashlib import sha256
from urllib.parse import quote, unquote

_MAX_SESSION = 100
_MAX_PART = 60


def escape(name: str) -> str:
    """Return a name in the characters that keys of memory may have, which are those of a URL, with : for %."""
    text = quote(name, safe="").replace("~", "%7E")
    text = f"%2E{text[1:]}" if text.startswith(".") else text
    return text.replace("%", ":") or ":"


def unescape(part: str) -> str:
    return "" if part == ":" else unquote(part.replace(":", "%"))


def key_part(name: str) -> str:
    """Return a name as a part of a key that has several; a long one as its hash."""
    part = escape(name)
    return part if len(part) <= _MAX_PART else f"sha256-{sha256(name.encode()).hexdigest()[:32]}"


def session_name(name: str, *, prefix: str = "") -> str:
    """Return the id of a session for what a framework calls it: the same name, or a hash if an id cannot be that."""
    plain = name.replace("-", "").replace("_", "")
    fits = plain.isascii() and plain.isalnum() and len(prefix + name) <= _MAX_SESSION and (prefix or name[0].isalnum())
    return f"{prefix}{name}" if fits else f"{prefix or 'named-'}{sha256(name.encode()).hexdigest()[:32]}"
