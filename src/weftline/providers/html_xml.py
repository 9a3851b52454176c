"""CSS and XPath selectors on HTML and XML, evaluated in a worker process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weftline.providers.extras import NOT_INSTALLED, is_installed
from weftline.providers.workers.pool import WorkerFailed, WorkerPool
from weftline.records.refs import Css, XPath
from weftline.records.schemas import EnclosingElement, MarkupResult

if TYPE_CHECKING:
    from collections.abc import Sequence

_SECONDS = 5.0
_CPU_SECONDS = 10
_UNREADABLE = "The source cannot be read as HTML or XML."


class _Answer(msgspec.Struct, frozen=True):
    texts: tuple[str | None, ...] = ()
    holder: tuple[str, int] | None = None
    problem: str | None = None


class IsolatedMarkupReader:
    """Evaluates selectors in worker processes, with a time limit for each document."""

    def __init__(self, seconds: float = _SECONDS) -> None:
        self._seconds = seconds
        self._workers = WorkerPool()

    def close(self) -> None:
        self._workers.close()

    def read(
        self, document: str, media_type: str | None, selectors: Sequence[Css | XPath], words: str | None
    ) -> MarkupResult:
        """Return the text that each selector matches. Blocks: call it from a thread."""
        if not is_installed("lxml", "cssselect"):
            return MarkupResult(problem=f"CSS and XPath selectors cannot be evaluated: {NOT_INSTALLED}.")
        try:
            answer = self._workers.run(
                "select",
                # XML has no lone surrogates, which JSON lets through.
                document.encode(errors="replace"),
                self._seconds,
                cpu_seconds=_CPU_SECONDS,
                html=_is_html(document, media_type),
                selectors=[["css", s.selector] if isinstance(s, Css) else ["xpath", s.path] for s in selectors],
                words=words,
            )
            found = msgspec.convert(answer, _Answer)
        except WorkerFailed as failure:
            slow = f"The selectors took longer than {self._seconds:g} seconds to look for."
            return MarkupResult(problem=slow if failure.timed_out else _UNREADABLE)
        except (OSError, msgspec.MsgspecError):
            return MarkupResult(problem=_UNREADABLE)
        holder = None if found.holder is None else EnclosingElement(*found.holder)
        return MarkupResult(found.texts, holder, found.problem)


def _is_html(document: str, media_type: str | None) -> bool:
    if media_type is not None:
        return "html" in media_type or "xml" not in media_type
    return not document.lstrip("\ufeff \t\r\n").startswith("<?xml")
