"""Approvals: held calls with their requests, and decisions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from weftline.transports.cli.render import block, cell, escape_controls, indent

if TYPE_CHECKING:
    from collections.abc import Callable

    from weftline.safety.approvals.operations import ApprovalDecided, ApprovalInfo, ApprovalList, ApprovalShown

_COLOURS = {"pending": "yellow", "rejected": "red", "expired": "red"}
_COMPACTION = "compaction.apply"
_HOLDS = {"approval": "needs approval", "quarantine": "quarantined"}


def _render_list(found: ApprovalList) -> str:
    if not found.approvals:
        return "No held calls."
    more = [f"More: --cursor {escape_controls(found.next_cursor)}"] if found.next_cursor else []
    return "\n\n".join([*(_render_call(held) for held in found.approvals), *more])


def _render_shown(shown: ApprovalShown) -> str:
    request = {name: value for name, value in shown.request.items() if value is not None}
    why = None if shown.details is None else {"check": shown.check, **_readable(shown)}
    parts = {"request": request, "why it is held": why, "answer": shown.answer}
    details = [f"{name}:\n{indent(_value(value))}" for name, value in parts.items() if value]
    return "\n\n".join([_render_call(shown), *details, *_read(shown), *_next_step(shown)])


def _readable(shown: ApprovalShown) -> dict[str, Any]:
    """Return why a call is held; of a compaction without its texts, which a command shows side by side."""
    details = dict(shown.details or {})
    if shown.operation != _COMPACTION:
        return details
    for name in ("compaction_id", "session_id", "agent_id", "summaries", "more_summaries"):
        details.pop(name, None)
    return {name: value for name, value in details.items() if value not in (None, [], 0)}


def _render_call(held: ApprovalInfo) -> str:
    state = click.style(held.state, fg=_COLOURS.get(held.state))
    title = click.style(f"{escape_controls(held.agent_id)} calls {held.operation}", bold=True)
    facts = {
        "id": held.approval_id,
        "session": escape_controls(held.session_id or ""),
        _HOLDS[held.hold]: escape_controls(held.reason),
        "since": cell(held.created_at),
        "expires": cell(held.expires_at) if held.state == "pending" else "",
        "decided": _decision(held),
        "failed with": _failure(held),
    }
    return f"{state}  {title}\n{indent(block({name: text for name, text in facts.items() if text}))}"


def _decision(held: ApprovalInfo) -> str:
    if held.decided_by is None:
        return ""
    why = f": {escape_controls(held.decision_reason)}" if held.decision_reason else ""
    return f"{cell(held.decided_at)} by {escape_controls(held.decided_by)}{why}"


def _failure(held: ApprovalInfo | ApprovalDecided) -> str:
    failure = held.failed_with
    return "" if failure is None else f"{failure.code}: {escape_controls(failure.error)}"


def _value(value: Any) -> str:  # noqa: ANN401 - JSON
    """Return JSON for people: one field per line, long texts as they are."""
    if not isinstance(value, dict):
        return escape_controls(json.dumps(value, ensure_ascii=False))
    shown = {
        escape_controls(name): escape_controls(part if isinstance(part, str) else json.dumps(part, ensure_ascii=False))
        for name, part in value.items()
    }
    return block(shown)


def _read(shown: ApprovalShown) -> list[str]:
    if shown.operation != _COMPACTION:
        return []
    return [f"Read it: weftline compaction show {escape_controls(str(shown.request.get('compaction_id')))}"]


def _next_step(held: ApprovalInfo) -> list[str]:
    if held.state != "pending":
        return []
    return [
        f"Decide with: weftline approval approve {held.approval_id}, or weftline approval reject {held.approval_id}"
    ]


def _render_decided(decided: ApprovalDecided) -> str:
    call = f"{decided.operation} of {escape_controls(decided.agent_id)}"
    if decided.state == "rejected":
        return f"Rejected: {call} is not performed."
    if decided.state == "pending":
        return f"Approved, but held again: {escape_controls(decided.reason or '')}"
    if decided.failed_with is not None:
        return f"Approved. {call} failed with {_failure(decided)}"
    if decided.state == "approved":
        return f"Approved: {call} is being performed."
    return f"Approved: {call} has been performed."


FORMATTERS: dict[str, Callable[[Any], str]] = {
    "approval.list": _render_list,
    "approval.show": _render_shown,
    "approval.approve": _render_decided,
    "approval.reject": _render_decided,
}
