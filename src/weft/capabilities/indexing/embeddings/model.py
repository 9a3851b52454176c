"""What embeds, and what is told of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from weft.kernel.errors import NotFound, Rejected, Unavailable
from weft.kernel.identity import Actor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]
else:
    # numpy takes a while to import: only who embeds has it.
    Vectors = Any

Purpose = Literal["query", "passage"]


class EmbedderUnavailable(Unavailable):
    """Texts cannot be embedded right now."""

    code = "EMBEDDER_UNAVAILABLE"
    hint = "Repeat the same call after a short wait; weft doctor says what is wrong with the embedder."


class TextRefused(Rejected):
    """The embedding service does not take this text, and would not later."""

    code = "TEXT_REFUSED"
    hint = "Shorten the text, or leave out what is not language; other texts are embedded as ever."
    # For whoever has others to go on with; never shown, never logged.
    texts: frozenset[str] = frozenset()


class EmbeddingModelUnknown(NotFound):
    """There is no such embedding model, or not for this tenant."""

    code = "EMBEDDING_MODEL_UNKNOWN"
    hint = "See the models you may use with `knowledge.list_models`; an admin says which these are."
    related = ("knowledge",)


class Model(msgspec.Struct, frozen=True):
    """An embedding model: vectors of two models cannot be compared. Texts beyond ``most_tokens`` are cut."""

    name: str
    dimensions: int
    most_tokens: int


class Embedded(msgspec.Struct, frozen=True):
    """Vectors of texts, and how many of these the same asker had embedded before."""

    model: Model
    vectors: list[list[float]]
    cached: int


class Embedder(Protocol):
    """Turns texts into vectors of length one. The same text always gives the same vector, whatever comes with it."""

    @property
    def model(self) -> Model: ...

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Vectors:
        """Return one row for each text. Whoever brings more than can be done waits.

        Raises TextRefused for texts that will never be embedded, EmbedderUnavailable for what may work later.
        """
        ...

    async def close(self) -> None:
        """Let go of threads and connections."""
        ...


class Embeddings(Protocol):
    """The embedders of this installation, with what they embedded before."""

    def models(self) -> Sequence[Model]:
        """Return the models there are, the default one first."""
        ...

    async def of_query(self, actor: Actor, text: str, model: str) -> Vectors:
        """Return the vector of a question; whether anybody else asked the same does not show."""
        ...

    async def of_passages(
        self, tenant: str, texts: Sequence[str], model: str, *, platform: bool = False, afresh: bool = False
    ) -> list[bytes]:
        """Return vectors in halves, from the cache where the same text was embedded before, unless ``afresh``.

        What is ``platform`` data belongs to nobody: it is embedded once for all tenants.
        """
        ...

    async def for_asker(self, actor: Actor, texts: Sequence[str], purpose: Purpose, model: str | None) -> Embedded:
        """Return the vectors of texts for whoever asks, by a model that its tenant may use.

        Whether anybody else had the same texts embedded does not show, not even by the time it takes.
        """
        ...
