"""Operation that embeds texts."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from weftline.indexing.embeddings.model import (
    EmbedderUnavailable,
    EmbeddingModelUnknown,
    Embeddings,
    Purpose,
    TextRefused,
)
from weftline.kernel.errors import InvalidInput
from weftline.kernel.identity import Actor, Permission
from weftline.kernel.operation import Effect, RateClass, Request, Response, SessionUse, operation

Text = Annotated[str, msgspec.Meta(max_length=32_000)]
ModelName = Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern=r"^[!-~]+\Z")]


class EmbedTexts(Request):
    """Texts to embed, and their purpose."""

    text: Annotated[Text | None, msgspec.Meta(description="A text; truncated to the model's token limit.")] = None
    texts: Annotated[
        Annotated[list[Text], msgspec.Meta(min_length=1, max_length=64)] | None,
        msgspec.Meta(description="Alternatively, up to 64 texts."),
    ] = None
    purpose: Annotated[
        Purpose, msgspec.Meta(description="'query' for search queries, 'passage' for texts to be found.")
    ] = "passage"
    model: Annotated[
        ModelName | None, msgspec.Meta(description="A model you may use; default: the one of your searches.")
    ] = None


class EmbeddedTexts(Response, kw_only=True, omit_defaults=False):
    """A normalised vector for each text, in order. ``cached``: how many of them you had requested before."""

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
    session=SessionUse.NONE,
)
async def embed_texts(request: EmbedTexts, actor: Actor, embeddings: Embeddings) -> EmbeddedTexts:
    """Embed texts: vectors of texts with similar meaning are close to each other."""
    texts = [request.text] if request.text is not None else request.texts
    if texts is None or (request.text is not None and request.texts is not None):
        raise InvalidInput("text: give either text or texts", field="text")
    embedded = await embeddings.of_texts(actor, texts, request.purpose, request.model)
    return EmbeddedTexts(
        model=embedded.model.name,
        dimensions=embedded.model.dimensions,
        vectors=embedded.vectors,
        cached=embedded.cached,
    )
