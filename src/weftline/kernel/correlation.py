"""Correlation ids of a call: the turn, task, tool call or trace it belongs to, as named by the caller.

They travel as W3C Trace Context and Baggage, in HTTP headers or in the ``_meta`` of MCP. Malformed ids there are
ignored: they never fail a call.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Annotated, Any, TypedDict
from urllib.parse import quote, unquote_to_bytes

import msgspec
from msgspec import structs

from weftline.kernel.errors import InvalidInput
from weftline.kernel.fields import MAX_INT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NativeId = Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern=r"^[^\x00-\x20\x7f-\x9f]+\Z")]


class Correlation(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Ids stored with everything that one call changes, unchanged, to find it by later."""

    turn_id: NativeId | None = None
    task_id: NativeId | None = None
    tool_call_id: NativeId | None = None
    thread_id: NativeId | None = None
    run_id: NativeId | None = None
    attempt_id: NativeId | None = None
    step_id: NativeId | None = None
    action_id: NativeId | None = None
    evidence_id: NativeId | None = None
    runtime_id: NativeId | None = None
    trace_id: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}\Z")] | None = None
    span_id: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{16}\Z")] | None = None
    mcp_session_id: NativeId | None = None
    jsonrpc_request_id: NativeId | Annotated[int, msgspec.Meta(ge=-MAX_INT, le=MAX_INT)] | None = None


NO_CORRELATION = Correlation()

TRACEPARENT = "traceparent"
BAGGAGE = "baggage"
_TRACE_FIELDS = ("trace_id", "span_id")
_MCP_FIELDS = ("mcp_session_id", "jsonrpc_request_id")
_BAGGAGE_FIELDS = tuple(name for name in Correlation.__struct_fields__ if name not in {*_TRACE_FIELDS, *_MCP_FIELDS})
_MEMBERS = {f"weftline.{name}": name for name in _BAGGAGE_FIELDS}
_META_KEYS = {f"weftline/{name}": name for name in _BAGGAGE_FIELDS}
# All keys that Weftline reads or passes on in ``_meta``; tracestate is for tracing vendors.
META_KEYS = frozenset({*_META_KEYS, TRACEPARENT, "tracestate", BAGGAGE})
_TRACE = re.compile(r"([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-|\Z)")
# Fits all ids at their maximum length with every character escaped.
_MAX_BAGGAGE = 32_768
_SAMPLED = 1
# Same as NativeId, in a quarter of the time; also rejects lone surrogates, which cannot be stored.
_NATIVE_ID = re.compile(r"[^\x00-\x20\x7f-\x9f\ud800-\udfff]{1,200}")


class CorrelationIds(TypedDict, total=False):
    """Correlation ids that a caller can set. ``traceparent`` is a span in W3C Trace Context format."""

    turn_id: str | None
    task_id: str | None
    tool_call_id: str | None
    thread_id: str | None
    run_id: str | None
    attempt_id: str | None
    step_id: str | None
    action_id: str | None
    evidence_id: str | None
    runtime_id: str | None
    traceparent: str | None


def ids_from_headers(traceparent: str | None, baggage: str | None) -> dict[str, str]:
    """Return the ids in the two headers."""
    ids = {} if traceparent is None else _parse_traceparent(traceparent)
    return ids if baggage is None else {**ids, **dict(_parse_baggage(baggage))}


def ids_from_meta(meta: Mapping[str, Any]) -> dict[str, str]:
    """Return the ids in the ``_meta`` of an MCP request."""
    texts = {name: value for name, value in meta.items() if name in META_KEYS and isinstance(value, str)}
    if not texts:
        return texts
    own = {_META_KEYS[name]: value for name, value in texts.items() if name in _META_KEYS and is_native_id(value)}
    return {**ids_from_headers(texts.get(TRACEPARENT), texts.get(BAGGAGE)), **own}


