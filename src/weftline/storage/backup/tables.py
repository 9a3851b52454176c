"""The tables of a backup, derived from the migrations, so that no new table is forgotten."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import apsw
import msgspec

from weftline.storage.backup.archive import SchemaStep
from weftline.storage.migrations.runner import known_migrations
from weftline.storage.sql.dialects.sqlite import DIALECT

if TYPE_CHECKING:
    import zipfile
    from collections.abc import Iterable, Iterator

    from weftline.kernel.transaction import Transaction

OBJECTS = "objects"
COLLECTIONS = "collections"
TENANTS = "tenants"
# Rows of running processes are not backed up.
_ROW_FILTERS = {OBJECTS: "state = 'kept'", "jobs": "tenant <> ''"}
_PYTHON_TYPES: dict[str, type] = {"TEXT": str, "INTEGER": int, "REAL": float, "BLOB": bytes}


@dataclass(frozen=True, slots=True)
class Table:
    """A table as the migrations define it."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    row: Any

    @property
    def member(self) -> str:
        return f"tables/{self.name}.ndjson"

    def lines(self, archive: zipfile.ZipFile) -> IO[bytes]:
        """Open the member with the rows; the caller closes it."""
        return archive.open(self.member)

    def select(self, *, after_key: bool) -> str:
        """Return the statement for a page: the first one, or the one after a key."""
        key = ", ".join(self.key)
        places = ", ".join(f"${place}" for place in range(1, len(self.key) + 1))
        where = self._where(f"({key}) > ({places})" if after_key else None)
        limit = len(self.key) + 1 if after_key else 1
        return f"SELECT {', '.join(self.columns)} FROM {self.name} {where} ORDER BY {key} LIMIT ${limit}"  # noqa: S608 - names from our own schema

    def insert(self, rows: int) -> str:
        width = len(self.columns)
        groups = (", ".join(f"${row * width + place}" for place in range(1, width + 1)) for row in range(rows))
        values = ", ".join(f"({group})" for group in groups)
        return f"INSERT INTO {self.name} ({', '.join(self.columns)}) VALUES {values}"  # noqa: S608 - names from our own schema

    async def count(self, transaction: Transaction) -> int:
        """Return the number of rows to back up."""
        row = await transaction.one(f"SELECT COUNT(*) FROM {self.name} {self._where()}")  # noqa: S608 - likewise
        return 0 if row is None else int(row[0])

    def _where(self, condition: str | None = None) -> str:
        conditions = [each for each in (_ROW_FILTERS.get(self.name), condition) if each]
        return f"WHERE {' AND '.join(conditions)}" if conditions else ""


class ObjectRow(NamedTuple):
    """A row of the object index."""

    line: bytes
    tenant: str
    path: str
    size: int
    version: str | None
    state: str


def object_rows(table: Table, lines: Iterable[bytes]) -> Iterator[ObjectRow]:
    """Decode the object index."""
    decode = msgspec.json.Decoder(table.row).decode
    for line in lines:
        row = dict(zip(table.columns, decode(line), strict=True))
        yield ObjectRow(line, *(row[name] for name in ObjectRow._fields[1:]))


def known_schema_steps() -> list[SchemaStep]:
    return [SchemaStep(step.name, step.checksum) for step in known_migrations()]


def tables_of_schema(steps: int) -> list[Table]:
    """Run the first migrations in an in-memory SQLite and return its tables in creation order."""
    with closing(apsw.Connection(":memory:")) as schema:
        for step in known_migrations()[:steps]:
            schema.execute(step.sql.format_map(DIALECT))
        names = schema.execute(
            "SELECT s.name FROM sqlite_schema s JOIN pragma_table_list l ON l.name = s.name AND l.type = 'table'"
            " WHERE s.type = 'table' AND s.name NOT LIKE 'sqlite~_%' ESCAPE '~' ORDER BY s.rowid"
        ).fetchall()
        return [_table(schema, str(name)) for (name,) in names]


def _table(schema: apsw.Connection, name: str) -> Table:
    sql = 'SELECT name, type, "notnull", pk FROM pragma_table_info(?)'
    columns: Any = schema.execute(sql, (name,)).fetchall()
    types = [_PYTHON_TYPES[kind] if required else _PYTHON_TYPES[kind] | None for _, kind, required, _ in columns]
    return Table(
        name=name,
        columns=tuple(column for column, *_ in columns),
        key=tuple(column for _, column in sorted((place, column) for column, _, _, place in columns if place)),
        row=tuple[tuple(types)],  # type: ignore[misc] # a type made at run time
    )
