"""Checks of an installation (weftline doctor): each reports a status and, for problems, the next step."""

from __future__ import annotations

import asyncio
import http.client
import os
import re
import secrets
import shutil
import socket
import sys
from contextlib import asynccontextmanager, closing
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

import weftline.app.line_kinds  # noqa: F401 - registers them
from weftline.app.diagnostics import CheckStatus, Finding
from weftline.kernel.clock import DAY_MICROS, from_micros, to_micros
from weftline.kernel.errors import WeftlineError
from weftline.models.language_models.chat_model import ChatModelError
from weftline.providers.chat_models.factory import NO_METER, PROBE, configured_chat_model
from weftline.providers.embedders.factory import configured_embedders, semantic_search_off
from weftline.providers.injection.factory import configured_detector
from weftline.providers.object_storage import Bucket, connect_objects
from weftline.search_index.paths import DAMAGED_SUFFIX, damaged_files
from weftline.sessions.events.webhooks import dead_letters
from weftline.storage.migrations.runner import status
from weftline.storage.partial_files import abandoned_files
from weftline.storage.sql.database import SYSTEM, Scope, connect
from weftline.storage.sql.session_index import (
    documents_failed,
    documents_waiting,
    largest_backlog,
    miscounted_collections,
    models_of_tenants,
    stalled_model_migrations,
    tenants_never_indexed,
)
from weftline.storage.sql.signature_check import WHOLE_LIST, tampered_heads
from weftline.storage.sql.vectors import unfinished_indexes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from datetime import datetime

    from weftline.kernel.clock import Clock
    from weftline.kernel.transaction import Transaction
    from weftline.settings import Settings
    from weftline.storage.migrations.runner import MigrationStatus
    from weftline.storage.sql.database import Database
    from weftline.storage.sql.signature_check import SignedLine


# Checks of search: indexing backlog, models and vector indexes. Only problems are reported.

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


_MIN_PYTHON = (3, 11)
_EXTRAS = ("server", "search", "tokenizers")
_LOW_DISK_BYTES = 1_000_000_000
_CRITICAL_DISK_BYTES = 100_000_000
_TIMEOUT_SECONDS = 5.0
_LISTED = 3
# A machine without a battery-backed clock starts at 1970; Weftline did not exist before this year.
_EARLIEST_YEAR = 2025
# No tenant can have this name, so a transaction inside it must see nothing.
_NO_TENANT = "/"
_OWN_FILES = "every version of a value in a file of its own"
# Likewise not a tenant: the prefix of the object that is stored as a test.
_PROBE = "_doctor"
_CHAT_STEPS = {
    "timeout": "Check WEFTLINE_CHAT_URL and the network; a local server may still be loading the model: try again.",
    "unavailable": "Start the endpoint, or correct WEFTLINE_CHAT_URL. Until then summaries are made without a model.",
    "rate_limited": "Wait, or use a key with a higher limit. Until then summaries are made without a model.",
    "malformed": "Check that WEFTLINE_CHAT_URL and the provider in WEFTLINE_CHAT_MODEL (openai or anthropic) match.",
}
# What is wrong with layers and definitions, as signature_check names it.
_PROBLEMS = {
    "altered": "altered in the database",
    "unsigned": "without a valid signature",
    "removed": "removed from the database, or listed with another WEFTLINE_SIGNING_SECRET",
}
_ALTERED_STEP = (
    "Every prompt with them is refused. See what was altered with weftline history verify {line}; then restore a "
    "backup, or define the fields anew, in other words, with weftline agent define or weftline layer define."
)
_UNSIGNED_STEP = (
    "Prompts and edits with them are refused. Check who changed them with weftline history verify, restore a backup, "
    "or accept what is stored, also with a new secret, with weftline db sign."
)
_UNPROTECTED = """
SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant'
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p')
  AND NOT (c.relrowsecurity AND c.relforcerowsecurity)
ORDER BY c.relname
"""
_ROLE = "SELECT current_user, rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"


