"""Search results: best first, with source, snippet and score."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import click

from weft.transports.cli.render import cell, counted, escape_controls, indent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weft.capabilities.assembly.get_context import ContextResponse
    from weft.capabilities.search.operations import SearchResponse, SimilarResponse
    from weft.capabilities.search.results import PassageInfo, PassageSource, PendingItems

_SNIPPET_CHARACTERS = 400
_WIDTH = 96


def _render_everything(found: SearchResponse) -> str:
    notes = []
    if not found.results:
        notes.append("No results.")
    elif found.fallback is not None:
        notes.append("No relevant results; these are the most recent items.")
    elif found.widened:
        notes.append("Low confidence: the search was widened beyond the requested number and relevance.")
    if found.model is None:
        notes.append("No embedding model is available; only words were matched.")
    summary = f"{counted(len(found.results), 'result')} of {counted(found.searched, 'chunk')}, confidence "
    return "\n\n".join(
        [*notes, *map(_result, found.results), f"{summary}{found.confidence:.2f}{_pending(found.pending)}"]
    )


def render_similar(found: SimilarResponse) -> str:
    summary = f"{counted(len(found.results), 'result')} of {counted(found.searched, 'chunk')}{_pending(found.pending)}"
    return "\n\n".join([*map(_result, found.results), summary])


def render_context(gathered: ContextResponse) -> str:
    summary = f"{gathered.tokens} of {counted(gathered.max_tokens, 'token')}{_pending(gathered.pending)}"
    return "\n\n".join(filter(None, [escape_controls(gathered.context), click.style(summary, dim=True)]))


def _result(result: PassageInfo) -> str:
    """Return one result: score, source, snippet and signals."""
    score = click.style(f"{result.score:.2f}", fg="green", bold=True)
    snippet = textwrap.shorten(result.text, _SNIPPET_CHARACTERS, placeholder=" ...")
    details = [escape_controls(result.chunk_id), cell(result.timestamp), _signals(result.signals or {})]
    footer = click.style(" | ".join(filter(None, details)), dim=True)
    text = "\n".join([*textwrap.wrap(escape_controls(snippet), _WIDTH), footer])
    return f"{score}  {click.style(_source(result), bold=True)}\n{indent(text)}"


def _source(found: PassageSource) -> str:
    match found.source:
        case "document":
            return escape_controls(" > ".join(filter(None, [found.domain, found.document_id, found.heading])))
        case "message":
            return escape_controls(f"{found.session_id}, message {found.message_id} of {found.speaker}")
        case "event":
            return escape_controls(f"{found.session_id}, event {found.event_id} of {found.agent_id}")
        case "board":
            return escape_controls(f"{found.session_id}, key {found.key}")
        case _:
            return escape_controls(f"memory, key {found.key}")


def _signals(signals: Mapping[str, Any]) -> str:
    """Return the signals of a score: numbers with their value, flags by name."""
    numbers = [f"{name} {value:.2f}" for name, value in signals.items() if isinstance(value, float)]
    return escape_controls(", ".join([*numbers, *(name for name, value in signals.items() if value is True)]))


def _pending(pending: PendingItems) -> str:
    waiting = [counted(pending.documents, "document")] if pending.documents else []
    waiting += [counted(pending.events, "event")] if pending.events else []
    missing = f"; {' and '.join(waiting)} not indexed yet" if waiting else ""
    return f"{missing}; an index is being rebuilt, so results are incomplete" if pending.partial else missing


FORMATTERS: dict[str, Callable[[Any], str]] = {
    "search.query": _render_everything,
    "search.get_context": render_context,
    "search.find_similar": render_similar,
}
