"""Embedding on request: vectors for those who compare texts themselves."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from weft.capabilities.indexing.embeddings.model import (
    EmbedderUnavailable,
    EmbeddingModelUnknown,
    Embeddings,
    Purpose,
    TextRefused,
)
from weft.kernel.errors import InvalidInput
from weft.kernel.identity import Actor, Permission
from weft.kernel.operation import Effect, RateClass, Request, Response, operation

Text = Annotated[str, msgspec.Meta(max_length=32_000)]
ModelName = Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern=r"^[!-~]+\Z")]


class EmbedTexts(Request):
    """What to embed, and what for: a text, or several."""

    text: Annotated[Text | None, msgspec.Meta(description="What a model cannot take in is cut off.")] = None
    texts: Annotated[
        Annotated[list[Text], msgspec.Meta(min_length=1, max_length=64)] | None,
        msgspec.Meta(description="Or up to 64 texts."),
    ] = None
    purpose: Annotated[
        Purpose, msgspec.Meta(description="'query' for what is asked, 'passage' for what is to be found.")
    ] = "passage"
    model: Annotated[
        ModelName | None, msgspec.Meta(description="One of the models you may use; the one of your searches if empty.")
    ] = None


class TextsEmbedded(Response, kw_only=True, omit_defaults=False):
    """A vector of length one for each text, in order, and how many of them you had asked for before."""

    success: Literal[True] = True
    model: str
    dimensions: int
    vectors: list[list[float]]
    cached: int


@operation(
    "knowledge.embed",
    tool="knowledge",
    action="embed",
    http="POST /v1/embed",
    permission=Permission.READ,
    rate=RateClass.SEARCH,
    effect=Effect.OWN_TRANSACTIONS,
    errors=(EmbedderUnavailable, EmbeddingModelUnknown, TextRefused),
)
async def embed_texts(request: EmbedTexts, actor: Actor, embeddings: Embeddings) -> TextsEmbedded:
    """Turn texts into vectors, near each other where they mean alike; by the model that searches use."""
    texts = [request.text] if request.text is not None else request.texts
    if texts is None or (request.text is not None and request.texts is not None):
        raise InvalidInput("text: give either text or texts", field="text")
    embedded = await embeddings.for_asker(actor, texts, request.purpose, request.model)
    return TextsEmbedded(
        model=embedded.model.name,
        dimensions=embedded.model.dimensions,
        vectors=embedded.vectors,
        cached=embedded.cached,
    )
