"""Embedding models, their selection and the embedding cache."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Protocol, get_args

import msgspec

from weftline.kernel.errors import InvalidInput, NotFound, Rejected, Unavailable
from weftline.kernel.identity import Actor, Permission
from weftline.kernel.operation import Effect, RateClass, Request, Response, SessionUse, operation
from weftline.kernel.transaction import SqlStore

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from weftline.kernel.transaction import Transaction


# Ports and types of embedders.

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


# SQL stores of the embedding cache and of tenants' embedding models.

# Role of a model for a tenant: used by searches, being migrated to, kept for a rollback, or usable.
Role = Literal["serving", "building", "kept", "allowed"]

# A share of queries is stored as a whole number out of this many.
SHARE_UNITS = 1_000

# A vector was requested by a caller, or belongs to a searchable passage. The former are evicted first.
CachedKind = Literal["asked", "passage"]


class CachedVector(msgspec.Struct, frozen=True, gc=False):
    """A half-precision vector and the time of its last use, in microseconds."""

    vector: bytes
    used_at: int


class TenantModel(msgspec.Struct, frozen=True):
    """A model's role for a tenant, and since when, in microseconds. ``share``: queries out of 1,000 it answers."""

    model: str
    role: Role
    since: int
    share: int = 0


# Owner of cached vectors that belong to no tenant: not a valid tenant name.
PLATFORM = "/platform"
# Digests per statement; shorter batches are padded with the last digest so that the statement stays the same.
_BATCH_SIZE = 50
_FIND = f"""
SELECT digest, vector, used_at FROM embedding_cache
WHERE tenant = $1 AND model = $2 AND digest IN ({", ".join(f"${place}" for place in range(3, _BATCH_SIZE + 3))})
"""  # noqa: S608 - placeholders
_IN_CHUNKS = f"""
SELECT digest FROM chunks
WHERE tenant = $1 AND digest IN ({", ".join(f"${place}" for place in range(2, _BATCH_SIZE + 2))})
"""  # noqa: S608 - placeholders
_DELETE = "DELETE FROM embedding_cache WHERE tenant = $1 AND model = $2 AND digest = $3"
_TOUCH = "UPDATE embedding_cache SET used_at = $1 WHERE tenant = $2 AND model = $3 AND digest = $4"
_LISTED = "SELECT model, role, since, share FROM tenant_models WHERE tenant = $1 AND model >= '' ORDER BY model "


def _batches(digests: Sequence[bytes]) -> Iterator[list[bytes]]:
    for start in range(0, len(digests), _BATCH_SIZE):
        batch = list(digests[start : start + _BATCH_SIZE])
        yield batch + batch[-1:] * (_BATCH_SIZE - len(batch))


