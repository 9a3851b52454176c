"""Alerts: what they are about, since when, and who looks into them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from weftline.transports.cli.render import block, cell, escape_controls, indent

if TYPE_CHECKING:
    from collections.abc import Callable

    from weftline.insight.alerts.operations import AlertInfo, AlertList

_COLOURS = {"open": "red", "acknowledged": "yellow", "resolved": "green"}


def _render_list(found: AlertList) -> str:
    if not found.alerts:
        return "No alerts."
    more = [f"More: --cursor {escape_controls(found.next_cursor)}"] if found.next_cursor else []
    return "\n\n".join([*(_render_alert(alert) for alert in found.alerts), *more])


def _render_alert(alert: AlertInfo) -> str:
    state = click.style(alert.state, fg=_COLOURS[alert.state])
    title = click.style(escape_controls(alert.message), bold=True)
    facts = {
        "id": alert.alert_id,
        "condition": alert.condition,
        "since": cell(alert.opened_at),
        "last seen": cell(alert.seen_at),
        "acknowledged": _by(alert.acknowledged_at, alert.acknowledged_by),
        "resolved": _by(alert.resolved_at, alert.resolved_by),
        "agents": f"weftline alerts list --digest-id {alert.alert_id}" if alert.digest else "",
        "receipt": escape_controls(str(alert.data.get("receipt_id", ""))),
    }
    return f"{state}  {title}\n{indent(block({name: text for name, text in facts.items() if text}))}"


def _by(at: object, name: str | None) -> str:
    if at is None:
        return ""
    return f"{cell(at)} by {escape_controls(name)}" if name else f"{cell(at)}, because the condition has ended"


FORMATTERS: dict[str, Callable[[Any], str]] = {
    "alerts.list": _render_list,
    "alerts.acknowledge": _render_alert,
    "alerts.resolve": _render_alert,
}
