"""Pool of worker processes that parse untrusted content and are killed when they take too long.

A short XPath can keep libxml2 busy for hours and a crafted PDF can fill the memory. Nothing inside a process can stop
that, but a process can be killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from queue import LifoQueue
from typing import Any

import msgspec

from weftline.kernel.errors import PoolNotInitialized

_WORKERS = 2
# Exit codes of a worker that was idle, or that somebody else ended; the content is tried once more.
_ENDED = frozenset({0, -signal.SIGTERM, -signal.SIGINT, -signal.SIGKILL})
_SCRIPT = Path(__file__).with_name("main.py")
# What Python needs to start; the rest of the environment may hold secrets.
_ENVIRONMENT = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "VIRTUAL_ENV")


class WorkerFailed(Exception):
    """The worker was killed for taking too long, or ended without an answer."""

    def __init__(self, seconds: float, *, timed_out: bool) -> None:
        reason = f"it took longer than {seconds:g} seconds" if timed_out else "it asks for too much memory or time"
        super().__init__(reason)
        self.timed_out = timed_out


class WorkerPool:
    """Runs tasks in worker processes. The most recently used worker is used first; others start on demand."""

    def __init__(self, workers: int = _WORKERS) -> None:
        self._workers = [_Worker() for _ in range(workers)]
        self._free: LifoQueue[_Worker] = LifoQueue()
        self._closed = False
        for worker in self._workers:
            self._free.put(worker)

    def run(self, task: str, content: bytes, seconds: float, **options: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """Return the answer of a task on some content; raises WorkerFailed. Blocks: call it from a thread."""
        worker = self._free.get()
        try:
            if self._closed:
                raise PoolNotInitialized
            return worker.run({"task": task, **options}, content, seconds)
        except WorkerFailed:
            if self._closed:
                # Killed by close, not by the content.
                raise PoolNotInitialized from None
            raise
        finally:
            self._free.put(worker)

    def close(self) -> None:
        self._closed = True
        for worker in self._workers:
            worker.close()


class _Worker:
    """One process: started by a task, kept for the next one."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._timed_out = False
        self._closed = False

    def run(self, question: dict[str, Any], content: bytes, seconds: float) -> dict[str, Any]:
        message = msgspec.json.encode({**question, "length": len(content)}) + b"\n" + content
        answer = self._exchange(message, seconds)
        if not answer and self._was_ended():
            self._kill()
            answer = self._exchange(message, seconds)
        if not answer:
            self._kill()
            raise WorkerFailed(seconds, timed_out=self._timed_out)
        return msgspec.json.decode(answer, type=dict[str, Any])

    def close(self) -> None:
        self._closed = True
        self._kill()

    def _was_ended(self) -> bool:
        """Return whether the process ended while idle or was ended from outside: the content may not be the cause."""
        process = self._process
        return process is not None and not self._timed_out and not self._closed and process.wait() in _ENDED

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _exchange(self, message: bytes, seconds: float) -> bytes:
        """Send a message and return the answering line; empty if the process ended."""
        if self._process is not None and self._process.poll() is not None:
            self._kill()
        process = self._process or self._start()
        self._process, self._timed_out = process, False
        timer = threading.Timer(seconds, self._time_out, [process])
        timer.start()
        try:
            assert process.stdin is not None  # noqa: S101 - both are pipes
            assert process.stdout is not None  # noqa: S101
            process.stdin.write(message)
            process.stdin.flush()
            line = process.stdout.readline()
            return line if line.endswith(b"\n") else b""
        except OSError:
            return b""
        finally:
            timer.cancel()

    def _time_out(self, process: subprocess.Popen[bytes]) -> None:
        self._timed_out = True
        process.kill()

    @staticmethod
    def _start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - our own script, run by our own Python
            [sys.executable, "-P", str(_SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=worker_environment(),
            # What ends the server by its process group, such as Ctrl+C, must not look like a fault of the content.
            start_new_session=True,
        )


def worker_environment() -> dict[str, str]:
    """Return the environment of a process that handles untrusted content."""
    return {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
