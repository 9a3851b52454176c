"""Server processes to measure: Weftline and the baseline servers."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from weftline.app.app import App
from weftline.app.authentication import Local
from weftline.app.dispatch import CallContext
from weftline.kernel.operation import RateClass
from weftline.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

METRICS_TOKEN = "the-token-of-the-benchmarks"
_SERVE = (
    "from weftline.settings import Settings; from weftline.transports.server import serve; "
    "serve(Settings.from_environment())"
)
# Rate limits are active but never reached.
_RATES = " ".join(f"{name}=100000000/minute" for name in RateClass if name is not RateClass.AUTHENTICATION)
# Long enough for a busy machine.
_START_SECONDS = 120
ROOMY = {"max_total_tokens": 1_000_000}
TENANT = "default"
ADMIN = CallContext(Local(TENANT, "admin"))
AGENT = "benchmark"


@dataclass(frozen=True, slots=True)
class Served:
    """A running server."""

    pid: int
    port: int
    seconds_to_ready: float


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="weftline-bench-") as path:
        yield Path(path)


async def call(app: App, operation: str, **raw: Any) -> Any:  # noqa: ANN401 - JSON
    return msgspec.to_builtins(await app.call(app.registry[operation], raw, ADMIN))


async def open_app(url: str) -> App:
    app = App(Settings(database_url=url, rate_limits="off"))
    await app.open()
    return app


async def prepare(url: str, sessions: Sequence[str], **config: Any) -> str:  # noqa: ANN401 - JSON
    """Create an agent and sessions; return the agent's API key."""
    app = await open_app(url)
    try:
        await app.tenants.create(TENANT)
        agent = await call(app, "agent.create", agent_id=AGENT)
        async with asyncio.TaskGroup() as group:
            for session_id in sessions:
                group.create_task(
                    call(
                        app,
                        "session.create",
                        purpose="a benchmark",
                        session_id=session_id,
                        config=ROOMY | config,
                        members=["*"],
                    )
                )
    finally:
        await app.close()
    key: str = agent["api_key"]
    return key


@contextmanager
def weftline_server(
    data: Path,
    command: Sequence[str] = (sys.executable, "-c", _SERVE),
    *,
    log_level: str = "INFO",
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Served]:
    """Serve a data folder as ``weftline serve`` does."""
    environment = {"WEFTLINE_DATA_DIR": str(data), "WEFTLINE_RATE_LIMITS": _RATES, "WEFTLINE_LOG_LEVEL": log_level}
    environment |= {"WEFTLINE_METRICS_TOKEN": METRICS_TOKEN, **settings}
    with server(command, environment, "/ready") as served:
        yield served


@contextmanager
def bare_server(module: str, *arguments: str) -> Iterator[Served]:
    """Run one of the baselines."""
    with server([sys.executable, "-m", f"benchmarks.baselines.{module}", *arguments], {}, "/") as served:
        yield served


@contextmanager
def server(command: Sequence[str], settings: dict[str, str], path: str) -> Iterator[Served]:
    """Run a server on a free port, passed in every environment variable that a server may read."""
    port = free_port()
    environment = {**os.environ, **settings} | dict.fromkeys(("WEFTLINE_PORT", "HTTP_PORT", "PORT"), str(port))
    started = time.monotonic()
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            wait_until_ready(process, port, path)
            yield Served(process.pid, port, time.monotonic() - started)
        except BaseException:
            log.seek(0)
            sys.stderr.write(log.read()[-4_000:].decode(errors="replace"))
            raise
        finally:
            process.terminate()
            try:
                process.wait(_START_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until_ready(
    process: subprocess.Popen[bytes], port: int, path: str, within_seconds: float = _START_SECONDS
) -> None:
    """Wait until a server answers; raises if its process ends first."""
    deadline, last = time.monotonic() + within_seconds, "no connection"
    request = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n".encode()
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}")
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as client:
                client.sendall(request)
                answer = client.recv(64)
                if answer.startswith(b"HTTP/1.1 200"):
                    return
                last = answer.partition(b"\r\n")[0].decode(errors="replace")
        except OSError as error:
            last = str(error)
        time.sleep(0.005)
    raise TimeoutError(f"GET {path} did not answer 200 within {within_seconds:g} s; last: {last}")
