"""Reading documents: extracted text, detected media type and title, or an error with the reason."""

from __future__ import annotations

import io
import os
import subprocess
import zlib
from typing import TYPE_CHECKING

import pypdf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.full_run import examples
from support.hostile_pdfs import BOMBS, slow_page
from weftline.indexing.chunking.chunker import split_into_chunks
from weftline.indexing.chunking.model import ChunkingOptions, ParsedDocument
from weftline.indexing.chunking.reader import DocumentUnreadable, decode_document
from weftline.kernel.errors import PoolNotInitialized
from weftline.kernel.ports import approximate_tokens
from weftline.providers import document_reader
from weftline.providers.document_reader import IsolatedDocumentReader
from weftline.providers.workers.pool import WorkerFailed, WorkerPool, _Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

pytestmark = pytest.mark.req("CE-F39", "CE-F48")


@pytest.fixture(scope="module")
def reader() -> Iterator[IsolatedDocumentReader]:
    reader = IsolatedDocumentReader()
    yield reader
    reader.close()


def pdf(pages: Sequence[bytes], *, filtered: bytes = b"") -> bytes:
    """Return a PDF whose pages have these contents."""
    kids = b" ".join(b"%d 0 R" % (4 + 2 * number) for number in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, len(pages)),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, content in enumerate(pages):
        resources = b"/Resources << /Font << /F1 3 0 R >> >> /MediaBox [0 0 600 800]"
        objects.append(b"<< /Type /Page /Parent 2 0 R %s /Contents %d 0 R >>" % (resources, 5 + 2 * number))
        objects.append(b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(content), filtered, content))
    body, offsets = b"%PDF-1.4\n", []
    for number, written in enumerate(objects, start=1):
        offsets.append(len(body))
        body += b"%d 0 obj\n%s\nendobj\n" % (number, written)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    trailer = b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, len(body))
    return body + b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(objects) + 1, table) + trailer


def page(words: bytes) -> bytes:
    return b"BT /F1 12 Tf 72 700 Td (%s) Tj ET" % words


def test_a_pdf_is_read_page_by_page(reader: IsolatedDocumentReader) -> None:
    parsed = reader.read(pdf([page(b"First words."), page(b"Second words.")]), None, "paper.pdf")
    assert (parsed.text, parsed.media_type) == ("First words.\fSecond words.", "application/pdf")
    (piece,) = split_into_chunks(parsed, ChunkingOptions(), approximate_tokens)
    assert piece.heading == "page 1 to page 2"


def test_a_pdf_is_recognised_by_its_content(reader: IsolatedDocumentReader) -> None:
    assert reader.read(pdf([page(b"Words.")]), "application/octet-stream", "download").text == "Words."


def test_an_encrypted_pdf_is_refused_with_a_reason(reader: IsolatedDocumentReader) -> None:
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(pdf([page(b"Hidden.")])))
    writer.encrypt("password", algorithm="RC4-128")
    written = io.BytesIO()
    writer.write(written)
    with pytest.raises(DocumentUnreadable, match="encrypted") as refused:
        reader.read(written.getvalue(), None, "paper.pdf")
    assert "password" in refused.value.hint


def test_a_damaged_pdf_is_refused_with_a_reason(reader: IsolatedDocumentReader) -> None:
    with pytest.raises(DocumentUnreadable, match="damaged"):
        reader.read(b"%PDF-1.4\n" + bytes(range(256)) * 10, None, "paper.pdf")


def test_a_pdf_without_text_is_refused_with_a_reason(reader: IsolatedDocumentReader) -> None:
    with pytest.raises(DocumentUnreadable, match="only pictures"):
        reader.read(pdf([b""]), None, "scan.pdf")


