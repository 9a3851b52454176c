"""``weftline console``: a link that signs a browser in, once."""

from __future__ import annotations

import asyncio
import html
import os
import sys
import tempfile
import time
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from weftline.transports.cli.base import Command
from weftline.transports.cli.global_options import EVERY
from weftline.transports.cli.progress import server_packages

if TYPE_CHECKING:
    from weftline.app.app import App
    from weftline.client._client import Client
    from weftline.transports.cli.target import Target

_SECONDS = 300
_PREFIX = "weftline-console-"
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
_PAGE = """<!doctype html>
<meta charset="utf-8"><meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0;url={link}">
<title>Weftline</title><a href="{link}">Sign in</a>
"""


class ConsoleCommand(Command):
    """Command that signs in, on a server or on the data folder."""

    global_options = EVERY - {"turn", "task"}


@click.command(cls=ConsoleCommand)
@click.option("--no-open", is_flag=True, help="Print the link only.")
@click.option(
    "--port",
    type=click.IntRange(1, 65_535),
    help="Port to serve at, if no server runs on the data folder.  [env var: WEFTLINE_PORT; default: 8787]",
)
@click.pass_context
def console(ctx: click.Context, port: int | None, *, no_open: bool) -> None:
    """Open the console in the browser, signed in by a link that works once and for five minutes.

    With --url you are signed in as the owner of your API key. On the data folder you are the admin, or the agent that
    --as names; if no server runs there, one is started and serves until Ctrl-C. The link is printed on standard output:
    open it on any machine that reaches the server.
    """
    target: Target = ctx.obj
    if target.url is not None:
        if port is not None:
            raise click.UsageError("--port is for a server on the data folder; the port of a server is in --url.", ctx)
        _show(asyncio.run(_link_on_server(target)), opens=not no_open)
    else:
        _sign_in_on_data_folder(target, port, opens=not no_open)


def _sign_in_on_data_folder(target: Target, port: int | None, *, opens: bool) -> None:
    from weftline.transports.cli.serve import check_port  # noqa: PLC0415 - help needs no server
    from weftline.transports.server_address import find_server  # noqa: PLC0415 - likewise

    with server_packages("weftline console"):
        from weftline.transports.server import serve  # noqa: PLC0415 - likewise

    settings = target.settings(port=port)
    url = find_server(settings)
    if url is not None:
        _show(asyncio.run(_link_on_data_folder(target, url)), opens=opens)
        return

    async def started(app: App, url: str) -> None:
        link = await _local_link(target, app, url)
        await asyncio.to_thread(_show, link, opens=opens)
        click.echo("Ctrl-C stops the server.", err=True)

    check_port(settings.host, settings.port)
    serve(settings, started=started)


async def _link_on_server(target: Target) -> str:
    from weftline.access.model import parse_key  # noqa: PLC0415 - help needs no operations
    from weftline.kernel.errors import InvalidApiKey  # noqa: PLC0415 - likewise
    from weftline.transports.console.paths import link_to  # noqa: PLC0415 - likewise

    async with target.weftline() as opened:
        client: Client = opened  # type: ignore[assignment]
        caller = await client.agent.capabilities()
        key = target.key or ""
        if parse_key(key) is None:
            raise InvalidApiKey("A link is made with an API key, and this is a token.")
        issued = await client.token.issue(
            caller.agent_id,
            caller.agent_type,
            key,
            requested_permissions=caller.permissions,  # type: ignore[arg-type]
            single_use=True,
        )
        return link_to(target.url or "", issued.token)


async def _link_on_data_folder(target: Target, url: str) -> str:
    from weftline.transports.cli.target import opened  # noqa: PLC0415 - help needs no database

    async with opened(target.settings()) as app:
        return await _local_link(target, app, url)


async def _local_link(target: Target, app: App, url: str) -> str:
    from weftline.app.dispatch import CallContext  # noqa: PLC0415 - help needs no database
    from weftline.transports.console.paths import link_to  # noqa: PLC0415 - likewise

    with server_packages("weftline console"):
        from weftline.transports.console.sign_in import link_token  # noqa: PLC0415 - likewise

    caller = await app.identify(CallContext(target.credential))
    return link_to(url, await link_token(app, caller.tenant, caller.principal_id))


def _show(link: str, *, opens: bool) -> None:
    opens = opens and _open(link)
    what = "Opening the console. If no browser appears, open this link" if opens else "Open this link"
    click.echo(f"{what}; it works once and for five minutes:", err=True)
    click.echo(link)


def _open(link: str) -> bool:
    """Open a link in a browser with a window; False if there is none.

    Other users of the machine see the arguments of a browser, so it gets the name of a file that they cannot read.
    """
    if sys.platform not in {"darwin", "win32"} and not any(os.environ.get(name) for name in _DISPLAYS):
        return False
    _remove_old_files()
    number, name = tempfile.mkstemp(prefix=_PREFIX, suffix=".html")
    with os.fdopen(number, "w") as file:
        file.write(_PAGE.format(link=html.escape(link)))
    return webbrowser.open(Path(name).as_uri())


def _remove_old_files() -> None:
    """Remove files whose links have expired: a browser may need them until then."""
    for file in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*.html"):
        with suppress(OSError):
            if file.stat().st_mtime < time.time() - _SECONDS:
                file.unlink()
