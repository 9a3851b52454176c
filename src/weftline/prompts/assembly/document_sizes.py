"""Tokens of the whole documents that passages come from, to compare prompts with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.knowledge.sql import DocumentStore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weftline.search.passages import ChunkPassage


async def document_tokens(passages: Iterable[ChunkPassage], documents: DocumentStore) -> int:
    """Return the tokens of the documents that these passages come from, each once.

    A document has as many tokens per byte as its passages. The tokens are estimates, before any factor of a model.
    """
    by_document: dict[tuple[str, str], list[ChunkPassage]] = {}
    for passage in passages:
        by_document.setdefault((passage.chunk.place, passage.chunk.item), []).append(passage)
    total = 0
    for domain in sorted({place for place, _ in by_document}):
        found = await documents.find_all(domain, [item for place, item in by_document if place == domain])
        for item, document in found.items():
            chunks = by_document[domain, item]
            tokens, size = sum(c.chunk.tokens for c in chunks), sum(len(c.text.encode()) for c in chunks)
            total += max(tokens, round(document.text_bytes * tokens / size)) if size else tokens
    return total
