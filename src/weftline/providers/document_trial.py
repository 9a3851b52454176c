"""Reads, chunks and scans a document in a process of its own, to find out whether it can stop a process.

A document that was being indexed when processes stopped may be the cause, or it may not: processes are killed for many
reasons. If the trial dies of it, it is. Run as a module, this is the process of the trial.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import msgspec

from weftline.indexing.chunking.reader import DocumentUnreadable
from weftline.indexing.text_analysis import index_terms
from weftline.kernel.errors import WeftlineError
from weftline.knowledge.document_scan import scan_document
from weftline.knowledge.document_text import build_chunks, lay_out
from weftline.knowledge.model import Document, Domain
from weftline.providers.document_reader import IsolatedDocumentReader
from weftline.providers.workers.pool import worker_environment
from weftline.safety.trust.scanner import ContentScanner

_SECONDS = 300.0
_MEMORY_BYTES = 4 * 2**30
# One death may have another cause, such as an operator who ended the process.
_TRIALS = 2


class TrialInput(msgspec.Struct, frozen=True):
    """A claimed document, and the limits of its trial."""

    document: Document
    domain: Domain
    # Compressed, as it is stored.
    content: bytes
    cpu_seconds: int
    memory_bytes: int


class DocumentTrial:
    """Tries documents, each in a new process with limited time and memory."""

    def __init__(self, seconds: float = _SECONDS, memory_bytes: int = _MEMORY_BYTES) -> None:
        self._seconds = seconds
        self._memory_bytes = memory_bytes

    def run(self, document: Document, domain: Domain, content: bytes) -> None:
        """Raise DocumentUnreadable if two trials in a row die or take too long. Blocks: call it from a thread."""
        given = TrialInput(document, domain, content, int(self._seconds) + 1, self._memory_bytes)
        encoded = msgspec.msgpack.encode(given)
        if not any(self._survives(encoded) for _ in range(_TRIALS)):
            raise DocumentUnreadable(
                "A process that indexes the document runs out of memory or time, or crashes.",
                hint="Add it in smaller parts or as plain text.",
            )

    def _survives(self, given: bytes) -> bool:
        try:
            tried = subprocess.run(  # noqa: S603 - this module, run by our own Python
                [sys.executable, "-P", "-m", __name__],
                input=given,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=worker_environment(),
                timeout=self._seconds,
                start_new_session=True,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False
        return tried.returncode == 0


class _NoCache:
    """Caches nothing: each text is scanned once."""

    def get(self, _key: object) -> None:
        return None

    def put(self, _key: object, _value: object, _weight: int) -> None:
        return None


def main() -> None:
    """Index the document on standard input, without storing anything."""
    from weftline.providers.injection.local import load_included  # noqa: PLC0415 - slow to import

    given = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=TrialInput)
    scanner = ContentScanner(load_included(), _NoCache())
    _limit(given)
    document, reader = given.document, IsolatedDocumentReader()
    try:
        layout = lay_out(reader, document, given.domain, given.content)
        scan_document(scanner, document, layout)
        build_chunks(document, given.domain, layout, range(len(layout.pieces)), index_terms)
    except WeftlineError:
        # Such as content that is not text: indexing will find that too, and give the reason.
        return
    finally:
        reader.close()


def _limit(given: TrialInput) -> None:
    """Limit time and memory, and be the first process that the system ends when memory is short."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415 - not on Windows

        resource.setrlimit(resource.RLIMIT_CPU, (given.cpu_seconds, given.cpu_seconds))
        resource.setrlimit(resource.RLIMIT_AS, (given.memory_bytes, given.memory_bytes))


if __name__ == "__main__":
    exit_status = 1
    try:
        main()
        exit_status = 0
    finally:
        # At once: threads that are still at work do not matter, and without memory they might never end.
        os._exit(exit_status)
