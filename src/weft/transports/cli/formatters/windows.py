"""Events of windows, as a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from weft.transports.cli.render import cell, escape_controls, indent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weft.capabilities.windows.operations import WindowEvents
    from weft.capabilities.windows.views import WindowEventView


def _render_events(found: WindowEvents) -> str:
    if not found.events:
        return "No events."
    more = [f"{found.count} of {found.total_count} events; see --limit and --offset."] if found.has_more else []
    return "\n\n".join([*map(_render_event, found.events), *more])


def _render_event(event: WindowEventView) -> str:
    lines = [escape_controls(event.content)] if event.content else []
    lines += [f"calls {escape_controls(call.name)} {escape_controls(call.arguments)}" for call in event.tool_calls]
    head = click.style(f"{event.number} {event.role}", bold=True)
    return "\n".join([f"{head}  {' · '.join(_facts(event))}", *(indent(line) for line in lines)])


def _facts(event: WindowEventView) -> Iterator[str]:
    yield event.category
    yield escape_controls(event.event_id)
    yield f"{event.tokens} tokens"
    yield escape_controls(event.agent_id)
    if event.recipient_id is not None:
        yield f"to {escape_controls(event.recipient_id)}"
    yield from (name for name in ("pinned", "routed", "redacted") if getattr(event, name))
    yield cell(event.at)


FORMATTERS: dict[str, Callable[[Any], str]] = {"window.events": _render_events}