async def examine(settings: Settings, clock: Clock) -> list[Finding]:
    """Run every check that applies to these settings."""
    findings = [check_python(), check_packages()]
    if not _is_postgres(settings):
        findings += check_folder(_database_file(settings).parent)
    findings += await check_database(settings, clock)
    findings.append(await check_objects(settings))
    findings.append(await check_embedder(settings))
    findings.append(await asyncio.to_thread(check_detector, settings))
    if settings.chat_model:
        findings.append(await check_chat_model(settings))
    findings += check_index(settings.index_folder)
    findings += check_partial_files(settings.partial_files_journal)
    if settings.valkey_url:
        findings.append(await check_valkey(settings.valkey_url))
    findings.append(await asyncio.to_thread(check_port, settings.host, settings.port))
    return findings


def check_python() -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= _MIN_PYTHON:
        return Finding("Python", CheckStatus.OK, found)
    return Finding("Python", CheckStatus.PROBLEM, found, "Install Python 3.11 or newer.")


def check_packages() -> Finding:
    """Check that everything Weftline needs is installed, and name the extras that are."""
    lines = requires("weftline") or ()
    missing = [name for name in _named_packages(lines, "") if not _installed(name)]
    if missing:
        return Finding(
            "Packages", CheckStatus.PROBLEM, f"missing: {', '.join(missing)}", "Run pip install weftline again."
        )
    extras = [extra for extra in _EXTRAS if all(map(_installed, _named_packages(lines, extra)))]
    having = f"with {', '.join(extras)}" if extras else "without extras"
    return Finding("Packages", CheckStatus.OK, f"weftline {version('weftline')} {having}")


def _named_packages(lines: Sequence[str], extra: str) -> list[str]:
    """Return the packages that an extra requires on every system; without an extra, those of every installation."""
    found = [line.partition(";") for line in lines]
    markers = {f"extra == '{extra}'"} if extra else {""}
    return [re.split(r"[^\w.-]", name)[0] for name, _, marker in found if marker.strip().replace('"', "'") in markers]


def check_folder(folder: Path) -> list[Finding]:
    """Check the data folder and the disk it is on."""
    place = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        step = "Make it yours, or choose another with --data-dir."
        return [Finding("Data folder", CheckStatus.PROBLEM, f"{place} cannot be written to", step)]
    return [_check_privacy(folder), _check_disk(place)]


async def check_database(settings: Settings, clock: Clock) -> list[Finding]:
    """Check that the database answers, has the current schema, isolates tenants and agrees on the time."""
    where = "PostgreSQL" if _is_postgres(settings) else str(_database_file(settings))
    if not _is_postgres(settings) and not _database_file(settings).exists():
        return [Finding("Database", CheckStatus.OK, f"{where} does not exist yet; the first start makes it")]
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS), _opened(settings) as database:
            steps = await status(database)
            findings = [
                Finding("Database", CheckStatus.OK, where),
                _check_schema(steps),
                _check_clock(steps, clock.now()),
            ]
            if findings[1].state is CheckStatus.OK:
                findings += [await _check_isolation(database)] if _is_postgres(settings) else []
                findings += await _check_webhooks(database)
                findings.append(await _check_signatures(database, settings))
                findings += await _check_search(database, settings, clock.now())
            return findings
    except TimeoutError:
        return [
            Finding("Database", CheckStatus.PROBLEM, f"{where} does not answer", "Check the address and the network.")
        ]
    except WeftlineError as error:
        return [Finding("Database", CheckStatus.PROBLEM, error.message, error.hint)]


async def _check_signatures(database: Database, settings: Settings) -> Finding:
    """Check that every layer and definition in force is as it was written and signed, and where the key is."""
    found = await tampered_heads(database, settings.signing_secret.encode())
    if any(found):
        named = (f"{len(lines)} {_PROBLEMS[kind]}: {_named(lines)}" for kind, lines in found._asdict().items() if lines)
        step = _ALTERED_STEP.format(line=found.altered[0].line_id) if found.altered else _UNSIGNED_STEP
        return Finding("Signatures", CheckStatus.PROBLEM, "; ".join(named), step)
    where = "" if settings.signing_secret else "; the key is in the database only, see WEFTLINE_SIGNING_SECRET"
    return Finding("Signatures", CheckStatus.OK, f"layers and definitions are signed{where}")


