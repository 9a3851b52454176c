"""A process that stores ended calls, so that the one that forwards calls computes nothing else.

Recording a long conversation takes up to tenths of a second of a processor, in steps that a call would wait for.
Threads do not help: they share one interpreter. The process takes calls from a pipe, stores one at a time, and answers
each with a byte. What it was given it also stores when the other process has ended, however that happened.
"""

from __future__ import annotations

import asyncio
import logging
import os
import struct
import subprocess
import sys
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weftline.app.app import App
from weftline.app.call_notes import CallNote, CallNotes
from weftline.kernel.errors import SystemUnavailable, WeftlineError
from weftline.settings import Settings
from weftline.transports.logs import configure_logging
from weftline.transports.server import loop_factory, tune_garbage_collection

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from weftline.app.proxied_edits import ProxiedEdits

_LENGTH = struct.Struct(">I")
_STORED, _FAILED = b"\x01", b"\x00"
# Calls that are forwarded go before those that have ended.
_NICE = 5
_END_SECONDS = 5.0
_PIPE_BYTES = 2**20
# Its pipes are closed as it ends.
_REAP_SECONDS = 0.5
_log = logging.getLogger("weftline.proxy")
_encode = msgspec.msgpack.Encoder().encode


class _Start(msgspec.Struct, frozen=True):
    """The first message to the process."""

    settings: Settings
    log_level: str


@dataclass(slots=True)
class _Sent:
    """A call that was sent; ``times``: how often its process has ended."""

    message: bytes
    answer: asyncio.Future[bytes]
    times: int = 0


class Pipes(NamedTuple):
    """Descriptors of the pipes to and from the process."""

    to_process: int
    from_process: int

    def close(self) -> None:
        """End the process."""
        os.close(self.to_process)
        os.close(self.from_process)


def fork_note_process() -> Pipes | None:
    """Fork the process, where that is possible: quicker than starting an interpreter, and it shares its memory.

    Call it before anything else is begun: no thread and no event loop of this process may be in the other.
    """
    if not hasattr(os, "fork"):
        return None
    (reads, writes), (answers, answered) = os.pipe(), os.pipe()
    _widen(writes)
    if os.fork():
        os.close(reads)
        os.close(answered)
        return Pipes(writes, answers)
    code = 1
    try:
        os.close(writes)
        os.close(answers)
        # Ctrl-C in a terminal ends the other process, and this one when it has stored what it was given.
        os.setsid()
        _run(reads, answered)
        code = 0
    except Exception:  # noqa: BLE001 - nothing above may go on in this process
        _log.exception("the process that stores proxied calls ended")
    finally:
        os._exit(code)


def _spawn() -> tuple[subprocess.Popen[bytes], Pipes]:
    (reads, writes), (answers, answered) = os.pipe(), os.pipe()
    _widen(writes)
    try:
        process = subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-P", "-m", __name__], stdin=reads, stdout=answered, start_new_session=True
        )
    except OSError:
        Pipes(writes, answers).close()
        raise
    finally:
        os.close(reads)
        os.close(answered)
    return process, Pipes(writes, answers)


def _widen(pipe: int) -> None:
    """Let a pipe hold a few large requests: what is in it outlives the process that wrote it."""
    with suppress(ImportError, AttributeError, OSError):
        import fcntl  # noqa: PLC0415 - not on every system

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


