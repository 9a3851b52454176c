"""Running Weft: the server, MCP over standard input and output, and the demo."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import click

from weft.kernel.errors import Unavailable
from weft.kernel.trace_context import correlated
from weft.transports.cli.base import Command

if TYPE_CHECKING:
    from weft.settings import Settings
    from weft.transports.cli.target import Target
    from weft.transports.mcp.http import Profile


class CannotListen(Unavailable):
    """The server's address and port cannot be had: most often another program has them."""

    code = "CANNOT_LISTEN"
    hint = "Nothing was changed. Choose another port with --port or WEFT_PORT."


@click.command(cls=Command)
@click.option("--host", help="Address to listen on.  [env var: WEFT_HOST; default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65_535), help="Port to listen on.  [env var: WEFT_PORT; default: 8787]")
@click.option("--data-dir", help="The data folder.  [env var: WEFT_DATA_DIR; default: ~/.weft]")
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
    target: Target, host: str | None, port: int | None, data_dir: str | None, database_url: str | None, profile: str
) -> None:
    """Run the server: MCP and REST on one port.

    Stops on Ctrl-C or SIGTERM after letting calls in flight finish. Further settings come from WEFT_ variables.
    """
    from weft.transports.server import serve as run  # noqa: PLC0415 - help needs no server

    settings = target.settings(host=host, port=port, data_dir=data_dir, database_url=database_url)
    _check_port(settings)
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

    principal = principal or target.principal or "admin"
    run(target.settings(), tenant=target.tenant, principal=principal, session=session, during=correlated(target.ids()))


@click.command(cls=Command)
@click.option("--stay", is_flag=True, help="Keep the session and the server afterwards, to look around.")
@click.option("--port", type=click.IntRange(1, 65_535), help="Port for the demo's server.  [env var: WEFT_PORT]")
@click.option("--data-dir", help="The data folder to keep it in, with --stay.  [env var: WEFT_DATA_DIR]")
@click.pass_obj
def demo(target: Target, port: int | None, data_dir: str | None, *, stay: bool) -> None:
    """See a team of agents work together on one board, in half a minute.

    Without --stay nothing is kept: the demo runs in a folder of its own, which it removes.
    """
    from weft.demo import run  # noqa: PLC0415 - help needs no demo

    settings = target.settings(port=port, data_dir=data_dir)
    _check_port(settings)
    run(settings, stay=stay)


def _check_port(settings: Settings) -> None:
    """Refuse a port that cannot be had before anything is made that would be left behind."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            # As a server does it, so that connections just closed do not count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        where = f"{settings.host}:{settings.port}"
        raise CannotListen(f"Weft cannot listen on {where}: {error.strerror or error}.") from error
