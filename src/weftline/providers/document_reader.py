"""Text of documents: plain text is decoded here, formats that need a parser go to a worker process."""

from __future__ import annotations

import re
from typing import Any

from weftline.indexing.chunking.model import CodeSymbol, ParsedDocument
from weftline.indexing.chunking.outlines import title_of_markdown
from weftline.indexing.chunking.reader import DocumentUnreadable, declared_type, decode_document, detect_type
from weftline.providers.extras import INSTALL, NOT_INSTALLED, is_installed
from weftline.providers.workers.pool import WorkerFailed, WorkerPool

_SECONDS = 60.0
_SYMBOL_SECONDS = 10.0
# CPU time that a document may take, with its size: there are few workers, and a small document can be made to be slow.
_LEAST_CPU_SECONDS, _BYTES_A_SECOND = 10, 20_000
_PDF_HEADER_WITHIN = 1_024
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
# Formats that need a parser of weftline[search], and its module.
_PARSERS = {"pdf": ("PDF", "pypdf"), "html": ("HTML", "lxml")}
_BINARY_FORMATS = (
    (b"PK\x03\x04", "an archive or an office document", "Save it as PDF, HTML, markdown or text."),
    (b"\xd0\xcf\x11\xe0", "an old office document", "Save it as PDF, HTML, markdown or text."),
    (b"\x89PNG", "a picture", "Add the text that it shows."),
    (b"\xff\xd8\xff", "a picture", "Add the text that it shows."),
    (b"GIF8", "a picture", "Add the text that it shows."),
    (b"\x1f\x8b", "compressed", "Unpack it first."),
    (b"\x28\xb5\x2f\xfd", "compressed", "Unpack it first."),
)
_INSTALL_PARSER = f"{INSTALL} Then add the document again, or add its text."
# Lone surrogates and NUL, which PDFs contain, cannot be stored as text.
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


class IsolatedDocumentReader:
    """Reads documents. Untrusted formats are parsed in worker processes."""

    def __init__(self, seconds: float = _SECONDS) -> None:
        self._seconds = seconds
        self._workers = WorkerPool()

    def close(self) -> None:
        self._workers.close()

    def read(self, content: bytes, media_type: str | None, name: str) -> ParsedDocument:
        """Return a document as text; raises DocumentUnreadable. Blocks: call it from a thread."""
        declared = declared_type(media_type, name)
        if declared == "application/pdf" or b"%PDF-" in content[:_PDF_HEADER_WITHIN]:
            return self._parsed("pdf", content, "application/pdf")
        _reject_binary(content)
        text = decode_document(content, media_type)
        kind = declared or detect_type(text)
        if kind == "text/html":
            return self._parsed("html", text.encode(), kind)
        title = title_of_markdown(text) if kind == "text/markdown" else ""
        return ParsedDocument(text=text, media_type=kind, title=title, names=self._symbols(text, kind))

    def _parsed(self, task: str, content: bytes, media_type: str) -> ParsedDocument:
        name, module = _PARSERS[task]
        if not is_installed(module):
            raise DocumentUnreadable(f"{name} cannot be read: {NOT_INSTALLED}.", hint=_INSTALL_PARSER)
        try:
            answer = self._workers.run(task, content, self._seconds, cpu_seconds=_cpu_seconds(content))
        except WorkerFailed as failure:
            raise DocumentUnreadable(f"The document cannot be read: {failure}.") from failure
        if problem := answer.get("problem"):
            raise DocumentUnreadable(problem, hint=answer.get("hint"))
        return ParsedDocument(text=_clean(answer["text"]), media_type=media_type, title=_clean(answer["title"]).strip())

    def _symbols(self, text: str, kind: str) -> tuple[CodeSymbol, ...]:
        """Return the symbols of a program; none if its language is unknown or it cannot be parsed."""
        language = _LANGUAGES.get(kind)
        if language is None or not text or not is_installed("tree_sitter"):
            return ()
        try:
            answer = self._workers.run("code", text.encode(errors="replace"), _SYMBOL_SECONDS, language=language)
        except WorkerFailed:
            return ()
        return tuple(_symbol(part) for part in answer.get("names", ()))


def _cpu_seconds(content: bytes) -> int:
    return min(int(_SECONDS), _LEAST_CPU_SECONDS + len(content) // _BYTES_A_SECOND)


def _symbol(part: Any) -> CodeSymbol:  # noqa: ANN401 - JSON
    start, end, name = part
    return CodeSymbol(start, end, _clean(name))


def _clean(text: str) -> str:
    return _UNSTORABLE.sub("\ufffd", text)


def _reject_binary(content: bytes) -> None:
    for beginning, what, hint in _BINARY_FORMATS:
        if content.startswith(beginning):
            raise DocumentUnreadable(f"The document is {what}, not text.", hint=hint)
