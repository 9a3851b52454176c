"""Usage reports: a table of groups with their shares, and sparklines over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from weftline.transports.cli.formatters.receipts import aligned, more_than_conversation
from weftline.transports.cli.render import escape_controls

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weftline.insight.usage import UsageExported, UsageFigures, UsageReported
    from weftline.transports.cli.tenants import TenantsUsage

_BARS = "▁▂▃▄▅▆▇█"
_TIMES = {"minute": 16, "hour": 16, "day": 10}
_NONE = "(none)"


def sparkline(values: Sequence[float]) -> str:
    """Return values as bars from zero to the largest."""
    highest = max(values, default=0)
    if highest <= 0:
        return _BARS[0] * len(values)
    return "".join(_BARS[min(len(_BARS) - 1, int(value / highest * len(_BARS)))] for value in values)


def _render_report(report: UsageReported) -> str:
    if not report.rows:
        return "No model calls."
    total = report.total
    rows = [_row(report.by, each.group, each, total) for each in report.rows]
    if len(report.rows) > 1 or report.left_out:
        rows.append(_row(report.by, "total", total, total))
    parts = [_trend(report), aligned(rows), _notes(report)]
    return "\n\n".join(part for part in parts if part)


def render_tenants(report: TenantsUsage) -> str:
    """Return a table of the tenants of an installation, with their health."""
    if not report.tenants:
        return "No tenants."
    rows = [_row("tenant", each.tenant, each, report.total) for each in report.tenants]
    for row, each in zip(rows, report.tenants, strict=True):
        row["requests"], row["failed"] = f"{each.requests:,}", f"{each.failed_requests:,}"
        row["health"] = each.health
    if len(rows) > 1:
        rows.append(_row("tenant", "total", report.total, report.total))
    return aligned(rows)


def _trend(report: UsageReported) -> str:
    if report.by not in _TIMES or len(report.rows) <= 1:
        return ""
    rows = report.rows
    lines: dict[str, list[float]] = {
        "tokens": [each.total_tokens for each in rows],
        "cost": [each.cost or 0.0 for each in rows],
    }
    first, last = rows[0].group[: _TIMES[report.by]], rows[-1].group[: _TIMES[report.by]]
    drawn = [f"{name:<7}{sparkline(values)}" for name, values in lines.items() if any(values)]
    return "\n".join([click.style(f"{first} to {last}", dim=True), *drawn])


def _row(by: str, group: str, row: UsageFigures, total: UsageFigures) -> dict[str, str]:
    shown = group[: _TIMES[by]].replace("T", " ") if by in _TIMES and group != "total" else group
    return {
        by: escape_controls(shown) or _NONE,
        "calls": f"{row.calls:,}",
        "tokens": f"{row.total_tokens:,}",
        "share": f"{row.total_tokens / total.total_tokens:.0%}" if total.total_tokens else "",
        "cost": _money(row.cost),
        "saved": f"{row.savings_ratio:.1%}" if row.naive_baseline_tokens else "",
        "with documents": f"{row.savings_ratio_with_documents:.1%}" if row.naive_baseline_tokens else "",
        "efficiency": "" if row.efficiency is None else f"{row.efficiency:.0%}",
        "model ms": "" if row.provider_ms is None else f"{row.provider_ms:,.0f}",
        "net saved": _money(row.net_savings) if row.naive_baseline_tokens else "",
    }


def _notes(report: UsageReported) -> str:
    total = report.total
    larger = more_than_conversation(total)
    notes = [f"The prompts have {larger}"] if larger else []
    if report.left_out:
        notes.append(f"{report.left_out:,} more; show them with --limit.")
    if total.unpriced_calls:
        notes.append(f"{total.unpriced_calls:,} of {total.calls:,} calls are of models without a known price.")
    if total.calls > total.reported_calls:
        notes.append(
            f"{total.calls - total.reported_calls:,} calls have no report: their tokens and cost are expected."
        )
    return click.style("\n".join(notes), dim=True) if notes else ""


def _money(dollars: float | None) -> str:
    return "" if dollars is None else f"${dollars:,.4f}"


def _render_export(page: UsageExported) -> str:
    return page.content.removesuffix("\n")


FORMATTERS: dict[str, Callable[[Any], str]] = {
    "usage.report": _render_report,
    "usage.export": _render_export,
}
