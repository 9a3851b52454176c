"""Agent Context for library users: the record types, checking them, finding passages again, and mappings to others.

The modules ``mcp``, ``a2a``, ``opentelemetry``, ``model_api``, ``web_annotation``, ``prov``, ``cloudevents`` and
``json_schema`` turn native objects into records and back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.providers.html_xml import IsolatedMarkupReader
from weftline.records.mappings import (
    a2a,
    cloudevents,
    json_schema,
    mcp,
    model_api,
    opentelemetry,
    prov,
    web_annotation,
)
from weftline.records.mappings.natives import ItemNaming
from weftline.records.model import (
    RECORD_TYPES,
    Block,
    CandidateSource,
    ContextAssembly,
    ContextBudget,
    ContextCompaction,
    ContextEnvelope,
    ContextEvent,
    ContextInjection,
    ContextItem,
    ContextSelection,
    ContextSourceRef,
    ContextSummary,
    ContextSurface,
    ContextWindow,
    Coverage,
    Freshness,
    MissingContext,
    Omission,
    Producer,
    Record,
    Truncation,
    Validation,
    WindowSegment,
)
from weftline.records.refs import (
    A2aMapping,
    ByteRange,
    CloudEventsMapping,
    Css,
    CustomSelector,
    JsonPointer,
    JsonSchemaMapping,
    LineRange,
    Link,
    McpMapping,
    MediaTimeRange,
    ModelApiMapping,
    OpenTelemetryMapping,
    OtherMapping,
    PageRegion,
    ProvMapping,
    TextPosition,
    TextQuote,
    WebAnnotationMapping,
    XPath,
)
from weftline.records.resolution import PassageResolution
from weftline.records.resolution import resolve as _resolve
from weftline.records.selectors import passage_digest, selectors_for, source_ref
from weftline.records.validation import InvalidRecord, Problem, check_document, check_record
from weftline.records.vocabulary import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "RECORD_TYPES",
    "SCHEMA_VERSION",
    "A2aMapping",
    "Block",
    "ByteRange",
    "CandidateSource",
    "CloudEventsMapping",
    "ContextAssembly",
    "ContextBudget",
    "ContextCompaction",
    "ContextEnvelope",
    "ContextEvent",
    "ContextInjection",
    "ContextItem",
    "ContextSelection",
    "ContextSourceRef",
    "ContextSummary",
    "ContextSurface",
    "ContextWindow",
    "Coverage",
    "Css",
    "CustomSelector",
    "Freshness",
    "InvalidRecord",
    "ItemNaming",
    "JsonPointer",
    "JsonSchemaMapping",
    "LineRange",
    "Link",
    "McpMapping",
    "MediaTimeRange",
    "MissingContext",
    "ModelApiMapping",
    "Omission",
    "OpenTelemetryMapping",
    "OtherMapping",
    "PageRegion",
    "PassageResolution",
    "Problem",
    "Producer",
    "ProvMapping",
    "Record",
    "TextPosition",
    "TextQuote",
    "Truncation",
    "Validation",
    "WebAnnotationMapping",
    "WindowSegment",
    "XPath",
    "a2a",
    "check_record",
    "cloudevents",
    "json_schema",
    "mcp",
    "model_api",
    "opentelemetry",
    "passage_digest",
    "prov",
    "resolve",
    "selectors_for",
    "source_ref",
    "validate",
    "web_annotation",
]

_markup = IsolatedMarkupReader()


def validate(document: bytes | str) -> Sequence[Problem]:
    """Return all problems of a document with one record, a JSON array of records, or one record per line."""
    return check_document(document.encode() if isinstance(document, str) else document).problems


def resolve(ref: ContextSourceRef, content: bytes | str, media_type: str | None = None) -> PassageResolution:
    """Find the passage of a source ref in the current content of its source: exact, moved or lost."""
    return _resolve(ref, content, media_type, _markup)
