"""The worker process: reads tasks from standard input, writes one line of JSON for each to standard output.

It runs as a script and imports nothing of Weftline. It opens no network connection, limits its own memory and CPU time,
and ends when idle.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

_MAX_MEMORY_BYTES = 1024 * 2**20
_CPU_SECONDS = 60
_IDLE_SECONDS = 30.0
_MAX_TEXT_CHARACTERS = 32_000_000
_TASKS = {"html": "html_text", "pdf": "pdf_text", "code": "code_symbols", "select": "markup_selectors"}


def main() -> None:
    """Answer tasks until standard input ends."""
    sys.path.insert(0, str(Path(__file__).parent / "tasks"))
    source, sink = sys.stdin.buffer, sys.stdout
    _limit_memory()
    while line := _next_line(source):
        question = json.loads(line)
        content = source.read(question["length"])
        _limit_cpu(question.get("cpu_seconds", _CPU_SECONDS))
        json.dump(_answer(question, content), sink)
        sink.write("\n")
        sink.flush()


def _answer(question: dict[str, Any], content: bytes) -> dict[str, Any]:
    try:
        # Imported here, so that each worker loads only what it needs.
        answer: dict[str, Any] = import_module(_TASKS[question["task"]]).answer(content, question)
    except MemoryError:
        return {"problem": "The document asks for too much memory."}
    if len(answer.get("text", "")) > _MAX_TEXT_CHARACTERS:
        return {"problem": "The document has too much text.", "hint": "Split it into several documents."}
    return answer


def _next_line(source: Any) -> bytes:  # noqa: ANN401 - a binary file
    idle = threading.Timer(_IDLE_SECONDS, os._exit, [0])
    idle.daemon = True
    idle.start()
    try:
        line: bytes = source.readline()
        return line
    finally:
        idle.cancel()


def _limit_memory() -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415 - not on Windows

        resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))


def _limit_cpu(seconds: int) -> None:
    """Limit the CPU time of one task, on top of what earlier tasks used."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415 - not on Windows

        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime) + seconds
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))


if __name__ == "__main__":
    main()
