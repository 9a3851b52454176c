"""Envelopes that the engine records in the transaction of what they are about, where a session asks for them."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from weftline.kernel.fields import new_id
from weftline.records.model import ContextEnvelope, Producer
from weftline.records.refs import Link
from weftline.records.vocabulary import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from weftline.kernel.identity import Actor
    from weftline.records.vocabulary import Lifecycle, Scope
    from weftline.sessions.model import Session


def session_envelope(
    scope: Scope,
    session: Session,
    actor: Actor,
    at: datetime,
    items: Iterable[str],
    *,
    lifecycle: Lifecycle = "available",
    tool_call_id: str | None = None,
    **refs: Any,  # noqa: ANN401 - of several types
) -> ContextEnvelope:
    """Return an envelope of these items, with the ids that the caller gave its turn, task and tool call."""
    ids = actor.correlation
    named = {
        "session": session.session_id,
        "turn": ids.turn_id,
        "task": ids.task_id,
        "tool_call": tool_call_id or ids.tool_call_id,
    }
    return ContextEnvelope(
        schema_version=SCHEMA_VERSION,
        context_id=new_id("envelope"),
        scope=scope,
        lifecycle=lifecycle,
        created_at=at,
        producer=weftline_producer(),
        actor_refs=(Link(kind=str(actor.kind), id=actor.participant),),
        runtime_refs=tuple(Link(kind=kind, id=identity) for kind, identity in named.items() if identity is not None),
        surface_refs=(f"session:{session.session_id}",),
        item_refs=tuple(dict.fromkeys(items)),
        telemetry_refs=() if ids.trace_id is None else (Link(kind="trace", id=ids.trace_id),),
        **refs,
    )


@cache
def weftline_producer() -> Producer:
    return Producer(id="weftline", version=version("weftline"))
