"""Recommendations and trials in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from weftline.insight.recommendations.model import MIN_CALLS
from weftline.transports.cli.formatters.receipts import aligned
from weftline.transports.cli.render import escape_controls, indent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from weftline.insight.recommendations.model import Trial, TriedCall
    from weftline.insight.recommendations.operations import AdviceList, AdviceShown, AdviceTried

_BAR = 28
_MAX_CALLS = 12
_LEVELS = "▁▂▃▄▅▆▇█"
_NEEDED = (
    f"An agent needs {MIN_CALLS} calls, for most kinds with reported answers (weftline context emit-metrics --answer). "
    "Try settings of your own with weftline advise try --settings."
)


def _render_list(answer: AdviceList) -> str:
    analysed = ", ".join(f"{agent} ({calls} calls)" for agent, calls in answer.analysed.items()) or "no calls"
    if not answer.recommendations:
        return f"Nothing to recommend. Analysed: {analysed}. {_NEEDED}"
    rows = [
        {
            "recommendation": each.recommendation_id,
            "safe": "safe" if each.safe else "check",
            "tokens": "" if each.saved_tokens is None else _change(-each.saved_tokens, each.saved_ratio),
            "money": _dollars(None if each.saved_cost is None else -each.saved_cost),
            "what": escape_controls(each.title),
        }
        for each in answer.recommendations
    ]
    best = answer.recommendations[0].recommendation_id
    return f"{aligned(rows)}\n\nAnalysed: {analysed}. Try one before you switch: weftline advise try {best}"


def _safe(*, safe: bool) -> str:
    return click.style("safe", fg="green") if safe else click.style("check", fg="yellow")


def _render_shown(answer: AdviceShown) -> str:
    parts = [
        f"{click.style(escape_controls(answer.title), bold=True)}  {_safe(safe=answer.safe)}",
        answer.reason,
        _section(
            "Evidence",
            [f"{_share(each.count, each.of):>14}  {escape_controls(each.statement)}" for each in answer.evidence],
        ),
    ]
    if answer.trial is not None:
        parts += [_effect(answer.trial), _kept(answer.trial)]
    parts.append(_section("To make the change", _command(answer.command)))
    if answer.trial is not None:
        parts.append(f"See each call: weftline advise try {answer.recommendation_id}")
    return "\n\n".join(parts)


def _command(command: str) -> list[str]:
    return [escape_controls(line) for line in (command or "Change the setting in your runtime.").splitlines()]


def _share(count: int, of: int) -> str:
    return f"{count:,} of {of:,}"


def _render_tried(answer: AdviceTried) -> str:
    trial = answer.trial
    parts = [
        f"{click.style(escape_controls(answer.title), bold=True)}  {_safe(safe=trial.safe)}  (nothing was switched)",
        _replayed(trial),
    ]
    if trial.calls:
        parts += [_effect(trial), _kept(trial), _calls(answer.tried)]
    parts.append(_section("What is assumed", [f"- {each}" for each in trial.assumptions]))
    if answer.command and trial.calls:
        parts.append(_section("To make the change", _command(answer.command)))
    return "\n\n".join(parts)


def _replayed(trial: Trial) -> str:
    if not trial.calls:
        return "There are no calls to replay."
    drift = f" The others differ by {trial.drift_tokens:,} tokens." if trial.exact < trial.calls else ""
    scored = f"{trial.scored} have a reported answer." if trial.scored else "None has a reported answer."
    return (
        f"Planned again with their own settings, {trial.exact} of the last {trial.calls} calls come out as they "
        f"were sent, exactly.{drift} {scored} With the proposed settings {trial.changed} would have had another prompt."
    )


def _effect(trial: Trial) -> str:
    most = max(trial.tokens, trial.tried_tokens, 1)
    lines = [
        f"as it was {_bar(trial.tokens / most)} {trial.tokens:>12,} tokens  {_dollars(trial.cost)}",
        f"as tried  {_bar(trial.tried_tokens / most)} {trial.tried_tokens:>12,} tokens  {_dollars(trial.tried_cost)}",
    ]
    ratio = trial.saved_tokens / trial.tokens if trial.tokens else 0.0
    saved = trial.saved_cost
    money = "no price known" if saved is None else f"{_dollars(-saved)} ({_percent(-saved, trial.cost)})"
    lines.append(f"change    {_change(-trial.saved_tokens, ratio)} tokens, {money}")
    lines.append(f"from the provider's cache: {trial.cached_tokens:,} tokens, then {trial.tried_cached_tokens:,}")
    return _section("Effect", lines)


def _kept(trial: Trial) -> str:
    lines = []
    if trial.scored:
        used = f"{trial.kept:,} of {trial.useful:,} items that answers used are still in their prompts"
        lines.append(click.style(used, fg="green" if trial.kept == trial.useful else "yellow"))
    lines.append(f"{trial.dropped:,} items leave prompts, {trial.added:,} come in")
    lines += [click.style(f"risk: {each}", fg="yellow") for each in trial.risks]
    return _section("Evidence kept or lost", lines)


def _calls(calls: Sequence[TriedCall]) -> str:
    shown = list(calls)[-_MAX_CALLS:]
    rows = [
        {
            "receipt": call.receipt_id,
            "sent": f"{call.tokens:,}",
            "tried": f"{call.tried_tokens:,}" if call.error is None else "does not fit",
            "change": _change(call.tried_tokens - call.tokens, None),
            "used": f"{call.kept}/{call.useful}" if call.scored else "?",
            "mode": call.mode,
            "lost": escape_controls(", ".join([*call.lost, *(f"{ref} (shorter)" for ref in call.shortened)])),
        }
        for call in shown
    ]
    title = f"Calls, the last {len(shown)} of {len(calls)}" if len(calls) > len(shown) else "Calls"
    curves = [
        f"as it was {_curve(call.tokens for call in calls)}",
        f"as tried  {_curve(c.tried_tokens for c in calls)}",
    ]
    return _section(title, [*curves, "", *aligned(rows).splitlines()])


def _curve(values: Iterable[int]) -> str:
    """Return one sign for each call, or for each group of calls, by its tokens."""
    found = list(values)
    width = -(-len(found) // 60)
    means = [sum(found[at : at + width]) / len(found[at : at + width]) for at in range(0, len(found), width)]
    top = max(means, default=1) or 1
    return "".join(_LEVELS[min(7, int(mean / top * 7.999))] for mean in means)


def _bar(part: float) -> str:
    return ("█" * round(part * _BAR)).ljust(_BAR)


def _change(tokens: int, ratio: float | None) -> str:
    if not tokens:
        return "0"
    return f"{tokens:+,}" if ratio is None else f"{tokens:+,} ({-ratio:+.0%})"


def _percent(saved: float, cost: float | None) -> str:
    return f"{saved / cost:+.0%}" if cost and saved else "0%"


def _dollars(amount: float | None) -> str:
    if amount is None:
        return ""
    return f"{'-' if amount < 0 else ''}${abs(amount):,.4f}"


def _section(title: str, lines: Iterable[str]) -> str:
    return f"{click.style(title, bold=True)}\n{indent(chr(10).join(lines))}"


FORMATTERS: dict[str, Callable[[Any], str]] = {
    "advise.list": _render_list,
    "advise.show": _render_shown,
    "advise.try": _render_tried,
}
