"""What a call is part of, as it travels: W3C Trace Context and Baggage, in headers or in the ``_meta`` of MCP.

What cannot be read is left out. A caller never fails for what it says of itself beside its request.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, TypedDict
from urllib.parse import quote, unquote_to_bytes

from msgspec import structs

from weft.kernel.correlation import UNRELATED, Correlation
from weft.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TRACEPARENT = "traceparent"
BAGGAGE = "baggage"
_OF_TRACE = ("trace_id", "span_id")
_OF_MCP = ("mcp_session_id", "jsonrpc_request_id")
_NAMED = tuple(name for name in Correlation.__struct_fields__ if name not in {*_OF_TRACE, *_OF_MCP})
_MEMBERS = {f"weft.{name}": name for name in _NAMED}
_META_KEYS = {f"weft/{name}": name for name in _NAMED}
# Whatever a client of ours may say in ``_meta``; a trace's state is its vendors' alone.
META_KEYS = frozenset({*_META_KEYS, TRACEPARENT, "tracestate", BAGGAGE})
_TRACE = re.compile(r"([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-|\Z)")
# All the ids there can be, each as long as it may be and every character of it escaped.
_LONGEST_BAGGAGE = 32_768
_SAMPLED = 1
# A NativeId, in a quarter of the time; half of a surrogate pair is part of no text that could be kept.
_NATIVE_ID = re.compile(r"[^\x00-\x20\x7f-\x9f\ud800-\udfff]{1,200}")


class Ids(TypedDict, total=False):
    """What a caller can say that its calls are part of. ``traceparent`` is a span as W3C Trace Context writes it."""

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


def ids_of_carrier(traceparent: str | None, baggage: str | None) -> dict[str, str]:
    """Return the ids that the two headers tell."""
    ids = {} if traceparent is None else _of_trace(traceparent)
    return ids if baggage is None else {**ids, **dict(_of_baggage(baggage))}


def ids_of_meta(meta: Mapping[str, Any]) -> dict[str, str]:
    """Return the ids that the ``_meta`` of an MCP request tells."""
    texts = {name: value for name, value in meta.items() if name in META_KEYS and isinstance(value, str)}
    if not texts:
        return texts
    own = {_META_KEYS[name]: value for name, value in texts.items() if name in _META_KEYS and is_native_id(value)}
    return {**ids_of_carrier(texts.get(TRACEPARENT), texts.get(BAGGAGE)), **own}


def with_ids(during: Correlation, ids: Mapping[str, str | int]) -> Correlation:
    """Return what a call is part of, with what is further known of it."""
    return structs.replace(during, **ids) if ids else during


def is_traceparent(text: str) -> bool:
    return bool(_of_trace(text))


def is_sampled(traceparent: object) -> bool:
    """Tell whether whoever made a span keeps it; where that is not said, yes."""
    found = _TRACE.match(traceparent) if isinstance(traceparent, str) else None
    return found is None or bool(int(found[4], 16) & _SAMPLED)


def is_native_id(text: str) -> bool:
    return _NATIVE_ID.fullmatch(text) is not None


def correlated(ids: Ids, before: Correlation = UNRELATED) -> Correlation:
    """Return what calls are part of, as whoever makes them says; what cannot be an id is refused."""
    given: dict[str, Any] = dict(ids)
    unknown = given.keys() - Ids.__annotations__.keys()
    if unknown:
        raise TypeError(f"a call cannot be part of a {min(unknown)}")
    trace = _said_trace(given.pop(TRACEPARENT)) if TRACEPARENT in given else {}
    for name, value in given.items():
        if value is not None and not (isinstance(value, str) and is_native_id(value)):
            raise InvalidInput(f"{name}: give 1 to 200 characters without spaces.", field=name)
    after = structs.replace(before, **given, **trace)
    return UNRELATED if after == UNRELATED else after


def _said_trace(traceparent: Any) -> dict[str, str | None]:  # noqa: ANN401 - as a caller gives it
    if traceparent is None:
        return dict.fromkeys(_OF_TRACE)
    found = _of_trace(traceparent) if isinstance(traceparent, str) else {}
    if not found:
        raise InvalidInput("traceparent: give it as W3C Trace Context has it, 00-TRACE-SPAN-01.", field=TRACEPARENT)
    return {**found}


def headers_of(during: Correlation) -> dict[str, str]:
    """Return the headers that tell what a call is part of; the current span, where no other is named."""
    trace = current_traceparent() if during.trace_id is None else f"00-{during.trace_id}-{during.span_id}-01"
    headers = {} if trace is None else {TRACEPARENT: trace}
    if during is not UNRELATED:
        named = ((member, getattr(during, name)) for member, name in _MEMBERS.items())
        members = [f"{member}={quote(value, safe='')}" for member, value in named if value is not None]
        headers |= {BAGGAGE: ",".join(members)} if members else {}
    return headers


def in_current_trace(during: Correlation) -> Correlation:
    """Return what a call is part of, with the current span where no other is named."""
    trace = current_traceparent() if during.trace_id is None else None
    return during if trace is None else with_ids(during, _of_trace(trace))


def current_traceparent() -> str | None:
    """Return the span that this application is in, if it is traced."""
    # Whoever has a tracer has loaded this; nobody else pays for it.
    tracing = sys.modules.get("opentelemetry.trace")
    if tracing is None:
        return None
    span = tracing.get_current_span().get_span_context()
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}" if span.is_valid else None


def _of_trace(traceparent: str) -> dict[str, str]:
    found = _TRACE.match(traceparent)
    # Only versions to come may say more than this one does.
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
        return {}
    return {"trace_id": found[2], "span_id": found[3]}


def _of_baggage(baggage: str) -> Iterator[tuple[str, str]]:
    if len(baggage) > _LONGEST_BAGGAGE:
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
