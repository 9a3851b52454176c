"""The resident process of one user: answers hooks over a unix socket at once, and records behind the answers."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import socket
import struct
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weftline.kernel.errors import WeftlineError
from weftline.kernel.ports import approximate_tokens
from weftline.transports.hooks.hook_input import CLIENTS, HookInput, UnreadableHook, hook_answer, read_hook
from weftline.transports.hooks.recorder import Recorder
from weftline.transports.hooks.repository import Repository, find_repository

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from weftline.transports.hooks.folder import HooksFolder
    from weftline.transports.hooks.recorder import Open

_log = logging.getLogger("weftline.hooks")
IDLE_SECONDS = 1_800.0
# A hook fails open within 300 ms, and its client needs a part of that.
ANSWER_SECONDS = 0.2
_READ_SECONDS = 5.0
_RETRY_SECONDS = 5.0
_STOP_SECONDS = 20.0
_LOCK_SECONDS = 0.1
_MAX_HEAD, _MAX_BODY = 16_384, 32 * 2**20
_MAX_WAITING = 2_000
_PRIVATE = 0o600
# The text that a client without a program for HTTP gets is the body alone.
_PLAIN = "plain/"
# Nobody reads the answer of a hook that is sent again.
_LATE = "late/"
_STATUS = "status"
# struct xucred of macOS: version, uid, and groups.
_LOCAL_PEERCRED, _XUCRED_BYTES = 1, 76
_NOTICE = (
    "Weftline records the prompts, tool calls and answers of this agent in {place}, with secrets masked, and shows "
    "agents on the same repository what others noted. To stop it: weftline hooks off. To delete what was recorded of "
    "this repository: weftline hooks delete."
)


class _Request(NamedTuple):
    path: str
    folder: str
    body: bytes
    at: datetime | None


class Figures(msgspec.Struct):
    """What the process did since it started; ``weftline hooks status`` shows it."""

    place: str
    hooks: int = 0
    recorded: int = 0
    pushed: int = 0
    failed: int = 0
    dropped: int = 0
    refused: int = 0
    contexts: int = 0
    context_tokens: int = 0
    waiting: int = 0


class Resident:
    """Serves until it was idle for some time, or is told to stop."""

    def __init__(
        self,
        folder: HooksFolder,
        open_weftline: Open,
        place: str,
        *,
        idle_seconds: float = IDLE_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
        uid: int = -1,
    ) -> None:
        self._folder = folder
        self._open = open_weftline
        self._place = place
        self._idle_seconds = idle_seconds
        self._answer_seconds = answer_seconds
        self._uid = os.getuid() if uid < 0 else uid
        self._queue: asyncio.Queue[tuple[HookInput, Repository]] = asyncio.Queue(_MAX_WAITING)
        self._told: set[tuple[str, str]] = set()
        self._recorder: Recorder | None = None
        self._ready = asyncio.Event()
        self._stopping = asyncio.Event()
        self.listening = asyncio.Event()
        self._used_at = 0.0
        self.figures = Figures(place)

    async def serve(self) -> bool:
        """Serve, unless another process of this user does: then return false."""
        self._folder.create()
        lock = os.open(self._folder.lock, os.O_RDWR | os.O_CREAT, _PRIVATE)
        try:
            if not await self._locked(lock):
                return False
            await self._serve_locked()
            return True
        finally:
            os.close(lock)

    async def _locked(self, lock: int) -> bool:
        """Become the one process of this user; one that ends and has no socket any more is waited for."""
        for _ in range(int(_STOP_SECONDS / _LOCK_SECONDS)):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if self._folder.socket.exists():
                    return False
                await asyncio.sleep(_LOCK_SECONDS)
            else:
                return True
        return False

    def stop(self) -> None:
        self._stopping.set()

    async def _serve_locked(self) -> None:
        # One that was killed leaves its socket.
        self._folder.socket.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        try:
            listening.bind(str(self._folder.socket))
        finally:
            os.umask(before)
        server = await asyncio.start_unix_server(self._connected, sock=listening, limit=_MAX_HEAD)
        self.listening.set()
        recording = asyncio.create_task(self._record_all())
        try:
            await self._until_idle()
        finally:
            # First the name, so that a hook that comes now starts another process.
            self._folder.socket.unlink(missing_ok=True)
            server.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(_STOP_SECONDS):
                    await self._queue.join()
            recording.cancel()
            with suppress(asyncio.CancelledError):
                await recording

    async def _until_idle(self) -> None:
        clock = asyncio.get_running_loop().time
        self._used_at = clock()
        while not self._stopping.is_set():
            left = self._used_at + self._idle_seconds - clock()
            if left <= 0 and self._queue.empty():
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(max(left, 1.0)):
                    await self._stopping.wait()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if peer_uid(writer.get_extra_info("socket")) != self._uid:
                self.figures.refused += 1
                return
            async with asyncio.timeout(_READ_SECONDS):
                request = await _read_request(reader)
            plain = request.path.startswith(_PLAIN)
            answer = await self._answer(request.path.removeprefix(_PLAIN), request)
            head = b"" if plain else _http_head(answer)
            writer.write(head + answer)
            await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
            _log.warning("a hook was not read: %s", type(error).__name__)
        except Exception:  # noqa: BLE001 - one that fails must not end the others
            _log.exception("a hook failed")
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, path: str, request: _Request) -> bytes:
        if path == _STATUS:
            self.figures.waiting = self._queue.qsize()
            return msgspec.json.encode(self.figures)
        if path == "stop":
            self.stop()
            return b"{}"
        client = path.removeprefix(_LATE)
        if client not in CLIENTS or self._folder.off.exists():
            return b""
        try:
            hook = replace(read_hook(client, request.body, request.folder), at=request.at)
        except UnreadableHook as error:
            _log.warning("an input of %s was not read: %s", client, error)
            return b""
        if hook.kind is None:
            return b""
        self.figures.hooks += 1
        self._used_at = asyncio.get_running_loop().time()
        repository = find_repository(hook.folder)
        is_late = path.startswith(_LATE)
        context = "" if is_late else await self._context(hook, repository)
        notice = "" if is_late else self._notice(hook)
        try:
            self._queue.put_nowait((hook, repository))
        except asyncio.QueueFull:
            self.figures.dropped += 1
        return hook_answer(hook, context, notice)

    async def _context(self, hook: HookInput, repository: Repository) -> str:
        """Return what the agent is told: at its start, or with its first prompt if nobody listened at the start."""
        conversation = (hook.client, hook.conversation)
        if not hook.takes_context:
            return ""
        if hook.kind == "subagent_start":
            return await self._in_time(partial(Recorder.board_context, repository=repository))
        if hook.kind == "prompt" and (conversation in self._told or hook.subagent):
            return ""
        return await self._in_time(partial(Recorder.context, repository=repository), conversation)

    async def _in_time(
        self, read: Callable[[Recorder], Awaitable[str]], conversation: tuple[str, str] | None = None
    ) -> str:
        try:
            async with asyncio.timeout(self._answer_seconds):
                await self._ready.wait()
                assert self._recorder is not None  # noqa: S101 - set before it is ready
                context = await read(self._recorder)
        except (TimeoutError, WeftlineError, OSError) as error:
            _log.warning("nothing was told to an agent: %s", type(error).__name__)
            return ""
        if conversation is not None:
            self._told.add(conversation)
        if context:
            self.figures.contexts += 1
            self.figures.context_tokens += approximate_tokens(context)
        return context

    def _notice(self, hook: HookInput) -> str:
        """Return what is recorded and how to delete it, once for each user."""
        if hook.kind not in {"start", "prompt"} or hook.client in {"cursor", "opencode"} or self._folder.told.exists():
            return ""
        with suppress(OSError):
            self._folder.told.touch(_PRIVATE)
        return _NOTICE.format(place=self._place)

    async def _record_all(self) -> None:
        while True:
            try:
                async with self._open() as weftline:
                    self._recorder = Recorder(weftline)
                    self._ready.set()
                    while True:
                        await self._record_next(self._recorder)
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001 - agents go on, whatever is wrong with the database
                self._ready.clear()
                _log.warning("Weftline cannot be opened: %s", _described(error))
                self._drop_all()
                await asyncio.sleep(_RETRY_SECONDS)

    async def _record_next(self, recorder: Recorder) -> None:
        hook, repository = await self._queue.get()
        try:
            await self._record(recorder, hook, repository)
        except Exception as error:  # noqa: BLE001 - one event that cannot be stored ends nothing
            self.figures.failed += 1
            _log.warning("%s of %s was not recorded: %s", hook.name, hook.client, _described(error))
        finally:
            self._queue.task_done()

    async def _record(self, recorder: Recorder, hook: HookInput, repository: Repository) -> None:
        await recorder.record(hook, repository)
        if hook.kind in {"compact", "end"}:
            await recorder.push(hook, repository)
            self.figures.pushed += 1
        self.figures.recorded += 1
        if hook.kind == "end":
            self._told.discard((hook.client, hook.conversation))

    def _drop_all(self) -> None:
        while not self._queue.empty():
            self._queue.get_nowait()
            self._queue.task_done()
            self.figures.dropped += 1


def peer_uid(connection: socket.socket) -> int:
    """Return the user at the other end of a unix socket; the kernel says it."""
    if hasattr(socket, "SO_PEERCRED"):
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", credentials)[1])
    return int(struct.unpack_from("=II", connection.getsockopt(0, _LOCAL_PEERCRED, _XUCRED_BYTES))[1])


async def ask(folder: HooksFolder, path: str, body: bytes = b"", *, seconds: float = 3.0) -> bytes | None:
    """Return the answer of the resident process, or None if there is none."""
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_unix_connection(folder.socket)
            try:
                head = f"POST /{_PLAIN}{path} HTTP/1.0\r\nContent-Length: {len(body)}\r\nX-Cwd: {Path.cwd()}\r\n\r\n"
                writer.write(head.encode("utf-8", "surrogateescape") + body)
                return await reader.read()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return None


def _described(error: BaseException) -> str:
    """Name an error without what it may quote."""
    return error.code if isinstance(error, WeftlineError) else type(error).__name__


async def _read_request(reader: asyncio.StreamReader) -> _Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("utf-8", "surrogateescape").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
    length = int(headers.get("content-length", "0"))
    if not 0 <= length <= _MAX_BODY:
        raise ValueError("too large")
    path = head[0].split(" ")[1].lstrip("/")
    at = datetime.fromtimestamp(int(headers["x-at"]), UTC) if path.startswith(_LATE) and "x-at" in headers else None
    return _Request(path, headers.get("x-cwd", "/"), await reader.readexactly(length), at)


def _http_head(answer: bytes) -> bytes:
    return (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        % len(answer)
    )
