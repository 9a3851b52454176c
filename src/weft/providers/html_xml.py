"""Reading HTML and XML in a process of its own.

A short XPath can keep libxml2 busy for hours, and nothing inside a process can stop it; but a process can be ended.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from weft.capabilities.records.refs import Css, XPath
from weft.capabilities.records.store import EnclosingElement, MarkupResult

if TYPE_CHECKING:
    from collections.abc import Sequence

_SECONDS = 5.0
_AT_ONCE = 2
_WORKER = Path(__file__).with_name("html_xml_worker.py")
# What a Python needs to start as this one did; nothing that only Weft should know.
_PASSED_ON = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "VIRTUAL_ENV")


class _Answer(msgspec.Struct, frozen=True):
    """What the worker found."""

    texts: tuple[str | None, ...] = ()
    holder: tuple[str, int] | None = None
    problem: str | None = None


class IsolatedMarkupReader:
    """Asks a worker process for every document, and waits only so long."""

    def __init__(self, seconds: float = _SECONDS) -> None:
        self._seconds = seconds
        self._turns = threading.BoundedSemaphore(_AT_ONCE)

    def read(
        self, document: str, media_type: str | None, selectors: Sequence[Css | XPath], words: str | None
    ) -> MarkupResult:
        """Return what each selector means in a document; meant for a thread that may wait."""
        asked = {
            # Half a character, which JSON lets through, is none that XML has.
            "document": document.encode(errors="replace").decode(),
            "html": _is_html(document, media_type),
            "selectors": [["css", s.selector] if isinstance(s, Css) else ["xpath", s.path] for s in selectors],
            "words": words,
        }
        with self._turns:
            return self._ask(msgspec.json.encode(asked))

    def _ask(self, question: bytes) -> MarkupResult:
        try:
            worker = subprocess.run(  # noqa: S603 - our own file, run by the Python that runs us
                [sys.executable, "-P", str(_WORKER)],
                input=question,
                capture_output=True,
                timeout=self._seconds,
                env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
                check=True,
            )
            answer = msgspec.json.decode(worker.stdout, type=_Answer)
        except subprocess.TimeoutExpired:
            return MarkupResult(problem=f"The selectors took longer than {self._seconds:g} seconds to look for.")
        except (subprocess.SubprocessError, OSError, msgspec.MsgspecError):
            return MarkupResult(problem="The source cannot be read as HTML or XML.")
        holder = None if answer.holder is None else EnclosingElement(*answer.holder)
        return MarkupResult(answer.texts, holder, answer.problem)


def _is_html(document: str, media_type: str | None) -> bool:
    if media_type is not None:
        return "html" in media_type or "xml" not in media_type
    return not document.lstrip("\ufeff \t\r\n").startswith("<?xml")
