"""PDFs of a valid structure that ask for far more time or memory than their size says."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_TEXT = b"BT /F1 12 Tf 10 10 Td (hello) Tj ET\n"
_PAGE = b"<</Type/Page/MediaBox[0 0 600 800]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>"
_FONT = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"


def pdf(objects: Mapping[int, bytes]) -> bytes:
    """Return a PDF with these objects; number 1 is its catalog."""
    body, places = b"%PDF-1.7\n", {}
    for number, each in objects.items():
        places[number] = len(body)
        body += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    size = max(objects) + 1
    table = b"".join(
        b"%010d 00000 n \n" % places[number] if number in places else b"0000000000 65535 f \n" for number in range(size)
    )
    trailer = b"trailer\n<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (size, len(body))
    return b"%sxref\n0 %d\n%s%s" % (body, size, table, trailer)


def stream(content: bytes, fields: bytes = b"") -> bytes:
    return b"<</Length %d%s>>\nstream\n%s\nendstream" % (len(content), fields, content)


def one_page(contents: bytes, **others: bytes) -> bytes:
    """Return a PDF of one page with these contents; others replace its page or its font."""
    return pdf(
        {
            1: b"<</Type/Catalog/Pages 2 0 R>>",
            2: b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
            3: others.get("page", _PAGE),
            4: contents,
            5: others.get("font", _FONT),
        }
    )


def nested_filters() -> bytes:
    """Return a page whose contents are compressed twice, from 100 MB to a kilobyte."""
    packed = zlib.compress(zlib.compress(bytes(100 * 2**20), 9), 9)
    return one_page(stream(packed, b"/Filter[/FlateDecode/FlateDecode]"))


def many_filters() -> bytes:
    packed = _TEXT
    for _ in range(200):
        packed = zlib.compress(packed, 1)
    return one_page(stream(packed, b"/Filter[%s]" % (b"/FlateDecode" * 200)))


def wide_predictor() -> bytes:
    """Return a page whose compressed contents claim to be rows of 400 GB."""
    fields = b"/Filter/FlateDecode/DecodeParms<</Predictor 12/Columns 2000000000/Colors 200>>"
    return one_page(stream(zlib.compress(b"\x02" + b"A" * 1_000), fields))


def many_contents() -> bytes:
    """Return a page that shows the same contents 300,000 times."""
    contents = stream(zlib.compress(_TEXT * 1_000), b"/Filter/FlateDecode")
    return one_page(contents, page=_PAGE.replace(b"/Contents 4 0 R", b"/Contents[%s]" % (b"4 0 R " * 300_000)))


def wide_characters() -> bytes:
    """Return a page with a font that maps two thousand million characters."""
    codes = b"1 beginbfrange <00000000> <7fffffff> <0041> endbfrange"
    font = b"<</Type/Font/Subtype/Type0/BaseFont/H/Encoding/Identity-H/ToUnicode 6 0 R>>"
    pages = b"<</Type/Pages/Kids[3 0 R]/Count 1>>"
    catalog = b"<</Type/Catalog/Pages 2 0 R>>"
    return pdf({1: catalog, 2: pages, 3: _PAGE, 4: stream(_TEXT), 5: font, 6: stream(codes)})


def deep_pages() -> bytes:
    """Return a page below 3,000 levels of pages."""
    levels = {10 + level: b"<</Type/Pages/Kids[%d 0 R]/Count 1>>" % (11 + level) for level in range(3_000)}
    return pdf({1: b"<</Type/Catalog/Pages 10 0 R>>", 4: stream(_TEXT), 5: _FONT, **levels, 3_010: _PAGE})


def thousand_million_pages() -> bytes:
    """Return nine levels of ten pages each that are all the same."""
    levels = {10 + level: b"<</Type/Pages/Count 10/Kids[%s]>>" % (b"%d 0 R " % (11 + level) * 10) for level in range(9)}
    return pdf({1: b"<</Type/Catalog/Pages 10 0 R>>", 4: stream(_TEXT), 5: _FONT, **levels, 19: _PAGE})


def slow_page() -> bytes:
    """Return a page of a million instructions, packed into 40 KB."""
    return one_page(stream(zlib.compress(_TEXT * 400_000, 9), b"/Filter/FlateDecode"))


BOMBS = (
    nested_filters,
    many_filters,
    wide_predictor,
    many_contents,
    wide_characters,
    deep_pages,
    thousand_million_pages,
)
