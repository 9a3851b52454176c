"""Traces of derived items, and what forgetting a source did or would do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weftline.transports.cli.render import cell, counted, escape_controls, table

if TYPE_CHECKING:
    from collections.abc import Callable

    from weftline.exchange.lineage_operations import ItemForgotten, ItemTraced

_INCOMPLETE = "There may be more: a limit ended the search."


def _render_trace(traced: ItemTraced) -> str:
    rows = [
        {
            "steps": str(each.steps),
            "how": each.how,
            "item": escape_controls(each.item),
            "via": escape_controls(each.via),
            "since": cell(each.at),
        }
        for each in traced.derived
    ]
    lines = [table(rows) if rows else f"Nothing was derived from {escape_controls(traced.item)}."]
    lines += [f"{counted(traced.hidden, 'further item')} that you may not read."] if traced.hidden else []
    return "\n".join(lines + ([] if traced.complete else [_INCOMPLETE]))


def _render_forgotten(forgotten: ItemForgotten) -> str:
    rows = [
        {
            "done": each.done,
            "how": each.how,
            "item": escape_controls(each.item),
            "problem": escape_controls(each.problem or ""),
        }
        for each in forgotten.items
    ]
    figures = f"{forgotten.deleted} deleted, {forgotten.flagged} flagged, {forgotten.skipped} skipped"
    hidden = f", {forgotten.hidden} of them not readable for you" if forgotten.hidden else ""
    lines = [table(rows), f"{figures}{hidden}."]
    if forgotten.dry_run:
        lines.append("Nothing was changed: this was a dry run. --no-dry-run does it.")
    else:
        prompts = counted(forgotten.prompts, "block") + " of stored prompts"
        lines.append(f"Text removed from {counted(forgotten.versions, 'version')} and {prompts}.")
    return "\n".join(lines + ([] if forgotten.complete else [_INCOMPLETE]))


FORMATTERS: dict[str, Callable[[Any], str]] = {
    "trust.trace": _render_trace,
    "trust.forget": _render_forgotten,
}
