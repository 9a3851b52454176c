"""``weftline serve``: the server in one process, with a graceful shutdown."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import sys
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import uvicorn
from sse_starlette.sse import AppStatus

from weftline.app.app import App
from weftline.kernel.thread_pools import always_short_turns
from weftline.transports.http.application import HttpApplication
from weftline.transports.http.connections import ConnectionLimits
from weftline.transports.http.protocol import BoundedHttp
from weftline.transports.logs import configure_logging
from weftline.transports.server_address import announced

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    Started = Callable[[App, str], Awaitable[None]]

    from starlette.types import ASGIApp

    from weftline.app.tenants import NewTenant
    from weftline.settings import Settings
    from weftline.transports.http.connections import ConnectionTable
    from weftline.transports.mcp.http import Profile

_POLL_SECONDS = 0.05
_HANDLES = 4
# Half of the files that the process may open are for connections: a request may need a temporary file of its own.
_OTHER_FILES = 256
_MAX_FILES = 1_048_576


class BoundedServer(uvicorn.Server):
    """Uvicorn server that looks after its connections."""

    def __init__(self, config: uvicorn.Config, connections: ConnectionTable) -> None:
        super().__init__(config)
        self._connections = connections
        self.when_started: Callable[[], Awaitable[None]] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.when_started is not None and self.started:
            await self.when_started()

    async def on_tick(self, counter: int) -> bool:
        """Look after the connections, ten times a second."""
        self._connections.sweep(counter)
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        with super().capture_signals():
            yield
            # Uvicorn would raise SIGTERM again and end the process before the database is closed.
            self._captured_signals.clear()


class DrainingServer(BoundedServer):
    """Server that on shutdown lets calls finish and ends event streams."""

    def __init__(self, config: uvicorn.Config, application: HttpApplication, grace_seconds: float) -> None:
        super().__init__(config, application.connections)
        self._application = application
        self._grace_seconds = grace_seconds

    async def shutdown(self, sockets: list[Any] | None = None) -> None:
        draining = asyncio.create_task(self._drain())
        await super().shutdown(sockets)
        await draining

    async def _drain(self) -> None:
        self._application.end_waiting()
        deadline = asyncio.get_running_loop().time() + self._grace_seconds
        # Polling keeps the code of each call simple; only a shutdown waits here.
        while self._application.mcp.calls_in_flight and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_SECONDS)
        AppStatus.should_exit = True


def serve(settings: Settings, *, profile: Profile | None = None, started: Started | None = None) -> None:
    """Serve until SIGTERM or SIGINT; ``started`` is called with the URL as soon as requests are answered."""
    configure_logging(settings.lowest_logged_level())
    # Read when the first search loads numpy. Searches run in parallel, one per core; multithreaded products of small
    # matrices would only make them wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    always_short_turns()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(settings, profile, started))


async def _serve(settings: Settings, profile: Profile | None, started: Started | None) -> None:
    app = App(settings)
    await app.open()
    try:
        application = HttpApplication(app, profile, limits=_connection_limits())
        tune_garbage_collection()
        server = http_server(settings, application)
        listening = server.config.bind_socket()
        # Last: a start that fails shows no key and creates no tenant.
        _greet(settings, await app.tenants.ensure_default())
        url = settings.address(listening.getsockname()[1])
        with announced(settings, url):
            if started is not None:
                server.when_started = partial(started, app, url)
            await server.serve(_handles(listening))
    finally:
        await app.close()


def http_server(settings: Settings, application: HttpApplication) -> DrainingServer:
    """Return the server of an application."""
    # Otherwise sse-starlette would cut off responses half a second after SIGTERM.
    AppStatus.enable_automatic_graceful_drain = False
    # An earlier server of this process may have ended the streams of its clients.
    AppStatus.should_exit = False
    config = bounded_config(settings, application.asgi, application.connections, settings.host, settings.port)
    return DrainingServer(config, application, settings.shutdown_grace_seconds)


def bounded_config(
    settings: Settings, application: ASGIApp, connections: ConnectionTable, host: str, port: int
) -> uvicorn.Config:
    """Return the configuration of a server whose connections are bounded."""
    return uvicorn.Config(
        application,
        host=host,
        port=port,
        http=partial(BoundedHttp, connections=connections),  # type: ignore[arg-type]
        # An upgraded connection would have no bounds, and nothing is served over one.
        ws="none",
        # Trusted only from the configured proxies: anyone can send the header.
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies.split(),
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=settings.shutdown_grace_seconds,
    )


def _connection_limits() -> ConnectionLimits:
    """Allow as many open files as the system does, and return limits that leave enough of them for everything else."""
    try:
        import resource  # noqa: PLC0415 - not available on Windows
    except ImportError:
        return ConnectionLimits()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return ConnectionLimits(open=max(16, min(ConnectionLimits().open, (files - _OTHER_FILES) // 2)))


def _handles(listening: socket.socket) -> list[socket.socket]:
    """Duplicate the listening socket: a busy loop accepts one connection per handle and iteration."""
    return [listening, *(listening.dup() for _ in range(_HANDLES - 1))]


def _greet(settings: Settings, created: NewTenant | None) -> None:
    """Print the URL, and for a new database the admin's API key, which is shown only once."""
    address = settings.address()
    lines = [f"Weftline is at {address}  (MCP {address}/mcp, REST {address}/v1, console {address}/console)"]
    if created is not None:
        lines += [
            "",
            f"Created the tenant '{created.tenant}'. API key of its admin, shown only once:",
            f"  {created.admin_key}",
            "",
            f"Try:  export WEFTLINE_URL={address} WEFTLINE_API_KEY=<that key>",
            "      weftline agent create planner",
        ]
    print(*lines, sep="\n", file=sys.stderr, flush=True)  # noqa: T201 - shown in the terminal


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - not available on Windows
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def tune_garbage_collection() -> None:
    """Let the garbage collector look at objects less often, and never at those that exist now."""
    # With a thousand open connections, the default thresholds spend more time on garbage collection than on calls.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 50, 1_000)
