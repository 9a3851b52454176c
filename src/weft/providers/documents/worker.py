"""The process that parses documents for others: questions on standard input, lines of JSON on the other side.

It is run as a file and knows nothing of Weft. It fetches nothing and limits its own memory and time. When nobody asks
for a while, it ends.
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

_MEMORY_BYTES = 1024 * 2**20
_CPU_SECONDS = 60
_IDLE_SECONDS = 30.0
_MOST_CHARACTERS = 32_000_000
_PARSERS = {"html": "html_text", "pdf": "pdf_text", "code": "code_names"}


def main() -> None:
    """Answer questions until there are no more."""
    # The parsers are its neighbours: they are found by where this file is.
    sys.path.insert(0, str(Path(__file__).parent / "parsers"))
    source, sink = sys.stdin.buffer, sys.stdout
    _limit_memory()
    while question := _next_line(source):
        asked = json.loads(question)
        content = source.read(asked["length"])
        _limit_time()
        json.dump(_answer(asked, content), sink)
        sink.write("\n")
        sink.flush()


def _answer(asked: dict[str, Any], content: bytes) -> dict[str, Any]:
    try:
        # Each worker loads only what it needs.
        answer: dict[str, Any] = import_module(_PARSERS[asked["task"]]).answer(content, asked)
    except MemoryError:
        return {"problem": "The document asks for too much memory."}
    if len(answer.get("text", "")) > _MOST_CHARACTERS:
        return {"problem": "The document has too much text.", "hint": "Bring it in several parts."}
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

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))


def _limit_time() -> None:
    """Let this question take so much time of the CPU, whatever others took."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415 - not on Windows

        used = resource.getrusage(resource.RUSAGE_SELF)
        most = int(used.ru_utime + used.ru_stime) + _CPU_SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (most, resource.getrlimit(resource.RLIMIT_CPU)[1]))


if __name__ == "__main__":
    main()