def test_a_pdf_that_unpacks_to_gigabytes_is_refused(reader: IsolatedDocumentReader) -> None:
    packed = zlib.compress(page(b"a") + b" " * 400_000_000, 1)
    with pytest.raises(DocumentUnreadable):
        reader.read(pdf([packed], filtered=b"/Filter /FlateDecode"), None, "bomb.pdf")
    assert reader.read(b"<p>The next one is read.", "text/html", "").text == "The next one is read."


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb.__name__)
def test_a_valid_pdf_that_asks_for_too_much_is_refused_with_a_reason(
    reader: IsolatedDocumentReader, bomb: Callable[[], bytes]
) -> None:
    with pytest.raises(DocumentUnreadable, match="asks for too much memory or time"):
        reader.read(bomb(), "application/pdf", "bomb.pdf")


def test_a_small_pdf_gets_little_time(reader: IsolatedDocumentReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_reader, "_LEAST_CPU_SECONDS", 1)
    with pytest.raises(DocumentUnreadable, match="asks for too much memory or time"):
        reader.read(slow_page(), "application/pdf", "slow.pdf")
    assert reader.read(pdf([page(b"Words.")]), None, "next.pdf").text == "Words."


def test_slow_parsing_is_cancelled() -> None:
    impatient = IsolatedDocumentReader(seconds=0.001)
    with pytest.raises(DocumentUnreadable, match=r"longer than 0\.001 seconds"):
        impatient.read(pdf([page(b"words")] * 50), None, "slow.pdf")
    impatient.close()


HTML = b"""<!doctype html><html><head><title> The  page </title><style>p {}</style></head><body>
<nav><a href="/">Home</a></nav><h1>Big <em>news</em></h1>
<p>Hello <b>wor</b>ld,<br>again.<script>evil()</script> Yes.</p><p hidden>unseen</p><p style="display: none">unseen</p>
<ul><li>one<ul><li>inner</li></ul></li><li>two</li></ul>
<table><tr><th>A</th><th>B</th></tr><tr><td><p>1</p></td><td>2 &amp; 3</td></tr></table>
<pre>x = 1
  y = `z`</pre>caf\xc3\xa9 <!-- a comment --> open<img src="i" alt="a picture"></body></html>"""
HTML_TEXT = """Home

# Big news

Hello world,
again. Yes.

- one
  - inner
- two

| A | B |
| 1 | 2 & 3 |

```
x = 1
  y = `z`
```

café open a picture"""


def test_html_becomes_markdown_without_hidden_elements(reader: IsolatedDocumentReader) -> None:
    parsed = reader.read(HTML, None, "page")
    assert (parsed.media_type, parsed.title) == ("text/html", "The page")
    assert parsed.text == HTML_TEXT.replace("open a", "opena")


def test_a_page_without_title_is_titled_by_its_first_heading(reader: IsolatedDocumentReader) -> None:
    assert reader.read(b"<html><h2>Only <i>one</i></h2><p>text", None, "p.html").title == "Only one"


def test_deeply_nested_html_is_read_whole_or_refused(reader: IsolatedDocumentReader) -> None:
    assert reader.read(b"<div>" * 1_000 + b"deep" + b"</div>" * 1_000, "text/html", "").text == "deep"
    with pytest.raises(DocumentUnreadable, match="too deep"):
        reader.read(b"<div>" * 100_000 + b"deep" + b"</div>" * 100_000, "text/html", "")


@settings(max_examples=examples(40), deadline=None)
@given(st.text(st.characters(codec="utf-8", exclude_characters="<&\0", exclude_categories=("C", "Z"))))
def test_all_text_of_a_page_is_kept(reader: IsolatedDocumentReader, words: str) -> None:
    assert words in reader.read(f"<body><p>{words}</p>".encode(), "text/html", "").text


