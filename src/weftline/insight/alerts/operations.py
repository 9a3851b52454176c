"""Operations on alerts: list, acknowledge and resolve."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from weftline.access.plan_warnings import Plans
from weftline.insight.alerts.model import WATCHED, AlertId, AlertNotFound, AlertResolved, AlertState, describe
from weftline.insight.alerts.service import Alerts
from weftline.insight.alerts.sql import AlertFilter
from weftline.kernel.clock import from_micros, optional_datetime
from weftline.kernel.errors import InvalidInput, PermissionDenied, QuotaExceeded, invalid_cursor
from weftline.kernel.events import AlertCondition, agent_subject
from weftline.kernel.fields import Name
from weftline.kernel.identity import Permission
from weftline.kernel.operation import Effect, RateClass, Request, Response, SessionUse, operation

if TYPE_CHECKING:
    from weftline.insight.alerts.model import Alert

# Alerts are about all sessions of an agent, so that a connection that is bound to one has none.
_operation = partial(operation, tool="alerts", rate=RateClass.ADMIN, session=SessionUse.OUTSIDE)
_change = partial(
    _operation,
    permission=Permission.WRITE,
    effect=Effect.WRITE,
    audited=True,
    errors=(AlertNotFound, AlertResolved, PermissionDenied),
)

State = Literal["open", "acknowledged", "resolved"]
_STATES = {
    "active": (AlertState.OPEN, AlertState.ACKNOWLEDGED),
    "open": (AlertState.OPEN,),
    "acknowledged": (AlertState.ACKNOWLEDGED,),
    "resolved": (AlertState.RESOLVED,),
    "all": tuple(AlertState),
}


class ListAlerts(Request):
    """Filters of alerts."""

    state: Annotated[
        Literal["active", "open", "acknowledged", "resolved", "all"],
        msgspec.Meta(description="Only in this state; active: open and acknowledged."),
    ] = "active"
    condition: Annotated[AlertCondition | None, msgspec.Meta(description="Only of this condition.")] = None
    agent_id: Annotated[Name | None, msgspec.Meta(description="Only about this agent.")] = None
    digest_id: Annotated[Name | None, msgspec.Meta(description="Only those in this digest: the id of its alert.")] = (
        None
    )
    cursor: Annotated[Name | None, msgspec.Meta(description="next_cursor of the previous page.")] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=200, description="At most this many.")] = 50


class ChangeAlert(Request):
    """The alert to change."""

    alert_id: AlertId


class AlertInfo(Response, kw_only=True):
    """An alert. ``message`` says what it is about, ``data`` has the figures.

    ``subject`` is agent:ID, team:NAME or tenant; ``about`` the quota or budget. ``seen_at`` is when the condition last
    held. A ``digest`` stands for the alerts of many agents; ``digest_id`` is the digest that an alert is in. Without
    ``resolved_by``, it was resolved because its condition has ended.
    """

    on_record = ("state", "condition", "subject")

    alert_id: str
    condition: AlertCondition
    subject: str
    state: State
    message: str
    data: dict[str, Any]
    opened_at: datetime
    seen_at: datetime
    about: str = ""
    digest: bool = False
    digest_id: str | None = None
    acknowledged_at: datetime | None = None
    acknowledged_by: str | None = None
    resolved_at: datetime | None = None
    resolved_by: str | None = None


class AlertList(Response):
    """Alerts, newest first; ``next_cursor`` is set while there are more."""

    alerts: list[AlertInfo]
    next_cursor: str | None = None


@_operation(
    "alerts.list",
    action="list",
    http="GET /v1/alerts",
    permission=Permission.READ,
    effect=Effect.READ,
    errors=(InvalidInput, QuotaExceeded),
)
async def list_alerts(request: ListAlerts, alerts: Alerts, plans: Plans) -> AlertList:
    """List alerts: about you and the agents below you; for admins all. Those of many agents are one, a digest."""
    if request.cursor is not None and not request.cursor.startswith("alert_"):
        raise invalid_cursor("cursor")
    if request.condition in WATCHED:
        (await plans.allowance()).check_insight("alerts")
    wanted = AlertFilter(
        states=_STATES[request.state],
        condition=request.condition,
        subject=None if request.agent_id is None else agent_subject(request.agent_id),
        digest_id=request.digest_id,
    )
    page = await alerts.store.page(alerts.reader, wanted, request.cursor, request.limit + 1)
    shown = page[: request.limit]
    return AlertList(
        alerts=[_info(alert) for alert in shown],
        next_cursor=shown[-1].alert_id if len(page) > request.limit else None,
    )


@_change("alerts.acknowledge", action="acknowledge", http="POST /v1/alerts/{alert_id}/acknowledge")
async def acknowledge_alert(request: ChangeAlert, alerts: Alerts) -> AlertInfo:
    """Acknowledge an alert: you look into it. It stays active until it is resolved."""
    return _info(await alerts.acknowledge(request.alert_id))


@_change("alerts.resolve", action="resolve", http="POST /v1/alerts/{alert_id}/resolve")
async def resolve_alert(request: ChangeAlert, alerts: Alerts) -> AlertInfo:
    """Resolve an alert; a digest with all alerts in it. Only later calls of the agent open it again."""
    return _info(await alerts.resolve(request.alert_id))


def _info(alert: Alert) -> AlertInfo:
    return AlertInfo(
        alert_id=alert.alert_id,
        condition=alert.condition,
        subject=str(alert.subject),
        state=alert.state.value,
        message=describe(alert),
        data=alert.data,
        opened_at=from_micros(alert.opened_at),
        seen_at=from_micros(alert.seen_at),
        about="" if alert.is_digest else alert.about,
        digest=alert.is_digest,
        digest_id=alert.digest_id,
        acknowledged_at=optional_datetime(alert.acknowledged_at),
        acknowledged_by=alert.acknowledged_by,
        resolved_at=optional_datetime(alert.resolved_at),
        resolved_by=alert.resolved_by,
    )
