"""Worker processes that parse what others wrote, and can be ended when they take too long."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from queue import LifoQueue
from typing import Any

import msgspec

from weft.kernel.errors import PoolNotInitialized

_AT_ONCE = 2
_WORKER = Path(__file__).with_name("worker.py")
# What a Python needs to start as this one did; nothing that only Weft should know.
_PASSED_ON = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "VIRTUAL_ENV")


class WorkerFailed(Exception):
    """The worker took too long, or ended without an answer."""


class Workers:
    """A few workers; the one that was used last is used first, so that others are started only when needed."""

    def __init__(self, at_once: int = _AT_ONCE) -> None:
        self._workers = [_Worker() for _ in range(at_once)]
        self._free: LifoQueue[_Worker] = LifoQueue()
        self._closed = False
        for worker in self._workers:
            self._free.put(worker)

    def ask(self, question: dict[str, Any], content: bytes, seconds: float) -> dict[str, Any]:
        """Return the answer to a question about some content; raises WorkerFailed."""
        worker = self._free.get()
        try:
            if self._closed:
                raise PoolNotInitialized
            return worker.ask(question, content, seconds)
        except WorkerFailed:
            if self._closed:
                # The document is not to blame.
                raise PoolNotInitialized from None
            raise
        finally:
            self._free.put(worker)

    def close(self) -> None:
        self._closed = True
        for worker in self._workers:
            worker.end()


class _Worker:
    """One process, started when there is a question, kept for the next one."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._too_long = False
        self._ended = False

    def ask(self, question: dict[str, Any], content: bytes, seconds: float) -> dict[str, Any]:
        asked = msgspec.json.encode({**question, "length": len(content)}) + b"\n" + content
        answer = self._answer(asked, seconds)
        if not answer and self._had_gone():
            self._replace()
            answer = self._answer(asked, seconds)
        if not answer:
            self._replace()
            took = (
                f"it took longer than {seconds:g} seconds" if self._too_long else "it asks for too much memory or time"
            )
            raise WorkerFailed(took)
        return msgspec.json.decode(answer, type=dict[str, Any])

    def end(self) -> None:
        """End for good, whatever it is doing."""
        self._ended = True
        self._replace()

    def _had_gone(self) -> bool:
        """Tell whether the process ended by itself, as it does when nobody asks: the question is not to blame."""
        process = self._process
        return process is not None and not self._too_long and not self._ended and process.wait() == 0

    def _replace(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _answer(self, asked: bytes, seconds: float) -> bytes:
        """Return a line, or nothing if the process ended."""
        if self._process is not None and self._process.poll() is not None:
            self._replace()
        process = self._process or self._started()
        self._process, self._too_long = process, False
        timer = threading.Timer(seconds, self._give_up, [process])
        timer.start()
        try:
            assert process.stdin is not None  # noqa: S101 - both are pipes
            assert process.stdout is not None  # noqa: S101
            process.stdin.write(asked)
            process.stdin.flush()
            line = process.stdout.readline()
            return line if line.endswith(b"\n") else b""
        except OSError:
            return b""
        finally:
            timer.cancel()

    def _give_up(self, process: subprocess.Popen[bytes]) -> None:
        self._too_long = True
        process.kill()

    @staticmethod
    def _started() -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - our own file, run by the Python that runs us
            [sys.executable, "-P", str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
        )
