"""``weftline export`` and ``weftline import``: bundles of any size as files."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weftline.transports.cli.base import JSON, Command
from weftline.transports.cli.completion import complete_name
from weftline.transports.cli.formatters.transfer import render_export, render_import
from weftline.transports.cli.render import show

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from weftline.exchange.transfer.export import ContextExported
    from weftline.exchange.transfer.importer import ContextImported
    from weftline.transports.cli.target import Target

_STANDARD = "-"
# Scope that each correlation id selects.
_SCOPE_OF_ID = {"tool_call_id": "tool_invocation", "turn_id": "turn", "task_id": "task"}
# Scope that each option implies without --scope; the first one given wins.
_IMPLIED_SCOPES = {"recipient": "handoff", "review_id": "review", **_SCOPE_OF_ID}
_SCOPES = ("session", "turn", "task", "tool_invocation", "review", "handoff")


@click.command(cls=Command, params=[JSON])
@click.option(
    "--session",
    "-s",
    "session_id",
    envvar="WEFTLINE_SESSION",
    show_envvar=True,
    shell_complete=complete_name,
    help="Session to export.",
)
@click.option("--scope", type=click.Choice(_SCOPES), help="What to export.  [default: implied by the other options]")
@click.option("--turn", "turn_id", help="Only this turn.")
@click.option("--task", "task_id", help="Only this task; with --to, hand over only this task.")
@click.option("--tool-call", "tool_call_id", help="Only this tool call.")
@click.option("--review", "review_id", help="A merge review, open or decided.")
@click.option(
    "--to",
    "recipient",
    metavar="AGENT",
    shell_complete=complete_name,
    help="Agent that takes over: a handoff of the current state.",
)
@click.option("--policy", help="Export policy.  [default: that of the tenant]")
@click.option(
    "--format", type=click.Choice(["ndjson", "json", "prov"]), default="ndjson", show_default=True, help="File format."
)
@click.option("--history/--no-history", default=None, help="All versions and events, or only the current state.")
@click.option("--output", "-o", default=_STANDARD, metavar="FILE", help="File to write.  [default: standard output]")
@click.pass_obj
def export(target: Target, /, *, output: str, as_json: bool, **options: Any) -> None:  # noqa: ANN401 - of several types
    """Export a session, or a part of it, as one bundle.

    The bundle holds what you may read and the policy allows. Its digest is printed on standard error: pass it to
    weftline import to verify that the bundle was not altered.
    """
    if as_json and output == _STANDARD:
        raise click.UsageError("--json needs --output: standard output is the bundle.")
    request = {name: value for name, value in options.items() if value is not None}
    request.setdefault("scope", next((scope for name, scope in _IMPLIED_SCOPES.items() if name in request), "session"))
    with _output(output, target.settings().partial_files_journal) as file:
        exported, is_known = asyncio.run(_export(target, request, file))
    if as_json:
        show(exported, as_json=True)
        return
    click.echo(render_export(exported), err=True)
    if not is_known:
        click.echo("No event that you may read has this id: check the id.", err=True)


@click.command("import", cls=Command, params=[JSON])
@click.argument("file", metavar="FILE", help="Bundle to import; - is standard input.")
@click.option("--digest", help="Expected digest: a bundle with another one is refused.")
@click.option("--as-session", "session_id", metavar="NAME", help="Import the session under this id.")
@click.option("--dry-run", is_flag=True, help="Validate and show what would be imported; change nothing.")
@click.pass_obj
def import_(target: Target, /, *, file: str, digest: str | None, as_json: bool, **options: Any) -> None:  # noqa: ANN401 - of several types
    """Import a bundle that this or another Weftline exported: all of it, or nothing.

    A session keeps its id, history, messages and events. If the id is taken, such as by an earlier handoff, import it
    under another one with --as-session. For admins.
    """
    with _input(file) as bundle:
        imported = asyncio.run(_import(target, bundle, expected_digest=digest, **options))
    show(imported, as_json=as_json, formatter=render_import)


async def _export(target: Target, request: dict[str, Any], file: BinaryIO) -> tuple[ContextExported, bool]:
    """Export, and return whether any event has the turn, task or tool call id."""
    ids = {name: request[name] for name, scope in _SCOPE_OF_ID.items() if scope == request["scope"] and name in request}
    async with target.weftline(reads=True) as weftline:
        exported = await weftline.export_to(file, **request)
        if not ids:
            return exported, True
        session_id = request.get("session_id")
        known = await weftline.records.list(session_id=session_id, types=["context_event"], limit=1, **ids)
        return exported, known.has_more or bool(known.records)


async def _import(target: Target, file: BinaryIO, **options: Any) -> ContextImported:  # noqa: ANN401 - of several types
    async with target.weftline() as weftline:
        return await weftline.import_from(file, **options)


@contextmanager
def _output(name: str, journal: Path) -> Iterator[BinaryIO]:
    """Open the output; a file gets its name only when it is complete."""
    if name == _STANDARD:
        with _with_progress(sys.stdout.buffer, "Exporting") as file:
            yield file
        sys.stdout.buffer.flush()
        return
    from weftline.storage.partial_files import partial_file  # noqa: PLC0415 - help needs no storage

    with ExitStack() as stack:
        try:
            raw = stack.enter_context(partial_file(Path(name), journal))
        except OSError as error:
            raise click.BadParameter(f"{name!r} cannot be written: {error.strerror}.", param_hint="--output") from None
        with _with_progress(raw, "Exporting") as file:
            yield file


@contextmanager
def _input(name: str) -> Iterator[BinaryIO]:
    if name == _STANDARD:
        # Read more than once, so it must be seekable.
        with tempfile.TemporaryFile(prefix="weftline-import-") as file:
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


class _ProgressFile:
    """File that prints the number of bytes written."""

    def __init__(self, file: BinaryIO, label: str) -> None:
        self._file = file
        self._label = label
        self._bytes = 0

    def write(self, chunk: bytes) -> int:
        self._bytes += len(chunk)
        click.echo(f"\r{self._label}: {self._bytes / 2**20:,.1f} MiB", err=True, nl=False)
        return self._file.write(chunk)


@contextmanager
def _with_progress(file: BinaryIO, label: str) -> Iterator[Any]:
    """Show progress in a terminal, and nothing in a pipe or log."""
    if not sys.stderr.isatty():
        yield file
        return
    yield _ProgressFile(file, label)
    click.echo(err=True)