def with_ids(correlation: Correlation, ids: Mapping[str, str | int]) -> Correlation:
    """Return the correlation with further ids."""
    return structs.replace(correlation, **ids) if ids else correlation


def is_traceparent(text: str) -> bool:
    return bool(_parse_traceparent(text))


def is_sampled(traceparent: object) -> bool:
    """Return the sampled flag of a span; True if it is missing."""
    found = _TRACE.match(traceparent) if isinstance(traceparent, str) else None
    return found is None or bool(int(found[4], 16) & _SAMPLED)


def is_native_id(text: str) -> bool:
    return _NATIVE_ID.fullmatch(text) is not None


def make_correlation(ids: CorrelationIds, before: Correlation = NO_CORRELATION) -> Correlation:
    """Return the correlation with ids set by the caller; raises InvalidInput for malformed ones."""
    given: dict[str, Any] = dict(ids)
    unknown = given.keys() - CorrelationIds.__annotations__.keys()
    if unknown:
        raise TypeError(f"there is no correlation id {min(unknown)!r}")
    trace = _trace_ids(given.pop(TRACEPARENT)) if TRACEPARENT in given else {}
    for name, value in given.items():
        if value is not None and not (isinstance(value, str) and is_native_id(value)):
            raise InvalidInput(f"{name}: give 1 to 200 characters without spaces.", field=name)
    after = structs.replace(before, **given, **trace)
    return NO_CORRELATION if after == NO_CORRELATION else after


def _trace_ids(traceparent: Any) -> dict[str, str | None]:  # noqa: ANN401 - as a caller gives it
    if traceparent is None:
        return dict.fromkeys(_TRACE_FIELDS)
    found = _parse_traceparent(traceparent) if isinstance(traceparent, str) else {}
    if not found:
        raise InvalidInput("traceparent: use the W3C Trace Context format, 00-TRACE-SPAN-01.", field=TRACEPARENT)
    return {**found}


def trace_headers(correlation: Correlation) -> dict[str, str]:
    """Return the headers of a correlation, with the current span if it names none."""
    trace = (
        current_traceparent() if correlation.trace_id is None else f"00-{correlation.trace_id}-{correlation.span_id}-01"
    )
    headers = {} if trace is None else {TRACEPARENT: trace}
    if correlation is not NO_CORRELATION:
        named = ((member, getattr(correlation, name)) for member, name in _MEMBERS.items())
        members = [f"{member}={quote(value, safe='')}" for member, value in named if value is not None]
        headers |= {BAGGAGE: ",".join(members)} if members else {}
    return headers


def in_current_trace(correlation: Correlation) -> Correlation:
    """Return the correlation, with the current span if it names none."""
    trace = current_traceparent() if correlation.trace_id is None else None
    return correlation if trace is None else with_ids(correlation, _parse_traceparent(trace))


def current_traceparent() -> str | None:
    """Return the current OpenTelemetry span as a traceparent, if there is one."""
    # An application with a tracer has imported this; others do not pay for the import.
    tracing = sys.modules.get("opentelemetry.trace")
    if tracing is None:
        return None
    span = tracing.get_current_span().get_span_context()
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}" if span.is_valid else None


def _parse_traceparent(traceparent: str) -> dict[str, str]:
    found = _TRACE.match(traceparent)
    # Only versions after 00 may have further fields.
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
        return {}
    return {"trace_id": found[2], "span_id": found[3]}


def _parse_baggage(baggage: str) -> Iterator[tuple[str, str]]:
    if len(baggage) > _MAX_BAGGAGE:
        return
    for member in baggage.split(","):
        name, _, rest = member.partition("=")
        known = _MEMBERS.get(name.strip())
        if known is not None:
            value = _unescaped(rest.partition(";")[0].strip())
            if value is not None and is_native_id(value):
                yield known, value


def _unescaped(text: str) -> str | None:
    if not text.isascii():
        return None
    try:
        return unquote_to_bytes(text).decode() if "%" in text else text
    except UnicodeDecodeError:
        return None
