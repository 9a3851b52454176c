"""``weftline doctor`` and ``weftline version``."""

from __future__ import annotations

import asyncio
import platform
from dataclasses import replace
from importlib.metadata import version as version_of
from typing import TYPE_CHECKING

import click

from weftline.kernel.clock import SystemClock
from weftline.kernel.operation import Response
from weftline.transports.cli.base import JSON, Command, OfflineCommand
from weftline.transports.cli.global_options import EVERY, FLAGS, check_once, check_server, given, note_unused_database
from weftline.transports.cli.render import row, show, table

if TYPE_CHECKING:
    from weftline.app.diagnostics import Finding
    from weftline.transports.cli.target import Target

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
    """Versions of Weftline, Python and SQLite."""

    weftline: str
    python: str
    sqlite: str


class DoctorCommand(Command):
    """Command that examines the target without calling operations that change anything."""

    global_options = EVERY - {"turn", "task"}


_DATA_DIR = click.Option(
    ["--data-dir"], help="Data folder, as of weftline serve.  [env var: WEFTLINE_DATA_DIR; default: ~/.weftline]"
)


_WAIT = click.Option(
    ["--wait"],
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="First wait until the server accepts calls, at most this long.",
)


@click.command(cls=DoctorCommand, params=[_DATA_DIR, _WAIT, JSON])
@click.pass_context
def doctor(ctx: click.Context, data_dir: str | None, wait: float | None, *, as_json: bool) -> None:
    """Check what commands would talk to, a server or the data folder, and suggest fixes.

    With --url or WEFTLINE_URL: the server, its version, the key and the clock. Otherwise: Python, disk, database,
    schema, isolation, caller, Valkey, port, clock. Exits with 1 if there is a problem; warnings do not count.
    """
    from weftline.app.diagnostics import CheckStatus  # noqa: PLC0415 - help needs no storage

    target = _target(ctx, data_dir)
    if wait is not None and target.url is None:
        raise click.UsageError("--wait needs a server: give --url or set WEFTLINE_URL.", ctx)
    examined = asyncio.run(_examine_folder(target) if target.url is None else _examine_server(target, wait))
    findings = [_target_of(ctx, target), *examined]
    healthy = all(finding.state is not CheckStatus.PROBLEM for finding in findings)
    checks = [CheckResult(check=f.check, state=f.state, detail=f.detail, next_step=f.next_step) for f in findings]
    if as_json:
        show(Checkup(healthy=healthy, checks=checks), as_json=True)
    else:
        _print(checks, healthy=healthy)
    ctx.exit(0 if healthy else 1)


def _target(ctx: click.Context, data_dir: str | None) -> Target:
    """Return what to examine: the folder that the command names, if it names one."""
    target: Target = ctx.obj
    check_once(ctx, "data_dir")
    if data_dir is None:
        return target
    if target.url is not None:
        check_server(ctx, target.url, [*given(ctx), "data_dir"])
    note_unused_database(data_dir, target.database_url if "database_url" in given(ctx) else None)
    return replace(target, data_dir=data_dir, database_url="")


def _target_of(ctx: click.Context, target: Target) -> Finding:
    """Say what the other commands would talk to, and which option or variable decides it."""
    from weftline.app.diagnostics import CheckStatus, Finding  # noqa: PLC0415 - help needs no storage

    deciding = ("url",) if target.url else ("database_url", "data_dir")
    root = ctx.find_root()
    reasons = {
        "COMMANDLINE": FLAGS,
        "ENVIRONMENT": {
            "url": "WEFTLINE_URL",
            "database_url": "WEFTLINE_DATABASE_URL",
            "data_dir": "WEFTLINE_DATA_DIR",
        },
    }
    sources = [
        (name, source)
        for name in deciding
        if getattr(target, name)
        for source in (ctx.get_parameter_source(name), root.get_parameter_source(name))
    ]
    why = next((reasons[source.name][name] for name, source in sources if source and source.name in reasons), "default")
    return Finding("Target", CheckStatus.OK, f"{target.place} ({why})")


async def _examine_folder(target: Target) -> list[Finding]:
    from weftline.app.diagnostics import CheckStatus  # noqa: PLC0415 - help needs no storage
    from weftline.app.diagnostics.checks import examine  # noqa: PLC0415 - likewise
    from weftline.transports.cli.server_checks import check_caller  # noqa: PLC0415 - likewise

    settings, clock = target.settings(), SystemClock()
    findings = await examine(settings, clock)
    # Without a current schema there is no caller, and the other checks say why.
    if any(finding.check == "Schema" and finding.state is CheckStatus.OK for finding in findings):
        findings.append(await check_caller(settings, target.credential, clock))
    return findings


async def _examine_server(target: Target, wait: float | None) -> list[Finding]:
    from weftline.app.diagnostics.checks import check_packages, check_python  # noqa: PLC0415 - help needs no storage
    from weftline.transports.cli.server_checks import examine_server, wait_until_ready  # noqa: PLC0415 - likewise

    if wait is not None:
        await wait_until_ready(target, wait)
    return [check_python(), check_packages(), *await examine_server(target)]


def _print(checks: list[CheckResult], *, healthy: bool) -> None:
    click.echo(table([row(check) | {"next_step": ""} for check in checks], wrapped="detail"))
    steps = [check for check in checks if check.next_step]
    for check in steps:
        click.echo(f"\n{click.style(check.check, fg=_COLOURS[check.state], bold=True)}: {check.next_step}", nl=False)
    click.echo("\n" + ("Everything works." if healthy and not steps else "\nWeftline can run." if healthy else ""))


@click.command(cls=OfflineCommand, params=[JSON])
def version(*, as_json: bool) -> None:
    """Show the versions of Weftline, Python and SQLite."""
    from apsw import sqlite_lib_version  # noqa: PLC0415 - help needs no storage

    found = VersionInfo(weftline=version_of("weftline"), python=platform.python_version(), sqlite=sqlite_lib_version())
    show(found, as_json=as_json)
