"""Running Weft: the server, MCP over standard input and output, and the demo."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from weft.transports.cli.commands import Command

if TYPE_CHECKING:
    from weft.transports.cli.target import Target
    from weft.transports.mcp.http import Profile


@click.command(cls=Command)
@click.option("--host", help="Address to listen on.  [env var: WEFT_HOST; default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65_535), help="Port to listen on.  [env var: WEFT_PORT; default: 8787]")
@click.option("--data", help="The data folder.  [env var: WEFT_DATA; default: ~/.weft]")
@click.option("--database-url", help="A SQLite file or postgresql:// instead.  [env var: WEFT_DATABASE_URL]")
@click.option(
    "--profile",
    type=click.Choice(["default", "conformance"]),
    default="default",
    show_default=True,
    help="What to serve: the product, or what the MCP conformance suite expects.",
)
@click.pass_obj
def serve(
    target: Target, host: str | None, port: int | None, data: str | None, database_url: str | None, profile: str
) -> None:
    """Run the server: MCP and REST on one port.

    Stops on Ctrl-C or SIGTERM after letting calls in flight finish. Further settings come from WEFT_ variables.
    """
    from weft.transports.server import serve as run  # noqa: PLC0415 - help needs no server

    settings = target.settings(host=host, port=port, data=data, database_url=database_url)
    run(settings, profile=_conformance() if profile == "conformance" else None)


def _conformance() -> Profile:
    from weft.testing.conformance import install  # noqa: PLC0415 - only for the suite

    return install


@click.command(cls=Command)
@click.option("--as", "principal", help="The agent to act as.  [default: what weft --as says]")
@click.option("--session", "-s", envvar="WEFT_SESSION", show_envvar=True, help="Work in this session only.")
@click.pass_obj
def mcp(target: Target, principal: str | None, session: str | None) -> None:
    """Serve MCP over standard input and output, for an editor or agent that starts it.

    It works on the data folder. weft init writes the configuration that starts it.
    """
    from weft.transports.stdio import run  # noqa: PLC0415 - help needs no server

    run(target.settings(), tenant=target.tenant, principal=principal or target.principal or "admin", session=session)


@click.command(cls=Command)
@click.option("--stay", is_flag=True, help="Keep the session and the server afterwards, to look around.")
@click.option("--port", type=click.IntRange(1, 65_535), help="Port for the demo's server.  [env var: WEFT_PORT]")
@click.option("--data", help="The data folder to keep it in, with --stay.  [env var: WEFT_DATA]")
@click.pass_obj
def demo(target: Target, port: int | None, data: str | None, *, stay: bool) -> None:
    """See a team of agents work together on one board, in half a minute.

    Without --stay nothing is kept: the demo runs in a folder of its own, which it removes.
    """
    from weft.demo import run  # noqa: PLC0415 - help needs no demo

    run(target.settings(port=port, data=data), stay=stay)
