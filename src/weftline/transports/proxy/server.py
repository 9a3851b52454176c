"""``weftline proxy``: the model proxy in one process on loopback, with or without a database."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from weftline.access.authentication import identify_local
from weftline.access.sql import AccessStore
from weftline.app.app import App
from weftline.app.call_journal import CallJournal
from weftline.app.call_meter import CallPrices
from weftline.app.call_notes import CallNotes
from weftline.kernel.clock import SystemClock
from weftline.kernel.errors import HostNotAllowed, NotFound, WeftlineError
from weftline.kernel.thread_pools import always_short_turns
from weftline.models.language_models.catalog import load_catalog
from weftline.models.language_models.chat_model import ChatCaller
from weftline.providers.model_upstreams import UpstreamConnections, Upstreams
from weftline.providers.prices import PriceTable
from weftline.storage.migrations.runner import status
from weftline.storage.sql.database import Scope as DatabaseScope
from weftline.storage.sql.database import connect
from weftline.transports.cli.target import create_default_tenant
from weftline.transports.http.application import LOOPBACK_HOSTS, HostNames
from weftline.transports.http.connections import ConnectionTable
from weftline.transports.http.http_io import send_error
from weftline.transports.logs import configure_logging
from weftline.transports.proxy.call_line import call_line
from weftline.transports.proxy.callers import OneCaller
from weftline.transports.proxy.endpoint import ProxyEndpoint
from weftline.transports.proxy.errors import refuse
from weftline.transports.proxy.note_process import NoteProcess, fork_note_process
from weftline.transports.proxy.observer import Observer
from weftline.transports.proxy.programs import proxy_variables
from weftline.transports.proxy.routes import provider_of
from weftline.transports.server import BoundedServer, bounded_config, loop_factory, tune_garbage_collection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.types import Receive, Scope, Send

    from weftline.settings import Settings
    from weftline.transports.proxy.note_process import Pipes
    from weftline.transports.proxy.observer import NotedCall

HOST = "127.0.0.1"
_OPEN_SECONDS = 5.0
# Calls that the process that stores them is given before it has stored the first.
_AT_ONCE = 64
_log = logging.getLogger("weftline.proxy")


def serve_proxy(settings: Settings, caller: ChatCaller) -> None:
    """Serve until SIGTERM or SIGINT."""
    # The terminal shows calls: an entry for each of their operations would stand between the lines.
    configure_logging(settings.lowest_logged_level(default="ERROR"))
    forked = fork_note_process()
    always_short_turns()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(settings, caller, forked))


async def _serve(settings: Settings, caller: ChatCaller, forked: Pipes | None) -> None:
    async with proxy_application(settings, caller, _show, in_own_process=True, forked=forked) as (application, note):
        connections = ConnectionTable()
        server = BoundedServer(
            bounded_config(settings, application, connections, HOST, settings.proxy_port), connections
        )
        listening = server.config.bind_socket()
        server.when_started = partial(_greet, listening, note)
        tune_garbage_collection()
        await server.serve([listening])


@asynccontextmanager
async def proxy_application(
    settings: Settings,
    caller: ChatCaller,
    show: Callable[[NotedCall], None],
    *,
    in_own_process: bool = False,
    forked: Pipes | None = None,
) -> AsyncIterator[tuple[LocalProxy, str]]:
    """Yield the application, and what its user should know about where calls are metered.

    ``in_own_process`` lets calls be recorded by another process, so that this one only forwards them: ``forked``, if
    there is one.
    """
    upstreams = Upstreams(settings.proxy_upstreams)
    prices = CallPrices(load_catalog(settings.models_file), PriceTable())
    async with AsyncExitStack() as stack:
        app, note = await _open_app(settings, caller, stack)
        store, edits = None, None
        if forked is not None and app is None:
            forked.close()
        if app is not None:
            edits = app.proxied_edits
            edits.mode = settings.chosen_proxy_mode
            store = CallNotes(app.proxied_conversations, edits, app.call_meter).store
            if in_own_process:
                store = (await stack.enter_async_context(NoteProcess(settings, edits, forked))).store
        journal = None if app is None else CallJournal(settings.call_journal_folder)
        endpoint = ProxyEndpoint(
            upstreams,
            UpstreamConnections(upstreams, settings.proxy_private_hosts.split()),
            OneCaller(caller, None if app is None else app.proxied_calls),
            Observer(prices, store, show, at_once=_AT_ONCE if in_own_process else 1, journal=journal),
            edits,
            wait_seconds=settings.proxy_wait_ms / 1_000,
        )
        endpoint.start()
        if in_own_process:
            # The first calls would wait for it, and be in memory only.
            await prices.load()
        yield LocalProxy(endpoint), note


class LocalProxy:
    """ASGI application with the routes of the proxy only, for clients on this machine."""

    def __init__(self, endpoint: ProxyEndpoint) -> None:
        self._endpoint = endpoint
        self._names = HostNames(LOOPBACK_HOSTS, frozenset())
        self._clock = SystemClock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        refusal: HostNotAllowed | NotFound | None = self._names.refusal(scope)
        provider = provider_of(scope)
        if refusal is None and provider is None:
            refusal = NotFound(
                "The model proxy has no such route.", hint="Its routes are /anthropic/*, /openai/* and /gemini/*."
            )
        if refusal is not None and provider is not None:
            await refuse(scope, send, provider, refusal)
            return
        if refusal is not None:
            await send_error(send, refusal, self._clock)
            return
        connection = scope["state"]["connection"]
        connection.waiting.asks()
        await self._endpoint(scope, receive, send)


async def _open_app(settings: Settings, caller: ChatCaller, stack: AsyncExitStack) -> tuple[App | None, str]:
    """Open the database, if there is one with this version's schema: the proxy works without it, and changes none."""
    if not _has_database(settings.storage_url):
        return None, "Calls are shown here and not recorded: there is no database yet."
    try:
        async with asyncio.timeout(_OPEN_SECONDS):
            if await _needs_migration(settings):
                return None, "Calls are shown here and not recorded: the database needs weftline db migrate."
            app = App(settings)
            await app.open(background=False)
            stack.push_async_callback(app.close)
            await create_default_tenant(app)
            scope = DatabaseScope(caller.tenant)
            await app.database.read(scope, lambda tx: identify_local(caller.agent_id, AccessStore(tx)))
    except (WeftlineError, OSError, TimeoutError) as error:
        if isinstance(error, WeftlineError) and error.http_status in {401, 403, 404}:
            raise
        reason = error.code if isinstance(error, WeftlineError) else type(error).__name__
        return None, f"Calls are shown here and not recorded: the database cannot be opened ({reason})."
    return app, f"Calls are recorded and metered for {caller.agent_id}: weftline usage report, weftline session list"


async def _needs_migration(settings: Settings) -> bool:
    database = connect(settings.storage_url, settings.database_direct_url)
    await database.open()
    try:
        return any(step.applied_at is None for step in await status(database))
    finally:
        await database.close()


def _has_database(url: str) -> bool:
    return "://" in url or Path(url).is_file()


async def _greet(listening: socket.socket, note: str) -> None:
    address = f"http://{HOST}:{listening.getsockname()[1]}"
    for name, url in proxy_variables(address).items():
        click.echo(f"export {name}={url}")
    click.echo(f"# {note}")


def _show(call: NotedCall) -> None:
    click.echo(call_line(call))


async def _live(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