class VectorStore(SqlStore):
    """Embedding cache of a tenant, or of the platform without one: vectors by model and digest of the text."""

    def __init__(self, transaction: Transaction) -> None:
        super().__init__(transaction)
        self._tenant = transaction.tenant or PLATFORM

    async def find(self, model: str, digests: Sequence[bytes]) -> Mapping[bytes, CachedVector]:
        """Return the cached vectors."""
        found: dict[bytes, CachedVector] = {}
        for batch in _batches(digests):
            rows = await self._tx.all(_FIND, self._tenant, model, *batch)
            found |= {digest: CachedVector(vector, used_at) for digest, vector, used_at in rows}
        return found

    async def keep(self, model: str, vectors: Mapping[bytes, bytes], now: int, kind: CachedKind = "passage") -> None:
        """Store vectors; existing ones are kept."""
        # Sorted: concurrent writers of the same digests must lock them in one order.
        await self._tx.many(
            """
            INSERT INTO embedding_cache (tenant, model, digest, kind, vector, used_at) VALUES ($1, $2, $3, $4, $5, $6)
            ON CONFLICT (tenant, model, digest) DO NOTHING
            """,
            [(self._tenant, model, digest, kind, vector, now) for digest, vector in sorted(vectors.items())],
        )

    async def touch(self, model: str, digests: Sequence[bytes], now: int) -> None:
        """Update the time of the last use."""
        await self._tx.many(_TOUCH, [(now, self._tenant, model, digest) for digest in sorted(digests)])

    async def forget(self, model: str, digests: Sequence[bytes]) -> None:
        """Delete vectors, so that they are computed again."""
        await self._tx.many(_DELETE, [(self._tenant, model, digest) for digest in sorted(set(digests))])

    async def delete_unreferenced(self, digests: Sequence[bytes]) -> None:
        """Delete the vectors, of every model, whose text no chunk of the tenant contains any more."""
        unused = set(digests)
        for batch in _batches(sorted(unused)):
            unused -= {row[0] for row in await self._tx.all(_IN_CHUNKS, self._tenant, *batch)}
        if unused:
            for model in await self._models():
                await self.forget(model, list(unused))

    async def count(self) -> int:
        """Return the number of vectors of all models."""
        row = await self._tx.one("SELECT COUNT(*) FROM embedding_cache WHERE tenant = $1 AND kind > ''", self._tenant)
        return 0 if row is None else int(row[0])

    async def evict(self, limit: int) -> int:
        """Delete up to ``limit`` least recently used vectors, requested ones first; return how many."""
        # Locked rows are in use, or being evicted by another process.
        rows = await self._tx.all(
            """
            SELECT model, digest FROM embedding_cache WHERE tenant = $1 AND kind > ''
            ORDER BY kind, used_at LIMIT $2 {for_update_unless_locked}
            """,
            self._tenant,
            limit,
        )
        await self._tx.many(_DELETE, [(self._tenant, model, digest) for model, digest in rows])
        return len(rows)

    async def review(self, before: int, now: int, limit: int) -> int:
        """Delete vectors unused since ``before``; touch those that a chunk uses. Return how many were checked."""
        return sum([await self._review(kind, before, now, limit) for kind in get_args(CachedKind)])

    async def _review(self, kind: CachedKind, before: int, now: int, limit: int) -> int:
        rows = await self._tx.all(
            """
            SELECT model, digest, EXISTS (
                SELECT 1 FROM chunks c WHERE c.tenant = $1 AND c.digest = embedding_cache.digest)
            FROM embedding_cache WHERE tenant = $1 AND kind = $2 AND used_at < $3
            ORDER BY used_at LIMIT $4 {for_update_unless_locked}
            """,
            self._tenant,
            kind,
            before,
            limit,
        )
        await self._tx.many(_DELETE, [(self._tenant, model, digest) for model, digest, used in rows if not used])
        await self._tx.many(_TOUCH, [(now, self._tenant, model, digest) for model, digest, used in rows if used])
        return len(rows)

    async def _models(self) -> Sequence[str]:
        """Return the models with cached vectors: an index skip scan, one query per model."""
        models: list[str] = []
        while True:
            row = await self._tx.one(
                "SELECT MIN(model) FROM embedding_cache WHERE tenant = $1 AND model > $2",
                self._tenant,
                models[-1] if models else "",
            )
            if row is None or row[0] is None:
                return models
            models.append(row[0])


class TenantModelStore(SqlStore):
    """Models of the transaction's tenant."""

    async def listed(self) -> Sequence[TenantModel]:
        """Return the models with their roles, by name."""
        return [TenantModel(*row) for row in await self._tx.all(_LISTED, self._tenant)]

    async def semantic_search(self) -> bool:
        """Return whether the tenant's content is embedded and searched by meaning."""
        row = await self._tx.one("SELECT semantic_search FROM tenants WHERE tenant = $1", self._tenant)
        return row is not None and bool(row[0])

    async def set_semantic_search(self, *, on: bool) -> None:
        await self._tx.run("UPDATE tenants SET semantic_search = $1 WHERE tenant = $2", int(on), self._tenant)

    async def held(self) -> Sequence[TenantModel]:
        """Return the same, locked against changes until the transaction ends."""
        return [TenantModel(*row) for row in await self._tx.all(_LISTED + "{for_share}", self._tenant)]

    async def set(self, model: str, role: Role, now: int, share: float = 0.0) -> None:
        """Set the role of a model, and the share of queries it answers though it is not the serving one."""
        await self._tx.run(
            """
            INSERT INTO tenant_models (tenant, model, role, since, share) VALUES ($1, $2, $3, $4, $5)
            ON CONFLICT (tenant, model)
            DO UPDATE SET role = excluded.role, since = excluded.since, share = excluded.share
            """,
            self._tenant,
            model,
            role,
            now,
            round(share * SHARE_UNITS),
        )

    async def remove(self, model: str) -> bool:
        """Remove a model's role; False if it had none."""
        deleted = await self._tx.changed(
            "DELETE FROM tenant_models WHERE tenant = $1 AND model = $2", self._tenant, model
        )
        return deleted > 0


# Which models a tenant may use, and which one its searches use.
#
# Without restriction a tenant may use every configured model. A restriction by an admin always includes the model that
# serves its searches and the one it is being migrated to.

