"""``weftline gateway import``: add the MCP servers that a client on this machine is configured with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from weftline.kernel.errors import WeftlineError
from weftline.transports.cli.base import JSON, Command, ask, interactive
from weftline.transports.cli.client_configurations import Found, default_files, read_servers
from weftline.transports.cli.render import escape_controls, show
from weftline.transports.cli.target import InstallationNotFound

if TYPE_CHECKING:
    from weftline.transports.cli.target import Target


class ServerToAdd(msgspec.Struct, omit_defaults=True):
    """A server of a configuration: what happens to it, and why. Of ``variables`` no value is shown."""

    name: str
    file: str
    state: str
    target: str = ""
    variables: dict[str, str] = {}
    reason: str = ""


class ServersImported(msgspec.Struct):
    """The servers of configurations by name."""

    servers: list[ServerToAdd]


@click.command("import", cls=Command, params=[JSON])
@click.argument(
    "path", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path), help="File to read."
)
@click.option("--only", "names", multiple=True, metavar="NAME", help="Add this server only; may be repeated.")
@click.option("--refer", is_flag=True, help="Refer to variables of Weftline's environment in place of storing values.")
@click.option("--yes", "-y", is_flag=True, help="Add them without asking.")
@click.pass_context
def import_servers(
    ctx: click.Context, path: Path | None, names: tuple[str, ...], *, refer: bool, yes: bool, as_json: bool
) -> None:
    """Add the MCP servers of a client: of Claude Desktop and Code, Cursor, VS Code or Codex.

    Without PATH, the files of these clients in this folder and in your home folder are read. Shows what it would add,
    and adds it if you agree or with --yes. Values of variables are stored encrypted; with --refer, the server reads
    those of the same name in its own environment.
    """
    target: Target = ctx.obj
    files = [path] if path else default_files()
    found = _first_of_each_name([each for file in files for each in read_servers(file, refer=refer)])
    known = _known(target)
    plan = [_planned(each, known, names) for each in found]
    wanted = [each for each, shown in zip(found, plan, strict=True) if shown.state == "new"]
    agreed = yes
    if wanted and not yes and not as_json and interactive():
        show(ServersImported(plan), as_json=False, formatter=_render)
        ask(f"Add {len(wanted)} to {target.place}?")
        agreed = True
    if agreed:
        added = {each.name: _add(target, each) for each in wanted}
        plan = [added.get(shown.name, shown) if shown.state == "new" else shown for shown in plan]
    show(ServersImported(plan), as_json=as_json, formatter=_render)
    if wanted and not agreed:
        click.echo("Nothing was added. Repeat the command with --yes.", err=True)
    if any(each.state == "failed" for each in plan):
        ctx.exit(1)


def _known(target: Target) -> set[str]:
    """Return the names that are taken."""
    try:
        return {server.name for server in _call(target, "gateway.list", {}).servers}
    except InstallationNotFound:
        return set()


def _planned(found: Found, known: set[str], names: tuple[str, ...]) -> ServerToAdd:
    state, reason = "new", found.problem
    if reason:
        state = "left out"
    elif names and found.name not in names:
        state, reason = "left out", "it is not named by --only"
    elif found.name in known:
        state, reason = "left out", "the gateway has a server of this name"
    return ServerToAdd(found.name, str(found.file), state, found.target, found.shown_variables(), reason)


def _first_of_each_name(found: list[Found]) -> list[Found]:
    first: dict[str, Found] = {}
    for each in found:
        first.setdefault(each.name, each)
    return list(first.values())


def _add(target: Target, found: Found) -> ServerToAdd:
    shown = ServerToAdd(found.name, str(found.file), "added", found.target, found.shown_variables())
    try:
        info = _call(target, "gateway.add", found.request())
    except WeftlineError as error:
        return msgspec.structs.replace(shown, state="failed", reason=f"{error.code}: {error.message}")
    return msgspec.structs.replace(shown, reason=f"{info.approved} tools")


def _render(imported: ServersImported) -> str:
    lines = []
    for each in imported.servers:
        lines.append(f"{each.name}: {each.state}{f', {each.reason}' if each.reason else ''}")
        lines.append(f"  {each.target or '-'}   ({each.file})")
        lines += [f"  {name}: {shown}" for name, shown in each.variables.items()]
    return (
        escape_controls("\n".join(lines))
        or "No MCP servers are configured in the files of clients that Weftline knows."
    )


def _call(target: Target, operation: str, request: dict[str, Any]) -> Any:  # noqa: ANN401 - the answer
    from weftline.app.registry import all_operations  # noqa: PLC0415 - help needs no operations

    return target.call(all_operations()[operation], request)


COMMANDS: tuple[click.Command, ...] = (import_servers,)
