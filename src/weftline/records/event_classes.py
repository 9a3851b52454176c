"""Events of the log as Agent Context records and as CloudEvents, and the event class of each event type."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from msgspec import UNSET, Struct

from weftline.kernel.correlation import NO_CORRELATION, Correlation
from weftline.records.model import ContextEvent
from weftline.records.record_ids import SurfaceId, record_ids_of_event
from weftline.records.refs import Link, Maybe, McpMapping, OpenTelemetryMapping
from weftline.records.vocabulary import EVENT_CLASSES, SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weftline.kernel.events import Event, EventClass, StoredEvent
    from weftline.records.refs import Mapping as NativeIds

# Event classes of the event types that are not event classes themselves.
_CLASSES: dict[str, EventClass] = {
    "session.created": "context.surface.created",
    "session.imported": "context.surface.created",
    "session.archived": "context.surface.updated",
    "session.members_changed": "context.surface.updated",
    "session.terminated": "context.surface.updated",
    "session.reinstated": "context.surface.updated",
    "session.deleted": "context.surface.updated",
    "board.snapshot": "context.surface.updated",
    "board.restored": "context.surface.updated",
    "branch.snapshot": "context.surface.updated",
    "branch.restored": "context.surface.updated",
    "layer.defined": "context.surface.updated",
    "message.added": "context.item.added",
    "message.visibility_changed": "context.item.updated",
    "context.pulled": "context.injection.applied",
    "window.created": "context.surface.updated",
    "window.changed": "context.surface.updated",
    "window.deleted": "context.surface.updated",
    "window.ingested": "context.item.added",
    **dict.fromkeys(("board.deleted", "branch.deleted", "memory.deleted"), "context.item.removed"),
    **dict.fromkeys(("board.expired", "branch.expired", "memory.expired"), "context.item.removed"),
    "context.expired": "context.item.removed",
}
# Events for several entries, with the number of added, updated and removed ones.
_BATCH_TYPES = frozenset({"context.pushed", "agent.defined"})
_WRITES = frozenset({"board.written", "branch.written", "memory.written"})
_SURFACE_PREFIX = "context.surface."
# Ids that Correlation and ContextEvent have under the same name.
_SHARED_IDS = tuple(name for name in Correlation.__struct_fields__ if name in ContextEvent.__struct_fields__)


class CloudEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event as a CloudEvents 1.0 object in structured mode.

    Its ``data`` is a context_event if Agent Context has a class for it, otherwise the data of the logged event.
    """

    id: str
    source: str
    type: str
    time: datetime
    data: Any
    subject: Maybe[str] = UNSET
    specversion: Maybe[str] = UNSET
    datacontenttype: Maybe[str] = UNSET
    dataschema: Maybe[str] = UNSET
    sequence: Maybe[str] = UNSET
    sessionid: Maybe[str] = UNSET
    turnid: Maybe[str] = UNSET
    taskid: Maybe[str] = UNSET
    toolcallid: Maybe[str] = UNSET
    actor: Maybe[str] = UNSET
    agentid: Maybe[str] = UNSET
    traceparent: Maybe[str] = UNSET


def event_class_of(event: Event) -> EventClass | None:
    """Return the Agent Context class of an event; None if it has none."""
    if event.type in EVENT_CLASSES:
        return cast("EventClass", event.type)
    if event.type in _WRITES:
        return "context.item.added" if event.data.get("version") == 1 else "context.item.updated"
    if event.type in _BATCH_TYPES or (event.type == "window.changed" and "context_id" in event.data):
        return _batch_class(event.data)
    if event.type.startswith("history."):
        return "context.surface.updated"
    return _CLASSES.get(event.type)


