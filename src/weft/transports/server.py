"""``weft serve``: the server in one process, with a graceful shutdown."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import uvicorn
from sse_starlette.sse import AppStatus
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from weft.app.app import App
from weft.transports.http.application import HttpApplication
from weft.transports.logs import configure_logging

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weft.app.tenants import NewTenant
    from weft.settings import Settings
    from weft.transports.mcp.http import Profile

_KEEP_ALIVE_SECONDS = 75
_POLL_SECONDS = 0.05
_HANDLES = 16
_MAX_HEAD_BYTES = 65_536
_REFUSAL = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class DrainingServer(uvicorn.Server):
    """Uvicorn server that on shutdown lets calls finish and ends event streams."""

    def __init__(self, config: uvicorn.Config, application: HttpApplication, grace_seconds: float) -> None:
        super().__init__(config)
        self._application = application
        self._grace_seconds = grace_seconds

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        with super().capture_signals():
            yield
            # Uvicorn would raise SIGTERM again and end the process before the database is closed.
            self._captured_signals.clear()

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


class BoundedHttp(HttpToolsProtocol):
    """Closes a connection whose request line and headers exceed the limit; uvicorn has none."""

    _head_bytes = 0
    _in_head = True

    def on_message_begin(self) -> None:
        self._head_bytes, self._in_head = 0, True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # Counted afterwards: the data may contain the end of the headers and part of the body.
        self._head_bytes += len(data)
        if self._in_head and self._head_bytes > _MAX_HEAD_BYTES:
            self.transport.write(_REFUSAL)
            self.transport.close()


def serve(settings: Settings, *, profile: Profile | None = None) -> None:
    """Serve until SIGTERM or SIGINT."""
    configure_logging(settings.log_level)
    # Read when the first search loads numpy. Searches run in parallel, one per core; multithreaded products of small
    # matrices would only make them wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(settings, profile))


async def _serve(settings: Settings, profile: Profile | None) -> None:
    app = App(settings)
    await app.open()
    try:
        _greet(settings, await app.tenants.ensure_default())
        application = HttpApplication(app, profile)
        _tune_garbage_collection()
        server = _server(settings, application)
        await server.serve(_handles(server.config.bind_socket()))
    finally:
        await app.close()


def _server(settings: Settings, application: HttpApplication) -> DrainingServer:
    # Otherwise sse-starlette would cut off responses half a second after SIGTERM.
    AppStatus.enable_automatic_graceful_drain = False
    config = uvicorn.Config(
        application.asgi,
        host=settings.host,
        port=settings.port,
        http=BoundedHttp,
        # Trusted only from the configured proxies: anyone can send the header.
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies.split(),
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=settings.shutdown_grace_seconds,
    )
    return DrainingServer(config, application, settings.shutdown_grace_seconds)


def _handles(listening: socket.socket) -> list[socket.socket]:
    """Duplicate the listening socket: a busy loop accepts one connection per handle and iteration."""
    return [listening, *(listening.dup() for _ in range(_HANDLES - 1))]


def _greet(settings: Settings, created: NewTenant | None) -> None:
    """Print the URL, and for a new database the admin's API key, which is shown only once."""
    address = f"http://{settings.host}:{settings.port}"
    lines = [f"Weft is at {address}  (MCP {address}/mcp, REST {address}/v1)"]
    if created is not None:
        lines += [
            "",
            f"Created the tenant '{created.tenant}'. API key of its admin, shown only once:",
            f"  {created.admin_key}",
            "",
            f"Try:  export WEFT_URL={address} WEFT_API_KEY=<that key>",
            "      weft agent create planner",
        ]
    print(*lines, sep="\n", file=sys.stderr, flush=True)  # noqa: T201 - shown in the terminal


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - not available on Windows
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _tune_garbage_collection() -> None:
    # With a thousand open connections, the default thresholds spend more time on garbage collection than on calls.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 50, 1_000)
