"""``weft records validate``: records in files, checked without a server or a database."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from weft.kernel.operation import Response
from weft.transports.cli.base import JSON, Command
from weft.transports.cli.errors import FAILED
from weft.transports.cli.render import counted, harmless, show
from weft.transports.cli.resolve import resolve

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.capabilities.records.operations import RecordSchema
    from weft.capabilities.records.validation import ValidationReport

_STANDARD_INPUT = "-"
_IS_PROV = "is PROV-JSON, which holds no records; what is exported as ndjson or json can be checked"


class FileProblem(Response):
    """What is wrong in a file, and where."""

    line: int
    path: str
    reason: str


class FileChecked(Response, omit_defaults=False):
    """What one file holds."""

    file: str
    valid: bool
    records: int
    problems: list[FileProblem]


class FilesChecked(Response, omit_defaults=False):
    """What all files hold."""

    valid: bool
    files: list[FileChecked]


@click.command(cls=Command, params=[JSON])
@click.argument("files", nargs=-1, required=True, metavar="FILE...", help="Files to check; - is standard input.")
@click.pass_context
def validate(ctx: click.Context, *, files: tuple[str, ...], as_json: bool) -> None:
    """Check files of records, and bundles, against their schemas.

    A file holds one record, a JSON array of them, or one a line; or it is a bundle of 'weft export', which is checked
    for what was altered as well. This needs no server and no database, and exits with 1 if anything is wrong in any
    file.
    """
    checked = [_checked_file(name) for name in files]
    answer = FilesChecked(valid=all(file.valid for file in checked), files=checked)
    show(answer, as_json=as_json, form=_render)
    ctx.exit(0 if answer.valid else FAILED)


def _checked_file(name: str) -> FileChecked:
    try:
        document = sys.stdin.buffer.read() if name == _STANDARD_INPUT else Path(name).read_bytes()
    except (OSError, ValueError) as error:
        unread = FileProblem(line=1, path="$", reason=f"cannot be read: {getattr(error, 'strerror', None) or error}")
        return FileChecked(file=name, valid=False, records=0, problems=[unread])
    checked = _check(document)
    problems = [FileProblem(line=line, path=path, reason=reason) for line, path, reason in checked.problems]
    return FileChecked(file=name, valid=not problems, records=checked.records, problems=problems)


def _check(document: bytes) -> ValidationReport:
    from weft.capabilities.records.validation import Problem, ValidationReport, check_document  # noqa: PLC0415 - likewise
    from weft.capabilities.transfer.bundle_format import is_bundle  # noqa: PLC0415 - help needs no record types
    from weft.capabilities.transfer.prov_json import is_prov  # noqa: PLC0415 - likewise
    from weft.capabilities.transfer.validate_bundle import check_bundle  # noqa: PLC0415 - likewise

    if is_prov(document):
        return ValidationReport(0, [Problem(1, "$", _IS_PROV)])
    return check_bundle(document) if is_bundle(document) else check_document(document)


def _render(answer: FilesChecked) -> str:
    return "\n".join(_render_file(file) for file in answer.files)


def _render_file(file: FileChecked) -> str:
    name = harmless(file.file)
    if file.valid:
        return f"{name}: {click.style('ok', fg='green')} ({counted(file.records, 'record')})"
    return "\n".join(
        f"{name}:{problem.line} {click.style(harmless(problem.path), bold=True)}: {harmless(problem.reason)}"
        for problem in file.problems
    )


def _render_schema(answer: RecordSchema) -> str:
    return msgspec.json.format(msgspec.json.encode(answer.schema)).decode()


# Commands of the derived group that are written by hand.
COMMANDS: tuple[click.Command, ...] = (validate, resolve)
# Which operations' answers are shown in a form of their own.
FORMS: dict[str, Callable[[Any], str]] = {"records.schema": _render_schema}