@pytest.mark.parametrize(
    ("name", "source", "names"),
    [
        ("a.py", "@once\ndef f():\n    pass\n\nclass A:\n    def m(self): ...\n", ["f", "A", "m"]),
        ("a.js", "export class A { m() { return 1 } }\nconst f = () => 2\nfunction g() {}\n", ["A", "m", "f", "g"]),
        ("a.ts", "interface I { x: number }\nnamespace N { export function f(): void {} }\n", ["I", "N", "f"]),
        ("a.tsx", "export const View = () => <p>hi</p>\n", ["View"]),
        ("A.java", "class A {\n  A() {}\n  int m() { return 1; }\n}\n", ["A", "A", "m"]),
        ("a.c", "struct s { int x; };\nstatic int *f(int a) { return 0; }\n", ["s", "f"]),
        ("a.cpp", "namespace n {\nclass A { void m() {} };\nvoid A::k() {}\n}\n", ["n", "A", "m", "A::k"]),
        ("a.go", "package p\ntype T struct{}\nfunc (t *T) M() {}\nfunc f() {}\n", ["T", "T.M", "f"]),
        ("a.rs", "/// Doc.\n#[test]\nfn f() {}\nimpl T for S { fn m(&self) {} }\n", ["f", "S", "m"]),
        ("a.rb", "module M\n  class A\n    def m; end\n  end\nend\n", ["M", "A", "m"]),
        ("a.cs", "namespace N { class A { int M() { return 1; } } }\n", ["N", "A", "M"]),
    ],
)
def test_symbols_of_source_code_are_extracted(
    reader: IsolatedDocumentReader, name: str, source: str, names: list[str]
) -> None:
    parsed = reader.read(source.encode(), None, name)
    assert [part.name for part in parsed.names] == names
    assert parsed.text == source


def test_a_symbol_starts_with_its_leading_comments(reader: IsolatedDocumentReader) -> None:
    source = (
        'é = "ü"\n\n# About f.\n@once\ndef f():\n    return é\n\n\nclass A:\n    # About m.\n    def m(self): ...\n'
    )
    parts = {part.name: part for part in reader.read(source.encode(), None, "a.py").names}
    assert source[parts["f"].start : parts["f"].end] == "# About f.\n@once\ndef f():\n    return é"
    assert source[parts["m"].start :].startswith("    # About m.\n")


def test_symbols_of_long_and_nested_source_code_are_extracted(reader: IsolatedDocumentReader) -> None:
    long = "def f():\n    pass\n" * 3_000
    assert len(reader.read(long.encode(), None, "long.py").names) == 3_000
    nested = "".join(" " * depth + f"def f{depth}():\n" for depth in range(300)) + " " * 300 + "pass\n"
    names = [part.name for part in reader.read(nested.encode(), None, "nested.py").names]
    assert names[:3] == ["f0", "f1", "f2"]
    assert len(names) <= 300


@pytest.mark.parametrize("source", ["(" * 200_000, "class A {" * 20_000, "\x01\x02def (", "if a:\n" * 3_000])
def test_unparsable_source_code_is_plain_text(reader: IsolatedDocumentReader, source: str) -> None:
    assert reader.read(source.encode(), None, "a.py").text == source


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("Grüße, 世界 👋\r\nzweite\rdritte\n".encode(), "Grüße, 世界 👋\nzweite\ndritte\n"),
        (b"\xef\xbb\xbfmarked", "marked"),
        ("wide Grüße".encode("utf-16"), "wide Grüße"),
        ("unmarked wide text".encode("utf-16-le"), "unmarked wide text"),
        ("unmarked wide text".encode("utf-16-be"), "unmarked wide text"),
        (b"caf\xe9 \x93quoted\x94", "café “quoted”"),
        (b"\x81\x8d", "\x81\x8d"),
        (b"", ""),
    ],
)
def test_text_encoding_is_detected(content: bytes, text: str) -> None:
    assert decode_document(content, None) == text


def test_a_declared_encoding_is_used() -> None:
    assert decode_document("привет".encode("koi8-r"), "text/plain; charset=KOI8-R") == "привет"
    assert "привет" in decode_document('<meta charset="windows-1251">привет'.encode("cp1251"), "text/html")
    assert decode_document(b"plain", "text/plain; charset=base64") == "plain"
    assert decode_document(b"plain", "text/plain; charset=nonsense") == "plain"