def _named(lines: Sequence[SignedLine]) -> str:
    more = f" and {len(lines) - _LISTED} more" if len(lines) > _LISTED else ""
    names = ("the list" if line.line_id == WHOLE_LIST else line.line_id for line in lines[:_LISTED])
    return ", ".join(f"{name} of {line.tenant}" for name, line in zip(names, lines, strict=False)) + more


async def check_objects(settings: Settings) -> Finding:
    """Check that objects can be stored, read and deleted, and whether they have versions."""
    where = settings.object_store_url or str(settings.object_store_folder)
    if not settings.object_store_url and not settings.object_store_folder.exists():
        return _check_reach(settings, f"{where} will be made when it is first needed, {_OWN_FILES}")
    path, content = f"{_PROBE}/{secrets.token_hex(8)}", secrets.token_bytes(16)
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            store = connect_objects(settings)
            version = await store.put(path, content)
            sound = await store.get(path, version, len(content)) == content
            await store.delete(path)
    except TimeoutError:
        return Finding(
            "Large values", CheckStatus.PROBLEM, f"{where} does not answer", "Check the address and the network."
        )
    except WeftlineError as error:
        return Finding("Large values", CheckStatus.PROBLEM, error.message, error.hint)
    if not sound:
        return Finding(
            "Large values", CheckStatus.PROBLEM, f"{where} returns other bytes than it was given", "Do not use it."
        )
    if isinstance(store, Bucket) and version is None:
        return _without_versions(store, where)
    return _check_reach(settings, f"{where}, {'with versions' if version else _OWN_FILES}")


async def check_embedder(settings: Settings) -> Finding:
    """Check the embedder by embedding a text."""
    if off := semantic_search_off(settings):
        return Finding("Embedding", CheckStatus.OK, f"semantic search is off: {off}; words are found")
    try:
        embedder, *others = configured_embedders(settings)
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                await embedder.embed(["weftline doctor"], "query")
        finally:
            for each in (embedder, *others):
                await each.close()
    except TimeoutError:
        step = "Check WEFTLINE_EMBEDDING_URL and the network."
        return Finding("Embedding", CheckStatus.PROBLEM, f"{embedder.model.name} does not answer", step)
    except WeftlineError as error:
        return Finding("Embedding", CheckStatus.PROBLEM, error.message, error.hint)
    return Finding("Embedding", CheckStatus.OK, f"{embedder.model.name}, {embedder.model.dimensions} dimensions")


def check_detector(settings: Settings) -> Finding:
    """Check the injection detector by scoring a text: without it nothing is accepted."""
    try:
        configured_detector(settings).detect("weftline doctor", data=True)
    except WeftlineError as error:
        return Finding("Injection detector", CheckStatus.PROBLEM, error.message, error.hint)
    return Finding("Injection detector", CheckStatus.OK, settings.injection_model or "included")


async def check_chat_model(settings: Settings) -> Finding:
    """Check the language model by asking it for a word."""
    try:
        model = configured_chat_model(settings, NO_METER)
    except WeftlineError as error:
        return Finding("Language model", CheckStatus.PROBLEM, error.message, error.hint)
    if model is None:
        return Finding("Language model", CheckStatus.OK, "none is configured; summaries are made without one")
    try:
        answer = await model.complete(PROBE)
    except ChatModelError as error:
        step = _CHAT_STEPS.get(error.kind, error.hint)
        return Finding("Language model", CheckStatus.PROBLEM, f"{model.name}: {error.message}", step)
    finally:
        await model.close()
    if not answer.text.strip():
        step = "Choose another model with WEFTLINE_CHAT_MODEL: this one may spend all its output on reasoning."
        return Finding("Language model", CheckStatus.WARNING, f"{model.name} answers without text", step)
    return Finding("Language model", CheckStatus.OK, f"{model.name} answers")


def check_index(folder: Path) -> list[Finding]:
    """Report damaged index files, if any."""
    damaged = damaged_files(folder)
    if not damaged:
        return []
    step = (
        f"Nothing is lost, searches use new files. Look at the disk, then remove what ends in {DAMAGED_SUFFIX} there."
    )
    return [Finding("Search index", CheckStatus.WARNING, f"{damaged} damaged files were set aside in {folder}", step)]


