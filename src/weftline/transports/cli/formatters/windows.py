"""Windows: how full they are by category, with whom they are shared, and their events as a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from weftline.transports.cli.formatters.receipts import aligned, usage_bar
from weftline.transports.cli.render import block, cell, counted, escape_controls, indent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weftline.windows.operations import WindowEvents
    from weftline.windows.views import RouteView, WindowEventView, WindowView


def _render_window(window: WindowView) -> str:
    title = click.style(f"Window of {escape_controls(window.agent_id)}", bold=True)
    where = f"session {escape_controls(window.session_id)} · {escape_controls(window.model or 'no model named')}"
    limits = f"model {window.model_tokens:,} · reserved for the answer {window.reserved_tokens:,}"
    parts = [
        f"{title} in {where}",
        indent(f"{usage_bar(window.tokens, window.limit)}\n{click.style(limits, dim=True)}"),
        indent(_categories(window)),
        block({name: text for name, text in _facts(window).items() if text}),
    ]
    return "\n\n".join(parts)


def _categories(window: WindowView) -> str:
    return aligned(
        [
            {
                "category": use.category.value,
                "tokens": f"{use.tokens:,}",
                "budget": f"{use.budget:,}",
                "used": f"{use.tokens / use.budget:.1%}" if use.budget else "",
                "events": f"{use.events:,}",
            }
            for use in window.usage
        ]
    )


def _facts(window: WindowView) -> dict[str, str]:
    reached = "reached" if window.threshold_reached else "not reached"
    compacted = window.compacted_tokens < window.tokens
    return {
        "compaction": f"at {window.compaction_threshold:.0%} of the limit, {reached}",
        "compacted": f"{window.compacted_tokens:,} tokens in prompts" if compacted else "",
        "parent": escape_controls(window.parent_id or ""),
        "uses": f"the window of {escape_controls(window.shares_with)}" if window.shares_with else "",
        "shared by": escape_controls(", ".join(window.shared_by)),
        "clamped": escape_controls(
            ", ".join(
                f"{each.agent_id} to {each.limit:,} of {each.parent_id}'s {each.parent_limit:,}"
                for each in window.clamps
            )
        ),
        "routes": ", ".join(map(_route, window.routes)),
        "autosave": "on" if window.autosave else "off",
        "history": f"{escape_controls(window.context_id)}, {counted(window.last_number, 'event')}",
        "updated": cell(window.updated_at),
    }


def _route(route: RouteView) -> str:
    reader = route.to_agent or f"all agents of the type {route.to_type}"
    return escape_controls(f"{route.category.value} to {reader}")


def _render_events(found: WindowEvents) -> str:
    if not found.events:
        return "No events."
    more = [f"{found.count} of {found.total_count} events; see --limit and --offset."] if found.has_more else []
    return "\n\n".join([*map(_render_event, found.events), *more])


def _render_event(event: WindowEventView) -> str:
    lines = [escape_controls(event.content)] if event.content else []
    lines += [f"calls {escape_controls(call.name)} {escape_controls(call.arguments)}" for call in event.tool_calls]
    head = click.style(f"{event.number} {event.role}", bold=True)
    return "\n".join([f"{head}  {' · '.join(_event_facts(event))}", *(indent(line) for line in lines)])


def _event_facts(event: WindowEventView) -> Iterator[str]:
    yield event.category
    yield escape_controls(event.event_id)
    yield f"{event.tokens} tokens"
    yield escape_controls(event.agent_id)
    if event.recipient_id is not None:
        yield f"to {escape_controls(event.recipient_id)}"
    yield from (name for name in ("pinned", "routed", "redacted") if getattr(event, name))
    if event.step is not None:
        yield f"step {escape_controls(event.step)}"
    if event.occurred_at is not None:
        yield f"{cell(event.occurred_at)}, recorded {cell(event.at)}"
    else:
        yield cell(event.at)
    if event.reason is not None:
        yield escape_controls(event.reason)


FORMATTERS: dict[str, Callable[[Any], str]] = {"window.show": _render_window, "window.events": _render_events}
