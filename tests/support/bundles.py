"""Helpers to export, parse and import bundles."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from weftline.app.dispatch import CallContext
from weftline.exchange.transfer.bundle_format import (
    BundleContent,
    BundleHeader,
    BundleReader,
    BundleRecord,
    BundleWriter,
)
from weftline.records.model import RECORD_TYPES, ContextEnvelope, Producer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from support.world import Caller
    from weftline.exchange.transfer.importer import ContextImported

Named = tuple[str, str]


async def exported(caller: Caller, **fields: Any) -> bytes:
    """Return the bytes of an export."""
    raw = {"session_id": caller.session, **fields}
    async with caller.app.transfers.send(raw, CallContext(caller.credential)) as export:
        content = export.file.read()
    assert len(content) == export.facts.bytes
    return content


async def imported(caller: Caller, bundle: bytes, **fields: Any) -> ContextImported:
    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(bundle), 1_000):
            yield bundle[start : start + 1_000]

    return await caller.app.transfers.receive(fields, CallContext(caller.credential), chunks())


def entries(bundle: bytes) -> list[Any]:
    """Return the entries of a bundle, after checking all of it."""
    return [line.entry for line in BundleReader(io.BytesIO(bundle))]


def records(bundle: bytes, *types: str) -> dict[Named, Any]:
    """Return the records of a bundle as JSON, by type and id."""
    found: dict[Named, Any] = {}
    for entry in entries(bundle):
        if isinstance(entry, BundleRecord) and (not types or entry.type in types):
            record = msgspec.json.decode(entry.record)
            found[entry.type, record[RECORD_TYPES[entry.type].id_field]] = record
    return found


def items(bundle: bytes) -> dict[str, Any]:
    return {name: record for (_, name), record in records(bundle, "context_item").items()}


def without_trust(record: Any) -> Any:
    """Return a record without what an import may change: the trust of an item."""
    native = {name: value for name, value in record.get("metadata", {}).get("weftline", {}).items() if name != "trust"}
    plain = {name: value for name, value in record.items() if name != "trust_level"}
    return plain | {"metadata": {**record["metadata"], "weftline": native}} if native else plain


def contents(bundle: bytes) -> dict[str, bytes]:
    """Return the content lines of a bundle, by digest."""
    return {entry.digest: entry.bytes() for entry in entries(bundle) if isinstance(entry, BundleContent)}


def texts(bundle: bytes) -> dict[str, str]:
    """Return the text of every item, inline or in a content line."""
    content_lines = contents(bundle)
    found = {}
    for name, item in items(bundle).items():
        if "content" in item:
            found[name] = item["content"]
        elif item.get("content_ref", {}).get("digest") in content_lines:
            found[name] = content_lines[item["content_ref"]["digest"]].decode()
    return found


def seal_of(bundle: bytes) -> str:
    reader = BundleReader(io.BytesIO(bundle))
    assert list(reader)
    assert reader.digest is not None
    return reader.digest


def resealed(bundle: bytes, change: Callable[[Any], Any]) -> bytes:
    """Change entries of a bundle and seal it again."""
    file = io.BytesIO()
    writer = BundleWriter(file.write)
    for entry in entries(bundle):
        changed = change(entry)
        if changed is not None:
            writer.add(changed)
    writer.seal()
    return file.getvalue()


def small_bundle() -> bytes:
    """Return the smallest valid bundle."""
    at = datetime(2026, 1, 15, tzinfo=UTC)
    file = io.BytesIO()
    writer = BundleWriter(file.write)
    writer.add(
        BundleHeader(
            format="weftline-bundle",
            version=1,
            bundle_id="small",
            scope="turn",
            schema_version="0.1.0",
            created_at=at,
            producer=Producer(id="test"),
            source="urn:test",
        )
    )
    writer.add_record(
        ContextEnvelope(schema_version="0.1.0", context_id="small", scope="turn", lifecycle="available", created_at=at)
    )
    writer.seal()
    return file.getvalue()
