"""Checks of search: indexing backlog, models and vector indexes. Only problems are reported."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from weftline.app.diagnostics import CheckStatus, Finding
from weftline.kernel.clock import DAY_MICROS, to_micros
from weftline.storage.sql.database import SYSTEM
from weftline.storage.sql.search_health import (
    documents_failed,
    documents_waiting,
    miscounted_collections,
    models_of_tenants,
    stalled_model_migrations,
)
from weftline.storage.sql.session_index import largest_backlog, tenants_never_indexed
from weftline.storage.sql.vectors import unfinished_indexes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from weftline.storage.sql.database import Database

_HOUR_MICROS = 3_600_000_000
# A running server rarely lags that much, and never for long.
_MANY_EVENTS = 1_000
# A process that does not know a model that is in use leaves the work to those that do.
_NOTHING_NEW = "and nothing new of theirs is indexed here"


async def check_documents(database: Database, now: datetime) -> list[Finding]:
    failed = await database.read(SYSTEM, documents_failed)
    waiting = await database.read(SYSTEM, partial(documents_waiting, since=to_micros(now) - _HOUR_MICROS))
    findings = []
    if failed:
        step = "See why with weftline knowledge list-documents DOMAIN --state failed, then put them again."
        findings.append(Finding("Documents", CheckStatus.WARNING, f"{failed} could not be indexed", step))
    if waiting:
        step = "They are indexed while a server runs: start one, or look for its warnings in the log."
        findings.append(Finding("Indexing", CheckStatus.WARNING, f"{waiting} documents wait for over an hour", step))
    return findings


async def check_session_indexing(database: Database) -> list[Finding]:
    """Check the lag of session indexing, and whether older content still has to be indexed."""
    lag = await database.read(SYSTEM, largest_backlog)
    unindexed = await database.read(SYSTEM, tenants_never_indexed)
    step = "It catches up while a server runs: start one, or look for its warnings in the log."
    findings = []
    if lag >= _MANY_EVENTS:
        findings.append(Finding("Sessions", CheckStatus.WARNING, f"the search index lags up to {lag} events", step))
    if unindexed:
        detail = f"older messages or memory are not indexed yet; tenants: {unindexed}"
        findings.append(Finding("Memory", CheckStatus.WARNING, detail, step))
    return findings


async def check_models(database: Database, configured: Sequence[str], now: datetime) -> list[Finding]:
    """Check that the models of tenants are configured, and that model migrations progress."""
    used = await database.read(SYSTEM, models_of_tenants)
    missing = [model for model, role in used if role == "serving" and model not in configured]
    awaited = [model for model, role in used if role == "building" and model not in configured]
    stuck = await database.read(SYSTEM, partial(stalled_model_migrations, since=to_micros(now) - DAY_MICROS))
    findings = []
    if missing:
        step = (
            "Configure it again with WEFTLINE_EMBEDDING_URL and WEFTLINE_EMBEDDING_MODEL, or switch to another model: "
            "weftline knowledge start-model-migration MODEL."
        )
        detail = f"tenants search with {', '.join(missing)}, which is not configured: by words alone, {_NOTHING_NEW}"
        findings.append(Finding("Search model", CheckStatus.PROBLEM, detail, step))
    if awaited:
        step = (
            "Configure it here too with WEFTLINE_EMBEDDING_URL and WEFTLINE_EMBEDDING_MODEL, or cancel: "
            "weftline knowledge cancel-model-migration."
        )
        detail = f"tenants migrate to {', '.join(awaited)}, which is not configured: {_NOTHING_NEW}"
        findings.append(Finding("Search model", CheckStatus.PROBLEM, detail, step))
    if stuck:
        step = (
            "See why with weftline knowledge show-model-migration; cancel it with weftline "
            "knowledge cancel-model-migration."
        )
        findings.append(Finding("Model migrations", CheckStatus.WARNING, f"{stuck} model migrations are stalled", step))
    return findings


async def check_collections(database: Database) -> list[Finding]:
    """Check that the rows of every search index are there."""
    damaged = await database.read(SYSTEM, miscounted_collections, heavy=True)
    if not damaged:
        return []
    step = (
        "No text is lost. The next search of each starts to index it again; to do it now for a tenant: "
        "weftline knowledge reindex-all. Then look at the disk and the log of the database."
    )
    return [Finding("Search index", CheckStatus.PROBLEM, f"{damaged} indexes in the database lack rows", step)]


async def check_vector_indexes(database: Database) -> list[Finding]:
    unfinished = await database.read(SYSTEM, unfinished_indexes)
    if not unfinished:
        return []
    step = "Searches are slower without them. One that is not being built now is rebuilt when a server starts."
    return [Finding("Vector indexes", CheckStatus.WARNING, f"{unfinished} are not finished", step)]