@settings(max_examples=examples(60))
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0\r")))
def test_text_is_not_changed(text: str) -> None:
    assert decode_document(text.encode(), "text/plain; charset=utf-8") == text.removeprefix("\ufeff")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04rest", "office document"),
        (b"\x89PNG\r\n", "a picture"),
        (b"\x1f\x8b\x08", "compressed"),
        (bytes(range(256)) * 4, "contains NUL bytes"),
    ],
)
def test_binary_content_is_refused_with_a_hint(reader: IsolatedDocumentReader, content: bytes, message: str) -> None:
    with pytest.raises(DocumentUnreadable, match=message) as refused:
        reader.read(content, None, "file.bin")
    assert refused.value.hint


@pytest.mark.parametrize(
    ("name", "media_type", "content", "expected"),
    [
        ("a.md", None, "text", "text/markdown"),
        ("a.md", "text/plain", "text", "text/markdown"),
        ("a.txt", "text/csv; header=present", "a,b", "text/csv"),
        ("a", None, "# Title\n\ntext", "text/markdown"),
        ("a", None, '{"a": 1}', "application/json"),
        ("a", None, '{"a": 1}\n{"a": 2}\n', "application/x-ndjson"),
        ("a", None, "{not json", "text/plain"),
        ("a", None, "[" * 5_000, "text/plain"),
        ("a.txt", None, "A: one\nB: two\nA: three\nB: four\n", "text/x-transcript"),
        ("a.txt", None, "Name: Ada\nAge: 36\nCity: London\nRole: engineer\n", "text/plain"),
        ("run", None, "#!/usr/bin/env python3\nprint()\n", "text/x-python"),
        ("a.KT", None, "fun f() {}", "text/x-kotlin"),
    ],
)
def test_the_media_type_of_a_document_is_detected(
    reader: IsolatedDocumentReader, name: str, media_type: str | None, content: str, expected: str
) -> None:
    parsed = reader.read(content.encode(), media_type, name)
    assert parsed.media_type == expected
    assert parsed.text == content


def test_markdown_is_titled_by_its_first_heading(reader: IsolatedDocumentReader) -> None:
    parsed = reader.read(b"Before.\n\n# The title\n\nText.", None, "a.md")
    assert parsed == ParsedDocument(
        text="Before.\n\n# The title\n\nText.", media_type="text/markdown", title="The title"
    )


def test_a_closed_reader_reports_no_document_error() -> None:
    closed = IsolatedDocumentReader()
    closed.close()
    with pytest.raises(PoolNotInitialized):
        closed.read(b"<p>words", "text/html", "")


def test_a_document_that_killed_a_worker_is_not_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    make = _Worker._start

    def counted() -> object:
        started.append(1)
        return make()

    monkeypatch.setattr(_Worker, "_start", staticmethod(counted))
    workers = WorkerPool(1)
    with pytest.raises(WorkerFailed):
        workers.run("unknown", b"", 30.0)
    assert len(started) == 1
    workers.close()


def test_content_is_tried_again_when_somebody_else_ended_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    make = _Worker._start

    def ended_at_first() -> subprocess.Popen[bytes]:
        started.append(make())
        if len(started) == 1:
            started[0].terminate()
        return started[-1]

    monkeypatch.setattr(_Worker, "_start", staticmethod(ended_at_first))
    workers = WorkerPool(1)
    assert workers.run("html", b"<p>words", 30.0)["text"] == "words"
    assert len(started) == 2
    assert os.getsid(started[-1].pid) != os.getsid(0), "a signal to the server's group does not reach it"
    workers.close()


def test_a_dead_worker_is_replaced(reader: IsolatedDocumentReader) -> None:
    reader.read(b"<p>one", "text/html", "")
    for worker in reader._workers._workers:
        if worker._process is not None:
            worker._process.kill()
            worker._process.wait()
    assert reader.read(b"<p>two", "text/html", "").text == "two"
