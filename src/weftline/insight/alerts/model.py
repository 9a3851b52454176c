"""Alerts: their states, figures, limits and errors."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from weftline.kernel.alerts import AlertCondition, AlertSubject
from weftline.kernel.clock import DAY_MICROS
from weftline.kernel.errors import Conflict, NotFound
from weftline.kernel.fields import Name
from weftline.kernel.identity import CLEARANCE, PERMISSION, PRINCIPAL, Permission

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weftline.access.model import Principal

# From this many agents with the same condition on, further ones are in one alert of the tenant, the digest.
DIGEST_FROM = 20
# At this many, the digest is resolved, and those that are left have alerts of their own again.
DIGEST_CLEAR = 10
# Figures of an active alert that is raised again are updated this often.
UPDATE_MICROS = 60_000_000
# An active alert about an agent that made no calls for this long is resolved.
STALE_MICROS = 7 * DAY_MICROS
# Resolved alerts are deleted after this.
KEEP_MICROS = 90 * DAY_MICROS
# ``about`` of a digest.
ALL_AGENTS = "*"
# Conditions that are found by looking at the calls of agents.
WATCHED: frozenset[AlertCondition] = frozenset({"context.overload", "efficiency.low"})
_ADMINS = f"{PERMISSION}{Permission.ADMIN}"


class AlertState(StrEnum):
    """State of an alert. Open and acknowledged ones are active."""

    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert. ``data`` has the figures that it is about, no content.

    ``about`` is the quota or budget, if a subject can have several alerts of one condition. ``seen_at`` is when the
    condition was last found to hold. ``digest_id`` is the alert of the tenant that it is part of: it has no events of
    its own. ``resolved_by`` is None if Weftline resolved it.
    """

    alert_id: str
    condition: AlertCondition
    subject: AlertSubject
    about: str = ""
    state: AlertState = AlertState.OPEN
    data: dict[str, Any]
    opened_at: int
    seen_at: int
    acknowledged_at: int | None = None
    acknowledged_by: str | None = None
    resolved_at: int | None = None
    resolved_by: str | None = None
    digest_id: str | None = None

    @property
    def is_active(self) -> bool:
        return self.state is not AlertState.RESOLVED

    @property
    def is_digest(self) -> bool:
        """Return whether it stands for the alerts of many agents."""
        return self.about == ALL_AGENTS


class AlertAudience(NamedTuple):
    """Both ACLs of the events about a subject: readers match both."""

    participants: tuple[str, ...]
    readable_by: tuple[str, ...]


def audience_of_agent(agent: Principal, ancestors: Iterable[Principal]) -> AlertAudience:
    """Return who reads events about an agent: itself, and those above it and admins up to their clearance."""
    itself = f"{PRINCIPAL}{agent.principal_id}"
    above = (f"{PRINCIPAL}{ancestor.principal_id}" for ancestor in ancestors)
    return AlertAudience((itself, *above, _ADMINS), (itself, f"{CLEARANCE}{agent.clearance}"))


AUDIENCE_OF_ADMINS = AlertAudience((_ADMINS,), (_ADMINS,))

AlertId = Annotated[Name, msgspec.Meta(description="Id of the alert.")]


class AlertNotFound(NotFound):
    """No alert with this id exists, or it is not yours to see."""

    code = "ALERT_NOT_FOUND"
    hint = "List the alerts with `alerts.list`."
    related = ("alerts",)


class AlertResolved(Conflict):
    """The alert is resolved already."""

    code = "ALERT_RESOLVED"
    hint = "Nothing is left to do. If the condition holds again, there will be a new alert."
    related = ("alerts",)