class NoteProcess:
    """Stores calls by another process: the one that was forked, and a new one when it has ended."""

    def __init__(self, settings: Settings, edits: ProxiedEdits, forked: Pipes | None) -> None:
        self._first_message = _Start(settings, logging.getLevelName(logging.getLogger("weftline").level))
        self._edits = edits
        self._forked = forked
        self._process: subprocess.Popen[bytes] | None = None
        self._input: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        # What was sent and is not answered, in its order.
        self._sent: deque[_Sent] = deque()

    async def __aenter__(self) -> Self:
        with suppress(OSError):
            await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Let the process end when it has stored what it was given."""
        stream, self._input = self._input, None
        if stream is None or self._reading is None:
            return
        stream.close()
        await asyncio.wait([self._reading], timeout=_END_SECONDS)
        self._reading.cancel()
        self._reap()

    async def store(self, note: CallNote) -> None:
        """Store a call, after those that came before; raises SystemUnavailable if that fails."""
        sent = _Sent(_encode(note), asyncio.get_running_loop().create_future())
        self._sent.append(sent)
        if self._input is not None:
            _write(self._input, sent.message)
        elif len(self._sent) == 1:
            await self._start_again()
        if await sent.answer != _STORED:
            raise SystemUnavailable
        if note.edits is not None:
            self._edits.forget_whole(note.caller, note.edits)

    async def _start(self) -> asyncio.StreamWriter:
        pipes, self._forked = self._forked, None
        if pipes is None:
            self._reap()
            self._process, pipes = _spawn()
        loop = asyncio.get_running_loop()
        answers = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(answers)
        await loop.connect_read_pipe(lambda: protocol, os.fdopen(pipes.from_process, "rb", 0))
        transport, flow = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, os.fdopen(pipes.to_process, "wb", 0)
        )
        stream = self._input = asyncio.StreamWriter(transport, flow, None, loop)
        _write(stream, _encode(self._first_message))
        self._reading = asyncio.create_task(self._read_answers(stream, answers), name="weftline-proxy-notes")
        return stream

    async def _start_again(self) -> None:
        """Send a new process what the last one has not answered: storing again adds nothing."""
        try:
            stream = await self._start()
        except OSError:
            self._give_up()
            return
        for sent in self._sent:
            sent.times += 1
            _write(stream, sent.message)

    async def _read_answers(self, stream: asyncio.StreamWriter, answers: asyncio.StreamReader) -> None:
        while answer := await answers.read(1):
            sent = self._sent.popleft()
            if not sent.answer.done():
                sent.answer.set_result(answer)
        stream.close()
        if self._input is not stream:
            return
        self._input = None
        if self._sent and self._sent[0].times:
            self._give_up()
        elif self._sent:
            await self._start_again()

    def _reap(self) -> None:
        """Take the exit code of a process that has closed its pipes, if it was started here."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_REAP_SECONDS)

    def _give_up(self) -> None:
        while self._sent:
            answer = self._sent.popleft().answer
            if not answer.done():
                answer.set_result(_FAILED)


def _write(stream: asyncio.StreamWriter, message: bytes) -> None:
    stream.write(_LENGTH.pack(len(message)))
    stream.write(message)


async def _read(stream: asyncio.StreamReader) -> bytes:
    (length,) = _LENGTH.unpack(await stream.readexactly(_LENGTH.size))
    return await stream.readexactly(length)


async def _serve(calls: int, answers: int) -> None:
    """Store the calls that come, until the other process has ended."""
    stream = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(stream)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(calls, "rb", 0))
    start = msgspec.msgpack.decode(await _read(stream), type=_Start)
    configure_logging(start.log_level)
    # Read at once, so that nothing is lost with the other process.
    waiting: asyncio.Queue[CallNote | None] = asyncio.Queue()
    reading = asyncio.create_task(_read_notes(stream, waiting))
    app = App(start.settings)
    notes = CallNotes(app.proxied_conversations, app.proxied_edits, app.call_meter)
    try:
        await _open(app)
        tune_garbage_collection()
        if hasattr(os, "nice"):
            os.nice(_NICE)
        while (note := await waiting.get()) is not None:
            stored = await _stored(app, notes, note)
            with suppress(OSError):
                os.write(answers, _STORED if stored else _FAILED)
    finally:
        reading.cancel()
        await app.close()


async def _read_notes(stream: asyncio.StreamReader, waiting: asyncio.Queue[CallNote | None]) -> None:
    decode = msgspec.msgpack.Decoder(CallNote).decode
    with suppress(asyncio.IncompleteReadError):
        while True:
            waiting.put_nowait(decode(await _read(stream)))
    waiting.put_nowait(None)


async def _stored(app: App, notes: CallNotes, note: CallNote) -> bool:
    try:
        if not await _open(app):
            return False
        await notes.store(note)
    except WeftlineError as error:
        _log.info("a proxied call is not metered: %s", error.code)
        return False
    except Exception:  # noqa: BLE001 - the next call may be stored
        _log.exception("cannot store a proxied call")
        return False
    return True


async def _open(app: App) -> bool:
    """Open the database if it is not open; false if it cannot be reached now."""
    if not app.ready:
        with suppress(WeftlineError, OSError):
            await app.open(background=False)
    return app.ready


def _run(calls: int, answers: int) -> None:
    with asyncio.Runner(loop_factory=loop_factory()) as runner, suppress(asyncio.IncompleteReadError):
        runner.run(_serve(calls, answers))


if __name__ == "__main__":
    _run(sys.stdin.fileno(), sys.stdout.fileno())
