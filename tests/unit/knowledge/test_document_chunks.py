"""Chunks stand under the title and headings of their document, and the same text is always cut at the same places."""

from __future__ import annotations

import pytest
from msgspec import structs

from weft.capabilities.indexing.chunking.model import ChunkingOptions, ParsedDocument
from weft.capabilities.indexing.collections.model import NewChunk
from weft.capabilities.knowledge.document_chunks import ChunkLayout, build_chunks, plan_chunks
from weft.testing.contracts.knowledge import DOCUMENT, DOMAIN

TEXT = "# Leave\n\n" + "Thirty days. " * 40 + "\n\n## Abroad\n\n" + "Ask first. " * 40


def laid_out(text: str = TEXT, title: str = "", own_title: str = "Leave") -> tuple[ChunkLayout, list[NewChunk]]:
    document = structs.replace(DOCUMENT, title=title)
    domain = structs.replace(DOMAIN, chunking=ChunkingOptions(chunk_tokens=64, overlap_tokens=8))
    reading = ParsedDocument(text=text, media_type="text/markdown", title=own_title)
    layout = plan_chunks(document, domain, reading, text.encode())
    return layout, build_chunks(
        document, domain, layout, range(len(layout.pieces)), lambda text, heading: heading + text
    )


@pytest.mark.parametrize(
    ("title", "own", "first"), [("", "Leave", "Leave"), ("Rules", "Leave", "Rules > Leave"), ("", "", "Leave")]
)
def test_a_chunk_repeats_title_and_headings_once(title: str, own: str, first: str) -> None:
    _, chunks = laid_out(title=title, own_title=own)
    assert chunks[0].heading == first
    assert chunks[-1].heading == f"{first} > Abroad"


def test_the_same_text_is_cut_at_the_same_places() -> None:
    one, two, other = laid_out()[0], laid_out()[0], laid_out(TEXT + " More.")[0]
    assert one.layout_hash == two.layout_hash != other.layout_hash


def test_a_chunk_takes_its_importance_from_the_domain_unless_the_document_sets_it() -> None:
    _, chunks = laid_out()
    assert {chunk.importance for chunk in chunks} == {DOMAIN.importance}
    assert {chunk.digest for chunk in chunks} != {chunks[0].digest}
    assert [chunk.text for chunk in chunks] == [TEXT[chunk.start : chunk.end] for chunk in chunks]
