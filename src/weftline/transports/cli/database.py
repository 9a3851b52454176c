"""``weftline db``: schema, backup and restore."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from weftline.kernel.clock import SystemClock, optional_datetime, to_micros
from weftline.kernel.operation import Response
from weftline.transports.cli.base import JSON, DataFolderGroup
from weftline.transports.cli.render import show

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from weftline.storage.backup import Manifest
    from weftline.storage.sql.database import Database
    from weftline.transports.cli.target import Target

_FILE = click.Path(dir_okay=False, path_type=Path)


class Migrated(Response, omit_defaults=False):
    """Migrations applied by this run."""

    applied: list[str]


class StepState(Response, omit_defaults=False):
    """State of one migration."""

    step: str
    applied_at: datetime | None


class SchemaState(Response, omit_defaults=False):
    """State of all migrations."""

    current: bool
    steps: list[StepState]


class LayersSigned(Response, omit_defaults=False):
    """How many versions were signed, and the lines that were not because their hashes are wrong."""

    signed: int
    damaged: list[str]


class BackupSummary(Response):
    """Contents of a backup."""

    file: str
    weftline: str
    created_at: datetime
    tables: int
    rows: int
    objects: int
    object_bytes: int
    bytes: int
    omitted: tuple[str, ...] = ()


@click.group(cls=DataFolderGroup, no_args_is_help=True)
def db() -> None:
    """Migrate, back up and restore the database: the data folder, or --database-url."""


@db.command("migrate", params=[JSON])
@click.pass_obj
def migrate_schema(target: Target, *, as_json: bool) -> None:
    """Migrate the schema to this version. Starting a server does the same."""
    from weftline.storage.migrations.runner import migrate  # noqa: PLC0415 - help needs no storage

    async def run() -> list[str]:
        async with _database(target) as database:
            return await migrate(database, SystemClock())

    show(Migrated(applied=asyncio.run(run())), as_json=as_json)


@db.command("status", params=[JSON])
@click.pass_obj
def show_status(target: Target, *, as_json: bool) -> None:
    """Show which migrations were applied, and when."""
    from weftline.storage.migrations.runner import status  # noqa: PLC0415 - help needs no storage

    target.check_installed()

    async def run() -> list[StepState]:
        async with _database(target) as database:
            return [StepState(step=s.name, applied_at=optional_datetime(s.applied_at)) for s in await status(database)]

    steps = asyncio.run(run())
    show(SchemaState(current=all(step.applied_at for step in steps), steps=steps), as_json=as_json)


@db.command("backup", params=[JSON])
@click.argument("file", type=_FILE, help="File to write; it must not exist.")
@click.option("--skip-damaged", is_flag=True, help="Skip large values that are missing or damaged, and list them.")
@click.pass_obj
def back_up_to(target: Target, file: Path, *, skip_damaged: bool, as_json: bool) -> None:
    """Write a consistent snapshot of everything, large values included, to one file.

    Servers can keep running. The file contains the secrets that sign tokens: only its owner can read it; protect it
    like a password.
    """
    from weftline.providers.object_storage import connect_objects  # noqa: PLC0415 - help needs no storage
    from weftline.storage.backup import back_up  # noqa: PLC0415 - likewise

    target.check_installed()

    async def run() -> Manifest:
        store = connect_objects(target.settings())
        async with _database(target) as database:
            with _progress("Backing up") as progress:
                journal = target.settings().partial_files_journal
                return await back_up(
                    database, store, file, SystemClock(), progress, skip_damaged=skip_damaged, journal=journal
                )

    show(_summary(file, asyncio.run(run())), as_json=as_json)


@db.command("restore", params=[JSON])
@click.argument("file", type=_FILE, help="File written by weftline db backup.")
@click.pass_obj
def restore_from(target: Target, file: Path, *, as_json: bool) -> None:
    """Restore a backup into an empty database, from and to SQLite or PostgreSQL, a folder or a bucket.

    The file is verified first. Either all of it is restored, or nothing.
    """
    from weftline.app.objects import Objects  # noqa: PLC0415 - help needs no storage
    from weftline.providers.object_storage import connect_objects  # noqa: PLC0415 - likewise
    from weftline.storage.backup import restore  # noqa: PLC0415 - likewise

    async def run() -> Manifest:
        store, clock = connect_objects(target.settings()), SystemClock()
        async with _database(target) as database:
            with _progress("Restoring") as progress:
                return await restore(database, Objects(database, store, clock), file, clock, progress)

    show(_summary(file, asyncio.run(run())), as_json=as_json)


@db.command("sign", params=[JSON])
@click.pass_obj
def sign_layers(target: Target, *, as_json: bool) -> None:
    """Sign the layers and definitions that have no valid signature: after an upgrade, or with a new secret.

    What is stored now is taken for right: check it first. Lines whose hashes are wrong are not signed.
    """
    import weftline.app.line_kinds  # noqa: F401, PLC0415 - registers them; help needs no storage
    from weftline.storage.migrations.runner import migrate  # noqa: PLC0415 - likewise
    from weftline.storage.sql.signature_check import sign_unsigned  # noqa: PLC0415 - likewise

    async def run() -> LayersSigned:
        clock = SystemClock()
        async with _database(target) as database:
            await migrate(database, clock)
            secret = target.settings().signing_secret.encode()
            signed, damaged = await sign_unsigned(database, secret, to_micros(clock.now()))
            return LayersSigned(signed=signed, damaged=[f"{line.tenant}/{line.line_id}" for line in damaged])

    show(asyncio.run(run()), as_json=as_json)


@asynccontextmanager
async def _database(target: Target) -> AsyncIterator[Database]:
    from weftline.storage.sql.database import connect  # noqa: PLC0415 - help needs no storage

    settings = target.settings()
    database = connect(settings.storage_url, settings.database_direct_url)
    try:
        await database.open()
        yield database
    finally:
        await database.close()


@contextmanager
def _progress(label: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show a progress bar in a terminal, and nothing in a pipe or log."""
    if not sys.stderr.isatty():
        yield None
        return
    with click.progressbar(length=0, label=label, file=sys.stderr) as bar:

        def progress(done: int, total: int) -> None:
            bar.length = total
            bar.update(done - bar.pos)

        yield progress


def _summary(file: Path, manifest: Manifest) -> BackupSummary:
    return BackupSummary(
        file=str(file),
        weftline=manifest.weftline,
        created_at=manifest.created_at,
        tables=len(manifest.tables),
        rows=manifest.rows,
        objects=manifest.objects.count,
        object_bytes=manifest.objects.bytes,
        bytes=file.stat().st_size,
        omitted=tuple(manifest.objects.omitted),
    )
