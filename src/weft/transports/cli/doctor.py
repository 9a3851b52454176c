"""``weft doctor`` and ``weft version``."""

from __future__ import annotations

import asyncio
import platform
from importlib.metadata import version as version_of
from typing import TYPE_CHECKING

import click

from weft.kernel.clock import SystemClock
from weft.kernel.operation import Response
from weft.transports.cli.base import JSON, Command
from weft.transports.cli.render import row, show, table

if TYPE_CHECKING:
    from weft.transports.cli.target import Target

_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


class CheckResult(Response, omit_defaults=False):
    """Result of one check."""

    check: str
    state: str
    detail: str
    next_step: str


class Checkup(Response, omit_defaults=False):
    """Results of all checks."""

    healthy: bool
    checks: list[CheckResult]


class VersionInfo(Response):
    """Versions of Weft, Python and SQLite."""

    weft: str
    python: str
    sqlite: str


@click.command(cls=Command, params=[JSON])
@click.pass_context
def doctor(ctx: click.Context, *, as_json: bool) -> None:
    """Check this installation and suggest fixes: Python, disk, database, schema, isolation, Valkey, port, clock.

    Exits with 1 if there is a problem; warnings do not count.
    """
    from weft.app.diagnostics import CheckStatus  # noqa: PLC0415 - likewise
    from weft.app.diagnostics.checks import examine  # noqa: PLC0415 - help needs no storage

    target: Target = ctx.obj
    findings = asyncio.run(examine(target.settings(), SystemClock()))
    healthy = all(finding.state is not CheckStatus.PROBLEM for finding in findings)
    checks = [CheckResult(check=f.check, state=f.state, detail=f.detail, next_step=f.next_step) for f in findings]
    if as_json:
        show(Checkup(healthy=healthy, checks=checks), as_json=True)
    else:
        _print(checks, healthy=healthy)
    ctx.exit(0 if healthy else 1)


def _print(checks: list[CheckResult], *, healthy: bool) -> None:
    click.echo(table([row(check) | {"next_step": ""} for check in checks]))
    steps = [check for check in checks if check.next_step]
    for check in steps:
        click.echo(f"\n{click.style(check.check, fg=_COLOURS[check.state], bold=True)}: {check.next_step}", nl=False)
    click.echo("\n" + ("Everything works." if healthy and not steps else "\nWeft can run." if healthy else ""))


@click.command(cls=Command, params=[JSON])
def version(*, as_json: bool) -> None:
    """Show the versions of Weft, Python and SQLite."""
    from apsw import sqlite_lib_version  # noqa: PLC0415 - help needs no storage

    found = VersionInfo(weft=version_of("weft"), python=platform.python_version(), sqlite=sqlite_lib_version())
    show(found, as_json=as_json)
