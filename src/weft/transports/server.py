"""``weft serve``: the whole server in one process, started quickly and stopped without dropping a call."""

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

from weft.app.app import App
from weft.transports.http.application import HttpApplication
from weft.transports.http.protocol import BoundedHttp
from weft.transports.logs import configure_logging

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weft.app.tenants import NewTenant
    from weft.settings import Settings
    from weft.transports.mcp.http import Profile

_KEEP_ALIVE_SECONDS = 75
_POLL_SECONDS = 0.05
_HANDLES = 16


class DrainingServer(uvicorn.Server):
    """A uvicorn that, told to stop, lets calls finish first and then ends the streams it would wait for forever."""

    def __init__(self, config: uvicorn.Config, application: HttpApplication, patience_seconds: float) -> None:
        super().__init__(config)
        self._application = application
        self._patience_seconds = patience_seconds

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        with super().capture_signals():
            yield
            # Raised again, as uvicorn means to, SIGTERM would end the process before the database is closed.
            self._captured_signals.clear()

    async def shutdown(self, sockets: list[Any] | None = None) -> None:
        draining = asyncio.create_task(self._drain())
        await super().shutdown(sockets)
        await draining

    async def _drain(self) -> None:
        self._application.streams.end_all()
        self._application.mcp.end_streams()
        deadline = asyncio.get_running_loop().time() + self._patience_seconds
        # Every call counts itself, and only the end of a process waits for none: a poll keeps the hot path plain.
        while self._application.mcp.calls_in_flight and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_SECONDS)
        AppStatus.should_exit = True


def serve(settings: Settings, *, profile: Profile | None = None) -> None:
    """Serve until told to stop."""
    configure_logging(settings.log_level)
    # Read when numpy is loaded, by the first search. Searches run side by side, each on a core of its own; products of
    # small matrices that every core takes part in made each of them wait for the others.
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
    # Left on, sse-starlette would cut answers that are still being made half a second after SIGTERM.
    AppStatus.enable_automatic_graceful_drain = False
    config = uvicorn.Config(
        application.asgi,
        host=settings.host,
        port=settings.port,
        http=BoundedHttp,
        # Believed only from proxies that were named: anyone can write a header.
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
    """Return several handles of one socket: in each turn of a busy loop, one connection is accepted from each."""
    return [listening, *(listening.dup() for _ in range(_HANDLES - 1))]


def _greet(settings: Settings, made: NewTenant | None) -> None:
    """Say where Weft is, and on a fresh database the admin's key, which is never shown again."""
    address = f"http://{settings.host}:{settings.port}"
    lines = [f"Weft is at {address}  (MCP {address}/mcp, REST {address}/v1)"]
    if made is not None:
        lines += [
            "",
            f"A tenant '{made.tenant}' was created. Its admin's API key, shown this once:",
            f"  {made.admin_key}",
            "",
            f"Try:  export WEFT_URL={address} WEFT_API_KEY=<that key>",
            "      weft agent create planner",
        ]
    print(*lines, sep="\n", file=sys.stderr, flush=True)  # noqa: T201 - to the person at the terminal


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - not there on Windows
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _tune_garbage_collection() -> None:
    # With a thousand connections open, the default thresholds spend more time looking for garbage than on calls.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 50, 1_000)
