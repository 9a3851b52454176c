"""Creates the configured embedders, the default first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.providers.embedders.local import MINILM, LocalEmbedder, load_minilm
from weftline.settings import InvalidSetting

if TYPE_CHECKING:
    from weftline.indexing.embeddings import Embedder
    from weftline.settings import Settings

_MAX_DIMENSIONS = 4_096


def configured_embedders(settings: Settings) -> list[Embedder]:
    """Return the bundled model, and the remote service if configured; WEFTLINE_EMBEDDER sets which is the default."""
    if settings.embedder not in {"minilm", "remote"}:
        raise InvalidSetting(f"WEFTLINE_EMBEDDER: '{settings.embedder}' must be 'minilm' or 'remote'.")
    if not settings.embedding_url:
        if settings.embedder == "remote":
            raise InvalidSetting("WEFTLINE_EMBEDDER is 'remote', but WEFTLINE_EMBEDDING_URL is not set.")
        return [_minilm(settings)]
    remote, local = _remote(settings), _minilm(settings)
    return [remote, local] if settings.embedder == "remote" else [local, remote]


def semantic_search_off(settings: Settings) -> str:
    """Return why nothing is embedded with these settings; empty if texts are."""
    return "" if settings.searches_by_meaning else "turned off by the operator"


def _minilm(settings: Settings) -> LocalEmbedder:
    return LocalEmbedder(MINILM, load_minilm, settings.embedding_threads)


def _remote(settings: Settings) -> Embedder:
    from weftline.providers.embedders.remote import RemoteEmbedder  # noqa: PLC0415 - only if configured

    if not settings.embedding_url.startswith(("https://", "http://")):
        raise InvalidSetting("WEFTLINE_EMBEDDING_URL must be an http:// or https:// URL.")
    if not settings.embedding_model.isprintable() or not settings.embedding_model.strip():
        raise InvalidSetting("WEFTLINE_EMBEDDING_MODEL must name the service's model.")
    if not 1 <= settings.embedding_dimensions <= _MAX_DIMENSIONS:
        raise InvalidSetting(f"WEFTLINE_EMBEDDING_DIMENSIONS must be the model's dimensions, 1 to {_MAX_DIMENSIONS}.")
    return RemoteEmbedder(
        settings.embedding_url,
        settings.embedding_model,
        settings.embedding_dimensions,
        settings.embedding_key,
        batch=max(1, settings.embedding_batch),
    )
