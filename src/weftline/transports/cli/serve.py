"""``weftline serve``, ``weftline proxy``, ``weftline wrap``, ``weftline mcp`` and ``weftline demo``."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import click

from weftline.access.steps import parse_tool_profile
from weftline.kernel.correlation import make_correlation
from weftline.kernel.errors import Unavailable
from weftline.transports.cli.base import Command, DataFolderCommand
from weftline.transports.cli.completion import complete_name
from weftline.transports.cli.global_options import DATA_FOLDER, FLAGS, check_once, given, note_unused_database
from weftline.transports.cli.progress import server_packages
from weftline.transports.cli.text_params import Url

if TYPE_CHECKING:
    from weftline.transports.cli.target import Target


class CannotListen(Unavailable):
    """The address and port are not available, usually because another program uses them."""

    code = "CANNOT_LISTEN"
    hint = "Nothing was changed. Choose another port with --port or WEFTLINE_PORT."


class ServerCommand(Command):
    """Command that runs a server on the data folder."""

    global_options = DATA_FOLDER


class ProxyCommand(DataFolderCommand):
    """Command that runs the model proxy for one agent of the data folder."""

    global_options = DATA_FOLDER | {"tenant", "principal"}


class McpCommand(DataFolderCommand):
    """Command that serves one agent on the data folder."""

    global_options = DATA_FOLDER | {"tenant", "principal", "turn", "task"}


@click.command(cls=ServerCommand)
@click.option("--host", help="Address to listen on.  [env var: WEFTLINE_HOST; default: 127.0.0.1]")
@click.option(
    "--port", type=click.IntRange(0, 65_535), help="Port to listen on.  [env var: WEFTLINE_PORT; default: 8787]"
)
@click.option("--data-dir", help="Data folder.  [env var: WEFTLINE_DATA_DIR; default: ~/.weftline]")
@click.option(
    "--database-url",
    type=Url(),
    help="SQLite file or postgresql:// URL without a password instead.  [env var: WEFTLINE_DATABASE_URL]",
)
@click.pass_context
def serve(
    ctx: click.Context, host: str | None, port: int | None, data_dir: str | None, database_url: str | None
) -> None:
    """Run the server: MCP and REST on one port.

    On Ctrl-C or SIGTERM, calls in flight finish first. Other settings come from WEFTLINE_ variables.
    """
    with server_packages("weftline serve"):
        from weftline.transports.server import serve as run  # noqa: PLC0415 - help needs no server

    check_once(ctx, "data_dir")
    check_once(ctx, "database_url")
    note_unused_database(data_dir, database_url)
    target: Target = ctx.obj
    settings = target.settings(host=host, port=port, data_dir=data_dir, database_url=database_url)
    check_port(settings.host, settings.port)
    run(settings)


_mode = click.option(
    "--mode",
    type=click.Choice(["observe", "trim", "full"]),
    help="What may be changed in requests: nothing, large new results of tools, or also layers and what the task needs "
    "added.  [env var: WEFTLINE_PROXY_MODE; default: the settings of the agent, trim]",
)


@click.command(cls=ProxyCommand)
@click.option(
    "--port", type=click.IntRange(0, 65_535), help="Port to listen on.  [env var: WEFTLINE_PROXY_PORT; default: 8788]"
)
@_mode
@click.pass_context
def proxy(ctx: click.Context, port: int | None, mode: str | None) -> None:
    """Forward the model calls of your agents, and show what each costs.

    It prints variables that lead the SDKs of Anthropic, OpenAI and Gemini, and programs that use them, to it. Requests
    and answers are forwarded byte for byte, to the provider with the key that your program sends. If the data folder
    has a database, calls are metered, conversations recorded, and large results of tools shortened, as --mode says.
    Each call is shown with its tokens, those from the provider's cache, its cost, and what was saved.
    """
    with server_packages("weftline proxy"):
        from weftline.transports.proxy.server import HOST, serve_proxy  # noqa: PLC0415 - help needs no server

    from weftline.models.language_models.chat_model import ChatCaller  # noqa: PLC0415 - likewise

    target: Target = ctx.obj
    settings = target.settings(proxy_port=port, proxy_mode=mode)
    check_port(HOST, settings.proxy_port)
    serve_proxy(settings, ChatCaller(target.tenant, target.principal or "admin"))


@click.command(cls=ProxyCommand, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument(
    "command",
    nargs=-1,
    required=True,
    type=click.UNPROCESSED,
    metavar="PROGRAM [ARGUMENTS]...",
    help="The program, and what it is started with.",
)
@_mode
@click.pass_context
def wrap(ctx: click.Context, command: tuple[str, ...], mode: str | None) -> None:
    """Start a program with a model proxy of its own, and say at its end what its model calls used.

    Variables lead the program to the proxy; codex and opencode also by options of their own. If its environment named
    another address for a provider, the proxy forwards to that.
    """
    with server_packages("weftline wrap"):
        from weftline.transports.proxy.wrap import run_wrapped  # noqa: PLC0415 - help needs no server

    from weftline.models.language_models.chat_model import ChatCaller  # noqa: PLC0415 - likewise

    if shutil.which(command[0]) is None:
        raise click.UsageError(f"There is no program '{command[0]}' on your path.", ctx)
    target: Target = ctx.obj
    caller = ChatCaller(target.tenant, target.principal or "admin")
    ctx.exit(run_wrapped(target.settings(proxy_mode=mode), caller, command, os.environ))


@click.command(cls=McpCommand)
@click.option(
    "--as", "principal", shell_complete=complete_name, help="Agent to act as.  [default: that of weftline --as]"
)
@click.option(
    "--session",
    "-s",
    envvar="WEFTLINE_SESSION",
    show_envvar=True,
    shell_complete=complete_name,
    help="Work in this session only.",
)
@click.option(
    "--tools", help="Tool profile: default, full, or groups such as board,messages.  [env var: WEFTLINE_TOOLS]"
)
@click.option("--step", help="Work in this step of a task: only its tools are listed and may be called.")
@click.option(
    "--repository", is_flag=True, help="Work in the session of this folder's repository and branch, as its agent."
)
@click.pass_context
def mcp(
    ctx: click.Context,
    principal: str | None,
    session: str | None,
    tools: str | None,
    step: str | None,
    *,
    repository: bool,
) -> None:
    """Serve MCP over standard input and output, for an editor or agent that starts it.

    It works on the data folder. weftline init writes the editor configuration that starts it.
    """
    with server_packages("weftline mcp"):
        from weftline.transports.stdio import run  # noqa: PLC0415 - help needs no server

    check_once(ctx, "principal")
    target: Target = ctx.obj
    principal = principal or target.principal
    if repository:
        if principal is not None or session is not None:
            raise click.UsageError("--repository chooses the agent and the session: omit --as and --session.", ctx)
        if target.url is not None:
            raise click.UsageError("A server has MCP itself: connect to it with weftline init --url.", ctx)
        principal, session = asyncio.run(_repository_session(target))
    if tools is not None:
        parse_tool_profile(tools)
    run(
        target.settings(),
        tenant=target.tenant,
        principal=principal or "admin",
        session=session,
        tools=tools,
        step=step,
        correlation=make_correlation(target.ids()),
    )


async def _repository_session(target: Target) -> tuple[str, str]:
    """Return the agent and the session of the repository that this folder is in; both exist afterwards."""
    from weftline.transports.hooks.recorder import Recorder  # noqa: PLC0415 - most servers have no repository
    from weftline.transports.hooks.repository import find_repository  # noqa: PLC0415 - likewise

    repository = find_repository(Path.cwd())
    async with target.weftline() as weftline:
        await Recorder(weftline).open(repository)
    return repository.agent_id, repository.session_id


@click.command(cls=ServerCommand)
@click.option("--stay", is_flag=True, help="Keep the session and the server running afterwards.")
@click.option(
    "--port",
    type=click.IntRange(1, 65_535),
    help="Port for the demo's server.  [env var: WEFTLINE_PORT; default: a free one, 8787 with --stay]",
)
@click.option("--data-dir", help="Data folder to keep it in, with --stay.  [env var: WEFTLINE_DATA_DIR]")
@click.pass_context
def demo(ctx: click.Context, port: int | None, data_dir: str | None, *, stay: bool) -> None:
    """Watch a team of agents work together on one board for half a minute.

    Without --stay, the demo uses a temporary folder and removes it.
    """
    with server_packages("weftline demo"):
        from weftline.demo.run import run  # noqa: PLC0415 - help needs no demo

    check_once(ctx, "data_dir")
    chosen = [*given(ctx), *(["data_dir"] if data_dir else [])]
    if chosen and not stay:
        raise click.UsageError(f"{FLAGS[chosen[0]]} needs --stay: otherwise the demo uses a temporary folder.", ctx)
    target: Target = ctx.obj
    settings = target.settings(port=_demo_port(port, stay=stay), data_dir=data_dir)
    check_port(settings.host, settings.port)
    run(settings, stay=stay)


def _demo_port(port: int | None, *, stay: bool) -> int | None:
    """Return a free port for a demo that ends, unless one is given: the default one may be used by a server."""
    if port is not None or stay or os.environ.get("WEFTLINE_PORT"):
        return port
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def check_port(host: str, port: int) -> None:
    """Refuse an unavailable port before anything is created."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            # As uvicorn does, so that recently closed connections do not block the port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        where = f"{host}:{port}"
        raise CannotListen(f"Weftline cannot listen on {where}: {error.strerror or error}.") from error