def check_partial_files(journal: Path) -> list[Finding]:
    """Report files of backups and exports whose process was killed, if any."""
    abandoned = abandoned_files(journal)
    if not abandoned:
        return []
    listed = ", ".join(str(path) for path in abandoned[:_LISTED])
    more = f" and {len(abandoned) - _LISTED} more" if len(abandoned) > _LISTED else ""
    step = (
        "The next weftline db backup or weftline export removes them; or delete them now. They "
        "contain data: keep them private."
    )
    return [
        Finding("Unfinished files", CheckStatus.WARNING, f"left by a killed backup or export: {listed}{more}", step)
    ]


async def check_valkey(url: str) -> Finding:
    try:
        from valkey.asyncio import Valkey  # noqa: PLC0415 - only where it is configured
        from valkey.exceptions import ValkeyError  # noqa: PLC0415 - likewise
    except ImportError:
        return Finding("Valkey", CheckStatus.PROBLEM, "its package is missing", "Run pip install 'weftline[server]'.")

    scheme, _, rest = url.partition("://")
    try:
        valkey = Valkey.from_url(f"{scheme.replace('redis', 'valkey')}://{rest}", socket_connect_timeout=2)
        try:
            await asyncio.wait_for(valkey.ping(), _TIMEOUT_SECONDS)
        finally:
            await valkey.aclose()
    except (ValkeyError, OSError, TimeoutError, ValueError) as error:
        step = "Start it, correct WEFTLINE_VALKEY_URL, or unset it: each process then limits rates by itself."
        return Finding("Valkey", CheckStatus.PROBLEM, f"cannot be reached ({type(error).__name__})", step)
    return Finding("Valkey", CheckStatus.OK, "answers")


def check_port(host: str, port: int) -> Finding:
    """Check that the port is free, or used by a Weftline server."""
    where = f"{host}:{port}"
    if _is_free(host, port):
        return Finding("Port", CheckStatus.OK, f"{where} is free; start with weftline serve")
    running = _version_at(host, port)
    if running is None:
        return Finding(
            "Port", CheckStatus.PROBLEM, f"{where} is used by another program", "Choose one: weftline serve --port N."
        )
    if running != version("weftline"):
        step = "Restart the server so that it runs the version installed here."
        return Finding(
            "Port", CheckStatus.WARNING, f"Weftline {running} answers at {where}, not {version('weftline')}", step
        )
    return Finding("Port", CheckStatus.OK, f"Weftline {running} answers at {where}")


def _without_versions(bucket: Bucket, where: str) -> Finding:
    if not bucket.no_versions:
        return Finding(
            "Large values", CheckStatus.OK, f"{where}, without versions: WEFTLINE_OBJECT_STORE_VERSIONING is off"
        )
    step = "Turn versioning on for the bucket, or set WEFTLINE_OBJECT_STORE_VERSIONING=off if it should have none."
    return Finding("Large values", CheckStatus.WARNING, f"{where}, without versions: {bucket.no_versions}", step)


def _check_reach(settings: Settings, detail: str) -> Finding:
    """Warn if the database is shared but objects are in a local folder."""
    if settings.object_store_url or not _is_postgres(settings):
        return Finding("Large values", CheckStatus.OK, detail)
    step = "Processes on several machines need one bucket: set the same WEFTLINE_OBJECT_STORE_URL for all of them."
    return Finding("Large values", CheckStatus.WARNING, f"{detail}; only this machine sees it", step)


def _check_privacy(folder: Path) -> Finding:
    if not folder.exists():
        return Finding("Data folder", CheckStatus.OK, f"{folder} will be made at the first start")
    if os.name == "posix" and folder.stat().st_mode & 0o077:
        step = f"It holds signing secrets: chmod 700 {folder}"
        return Finding("Data folder", CheckStatus.WARNING, f"{folder} is open to other users", step)
    return Finding("Data folder", CheckStatus.OK, str(folder))


def _check_disk(place: Path) -> Finding:
    free = shutil.disk_usage(place).free
    detail = f"{free / 1e9:.1f} GB free"
    if free >= _LOW_DISK_BYTES:
        return Finding("Disk", CheckStatus.OK, detail)
    state = CheckStatus.PROBLEM if free < _CRITICAL_DISK_BYTES else CheckStatus.WARNING
    return Finding(
        "Disk", state, detail, f"Free space on the disk of {place}; Weftline refuses writes when it is full."
    )