def to_context_event(recorded: StoredEvent, source: str) -> ContextEvent | None:
    """Convert an event to a context_event record. ``source`` is the URI of this event log."""
    event, correlation = recorded.event, recorded.correlation
    event_class = event_class_of(event)
    if event_class is None:
        return None
    home, number = _identity(recorded, source)
    return ContextEvent(
        schema_version=SCHEMA_VERSION,
        event_id=f"{home}#{number}",
        event_type=event_class,
        source=home,
        time=event.at,
        subject=event.subject or UNSET,
        session_id=event.session_id or UNSET,
        telemetry_refs=() if correlation.trace_id is None else (Link(kind="trace", id=correlation.trace_id),),
        external_mappings=_mappings(correlation, home),
        data={"type": event.type, "actor": event.actor, **event.data, **_record_ids(recorded, event_class)},
        **_ids(correlation),
    )


def to_cloud_event(recorded: StoredEvent, source: str) -> CloudEvent:
    """Convert an event to a CloudEvent, for webhooks and event buses."""
    event, correlation = recorded.event, recorded.correlation
    home, number = _identity(recorded, source)
    record = to_context_event(recorded, source)
    return CloudEvent(
        specversion="1.0",
        id=number,
        source=home,
        type=f"weftline.{event.type}" if record is None else record.event_type,
        subject=event.subject or UNSET,
        time=event.at,
        datacontenttype="application/json",
        dataschema=UNSET if record is None else f"urn:weftline:agent-context:{SCHEMA_VERSION}:context_event",
        data={"type": event.type, "actor": event.actor, **event.data} if record is None else record,
        # Zero-padded, as the sequence extension requires lexicographic order.
        sequence=f"{event.seq:020d}",
        sessionid=event.session_id or UNSET,
        turnid=correlation.turn_id or UNSET,
        taskid=correlation.task_id or UNSET,
        toolcallid=correlation.tool_call_id or UNSET,
        actor=event.actor,
        agentid=event.agent_id,
        traceparent=f"00-{correlation.trace_id}-{correlation.span_id}-01"
        if correlation.trace_id and correlation.span_id
        else UNSET,
    )


def _batch_class(data: Mapping[str, Any]) -> EventClass:
    done = {name for name in ("added", "updated", "removed") if data.get(name)}
    if done == {"added"}:
        return "context.item.added"
    return "context.item.removed" if done == {"removed"} else "context.item.updated"


def _record_ids(recorded: StoredEvent, event_class: EventClass) -> dict[str, str]:
    """Return the ids of the records that an event refers to, by id field; a surface event refers to its session."""
    session_id = recorded.event.session_id
    of_session = event_class.startswith(_SURFACE_PREFIX) and session_id is not None
    surface = {"surface_id": str(SurfaceId(session_id or ""))} if of_session else {}
    return {**surface, **record_ids_of_event(recorded)}


def _identity(recorded: StoredEvent, source: str) -> tuple[str, str]:
    """Return the log in which an event was first published, and its id there."""
    origin = recorded.origin
    return (source, str(recorded.event.seq)) if origin is None else (origin.source, origin.id)


def _ids(correlation: Correlation) -> dict[str, Any]:
    if correlation is NO_CORRELATION:
        return {}
    return {name: value for name in _SHARED_IDS if (value := getattr(correlation, name)) is not None}


def _mappings(correlation: Correlation, home: str) -> tuple[NativeIds, ...]:
    """Return the ids of a call in MCP and in OpenTelemetry; the MCP server is the log that first had the event."""
    mappings: list[NativeIds] = []
    request_id = correlation.jsonrpc_request_id
    if correlation.mcp_session_id is not None or request_id is not None:
        mappings.append(
            McpMapping(
                server_id=home,
                mcp_session_id=correlation.mcp_session_id or UNSET,
                jsonrpc_request_id=UNSET if request_id is None else request_id,
            )
        )
    if correlation.trace_id is not None or correlation.span_id is not None:
        mappings.append(
            OpenTelemetryMapping(trace_id=correlation.trace_id or UNSET, span_id=correlation.span_id or UNSET)
        )
    return tuple(mappings)
