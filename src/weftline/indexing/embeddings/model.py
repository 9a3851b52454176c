"""Ports and types of embedders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from weftline.kernel.errors import NotFound, Rejected, Unavailable
from weftline.kernel.identity import Actor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]
else:
    # numpy is slow to import; only embedders load it.
    Vectors = Any

Purpose = Literal["query", "passage"]


class EmbedderUnavailable(Unavailable):
    """Texts cannot be embedded at the moment."""

    code = "EMBEDDER_UNAVAILABLE"
    hint = "Repeat the same call after a short wait; weftline doctor reports what is wrong with the embedder."


class TextRefused(Rejected):
    """The embedding service permanently refuses this text."""

    code = "TEXT_REFUSED"
    hint = "Shorten the text, or remove parts that are not natural language."
    # For callers that continue with the other texts; never shown or logged.
    texts: frozenset[str] = frozenset()


class EmbeddingModelUnknown(NotFound):
    """The embedding model does not exist, or the tenant may not use it."""

    code = "EMBEDDING_MODEL_UNKNOWN"
    hint = "List the models you may use with `knowledge.list_models`; an admin can allow others."
    related = ("knowledge",)


class Model(msgspec.Struct, frozen=True):
    """An embedding model. Vectors of two models are not comparable. Texts are truncated to ``most_tokens``."""

    name: str
    dimensions: int
    most_tokens: int


class Embedded(msgspec.Struct, frozen=True):
    """Vectors of texts, and how many of them the caller had embedded before."""

    model: Model
    vectors: list[list[float]]
    cached: int


class Embedder(Protocol):
    """Embeds texts as normalised vectors. The vector of a text does not depend on the other texts of a call."""

    @property
    def model(self) -> Model: ...

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Vectors:
        """Return one row for each text; waits while the embedder is busy.

        Raises TextRefused for texts that are refused permanently, EmbedderUnavailable for temporary failures.
        """
        ...

    async def release_idle(self, seconds: float) -> bool:
        """Free the memory of a model that was not used for this long; return whether it was freed."""
        ...

    async def close(self) -> None:
        """Release threads and connections."""
        ...


class SemanticSearchOff(EmbedderUnavailable):
    """Texts are not embedded here: semantic search is turned off or not installed."""

    code = "SEMANTIC_SEARCH_OFF"
    hint = "Use `search.query`, which finds by words; the operator can turn semantic search on or install it."
    related = ("search",)


class Embeddings(Protocol):
    """The embedders of this installation, with a cache."""

    def off_reason(self) -> str:
        """Return why this installation embeds nothing and refuses with SemanticSearchOff; empty if it embeds."""
        ...

    def models(self) -> Sequence[Model]:
        """Return the configured models, the default first."""
        ...

    async def of_query(self, actor: Actor, text: str, model: str) -> Vectors:
        """Return the vector of a query; the cache does not reveal queries of others."""
        ...

    async def of_unstored(self, texts: Sequence[str], model: str) -> Vectors:
        """Return a row for each text, embedded after queries and in no cache: for texts that are compared once."""
        ...

    async def of_passages(
        self,
        tenant: str,
        texts: Sequence[str],
        model: str,
        *,
        digests: Sequence[bytes] | None = None,
        reembed: bool = False,
    ) -> list[bytes]:
        """Return half-precision vectors, from the cache unless ``reembed``.

        ``digests`` are the keys of the texts in the cache, those of their chunks. Without them the texts are public:
        they belong to no tenant and are embedded once for all.
        """
        ...

    async def of_texts(self, actor: Actor, texts: Sequence[str], purpose: Purpose, model: str | None) -> Embedded:
        """Return the vectors of a caller's texts, by a model that its tenant may use.

        The cache does not reveal texts of others, not even by timing.
        """
        ...
