"""``weftline wrap``: a program whose model calls go through a model proxy of its own."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

import click

from weftline.transports.http.connections import ConnectionTable
from weftline.transports.logs import configure_logging
from weftline.transports.proxy.note_process import fork_note_process
from weftline.transports.proxy.programs import behind_earlier, wrapped_command, wrapped_environment
from weftline.transports.proxy.server import HOST, proxy_application
from weftline.transports.server import BoundedServer, bounded_config, loop_factory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from weftline.models.language_models.chat_model import ChatCaller
    from weftline.settings import Settings
    from weftline.transports.proxy.note_process import Pipes
    from weftline.transports.proxy.observer import NotedCall


@dataclass(slots=True)
class Totals:
    """What the calls of a program used."""

    calls: int = 0
    sent: int = 0
    cached: int = 0
    answered: int = 0
    cost: Decimal = Decimal(0)
    saved: Decimal = Decimal(0)

    def add(self, noted: NotedCall) -> None:
        self.calls += noted.call.is_model_call
        if noted.usage is not None:
            self.sent += noted.usage.input_tokens
            self.cached += noted.usage.cache_read_tokens
            self.answered += noted.usage.output_tokens
            self.cost += noted.cost or 0
            if noted.cost is not None and noted.given_cost is not None:
                self.saved += noted.given_cost - noted.cost

    def __str__(self) -> str:
        cached = f" ({self.cached:,} from cache)" if self.cached else ""
        calls = "1 model call" if self.calls == 1 else f"{self.calls:,} model calls"
        net = (
            f", saved ${self.saved:.4f}" if self.saved > 0 else f", dearer by ${-self.saved:.4f}" if self.saved else ""
        )
        return f"{calls}, {self.sent:,} tokens in{cached}, {self.answered:,} out, ${self.cost:.4f}{net}"


def run_wrapped(settings: Settings, caller: ChatCaller, command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a program to its end, say what its calls used, and return its exit code."""
    # The terminal belongs to the program.
    configure_logging("ERROR")
    forked = fork_note_process()
    totals = Totals()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        code = runner.run(_run(behind_earlier(settings, environment), caller, command, environment, totals, forked))
    click.echo(f"Weftline: {totals}", err=True)
    return code if code >= 0 else 128 - code


async def _run(
    settings: Settings,
    caller: ChatCaller,
    command: Sequence[str],
    environment: Mapping[str, str],
    totals: Totals,
    forked: Pipes | None,
) -> int:
    async with proxy_application(settings, caller, totals.add, in_own_process=True, forked=forked) as (application, _):
        connections = ConnectionTable()
        server = _Server(bounded_config(settings, application, connections, HOST, 0), connections)
        listening = server.config.bind_socket()
        started = asyncio.Event()

        async def note_start() -> None:
            started.set()

        server.when_started = note_start
        serving = asyncio.create_task(server.serve([listening]))
        await started.wait()
        address = f"http://{HOST}:{listening.getsockname()[1]}"
        process = await asyncio.create_subprocess_exec(
            *wrapped_command(command, address), env=wrapped_environment(command[0], address, environment)
        )
        with _signals_for(process):
            code = await process.wait()
        server.should_exit = True
        await serving
    return code


class _Server(BoundedServer):
    """A server that ends with the program, whatever signals come."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
def _signals_for(process: asyncio.subprocess.Process) -> Iterator[None]:
    """Leave Ctrl-C to the program, which the terminal sends it too, and pass on SIGTERM and SIGHUP."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(NotImplementedError):
        loop.add_signal_handler(signal.SIGINT, lambda: None)
        loop.add_signal_handler(signal.SIGTERM, process.terminate)
        loop.add_signal_handler(signal.SIGHUP, process.send_signal, signal.SIGHUP)
    yield
