"""``weft export`` and ``weft import``: bundles of any size, between files and a server or the data folder."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weft.transports.cli.base import JSON, Command
from weft.transports.cli.render import counted, show

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from weft.capabilities.transfer.export import ContextExported
    from weft.capabilities.transfer.importer import ContextImported
    from weft.transports.cli.target import Target

_STANDARD = "-"
# What is known by the ids that work is done under.
_PARTS = {"tool_call_id": "tool_invocation", "turn_id": "turn", "task_id": "task"}
# What tells the scope where it is not said, in this order.
_TELLS = {"recipient": "handoff", "review_id": "review", **_PARTS}
_SCOPES = ("session", "turn", "task", "tool_invocation", "review", "handoff")


@click.command(cls=Command, params=[JSON])
@click.option("--session", "-s", "session_id", envvar="WEFT_SESSION", show_envvar=True, help="The session.")
@click.option("--scope", type=click.Choice(_SCOPES), help="How much; by default what the other options say.")
@click.option("--turn", "turn_id", help="Only what this turn is about.")
@click.option("--task", "task_id", help="Only what this task is about; with --to, only this task is handed over.")
@click.option("--tool-call", "tool_call_id", help="Only what this tool call is about.")
@click.option("--review", "review_id", help="A merge that waits for a decision, or was decided.")
@click.option("--to", "recipient", metavar="AGENT", help="Who takes over: a handoff of what stands now.")
@click.option("--policy", help="The export policy to apply.  [default: your tenant's]")
@click.option(
    "--format", type=click.Choice(["ndjson", "json", "prov"]), default="ndjson", show_default=True, help="The form."
)
@click.option("--history/--no-history", default=None, help="All versions and events, or only what stands now.")
@click.option(
    "--output", "-o", default=_STANDARD, metavar="FILE", help="The file to write.  [default: standard output]"
)
@click.pass_obj
def export(target: Target, /, *, output: str, as_json: bool, **said: Any) -> None:  # noqa: ANN401 - as click hands over
    """Export a session, or what a part of it is about, as one bundle.

    What it holds is what you may read, as far as the policy lets it leave. Its digest is shown on standard error: who
    imports the bundle and knows the digest knows that nothing was altered.
    """
    raw = {name: value for name, value in said.items() if value is not None}
    raw.setdefault("scope", next((scope for name, scope in _TELLS.items() if name in raw), "session"))
    with _output(output) as file:
        told, is_known = asyncio.run(_export(target, raw, file))
    if as_json and output != _STANDARD:
        show(told, as_json=True)
        return
    click.echo(_render_export(told), err=True)
    if not is_known:
        click.echo("Nothing that you may read belongs to it: is the id right?", err=True)


@click.command("import", cls=Command, params=[JSON])
@click.argument("file", metavar="FILE", help="The bundle; - is standard input.")
@click.option("--digest", help="The digest its exporter told you: no other bundle is taken.")
@click.option("--as-session", "session_id", metavar="NAME", help="Open its session under this id instead of its own.")
@click.option("--dry-run", is_flag=True, help="Check everything and say what would be made; change nothing.")
@click.pass_obj
def import_(target: Target, /, *, file: str, digest: str | None, as_json: bool, **said: Any) -> None:  # noqa: ANN401 - as click hands over
    """Import a bundle that this or another Weft exported: all of it, or nothing.

    A session comes with its id, its history, its messages and its events. If there is one of this id already, such as
    an earlier handoff, open this one beside it with --as-session. For admins.
    """
    with _input(file) as bundle:
        told = asyncio.run(_import(target, bundle, expected_digest=digest, **said))
    show(told, as_json=as_json, form=_render_import)


async def _export(target: Target, raw: dict[str, Any], file: BinaryIO) -> tuple[ContextExported, bool]:
    """Export, and tell whether anything is known of the turn, task or tool call that it is about."""
    part = {name: raw[name] for name, scope in _PARTS.items() if scope == raw["scope"] and name in raw}
    async with target.weft() as weft:
        told = await weft.export_to(file, **raw)
        if not part:
            return told, True
        known = await weft.records.list(session_id=raw.get("session_id"), types=["context_event"], limit=1, **part)
        return told, known.has_more or bool(known.records)


async def _import(target: Target, file: BinaryIO, **said: Any) -> ContextImported:  # noqa: ANN401 - as click hands over
    async with target.weft() as weft:
        return await weft.import_from(file, **said)


@contextmanager
def _output(name: str) -> Iterator[BinaryIO]:
    """Open what an export is written to. A file has its name only once it is complete."""
    if name == _STANDARD:
        with _watched(sys.stdout.buffer, "Exporting") as file:
            yield file
        sys.stdout.buffer.flush()
        return
    path = Path(name)
    try:
        handle, part = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise click.BadParameter(f"{name!r} cannot be written: {error.strerror}.", param_hint="--output") from None
    try:
        with open(handle, "wb") as raw, _watched(raw, "Exporting") as file:  # noqa: PTH123 - a handle, not a path
            yield file
        os.replace(part, path)  # noqa: PTH105 - likewise
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


@contextmanager
def _input(name: str) -> Iterator[BinaryIO]:
    if name == _STANDARD:
        # Read more than once, so it needs a place.
        with tempfile.TemporaryFile(prefix="weft-import-") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
            file.seek(0)
            yield file
        return
    try:
        opened = Path(name).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise click.BadParameter(f"{name!r} cannot be read: {error.strerror}.", param_hint="FILE") from None
    with opened as file:
        yield file


class _Watched:
    """A file that tells whoever watches how much of it was written."""

    def __init__(self, file: BinaryIO, label: str) -> None:
        self._file = file
        self._label = label
        self._bytes = 0

    def write(self, chunk: bytes) -> int:
        self._bytes += len(chunk)
        click.echo(f"\r{self._label}: {self._bytes / 2**20:,.1f} MiB", err=True, nl=False)
        return self._file.write(chunk)


@contextmanager
def _watched(file: BinaryIO, label: str) -> Iterator[Any]:
    """Show how far it is to whoever watches; a pipe or log is shown nothing."""
    if not sys.stderr.isatty():
        yield file
        return
    yield _Watched(file, label)
    click.echo(err=True)


def _render_export(told: ContextExported) -> str:
    kept_back = [f"{number} {what}" for number, what in ((told.masked, "masked"), (told.omitted, "left out")) if number]
    by_policy = f" ({', '.join(kept_back)} by the policy {told.policy})" if kept_back else ""
    size = f"{counted(told.records, 'record')}, {counted(told.bytes, 'byte')}"
    return f"{told.bundle_id}: {size}{by_policy}\n{told.digest}"


def _render_import(told: ContextImported) -> str:
    if told.unchanged:
        return f"{told.bundle_id} was imported before; nothing changed."
    counts = {
        "version": told.versions,
        "message": told.messages,
        "event": told.events,
        "snapshot": told.snapshots,
        "record": told.records,
    }
    made = ", ".join(counted(number, what) for what, number in counts.items() if number) or "nothing"
    where = f" into the session {told.session_id}" if told.session_id else ""
    skipped = f" {told.skipped} were here already." if told.skipped else ""
    return f"{'Would import' if told.dry_run else 'Imported'} {made}{where}.{skipped}"
