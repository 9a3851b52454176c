"""``weftline records validate``: check files of records without a server or database."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from weftline.kernel.operation import Response
from weftline.transports.cli.base import JSON, OfflineCommand
from weftline.transports.cli.errors import FAILED
from weftline.transports.cli.formatters.records import render_validation
from weftline.transports.cli.render import show
from weftline.transports.cli.resolve import resolve

if TYPE_CHECKING:
    from weftline.records.validation import ValidationReport

_STANDARD_INPUT = "-"
_IS_PROV = "is PROV-JSON, which holds no records; validate an export in the format ndjson or json instead"


class FileProblem(Response):
    """Problem in a file."""

    line: int
    path: str
    reason: str


class FileReport(Response, omit_defaults=False):
    """Validation of one file."""

    file: str
    valid: bool
    records: int
    problems: list[FileProblem]


class ValidationSummary(Response, omit_defaults=False):
    """Validation of all files."""

    valid: bool
    files: list[FileReport]


@click.command(cls=OfflineCommand, params=[JSON])
@click.argument("files", nargs=-1, required=True, metavar="FILE...", help="Files to validate; - is standard input.")
@click.pass_context
def validate(ctx: click.Context, *, files: tuple[str, ...], as_json: bool) -> None:
    """Validate files of records, and bundles, against their schemas.

    A file holds one record, a JSON array of records, or NDJSON; or it is a bundle of 'weftline export', whose digests
    are verified too. Needs no server and no database. Exits with 1 if any file is invalid.
    """
    checked = [_validated(name) for name in files]
    answer = ValidationSummary(valid=all(file.valid for file in checked), files=checked)
    show(answer, as_json=as_json, formatter=render_validation)
    ctx.exit(0 if answer.valid else FAILED)


def _validated(name: str) -> FileReport:
    try:
        document = sys.stdin.buffer.read() if name == _STANDARD_INPUT else Path(name).read_bytes()
    except (OSError, ValueError) as error:
        unread = FileProblem(line=1, path="$", reason=f"cannot be read: {getattr(error, 'strerror', None) or error}")
        return FileReport(file=name, valid=False, records=0, problems=[unread])
    checked = _check(document)
    problems = [FileProblem(line=line, path=path, reason=reason) for line, path, reason in checked.problems]
    return FileReport(file=name, valid=not problems, records=checked.records, problems=problems)


def _check(document: bytes) -> ValidationReport:
    from weftline.exchange.transfer.bundle_format import is_bundle  # noqa: PLC0415 - help needs no record types
    from weftline.exchange.transfer.prov_json import is_prov  # noqa: PLC0415 - likewise
    from weftline.exchange.transfer.validate_bundle import check_bundle  # noqa: PLC0415 - likewise
    from weftline.records.validation import Problem, ValidationReport, check_document  # noqa: PLC0415 - likewise

    if is_prov(document):
        return ValidationReport(0, [Problem(1, "$", _IS_PROV)])
    return check_bundle(document) if is_bundle(document) else check_document(document)


COMMANDS: tuple[click.Command, ...] = (validate, resolve)
