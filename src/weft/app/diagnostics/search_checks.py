"""Looking over whether searches find what they should. Nothing is said of what is well."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from weft.app.diagnostics.findings import CheckStatus, Finding
from weft.kernel.clock import DAY_MICROS, to_micros
from weft.storage.sql.database import SYSTEM
from weft.storage.sql.search_health import (
    documents_failed,
    documents_waiting,
    models_of_tenants,
    moves_not_going_on,
)
from weft.storage.sql.session_index import most_behind
from weft.storage.sql.vectors import unfinished_indexes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from weft.storage.sql.database import Database

_HOUR_MICROS = 3_600_000_000
# A server that runs is rarely as far behind, and never for long.
_MANY_EVENTS = 1_000
# A process that does not know a model that is in use leaves the work to those that do.
_NOTHING_NEW = "and nothing new of theirs is indexed here"


async def check_documents(database: Database, now: datetime) -> list[Finding]:
    failed = await database.read(SYSTEM, documents_failed)
    waiting = await database.read(SYSTEM, partial(documents_waiting, since=to_micros(now) - _HOUR_MICROS))
    findings = []
    if failed:
        step = "See why with weft knowledge list-documents DOMAIN --state failed, then put them again."
        findings.append(Finding("Documents", CheckStatus.WARNING, f"{failed} could not be indexed", step))
    if waiting:
        step = "They are indexed while a server runs: start one, or look for its warnings in the log."
        findings.append(Finding("Indexing", CheckStatus.WARNING, f"{waiting} documents wait for over an hour", step))
    return findings


async def check_following(database: Database) -> list[Finding]:
    """Check that searches find what was said in sessions."""
    behind = await database.read(SYSTEM, most_behind)
    if behind < _MANY_EVENTS:
        return []
    step = "It catches up while a server runs: start one, or look for its warnings in the log."
    return [Finding("Sessions", CheckStatus.WARNING, f"searches are up to {behind} events behind what was said", step)]


async def check_models(database: Database, configured: Sequence[str], now: datetime) -> list[Finding]:
    """Check that the models that tenants search with are there, and that moves to others come to an end."""
    used = await database.read(SYSTEM, models_of_tenants)
    missing = [model for model, role in used if role == "serving" and model not in configured]
    awaited = [model for model, role in used if role == "building" and model not in configured]
    stuck = await database.read(SYSTEM, partial(moves_not_going_on, since=to_micros(now) - DAY_MICROS))
    findings = []
    if missing:
        step = "Set WEFT_EMBEDDING_URL and WEFT_EMBEDDING_MODEL to it again, or move: weft knowledge start-move MODEL."
        detail = f"tenants search with {', '.join(missing)}, which is not configured: by words alone, {_NOTHING_NEW}"
        findings.append(Finding("Search model", CheckStatus.PROBLEM, detail, step))
    if awaited:
        step = "Set WEFT_EMBEDDING_URL and WEFT_EMBEDDING_MODEL to it here too, or cancel: weft knowledge cancel-move."
        detail = f"tenants move to {', '.join(awaited)}, which is not configured: {_NOTHING_NEW}"
        findings.append(Finding("Search model", CheckStatus.PROBLEM, detail, step))
    if stuck:
        step = "See why with weft knowledge show-move; cancel it with weft knowledge cancel-move."
        findings.append(Finding("Moves", CheckStatus.WARNING, f"{stuck} moves to another model do not go on", step))
    return findings


async def check_vector_indexes(database: Database) -> list[Finding]:
    unfinished = await database.read(SYSTEM, unfinished_indexes)
    if not unfinished:
        return []
    step = "Searches are slower without them. One that is not being built now is built anew by a server that starts."
    return [Finding("Vector indexes", CheckStatus.WARNING, f"{unfinished} are not finished", step)]
