"""Chunks of documents: headings, layout hash and importance."""

from __future__ import annotations

import pytest
from msgspec import structs

from support.contracts.knowledge import DOCUMENT, DOMAIN
from weftline.indexing.chunking.model import ChunkingOptions, ParsedDocument
from weftline.indexing.collections import NewChunk
from weftline.knowledge.document_text import ChunkLayout, build_chunks, plan_chunks

TEXT = "# Leave\n\n" + "Thirty days. " * 40 + "\n\n## Abroad\n\n" + "Ask first. " * 40


def plan_and_build(
    text: str = TEXT, title: str = "", parsed_title: str = "Leave"
) -> tuple[ChunkLayout, list[NewChunk]]:
    document = structs.replace(DOCUMENT, title=title)
    domain = structs.replace(DOMAIN, chunking=ChunkingOptions(chunk_tokens=64, overlap_tokens=8))
    document_text = ParsedDocument(text=text, media_type="text/markdown", title=parsed_title)
    layout = plan_chunks(document, domain, document_text, text.encode())
    return layout, build_chunks(
        document, domain, layout, range(len(layout.pieces)), lambda text, heading: heading + text
    )


@pytest.mark.parametrize(
    ("title", "parsed", "first"), [("", "Leave", "Leave"), ("Rules", "Leave", "Rules > Leave"), ("", "", "Leave")]
)
def test_a_chunk_heading_is_the_title_and_heading_path_without_repetition(title: str, parsed: str, first: str) -> None:
    _, chunks = plan_and_build(title=title, parsed_title=parsed)
    assert chunks[0].heading == first
    assert chunks[-1].heading == f"{first} > Abroad"


def test_equal_text_has_an_equal_layout_hash() -> None:
    one, two, other = plan_and_build()[0], plan_and_build()[0], plan_and_build(TEXT + " More.")[0]
    assert one.layout_hash == two.layout_hash != other.layout_hash


def test_chunks_have_the_importance_of_their_domain_and_the_text_of_their_span() -> None:
    _, chunks = plan_and_build()
    assert {chunk.importance for chunk in chunks} == {DOMAIN.importance}
    assert {chunk.digest for chunk in chunks} != {chunks[0].digest}
    assert [chunk.text for chunk in chunks] == [TEXT[chunk.start : chunk.end] for chunk in chunks]
