"""Reading any document: text here, everything that needs a parser in a worker."""

from __future__ import annotations

import re
from typing import Any

from weft.capabilities.indexing.chunking.media_types import said_type, type_of_text
from weft.capabilities.indexing.chunking.model import CodeSymbol, Reading
from weft.capabilities.indexing.chunking.reader import DocumentUnreadable, decoded
from weft.capabilities.indexing.chunking.strategies.markdown import title_of_markdown
from weft.providers.documents.process import WorkerFailed, Workers

_SECONDS = 60.0
_SECONDS_FOR_NAMES = 10.0
_PDF_BEGINS_WITHIN = 1_024
_LANGUAGES = {
    "text/x-python": "python",
    "text/javascript": "javascript",
    "text/x-typescript": "typescript",
    "text/x-tsx": "tsx",
    "text/x-java": "java",
    "text/x-c": "c",
    "text/x-c++": "cpp",
    "text/x-go": "go",
    "text/x-rust": "rust",
    "text/x-ruby": "ruby",
    "text/x-csharp": "c_sharp",
}
_NO_TEXT = (
    (b"PK\x03\x04", "an archive or an office document", "Save it as PDF, HTML, markdown or text."),
    (b"\xd0\xcf\x11\xe0", "an office document of an old kind", "Save it as PDF, HTML, markdown or text."),
    (b"\x89PNG", "a picture", "Bring the text that it shows."),
    (b"\xff\xd8\xff", "a picture", "Bring the text that it shows."),
    (b"GIF8", "a picture", "Bring the text that it shows."),
    (b"\x1f\x8b", "compressed", "Unpack it first."),
    (b"\x28\xb5\x2f\xfd", "compressed", "Unpack it first."),
)
# Half of a character, and what the control characters of a PDF stand for, is no text that a database takes.
_NO_CHARACTER = re.compile("[\0\ud800-\udfff]")


class IsolatedDocumentReader:
    """Reads documents; what others wrote is parsed where it can do no harm."""

    def __init__(self, seconds: float = _SECONDS) -> None:
        self._seconds = seconds
        self._workers = Workers()

    def close(self) -> None:
        self._workers.close()

    def read(self, content: bytes, media_type: str | None, name: str) -> Reading:
        """Return a document as text; raises DocumentUnreadable. It may take long: it is meant for a thread."""
        said = said_type(media_type, name)
        if said == "application/pdf" or b"%PDF-" in content[:_PDF_BEGINS_WITHIN]:
            return self._parsed("pdf", content, "application/pdf")
        _refuse_no_text(content)
        text = decoded(content, media_type)
        kind = said or type_of_text(text)
        if kind == "text/html":
            return self._parsed("html", text.encode(), kind)
        title = title_of_markdown(text) if kind == "text/markdown" else ""
        return Reading(text=text, media_type=kind, title=title, names=self._names(text, kind))

    def _parsed(self, task: str, content: bytes, media_type: str) -> Reading:
        try:
            answer = self._workers.ask({"task": task}, content, self._seconds)
        except WorkerFailed as failure:
            raise DocumentUnreadable(f"The document cannot be read: {failure}.") from failure
        if problem := answer.get("problem"):
            raise DocumentUnreadable(problem, hint=answer.get("hint"))
        return Reading(text=_clean(answer["text"]), media_type=media_type, title=_clean(answer["title"]).strip())

    def _names(self, text: str, kind: str) -> tuple[CodeSymbol, ...]:
        """Return the named parts of a program; none where its language is not known or it cannot be understood."""
        language = _LANGUAGES.get(kind)
        if language is None or not text:
            return ()
        try:
            asked = {"task": "code", "language": language}
            answer = self._workers.ask(asked, text.encode(errors="replace"), _SECONDS_FOR_NAMES)
        except WorkerFailed:
            return ()
        return tuple(_named(part) for part in answer.get("names", ()))


def _named(part: Any) -> CodeSymbol:  # noqa: ANN401 - as it came from the worker
    start, end, name = part
    return CodeSymbol(start, end, _clean(name))


def _clean(text: str) -> str:
    return _NO_CHARACTER.sub("\ufffd", text)


def _refuse_no_text(content: bytes) -> None:
    for beginning, what, hint in _NO_TEXT:
        if content.startswith(beginning):
            raise DocumentUnreadable(f"The document is {what}, not text.", hint=hint)
