"""CloudEvents 1.0 in structured mode as context events, and back."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from weftline.kernel.correlation import is_traceparent
from weftline.kernel.errors import InvalidInput
from weftline.kernel.events import EventClass
from weftline.records.mappings.natives import build_part, object_of, text_of
from weftline.records.mappings.opentelemetry import (
    mapping_of_traceparent,
    telemetry_refs_of,
    traceparent_of,
)
from weftline.records.model import ContextEvent
from weftline.records.refs import CloudEventsMapping, OpenTelemetryMapping
from weftline.records.validation import InvalidRecord, parse_record
from weftline.records.vocabulary import EVENT_CLASSES, SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping as Object

_SYSTEM = "cloudevents"
_OWN_SCHEMA = f"urn:weftline:agent-context:{SCHEMA_VERSION}:context_event"
_MAPPED = ("id", "source", "type", "subject", "time", "datacontenttype")
# Extension attributes of Weftline's events.
_IDS = {"sessionid": "session_id", "turnid": "turn_id", "taskid": "task_id", "toolcallid": "tool_call_id"}
_DATA = "data"


def mapping_of(event: Object[str, Any]) -> CloudEventsMapping:
    """Return the mapping of a CloudEvent."""
    if event.get("specversion") != "1.0":
        raise InvalidInput("specversion: must be 1.0", field="specversion")
    for name in ("id", "source", "type"):
        if not text_of(event, name):
            raise InvalidInput(f"{name}: required", field=name)
    return build_part(CloudEventsMapping, **{name: event.get(name) for name in _MAPPED})


def context_event_of(
    event: Object[str, Any], *, event_class: EventClass | None = None, received_at: datetime | None = None
) -> ContextEvent:
    """Convert a CloudEvent to a context event: Weftline's own to the original, any other with ``event_class``.

    ``received_at`` is used if the event has no time.
    """
    mapping = mapping_of(event)
    if event.get("dataschema") == _OWN_SCHEMA and isinstance(event.get(_DATA), dict):
        return _from_own_data(event[_DATA])
    event_type = event_class or event["type"]
    if event_type not in EVENT_CLASSES:
        raise InvalidInput(f"type: '{event_type[:100]}' is not an event class; give event_class.", field="type")
    time = received_at if mapping.time is UNSET else mapping.time
    if time is None:
        raise InvalidInput("time: the event has none; give received_at", field="time")
    trace = _trace(event)
    payload = event.get(_DATA)
    return build_part(
        ContextEvent,
        schema_version=SCHEMA_VERSION,
        event_id=f"{event['source']}#{event['id']}",
        event_type=event_type,
        source=event["source"],
        time=time,
        subject=event.get("subject"),
        data=payload if isinstance(payload, dict) else None,
        telemetry_refs=() if trace is None else tuple(map(msgspec.to_builtins, telemetry_refs_of(trace))),
        external_mappings=tuple(msgspec.to_builtins(each) for each in (mapping, trace) if each is not None),
        metadata={_SYSTEM: _rest(event, mapping)},
        **{name: event.get(extension) for extension, name in _IDS.items()},
    )


def cloud_event_of(record: ContextEvent) -> dict[str, Any]:
    """Convert a context event to the CloudEvent it was made from, otherwise to a new one."""
    mapping = next((each for each in record.external_mappings if isinstance(each, CloudEventsMapping)), None)
    if mapping is None or _SYSTEM not in record.metadata:
        return _new_cloud_event(record)
    rest = object_of(record.metadata, _SYSTEM)
    attributes = {name: value for name, value in msgspec.to_builtins(mapping).items() if name in _MAPPED}
    payload = {} if _DATA in rest or "data_base64" in rest or not rest.get("has_data") else {_DATA: record.data}
    return {**attributes, **payload, **{name: value for name, value in rest.items() if name != "has_data"}}


def _from_own_data(data: dict[str, Any]) -> ContextEvent:
    try:
        record = parse_record(data, ContextEvent.type)
    except InvalidRecord as error:
        raise InvalidInput(f"data{error.path.removeprefix('$')}: {error.reason}", field=_DATA) from None
    assert isinstance(record, ContextEvent)  # noqa: S101 - of the type that was asked for
    return record


def _new_cloud_event(record: ContextEvent) -> dict[str, Any]:
    trace = next((each for each in record.external_mappings if isinstance(each, OpenTelemetryMapping)), None)
    optional: dict[str, Any] = {
        "subject": record.subject,
        "traceparent": UNSET if trace is None else traceparent_of(trace) or UNSET,
        **{extension: getattr(record, name) for extension, name in _IDS.items()},
    }
    return {
        "specversion": "1.0",
        "id": record.event_id.removeprefix(f"{record.source}#"),
        "source": record.source,
        "type": record.event_type,
        "time": msgspec.to_builtins(record.time),
        "datacontenttype": "application/json",
        "dataschema": _OWN_SCHEMA,
        **{name: value for name, value in optional.items() if value is not UNSET},
        _DATA: msgspec.to_builtins(record),
    }


def _rest(event: Object[str, Any], mapping: CloudEventsMapping) -> dict[str, Any]:
    """Return what a context event cannot store: extensions, non-object data, a differently formatted time."""
    rest = {name: value for name, value in event.items() if name not in {*_MAPPED, _DATA}}
    written = msgspec.to_builtins(mapping).get("time")
    if event.get("time") != written:
        rest["time"] = event["time"]
    if _DATA in event:
        rest |= {"has_data": True} if isinstance(event[_DATA], dict) else {_DATA: event[_DATA]}
    return rest


def _trace(event: Object[str, Any]) -> OpenTelemetryMapping | None:
    traceparent = text_of(event, "traceparent")
    known = traceparent is not None and is_traceparent(traceparent)
    return mapping_of_traceparent(traceparent) if known and traceparent is not None else None
