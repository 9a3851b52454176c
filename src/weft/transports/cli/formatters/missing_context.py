"""Missing context for people: a list that reads like one of questions, and what comes next after each step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from weft.transports.cli.render import block, cell, harmless, indent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weft.capabilities.missing_context.operations import (
        MissingInfo,
        MissingListed,
        MissingReported,
        MissingResolved,
        RequestInfo,
    )
    from weft.capabilities.missing_context.requests import MissingRequested
    from weft.capabilities.records.model import CandidateSource
    from weft.capabilities.records.refs import Ref

_COLOURS = {"blocking": "red", "high": "red", "medium": "yellow"}


def _render_list(found: MissingListed) -> str:
    if not found.missing:
        return "Nothing is known to be missing."
    more = [f"There is more: --after {harmless(found.next_after)}"] if found.next_after else []
    return "\n\n".join([*map(_render_gap, found.missing), *more])


def _render_gap(gap: MissingInfo) -> str:
    severity = click.style(gap.severity, fg=_COLOURS.get(gap.severity), bold=gap.severity == "blocking")
    question = click.style(harmless(gap.question), bold=True)
    told = {
        "id": harmless(gap.missing_id),
        "needed for": harmless(gap.needed_for or ""),
        "blocks": ", ".join(map(harmless, gap.blocked_actions)),
        "may be in": "\n".join(map(_source, gap.candidate_sources)),
        "reported": f"{cell(gap.reported_at)} by {harmless(gap.reported_by)}{_home(gap)}",
        "asked": "\n".join(map(_asked, gap.requests)),
        "resolved": _resolution(gap),
    }
    said = block({name: text for name, text in told.items() if text})
    return f"{severity}  {question} ({gap.status})\n{indent(said)}"


def _home(gap: MissingInfo) -> str:
    return "" if gap.session_id is None else f" in {gap.session_id}"


def _source(source: CandidateSource) -> str:
    places = [harmless(str(place)) for place in (source.hint, source.uri) if place]
    return harmless(source.kind) + "".join(f", {place}" for place in places)


def _asked(asked: RequestInfo) -> str:
    where = [asked.key and f"key {asked.key}", asked.message_id and f"message {asked.message_id}", asked.selection_id]
    found = "".join(f" ({place})" for place in where if place)
    return harmless(f"{cell(asked.requested_at)} {asked.form} of {asked.requested_from}{found}")


def _resolution(gap: MissingInfo) -> str:
    if gap.status != "resolved":
        return ""
    when = f"{cell(gap.resolved_at)} by {harmless(gap.resolved_by or '')}: " if gap.resolved_at else ""
    return when + ", ".join(map(_ref, gap.resolution_refs))


def _ref(ref: Ref) -> str:
    return harmless(ref if isinstance(ref, str) else str(ref.uri or ref.id))


def _render_report(answer: MissingReported) -> str:
    if answer.already_open:
        return f"This was asked already, as {answer.missing_id} ({answer.status}), by {harmless(answer.reported_by)}."
    return f"Reported as {answer.missing_id} ({answer.severity})."


def _render_request(answer: MissingRequested) -> str:
    return "\n".join([f"Asked {harmless(answer.requested_from)} ({answer.form}).", *_next_steps(answer)])


def _next_steps(answer: MissingRequested) -> Iterator[str]:
    if answer.key is not None:
        yield f"The question is on the board as {answer.key}; writing {answer.answer_key} answers it."
    if answer.message_id is not None:
        yield f"The task is message {answer.message_id}; an answer to it settles the question."
    if answer.selection_id is not None:
        found = [source for source in answer.candidate_sources if source.kind == "message"]
        yield from ["It may be in:", *(f"  {_source(source)}" for source in found)] if found else ["Nothing was found."]


def _render_resolution(answer: MissingResolved) -> str:
    said = "was resolved by this already" if answer.already_resolved else "is resolved"
    return f"{harmless(answer.missing_id)} {said}: {', '.join(map(_ref, answer.resolution_refs))}"


FORMS: dict[str, Callable[[Any], str]] = {
    "missing.report": _render_report,
    "missing.list": _render_list,
    "missing.request": _render_request,
    "missing.resolve": _render_resolution,
}
