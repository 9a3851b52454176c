"""Select the database driver by the address."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from weft.settings import InvalidSetting

if TYPE_CHECKING:
    from weft.storage.sql.database import Database


def connect(url: str) -> Database:
    """Return the database for an address without opening it; only its driver is imported."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme == "sqlite":
        from weft.storage.sql.dialects.sqlite import SqliteDatabase  # noqa: PLC0415 - only if it is used

        return SqliteDatabase(Path(rest if separator else url).expanduser())
    if scheme in {"postgresql", "postgres"}:
        from weft.storage.sql.dialects.postgres import PostgresDatabase  # noqa: PLC0415 - only if it is used

        return PostgresDatabase(url)
    raise InvalidSetting(f"WEFT_DATABASE_URL: '{scheme}://' is neither a SQLite file nor postgresql://.")
