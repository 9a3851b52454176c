"""Operation that returns the JSON Schema of a record type."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from weft.capabilities.records.schemas import published_schema, schema_id, schema_url
from weft.capabilities.records.vocabulary import SCHEMA_VERSION, RecordType
from weft.kernel.operation import Effect, RateClass, Request, Response, operation


class GetRecordSchema(Request):
    """A record type."""

    type: Annotated[RecordType, msgspec.Meta(description="Record type.")]


class RecordSchema(Response, kw_only=True):
    """The JSON Schema of a record type."""

    success: Literal[True] = True
    type: str
    schema_version: str
    schema_id: str
    url: str
    schema: dict[str, Any]


@operation(
    "records.schema",
    tool="context_records",
    action="schema",
    http="GET /v1/records/schema",
    permission=None,
    rate=RateClass.BOARD,
    effect=Effect.OWN_TRANSACTIONS,
)
async def get_record_schema(request: GetRecordSchema) -> RecordSchema:
    """Return the JSON Schema of a record type and the path at which this server publishes it."""
    return RecordSchema(
        type=request.type,
        schema_version=SCHEMA_VERSION,
        schema_id=schema_id(request.type),
        url=schema_url(request.type),
        schema=published_schema(request.type),
    )
