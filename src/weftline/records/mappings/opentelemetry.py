"""OpenTelemetry: ids of spans, with the attributes of the semantic conventions for generative AI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from weftline.kernel.correlation import ids_from_headers
from weftline.kernel.errors import InvalidInput
from weftline.records.mappings.natives import build_part
from weftline.records.refs import Link, OpenTelemetryMapping

if TYPE_CHECKING:
    from collections.abc import Mapping as Object

_USAGE = "gen_ai.usage."
_ATTRIBUTES = {
    "conversation_id": "gen_ai.conversation.id",
    "system": "gen_ai.provider.name",
    "operation_name": "gen_ai.operation.name",
}
# Former names of attributes.
_RENAMED = {
    "gen_ai.system": "gen_ai.provider.name",
    "gen_ai.usage.prompt_tokens": "gen_ai.usage.input_tokens",
    "gen_ai.usage.completion_tokens": "gen_ai.usage.output_tokens",
}
_TRACE, _SPAN = "trace", "span"


def mapping_of_span(
    trace_id: int | str, span_id: int | str, attributes: Object[str, Any] | None = None, event_name: str | None = None
) -> OpenTelemetryMapping:
    """Map a span or span event; ids may be integers, as in a SpanContext.

    Token usage is keyed by the attribute names after ``gen_ai.usage.``.
    """
    values = {_RENAMED.get(name, name): value for name, value in (attributes or {}).items()}
    usage = {
        name.removeprefix(_USAGE): value
        for name, value in values.items()
        if name.startswith(_USAGE) and isinstance(value, int) and not isinstance(value, bool)
    }
    return build_part(
        OpenTelemetryMapping,
        trace_id=_hex(trace_id, 32),
        span_id=_hex(span_id, 16),
        event_name=event_name,
        token_usage=usage or None,
        **{name: values.get(attribute) for name, attribute in _ATTRIBUTES.items()},
    )


def attributes_of(mapping: OpenTelemetryMapping) -> dict[str, Any]:
    """Return the span attributes of a mapping."""
    values = {attribute: getattr(mapping, name) for name, attribute in _ATTRIBUTES.items()}
    usage = {} if mapping.token_usage is UNSET else mapping.token_usage
    return {
        **{attribute: value for attribute, value in values.items() if value is not UNSET},
        **{f"{_USAGE}{name}": count for name, count in usage.items()},
    }


def mapping_of_traceparent(traceparent: str) -> OpenTelemetryMapping:
    ids = ids_from_headers(traceparent, None)
    if not ids:
        raise InvalidInput("traceparent: must have the W3C Trace Context form 00-TRACE-SPAN-01.", field="traceparent")
    return build_part(OpenTelemetryMapping, **ids)


def traceparent_of(mapping: OpenTelemetryMapping) -> str | None:
    """Return the traceparent of a mapping; None if it has no span."""
    if mapping.trace_id is UNSET or mapping.span_id is UNSET:
        return None
    return f"00-{mapping.trace_id}-{mapping.span_id}-01"


def telemetry_refs_of(mapping: OpenTelemetryMapping) -> tuple[Link, ...]:
    """Return links to the trace and span of a mapping."""
    ids = ((_TRACE, mapping.trace_id), (_SPAN, mapping.span_id))
    return tuple(Link(kind=kind, id=identity) for kind, identity in ids if identity is not UNSET)


def mapping_of_telemetry_refs(refs: tuple[object, ...]) -> OpenTelemetryMapping:
    """Return the mapping of the trace and span that a record links to."""
    ids = {ref.kind: ref.id for ref in refs if isinstance(ref, Link) and ref.kind in {_TRACE, _SPAN}}
    return build_part(OpenTelemetryMapping, trace_id=ids.get(_TRACE), span_id=ids.get(_SPAN))


def _hex(identity: int | str, digits: int) -> str:
    return f"{identity:0{digits}x}" if isinstance(identity, int) else identity
