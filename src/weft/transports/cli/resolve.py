"""``weft records resolve``: what became of a passage, looked for in a file or in what Weft keeps."""

from __future__ import annotations

import mimetypes
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from weft.kernel.errors import InvalidInput
from weft.transports.cli.base import JSON, Command
from weft.transports.cli.errors import FAILED
from weft.transports.cli.params import Json
from weft.transports.cli.render import block, harmless, indent, show

if TYPE_CHECKING:
    from weft.capabilities.records.resolution import PassageResolution
    from weft.transports.cli.target import Target

_STANDARD_INPUT = "-"
_COLOURS = {"exact": "green", "moved": "yellow", "lost": "red"}


@click.command(
    cls=Command, params=[JSON], short_help="Find the passage that a source ref means in what its source says now."
)
@click.argument(
    "ref", required=False, help="A file with a source ref (- is standard input), or the id of one recorded."
)
@click.option("--source-id", help="The id of a source ref that was recorded.")
@click.option("--source-ref", type=Json(), help="A source ref itself. Given as JSON, @FILE or -.")
@click.option(
    "--session",
    "-s",
    "session_id",
    envvar="WEFT_SESSION",
    show_envvar=True,
    help="The session it belongs to; only needed to be sure of that.",
)
@click.option("--against", metavar="FILE", help="What the source says now; what Weft keeps of it if left out.")
@click.option("--media-type", help="What that is, such as text/html; told by the file's name if left out.")
@click.pass_context
def resolve(
    ctx: click.Context,
    *,
    ref: str | None,
    source_id: str | None,
    source_ref: Any,  # noqa: ANN401 - any JSON; what it must be is the operation's to say
    session_id: str | None,
    against: str | None,
    media_type: str | None,
    as_json: bool,
) -> None:
    """Find the passage that a source ref means in what its source says now: exact, moved or lost.

    Given the ref itself and --against, it needs no server and no database. Exits with 1 if the passage is lost.
    """
    if sum(each is not None for each in (ref, source_id, source_ref)) != 1:
        raise click.UsageError("Give one of REF, --source-id and --source-ref.", ctx)
    if ref is not None and (ref == _STANDARD_INPUT or Path(ref).exists()):
        source_ref = _json_in(ref)
    media_type = media_type or (None if against is None else mimetypes.guess_type(against)[0])
    if source_ref is not None and against is not None:
        answer = _offline(source_ref, _read(against), media_type)
    else:
        named = {"source_id": source_id or ref} if source_ref is None else {"source_ref": source_ref}
        now = None if against is None else _text(_read(against))
        said = {"against": now, "media_type": media_type, "session_id": session_id}
        answer = _asked(ctx.obj, {**named, **{name: value for name, value in said.items() if value is not None}})
    show(answer, as_json=as_json, form=render_resolution)
    ctx.exit(FAILED if answer.outcome == "lost" else 0)


def _offline(told: Any, content: bytes, media_type: str | None) -> PassageResolution:  # noqa: ANN401 - any JSON
    from weft.records import ContextSourceRef, Misfit, check_record  # noqa: PLC0415 - help needs no record types
    from weft.records import resolve as find  # noqa: PLC0415

    try:
        record = check_record(msgspec.json.encode(told), ContextSourceRef.type)
    except Misfit as error:
        raise InvalidInput(f"source_ref{error.path.removeprefix('$')}: {error.reason}") from None
    assert isinstance(record, ContextSourceRef)  # noqa: S101 - of the type that was asked for
    return find(record, content, media_type)


def _asked(target: Target, raw: dict[str, Any]) -> Any:  # noqa: ANN401 - the operation's answer
    from weft.app.registry import all_operations  # noqa: PLC0415 - help needs no operations

    return target.call(all_operations()["records.resolve"], raw)


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


def render_resolution(found: PassageResolution) -> str:
    """Return what became of a passage, for people."""
    told = {
        "found by": "" if found.found_by is None else found.found_by,
        "was": _place(found.was),
        "now": _place(found.now),
        "alike": "" if found.outcome == "lost" else f"{found.likeness:.0%}",
        "confidence": "" if found.outcome == "lost" else f"{found.confidence:.0%}",
        "source": {True: "unchanged", False: "changed", None: ""}[found.source_unchanged],
    }
    title = f"{click.style(found.outcome, fg=_COLOURS[found.outcome], bold=True)}: {harmless(found.reason)}"
    lines = [title, indent(block({name: text for name, text in told.items() if text}))]
    if found.text:
        lines += ["", indent(harmless(found.text))]
    return "\n".join(lines)


def _place(selector: Any) -> str:  # noqa: ANN401 - a selector of whatever kind
    return "" if selector is None else harmless(msgspec.json.encode(selector).decode())
