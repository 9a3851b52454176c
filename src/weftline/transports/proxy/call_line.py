"""The line that ``weftline proxy`` shows for a call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.transports.cli.render import escape_controls

if TYPE_CHECKING:
    from weftline.models.language_models.answer_usage import Usage
    from weftline.transports.proxy.observer import NotedCall

_MAX_PATH = 80


def call_line(noted: NotedCall) -> str:
    """Return when and what was called, its tokens, its cost and how long it took."""
    call, usage = noted.call, noted.usage
    parts = [call.at.astimezone().strftime("%H:%M:%S"), noted.model or f"{call.method} {call.path[:_MAX_PATH]}"]
    if call.status != 200:  # noqa: PLR2004 - what is usual is not said
        parts.append(f"status {call.status}" if call.status else "no answer")
    elif not call.is_complete:
        parts.append("broken off")
    if usage is not None:
        parts += [_sent(usage), f"{usage.output_tokens:,} out"]
        parts.append("no price" if noted.cost is None else f"${noted.cost:.4f}")
        parts += _net(noted)
    elif call.is_model_call and call.status == 200:  # noqa: PLR2004 - likewise
        parts.append("no usage reported")
    parts.append(f"{call.seconds:.1f} s")
    # One line, whatever the names in it are.
    return escape_controls("  ".join(parts)).replace("\n", " ")


def _net(noted: NotedCall) -> list[str]:
    """Return what Weftline left out or added, and what that saved or cost in all."""
    if noted.usage is None or noted.given is None or noted.given == noted.usage:
        return []
    more = noted.usage.input_tokens - noted.given.input_tokens
    changed = [f"{abs(more):,} {'added' if more > 0 else 'left out'}"] if more else []
    if noted.cost is None or noted.given_cost is None:
        return changed
    net = noted.given_cost - noted.cost
    return [*changed, f"saved ${net:.4f}" if net >= 0 else f"dearer by ${-net:.4f}"]


def _sent(usage: Usage) -> str:
    cache = [
        f"{tokens:,} {what}"
        for tokens, what in ((usage.cache_read_tokens, "from cache"), (usage.cache_write_tokens, "to cache"))
        if tokens
    ]
    return f"{usage.input_tokens:,} in" + (f" ({', '.join(cache)})" if cache else "")
