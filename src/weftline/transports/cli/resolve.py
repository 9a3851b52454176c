"""``weftline records resolve``: find a cited passage in a file or in the stored source."""

from __future__ import annotations

import mimetypes
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from weftline.kernel.errors import InvalidInput
from weftline.transports.cli import global_options
from weftline.transports.cli.base import JSON, Command
from weftline.transports.cli.completion import complete_name
from weftline.transports.cli.errors import FAILED
from weftline.transports.cli.formatters.records import render_resolution
from weftline.transports.cli.params import Json
from weftline.transports.cli.render import show

if TYPE_CHECKING:
    from weftline.records.resolution import PassageResolution
    from weftline.transports.cli.target import Target

_STANDARD_INPUT = "-"


@click.command(cls=Command, params=[JSON], short_help="Find the cited passage in the current content of its source.")
@click.argument(
    "ref", required=False, help="A file with a source ref (- is standard input), or the id of one recorded."
)
@click.option("--source-id", help="The id of a source ref that was recorded.")
@click.option("--source-ref", type=Json(), help="Source ref as JSON, @FILE or -.")
@click.option(
    "--session",
    "-s",
    "session_id",
    envvar="WEFTLINE_SESSION",
    show_envvar=True,
    shell_complete=complete_name,
    help="Session of the source ref, if it must be checked.",
)
@click.option("--against", metavar="FILE", help="Current content of the source.  [default: the stored content]")
@click.option("--media-type", help="Its media type, such as text/html.  [default: from the file name]")
@click.pass_context
def resolve(
    ctx: click.Context,
    *,
    ref: str | None,
    source_id: str | None,
    source_ref: Any,  # noqa: ANN401 - any JSON; the operation validates it
    session_id: str | None,
    against: str | None,
    media_type: str | None,
    as_json: bool,
) -> None:
    """Find the cited passage in the current content of its source: exact, moved or lost.

    With a source ref and --against, it needs no server and no database. Exits with 1 if the passage is lost.
    """
    if sum(each is not None for each in (ref, source_id, source_ref)) != 1:
        raise click.UsageError("Give one of REF, --source-id and --source-ref.", ctx)
    if ref is not None and (ref == _STANDARD_INPUT or Path(ref).exists()):
        source_ref = _json_in(ref)
    media_type = media_type or (None if against is None else mimetypes.guess_type(against)[0])
    if source_ref is not None and against is not None:
        global_options.check(ctx, global_options.NONE)
        if global_options.on_command_line(ctx, "session_id"):
            raise click.UsageError("--session has no effect on a source ref and a file that you give.", ctx)
        answer = _offline(source_ref, _read(against), media_type)
    else:
        request = {
            "source_id": (source_id or ref) if source_ref is None else None,
            "source_ref": source_ref,
            "against": None if against is None else _text(_read(against)),
            "media_type": media_type,
            "session_id": session_id,
        }
        answer = _call(ctx.obj, {name: value for name, value in request.items() if value is not None})
    show(answer, as_json=as_json, formatter=render_resolution)
    ctx.exit(FAILED if answer.outcome == "lost" else 0)


def _offline(source_ref: Any, content: bytes, media_type: str | None) -> PassageResolution:  # noqa: ANN401 - any JSON
    from weftline.records import ContextSourceRef, InvalidRecord, check_record  # noqa: PLC0415 - help needs no record types
    from weftline.records import resolve as find  # noqa: PLC0415

    try:
        record = check_record(msgspec.json.encode(source_ref), ContextSourceRef.type)
    except InvalidRecord as error:
        raise InvalidInput(f"source_ref{error.path.removeprefix('$')}: {error.reason}") from None
    assert isinstance(record, ContextSourceRef)  # noqa: S101 - checked as this type
    return find(record, content, media_type)


def _call(target: Target, request: dict[str, Any]) -> Any:  # noqa: ANN401 - the answer
    from weftline.app.registry import all_operations  # noqa: PLC0415 - help needs no operations

    return target.call(all_operations()["records.resolve"], request)


def _json_in(name: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return msgspec.json.decode(_read(name))
    except (ValueError, RecursionError):
        raise InvalidInput("source_ref: is not JSON", field="source_ref") from None


def _read(name: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if name == _STANDARD_INPUT else Path(name).read_bytes()
    except (OSError, ValueError) as error:
        raise click.UsageError(f"'{name}' cannot be read: {getattr(error, 'strerror', None) or error}.") from None


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise InvalidInput("against: is not UTF-8 text", field="against") from None
