"""Search results: best first, with source, snippet and score."""

from __future__ import annotations

import textwrap
from functools import partial
from typing import TYPE_CHECKING

import click
from msgspec import UNSET

from weftline.transports.cli.render import cell, counted, escape_controls, indent, table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weftline.prompts.assembly.get_context import ContextResponse
    from weftline.search.entity_operations import EntityListing
    from weftline.search.operations import SearchResponse, SimilarResponse
    from weftline.search.pin_operations import PinInfo, PinList
    from weftline.search.results import PassageInfo, PassageSource, PendingItems, SearchFacts
    from weftline.sessions.messages.search import Snippets

_SNIPPET_CHARACTERS = 400
_WIDTH = 96


def render_search(query: str, found: SearchResponse) -> str:
    result, notes = _result_formatter(query), []
    if found.unsure:
        hint = escape_controls(found.hint).replace("low_confidence: true", "--low-confidence")
        notes.append(f"{'Unsure' if found.results else 'No results'}. {hint}")
    if found.lexical_only:
        notes.append(f"Only words were matched, not meaning: {escape_controls(found.lexical_only)}.")
    notes += [escape_controls(f'"{each.phrase}": {each.entity}') for each in found.resolved]
    pins = [click.style("Pinned", bold=True), *map(result, found.pinned)] if found.pinned else []
    summary = f"{_summary(len(found.results), found)}, confidence {found.confidence:.2f}{_pending(found.pending)}"
    return "\n\n".join([*notes, *map(result, found.results), *pins, summary])


def render_similar(text: str, found: SimilarResponse) -> str:
    summary = f"{_summary(len(found.results), found)}{_pending(found.pending)}"
    return "\n\n".join([*map(_result_formatter(text), found.results), summary])


def render_context(gathered: ContextResponse) -> str:
    doubt = ", unsure" if gathered.unsure else ""
    summary = f"{counted(gathered.tokens, 'token')} with citations{doubt}{_pending(gathered.pending)}"
    return "\n\n".join(filter(None, [escape_controls(gathered.context), click.style(summary, dim=True)]))


def _summary(results: int, facts: SearchFacts) -> str:
    """Return the number of results and, if it is explained, of the chunks that were searched."""
    of_chunks = "" if facts.searched is UNSET else f" of {counted(facts.searched, 'chunk')}"
    return f"{counted(results, 'result')}{of_chunks}"


def _result_formatter(query: str) -> Callable[[PassageInfo], str]:
    """Return the formatter of one result; the query is analysed once for all."""
    from weftline.sessions.messages.search import Snippets  # noqa: PLC0415 - entities and pins have none

    return partial(_result, Snippets(query, _SNIPPET_CHARACTERS))


def _result(snippets: Snippets, result: PassageInfo) -> str:
    """Return one result: score, source, the part that matches the query, and signals."""
    score = click.style(f"{result.score:.2f}", fg="green", bold=True)
    snippet = snippets.of(" ".join(result.text.split()))
    details = [escape_controls(result.ref), cell(result.timestamp), _signals(result.signals or {})]
    footer = click.style(" | ".join(filter(None, details)), dim=True)
    text = "\n".join([*textwrap.wrap(escape_controls(snippet), _WIDTH), footer])
    return f"{score}  {click.style(_source(result), bold=True)}\n{indent(text)}"


def _source(found: PassageSource) -> str:
    match found.source:
        case "document":
            return escape_controls(" > ".join(filter(None, [found.domain, found.document_id, found.heading])))
        case "message":
            return _in_session(found, f"message {found.message_id} of {found.speaker}")
        case "event":
            return _in_session(found, f"event {found.event_id} of {found.agent_id}")
        case "board":
            return _in_session(found, f"key {found.key}")
        case _:
            owner = f" of {found.owner}" if found.owner else ""
            return escape_controls(f"memory{owner}, key {found.key}")


def _in_session(found: PassageSource, item: str) -> str:
    """Name an item with its session; results of a named session do not repeat it."""
    return escape_controls(", ".join(filter(None, [found.session_id, item])))


def _signals(signals: Mapping[str, float]) -> str:
    return escape_controls(", ".join(f"{name} {value:.2f}" for name, value in signals.items()))


def _pending(pending: PendingItems | None) -> str:
    if pending is None:
        return ""
    waiting = [counted(pending.documents, "document")] if pending.documents else []
    waiting += [counted(pending.events, "event")] if pending.events else []
    missing = f"; {' and '.join(waiting)} not indexed yet" if waiting else ""
    return f"{missing}; an index is being rebuilt, so results are incomplete" if pending.partial else missing


def _render_entities(listing: EntityListing) -> str:
    rows = [
        {
            "entity": escape_controls(f"{each.type}:{each.value}"),
            "passages": str(each.count),
            "last_mentioned": cell(each.last_at),
        }
        for each in listing.entities
    ]
    more = [] if listing.complete else [click.style("There may be more.", dim=True)]
    return "\n".join([table(rows) if rows else "No entities.", *more])


def _render_pin(pin: PinInfo) -> str:
    return f"Pinned: {_pinned_item(pin)}, {counted(pin.tokens, 'token')}"


def _render_pins(listing: PinList) -> str:
    if not listing.pins:
        return "No pins."
    rows = [
        {
            "item": _pinned_item(pin),
            "tokens": str(pin.tokens),
            "pinned_by": escape_controls(pin.pinned_by),
            "pinned_at": cell(pin.pinned_at),
            "text": escape_controls(pin.text),
        }
        for pin in listing.pins
    ]
    total = f"{counted(listing.tokens, 'token')} together; at most {listing.limit_tokens} for each session or memory"
    return f"{table(rows)}\n\n{click.style(total, dim=True)}"


def _pinned_item(pin: PinInfo) -> str:
    memory = "memory" if pin.memory_type is None else f"memory {pin.memory_type}"
    place = pin.session_id if pin.source != "memory" else ", ".join(filter(None, [pin.session_id, memory]))
    item = f"message {pin.message_id}" if pin.message_id is not None else f"key {pin.key}"
    return escape_controls(", ".join(filter(None, [place, item])))


FORMATTERS: dict[str, Callable[..., str]] = {
    "entity.list": _render_entities,
    "pin.add": _render_pin,
    "pin.list": _render_pins,
    "search.query": render_search,
    "search.get_context": render_context,
    "search.find_similar": render_similar,
}