# Stored as a model name to mark that the tenant's models are restricted.
_RESTRICTED = ""
_OFF_FOR_TENANT = "turned off for this tenant"


def serving_model(listed: Sequence[TenantModel], models: Sequence[Model]) -> Model:
    """Return the model that a tenant's searches use: the chosen one if configured, else the default."""
    chosen = {each.model for each in listed if each.role == "serving"}
    return next((model for model in models if model.name in chosen), models[0])


class QueryModel(NamedTuple):
    """The model that answers a query; ``fallback`` is the serving one if another answers."""

    model: Model
    fallback: Model | None = None


def query_model(listed: Sequence[TenantModel], models: Sequence[Model], text: str) -> QueryModel:
    """Return the model that answers a query: for a share of queries the one being migrated to, if it is configured.

    The share is taken by a hash of the query, so the same query always has the same model, in every process.
    """
    serving = serving_model(listed, models)
    for each in listed:
        if each.role == "building" and _query_place(text) < each.share:
            found = next((model for model in models if model.name == each.model), None)
            return QueryModel(serving) if found is None else QueryModel(found, serving)
    return QueryModel(serving)


def _query_place(text: str) -> int:
    words = " ".join(text.casefold().split()).encode(errors="replace")
    return int.from_bytes(hashlib.sha256(words).digest()[:8]) % SHARE_UNITS


def models_to_fill(listed: Sequence[TenantModel], models: Sequence[Model]) -> tuple[str, ...]:
    """Return the models that a new chunk needs vectors of: the serving one, then the one being migrated to or kept.

    They may include models that this process does not know.
    """
    serving = next((each.model for each in listed if each.role == "serving"), models[0].name)
    return (serving, *(each.model for each in listed if each.role in {"building", "kept"}))


def known_models_to_fill(listed: Sequence[TenantModel], models: Sequence[Model]) -> tuple[str, ...]:
    """Return the same for a process that computes these vectors; raises if it does not know one of the models.

    A model kept for a rollback is left out if it is unknown: its service may have been switched off.
    """
    known = {model.name for model in models}
    kept = {each.model for each in listed if each.role == "kept"}
    names = tuple(name for name in models_to_fill(listed, models) if name in known or name not in kept)
    for name in names:
        if name not in known:
            raise EmbeddingModelUnknown(f"Model '{name[:100]}' is in use but not configured in this process.")
    return names


def has_required_models(embedded: Collection[str], needed: Sequence[str]) -> bool:
    """Return whether chunks may be written with vectors of these models.

    The serving model is required. A migration adds missing vectors of its model before it ends.
    """
    return needed[0] in embedded and set(embedded) <= set(needed)


def usable_models(listed: Sequence[TenantModel], models: Sequence[Model]) -> list[Model]:
    """Return the models that a tenant may use, the serving one first."""
    serving = serving_model(listed, models)
    names_listed = {each.model for each in listed}
    chosen = [model for model in models if model.name in names_listed] if _RESTRICTED in names_listed else models
    return [serving, *(model for model in chosen if model != serving)]


def usable_model(listed: Sequence[TenantModel], models: Sequence[Model], name: str | None) -> Model:
    """Return the named model if the tenant may use it; the serving one if no name is given."""
    usable = usable_models(listed, models)
    found = next((model for model in usable if name in {None, model.name}), None)
    if found is None:
        # Does not reveal whether the model exists.
        raise EmbeddingModelUnknown(your_models=[model.name for model in usable])
    return found


async def is_semantic(store: TenantModelStore, embeddings: Embeddings) -> bool:
    """Return whether a tenant's content is embedded: neither the installation nor the tenant has turned it off."""
    return not await semantic_search_off(store, embeddings)


async def semantic_search_off(store: TenantModelStore, embeddings: Embeddings) -> str:
    """Return why a tenant's content is not embedded; empty if it is."""
    return embeddings.off_reason() or ("" if await store.semantic_search() else _OFF_FOR_TENANT)


async def allow_models(names: Sequence[str], models: Sequence[Model], store: TenantModelStore, now: int) -> None:
    """Restrict a tenant to these models; an empty list lifts the restriction."""
    known = {model.name for model in models}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise EmbeddingModelUnknown(f"Model '{unknown[0][:100]}' is not configured in this installation.")
    allowed = {*names, _RESTRICTED} if names else set()
    listed = {each.model: each for each in await store.listed()}
    for name in sorted(listed.keys() - allowed):
        if listed[name].role == "allowed":
            await store.remove(name)
    for name in sorted(allowed - listed.keys()):
        await store.set(name, "allowed", now)


# Operation that embeds texts.

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
