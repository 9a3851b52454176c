"""Bundles: helpers to export, take apart and import them."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from weft.app.dispatch import CallContext
from weft.capabilities.records.model import RECORD_TYPES, ContextEnvelope, Producer
from weft.capabilities.transfer.bundle_format import (
    BundleContent,
    BundleHeader,
    BundleReader,
    BundleRecord,
    BundleWriter,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from support.world import Caller
    from weft.capabilities.transfer.importer import ContextImported

Named = tuple[str, str]


async def exported(caller: Caller, **what: Any) -> bytes:
    """Return an export as a stream gives it."""
    raw = {"session_id": caller.session, **what}
    async with caller.app.transfers.send(raw, CallContext(caller.credential)) as export:
        content = export.file.read()
    assert len(content) == export.facts.bytes
    return content


async def imported(caller: Caller, bundle: bytes, **what: Any) -> ContextImported:
    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(bundle), 1_000):
            yield bundle[start : start + 1_000]

    return await caller.app.transfers.receive(what, CallContext(caller.credential), chunks())


def entries(bundle: bytes) -> list[Any]:
    """Return what a bundle holds, having checked all of it."""
    return [line.entry for line in BundleReader(io.BytesIO(bundle))]


def records(bundle: bytes, *types: str) -> dict[Named, Any]:
    """Return the records of a bundle by type and id, as JSON has them."""
    found: dict[Named, Any] = {}
    for entry in entries(bundle):
        if isinstance(entry, BundleRecord) and (not types or entry.type in types):
            record = msgspec.json.decode(entry.record)
            found[entry.type, record[RECORD_TYPES[entry.type].id_field]] = record
    return found


def items(bundle: bytes) -> dict[str, Any]:
    return {name: record for (_, name), record in records(bundle, "context_item").items()}


def contents(bundle: bytes) -> dict[str, bytes]:
    """Return what stands in lines of its own, by digest."""
    return {entry.digest: entry.bytes() for entry in entries(bundle) if isinstance(entry, BundleContent)}


def texts(bundle: bytes) -> dict[str, str]:
    """Return what every item says, wherever it says it."""
    beside = contents(bundle)
    said = {}
    for name, item in items(bundle).items():
        if "content" in item:
            said[name] = item["content"]
        elif item.get("content_ref", {}).get("digest") in beside:
            said[name] = beside[item["content_ref"]["digest"]].decode()
    return said


def seal_of(bundle: bytes) -> str:
    reader = BundleReader(io.BytesIO(bundle))
    assert list(reader)
    assert reader.digest is not None
    return reader.digest


def small_bundle() -> bytes:
    """Return as little as a bundle can hold."""
    at = datetime(2026, 1, 15, tzinfo=UTC)
    file = io.BytesIO()
    writer = BundleWriter(file.write)
    writer.add(
        BundleHeader(
            format="weft-bundle",
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
