"""JSON Schemas of the record types: generated from structs and constraints, shipped as files of the package."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from weftline.kernel.schema import standalone
from weftline.records.model import RECORD_TYPES
from weftline.records.refs import RecordPart, Ref, content_digest
from weftline.records.vocabulary import SCHEMA_VERSION, describe_field

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from weftline.kernel.identity import Actor
    from weftline.records.model import Record
    from weftline.records.refs import Css, XPath


DIALECT = "https://json-schema.org/draft/2020-12/schema"
# Directory of the published schemas, in the package and on the server.
SCHEMAS = "schemas"
MEDIA_TYPE = "application/schema+json"


def all_schemas() -> dict[str, dict[str, Any]]:
    """Generate the schema of every record type."""
    return {name: schema_of(kind) for name, kind in RECORD_TYPES.items()}


def schema_of(kind: type[Record]) -> dict[str, Any]:
    """Generate the self-contained schema of a record type."""
    structs = {part.__name__: part for part in _subclasses(RecordPart)}
    made = _without_discriminators(standalone(kind))
    parts = {name: _with_constraints(structs[name], part) for name, part in made.pop("$defs").items()}
    named = {"$schema": DIALECT, "$id": schema_id(kind.type), **_with_constraints(kind, made)}
    return {**named, "title": f"Agent Context {SCHEMA_VERSION}: {kind.type}", "$defs": parts}


def schema_id(record_type: str) -> str:
    return f"urn:weftline:agent-context:{SCHEMA_VERSION}:{record_type}"


def schema_path(record_type: str) -> str:
    """Return the path of a schema below ``schemas``; each Agent Context version has its own directory."""
    return f"agent-context/{SCHEMA_VERSION}/{record_type}.schema.json"


def schema_url(record_type: str) -> str:
    """Return the path at which a server publishes a schema."""
    return f"/{SCHEMAS}/{schema_path(record_type)}"


@cache
def schema_file(record_type: str) -> bytes:
    """Return the published schema of a record type."""
    return files("weftline").joinpath(SCHEMAS, *schema_path(record_type).split("/")).read_bytes()


@cache
def published_schema(record_type: str) -> dict[str, Any]:
    """Return the published schema of a record type. The result is cached: do not modify it."""
    return msgspec.json.decode(schema_file(record_type), type=dict[str, Any])


def _with_constraints(kind: type[RecordPart], schema: dict[str, Any]) -> dict[str, Any]:
    """Add field descriptions and constraints to the schema of a struct."""
    fields = {
        name: {**field, "description": describe_field(kind.__name__, name)}
        for name, field in schema["properties"].items()
    }
    constraints = [constraint.schema(fields) for constraint in kind.constraints]
    return {**schema, "properties": fields, **({"allOf": constraints} if constraints else {})}


def _without_discriminators(schema: Any) -> Any:  # noqa: ANN401 - any part of a JSON Schema
    """Remove OpenAPI discriminators; the tag field, an enum of one value, has the same effect in JSON Schema."""
    if isinstance(schema, dict):
        kept = {key: _without_discriminators(value) for key, value in schema.items()}
        if "anyOf" in kept:
            kept.pop("discriminator", None)
        return kept
    return [_without_discriminators(each) for each in schema] if isinstance(schema, list) else schema


def _subclasses(kind: type[RecordPart]) -> Iterator[type[RecordPart]]:
    for child in kind.__subclasses__():
        yield child
        yield from _subclasses(child)


# Stored records and their redactions, and the port to the reader of HTML and XML sources.

ITEM_TYPE = "context_item"
# Larger HTML and XML sources are not parsed.
MAX_MARKUP_BYTES = 4 * 2**20


class StoredRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record as stored. ``body`` is its JSON; ``seq`` is the sequence number of its latest event.

    ``status`` is the lifecycle of an envelope or the status of missing context. ``recorded_by`` is a display name,
    which is not unique; ``principal_id`` identifies the author, and is None for an imported record.
    """

    type: str
    record_id: str
    session_id: str | None
    status: str | None
    recorded_by: str
    recorded_at: int
    changed_at: int
    seq: int
    readable_by: tuple[str, ...]
    body: bytes
    principal_id: str | None = None

    def is_by(self, actor: Actor) -> bool:
        """Whether this principal recorded it."""
        return self.principal_id == actor.principal_id


class Redaction(msgspec.Struct, frozen=True):
    """Redaction of an item, a summary or an assembly.

    ``replacement`` is the text shown instead, if the content was summarized, or the salted digest of an item that the
    engine derives. ``imported_policies`` are the policy refs of an item that was imported in redacted form. ``salt`` is
    of the digest that is shown instead of the content. ``original`` is what a message was; it is written, not read.
    """

    record_id: str
    session_id: str | None
    state: str
    method: str
    reason: str
    redacted_by: str
    redacted_at: int
    replacement: str | None = None
    imported_policies: tuple[Ref, ...] | None = None
    type: str = ITEM_TYPE
    salt: bytes | None = None
    original: bytes | None = None

    def reference(self, digest: str) -> str | None:
        """Return what is shown of the digest of a content, from which nobody can guess that; None: nothing.

        What was imported in redacted form has been salted elsewhere.
        """
        if self.imported_policies is not None:
            return digest
        return None if self.salt is None else content_digest(self.salt + digest.encode())


class ReceiptRecords(Protocol):
    """Records derived from the receipts of assembled prompts."""

    async def of_receipt(self, receipt_id: str, session_id: str | None) -> Mapping[str, Record]:
        """Return the records of a receipt by type; none if the caller may not read it, or it is of another session."""
        ...


class EnclosingElement(NamedTuple):
    """The innermost element that contains a text, as XPath; ``ties`` is the number of such elements."""

    path: str
    ties: int


class MarkupResult(NamedTuple):
    """Text of the first match of each selector, None without a match; and the element that encloses ``words``.

    ``problem`` is set if the document could not be read.
    """

    texts: tuple[str | None, ...] = ()
    holder: EnclosingElement | None = None
    problem: str | None = None


class MarkupReader(Protocol):
    """Evaluates selectors on untrusted HTML and XML: without network access, and within a time limit."""

    def read(
        self, document: str, media_type: str | None, selectors: Sequence[Css | XPath], words: str | None
    ) -> MarkupResult: ...