def _check_schema(steps: Sequence[MigrationStatus]) -> Finding:
    missing = [step.name for step in steps if step.applied_at is None]
    if missing:
        return Finding("Schema", CheckStatus.PROBLEM, f"missing: {', '.join(missing)}", "Run weftline db migrate.")
    return Finding("Schema", CheckStatus.OK, f"current ({steps[-1].name})")


def _check_clock(steps: Sequence[MigrationStatus], now: datetime) -> Finding:
    """Check that the clock is not before the creation of the database."""
    latest = max((from_micros(step.applied_at) for step in steps if step.applied_at is not None), default=now)
    shown = f"{now:%Y-%m-%d %H:%M:%S}Z"
    if now < latest or now.year < _EARLIEST_YEAR:
        step = "Set the machine's clock, best by NTP: tokens and expiry depend on it."
        return Finding("Clock", CheckStatus.PROBLEM, f"{shown} is before the database was made", step)
    return Finding("Clock", CheckStatus.OK, shown)


async def _check_isolation(database: Database) -> Finding:
    """Check that row-level security is in force."""

    async def look(transaction: Transaction) -> Finding:
        role, unbound = await transaction.one(_ROLE) or ("nobody", True)
        unprotected = [row[0] for row in await transaction.all(_UNPROTECTED)]
        seen = await transaction.one("SELECT COUNT(*) FROM tenants")
        if unbound or unprotected or seen is None or seen[0]:
            detail = f"not in force for {role} on {', '.join(unprotected) or 'some tables'}"
            return Finding(
                "Row security", CheckStatus.PROBLEM, detail, "Run weftline db migrate as the owner of the schema."
            )
        return Finding("Row security", CheckStatus.OK, f"in force for {role}")

    return await database.read(Scope(_NO_TENANT), look)


async def _check_webhooks(database: Database) -> list[Finding]:
    """Report dead-lettered webhook events, if any."""
    dead = await database.read(SYSTEM, dead_letters)
    if not dead:
        return []
    step = (
        "See why with weftline webhook list and weftline webhook deliveries, then send them "
        "again: weftline webhook replay."
    )
    return [Finding("Webhooks", CheckStatus.WARNING, f"{dead} events could not be delivered", step)]


async def _check_search(database: Database, settings: Settings, now: datetime) -> list[Finding]:
    findings = await check_documents(database, now)
    if settings.indexes_sessions:
        findings += await check_session_indexing(database)
    findings += await check_collections(database)
    findings += await check_models(database, await _configured_models(settings), now)
    return findings + (await check_vector_indexes(database) if _is_postgres(settings) else [])


async def _configured_models(settings: Settings) -> list[str]:
    """Return the names of the models; none if the embedder fails, which another check reports."""
    try:
        embedders = configured_embedders(settings)
    except WeftlineError:
        return []
    for embedder in embedders:
        await embedder.close()
    return [embedder.model.name for embedder in embedders]


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[Database]:
    database = connect(settings.storage_url, settings.database_direct_url)
    try:
        await database.open()
        yield database
    finally:
        await database.close()


def _is_postgres(settings: Settings) -> bool:
    return settings.storage_url.startswith(("postgresql://", "postgres://"))


def _database_file(settings: Settings) -> Path:
    return Path(settings.storage_url.removeprefix("sqlite://")).expanduser().absolute()


def _installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def _is_free(host: str, port: int) -> bool:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with closing(socket.socket(family, kind, protocol)) as probe:
            # As a server does, so that recently closed connections do not block the port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError:
        return False
    return True


def _version_at(host: str, port: int) -> str | None:
    """Return the version of the Weftline server at an address; None for anything else."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - asked, not bound
    with closing(http.client.HTTPConnection(host, port, timeout=_TIMEOUT_SECONDS)) as connection:
        try:
            connection.request("GET", "/health")
            answer: Any = msgspec.json.decode(connection.getresponse().read(10_000))
        except (OSError, http.client.HTTPException, msgspec.DecodeError):
            return None
    healthy = isinstance(answer, dict) and answer.get("status") == "ok"
    return str(answer.get("version", "")) if healthy else None
