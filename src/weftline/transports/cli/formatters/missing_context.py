"""Missing context: open questions, requests and resolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from weftline.transports.cli.render import block, cell, escape_controls, indent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weftline.exchange.missing_context import GapRequest
    from weftline.exchange.missing_context_operations import (
        MissingInfo,
        MissingListed,
        MissingReported,
        MissingRequested,
        MissingResolved,
    )
    from weftline.records.model import CandidateSource
    from weftline.records.refs import Ref

_COLOURS = {"blocking": "red", "high": "red", "medium": "yellow"}


def _render_list(found: MissingListed) -> str:
    if not found.missing:
        return "No missing context."
    more = [f"More: --after {escape_controls(found.next_after)}"] if found.next_after else []
    return "\n\n".join([*map(_render_gap, found.missing), *more])


def _render_gap(gap: MissingInfo) -> str:
    severity = click.style(gap.severity, fg=_COLOURS.get(gap.severity), bold=gap.severity == "blocking")
    question = click.style(escape_controls(gap.question), bold=True)
    facts = {
        "id": escape_controls(gap.missing_id),
        "needed for": escape_controls(gap.needed_for or ""),
        "blocks": ", ".join(map(escape_controls, gap.blocked_actions)),
        "may be in": "\n".join(map(_source, gap.candidate_sources)),
        "reported": f"{cell(gap.reported_at)} by {escape_controls(gap.reported_by)}{_session(gap)}",
        "requested": "\n".join(map(_request, gap.requests)),
        "resolved": _resolution(gap),
    }
    details = block({name: text for name, text in facts.items() if text})
    return f"{severity}  {question} ({gap.status})\n{indent(details)}"


def _session(gap: MissingInfo) -> str:
    return "" if gap.session_id is None else f" in {gap.session_id}"


def _source(source: CandidateSource) -> str:
    places = [escape_controls(str(place)) for place in (source.hint, source.uri) if place]
    return escape_controls(source.kind) + "".join(f", {place}" for place in places)


def _request(sent: GapRequest) -> str:
    where = [sent.key and f"key {sent.key}", sent.message_id and f"message {sent.message_id}", sent.selection_id]
    found = "".join(f" ({place})" for place in where if place)
    return escape_controls(f"{cell(sent.requested_at)} {sent.form} from {sent.requested_from}{found}")


def _resolution(gap: MissingInfo) -> str:
    if gap.status != "resolved":
        return ""
    when = f"{cell(gap.resolved_at)} by {escape_controls(gap.resolved_by or '')}: " if gap.resolved_at else ""
    return when + ", ".join(map(_ref, gap.resolution_refs))


def _ref(ref: Ref) -> str:
    return escape_controls(ref if isinstance(ref, str) else str(ref.uri or ref.id))


def _render_report(answer: MissingReported) -> str:
    if answer.already_open:
        return f"Already reported as {answer.missing_id} ({answer.status}), by {escape_controls(answer.reported_by)}."
    return f"Reported as {answer.missing_id} ({answer.severity})."


def _render_request(answer: MissingRequested) -> str:
    return "\n".join(
        [f"Requested from {escape_controls(answer.requested_from)} ({answer.form}).", *_next_steps(answer)]
    )


def _next_steps(answer: MissingRequested) -> Iterator[str]:
    if answer.key is not None:
        yield f"The question is board key {answer.key}; writing {answer.answer_key} answers it."
    if answer.message_id is not None:
        yield f"The task is message {answer.message_id}; a reply to it resolves the question."
    if answer.selection_id is not None:
        found = [source for source in answer.candidate_sources if source.kind == "message"]
        yield from ["Candidates:", *(f"  {_source(source)}" for source in found)] if found else ["No candidates."]


def _render_resolution(answer: MissingResolved) -> str:
    state = "was already resolved" if answer.already_resolved else "is resolved"
    return f"{escape_controls(answer.missing_id)} {state}: {', '.join(map(_ref, answer.resolution_refs))}"


FORMATTERS: dict[str, Callable[[Any], str]] = {
    "missing.report": _render_report,
    "missing.list": _render_list,
    "missing.request": _render_request,
    "missing.resolve": _render_resolution,
}
