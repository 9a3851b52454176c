"""Names in a SQLite file for tab completion, read without opening the application."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import apsw

if TYPE_CHECKING:
    from pathlib import Path

    NameKind = Literal["session", "agent", "key", "domain"]

_BUSY_MILLISECONDS = 200
# Column of the name, column of its description, and where to find them.
_SOURCES = {
    "session": ("session_id", "purpose", "sessions WHERE tenant = $tenant"),
    "agent": ("principal_id", "agent_type", "principals WHERE tenant = $tenant"),
    "key": ("key", "''", "entries WHERE tenant = $tenant AND session_id = $session"),
    "domain": ("domain", "description", "domains WHERE tenant = $tenant"),
}
_LIMIT = 100


def find_names(
    file: Path, kind: NameKind, prefix: str, *, tenant: str, session_id: str | None = None
) -> list[tuple[str, str]]:
    """Return names that start with a prefix, with a description; access to the file is access to all names."""
    if not file.exists():
        return []
    name, about, source = _SOURCES[kind]
    connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        connection.set_busy_timeout(_BUSY_MILLISECONDS)
        query = (
            f"SELECT {name}, {about} FROM {source} AND substr({name}, 1, length($prefix)) = $prefix "  # noqa: S608 - as above
            f"ORDER BY {name} LIMIT {_LIMIT}"
        )
        values = {"tenant": tenant, "prefix": prefix, "session": session_id}
        return [(str(found), str(description)) for found, description in connection.execute(query, values)]
    finally:
        connection.close()
