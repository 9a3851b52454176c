"""Compactions: summaries side by side with their originals, what was left out, key facts and degradations."""

from __future__ import annotations

import re
import shutil
import sys
from bisect import bisect_left
from collections import Counter
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from weftline.transports.cli.formatters.receipts import aligned, usage_bar
from weftline.transports.cli.render import cell, counted, escape_controls, indent, table, text_width

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from weftline.windows.compaction.operations import (
        CompactionDropped,
        CompactionExpanded,
        CompactionList,
        CompactionShown,
        ContextCompacted,
        FactList,
    )
    from weftline.windows.compaction.views import (
        CompactionInfo,
        FactPlace,
        FactView,
        OriginalEvent,
        ShortenedView,
        SummaryView,
    )

# Narrower terminals show originals and result one below the other.
_MIN_SIDE_BY_SIDE = 100
_MAX_WIDTH = 200
_PIPE_WIDTH = 100
_GUTTER = " │ "
_LEFT = "originals (dim: not in the result)"
_STATES = {"applied": "green", "held": "yellow", "failed": "red", "rejected": "red"}
_STATUSES = {"superseded": "yellow", "resolved": "green"}
_PLACES: dict[FactPlace, str] = {"summary": "in the summary", "carried": "carried next to it", "event": "in its event"}
# Lines of an original event that are shown.
_MAX_EVENT_LINES = 10
# How far from its place a word of an original may be in the result: a part of it, or at least so many words.
_REACH_PART, _LEAST_REACH = 6, 60
# Spaces at the beginning of a line that are shown.
_MAX_INDENTATION = 16
_EDGES = re.compile(r"^\W+|\W+$")


class _Piece(NamedTuple):
    """A word, or the end of a line (None), and how it is shown."""

    word: str | None
    style: Callable[[str], str]


def _dim(text: str) -> str:
    return click.style(text, dim=True)


def _bold(text: str) -> str:
    return click.style(text, bold=True)


def _render_shown(shown: CompactionShown) -> str:
    width = _width()
    parts = [_head(shown.compaction)]
    if shown.expired:
        parts.append("Only the figures are kept of a compaction this old; the events are in the window.")
    parts += [_summary(each, width) for each in shown.summaries]
    if shown.shortened:
        parts.append(_rule("Shortened in place", width))
        parts += [_shortened(each, width) for each in shown.shortened]
    if shown.shortened_omitted:
        parts.append(_dim(f"{counted(shown.shortened_omitted, 'more shortened event')}."))
    if shown.next_offset is not None:
        parts.append(f"More: --offset {shown.next_offset}")
    return "\n\n".join(filter(None, parts))


def _head(info: CompactionInfo) -> str:
    state = click.style(info.state, fg=_STATES.get(info.state))
    lines = [
        f"{_bold(f'Compaction {info.compaction_id}')}  {state}  {cell(info.created_at)}",
        f"{escape_controls(info.agent_id)} in session {escape_controls(info.session_id)} · {_strategy(info)}",
    ]
    if info.tokens_before:
        lines.append(f"{usage_bar(info.tokens_after, info.tokens_before)}")
        lines.append(_counts(info))
    lines += _degradations(info.degraded)
    lines += _decision(info)
    return "\n".join(filter(None, lines))


def _decision(info: CompactionInfo | ContextCompacted) -> list[str]:
    """Return how to decide on a compaction that is held."""
    if info.state != "held" or not info.approval_id:
        return []
    approval = escape_controls(info.approval_id)
    return [f"Decide with: weftline approval approve {approval}, or weftline approval reject {approval}"]


def _strategy(info: CompactionInfo) -> str:
    used = info.used or info.strategy
    asked = f" (asked for: {info.strategy})" if info.used not in {None, info.strategy} else ""
    why = f": {escape_controls(info.reason)}" if info.reason else ""
    return f"{used}{asked}{why}"


def _counts(info: CompactionInfo) -> str:
    parts = [
        f"{counted(info.events_covered, 'event')} in {_summaries(info.summaries)}",
        f"{counted(info.facts, 'key fact')}, {info.carried_facts} carried next to them",
        counted(info.loss_notes, "loss note"),
    ]
    return " · ".join(parts)


def _summaries(number: int) -> str:
    return "1 summary" if number == 1 else f"{number} summaries"


def _degradations(degraded: Iterable[str]) -> list[str]:
    return [click.style(f"degraded: {escape_controls(each)}", fg="yellow") for each in degraded]


def _cause(degraded: str) -> str:
    """Return what happened, without what was done instead."""
    return degraded.partition(";")[0].rstrip(".")


def _summary(summary: SummaryView, width: int) -> str:
    title = f"{escape_controls(summary.title)}  {_dim(_summary_facts(summary))}"
    lines = [_rule(title, width)]
    originals = _originals(summary, _column(width))
    if summary.valid:
        lines.append(_side_by_side(originals, _flow(_plain(summary.text), _column(width)), width))
    else:
        note = "No longer valid: an original was removed, redacted or changed. Prompts have the originals."
        lines += [click.style(note, fg="yellow"), *originals]
    lines += _losses(summary.loss_notes)
    lines += _facts(summary.facts)
    if summary.facts_omitted:
        lines.append(indent(_dim(f"{counted(summary.facts_omitted, 'more key fact')}: weftline compaction facts")))
    return "\n".join(filter(None, lines))


def _summary_facts(summary: SummaryView) -> str:
    known = [
        escape_controls(summary.summary_id),
        summary.method.replace("_", " "),
        f"{summary.tokens_before:,} → {summary.tokens:,} tokens",
        f"confidence {summary.confidence:.2f}" if summary.confidence < 1 else "",
        summary.trust or "",
    ]
    return " · ".join(filter(None, known))


def _losses(notes: Sequence[str]) -> list[str]:
    if not notes:
        return []
    return [_bold("Left out"), *(indent(f"✂ {escape_controls(note)}") for note in notes)]


def _facts(facts: Sequence[FactView]) -> list[str]:
    if not facts:
        return []
    places = Counter(fact.place for fact in facts)
    title = ", ".join(f"{places[place]} {text}" for place, text in _PLACES.items() if places[place])
    return [f"{_bold('Key facts')}  {_dim(title)}", indent(table([_fact(fact) for fact in facts], wrapped="fact"))]


def _fact(fact: FactView) -> dict[str, str]:
    status: str = "" if fact.status == "current" else fact.status
    if fact.superseded_by is not None:
        status = f"{status} by {escape_controls(fact.superseded_by)}"
    return {
        "kind": fact.kind.value.replace("_", " "),
        "fact": escape_controls(fact.text),
        "status": status,
        "who": escape_controls(fact.who),
        "source": escape_controls(", ".join(fact.event_ids)),
        "kept": "carried" if fact.place == "carried" else "",
        "trust": fact.trust or "",
    }


def _shortened(shown: ShortenedView, width: int) -> str:
    title = f"{_bold(_event_title(shown.original))} → {shown.tokens:,}"
    if not shown.valid:
        return f"{title}\n{indent(click.style('No longer valid: prompts have the original.', fg='yellow'))}"
    column = _column(width)
    kept = _KeptWords(shown.content, [shown.original.content])
    original = _flow(kept.mark(shown.original.content), column)
    return f"{title}\n{_side_by_side(_first(original), _flow(_plain(shown.content), column), width)}"


def _originals(summary: SummaryView, column: int) -> list[str]:
    """Return the lines of the originals; words that the summary does not contain are dim."""
    texts = [_event_text(event) for event in summary.originals]
    kept = _KeptWords(summary.text, texts)
    lines: list[str] = []
    for event, text in zip(summary.originals, texts, strict=True):
        lines += _flow(_plain(_event_title(event), _bold), column)
        lines += _first(_flow(kept.mark(text), column)) if text else []
    if summary.originals_omitted:
        lines.append(_dim(f"{counted(summary.originals_omitted, 'more event')}: weftline compaction expand"))
    return lines


def _event_text(event: OriginalEvent) -> str:
    calls = (f"calls {call.name} {call.arguments}" for call in event.tool_calls)
    return "\n".join(filter(None, (event.content, *calls)))


def _first(lines: list[str]) -> list[str]:
    rest = len(lines) - _MAX_EVENT_LINES
    return lines if rest <= 1 else [*lines[:_MAX_EVENT_LINES], _dim(f"… {rest} more lines")]


class _KeptWords:
    """Marks the words of originals that a shorter text still has at about the same place."""

    def __init__(self, text: str, originals: Iterable[str]) -> None:
        self._places: dict[str, list[int]] = {}
        words = text.split()
        for place, word in enumerate(words):
            self._places.setdefault(_bare(word), []).append(place)
        self._reach = max(_LEAST_REACH, len(words) // _REACH_PART)
        # Words of the shorter text for each word of the originals.
        self._pace = len(words) / max(sum(len(each.split()) for each in originals), 1)
        self._read = 0

    def mark(self, text: str) -> list[_Piece]:
        """Return the next original, with the words dim that are not in the shorter text."""
        pieces: list[_Piece] = []
        for piece in _plain(text):
            is_kept = piece.word is None or self._is_near(_bare(piece.word), self._read * self._pace)
            pieces.append(piece if is_kept else piece._replace(style=_dim))
            self._read += piece.word is not None
        return pieces

    def _is_near(self, word: str, place: float) -> bool:
        places = self._places.get(word, ())
        first = bisect_left(places, place - self._reach)
        return first < len(places) and places[first] <= place + self._reach


def _bare(word: str) -> str:
    return _EDGES.sub("", word).casefold() or word


def _event_title(event: OriginalEvent) -> str:
    name = f" {event.name}" if event.name else ""
    redacted = " · redacted" if event.redacted else ""
    return f"{event.number} {event.role}{name} · {event.event_id} · {event.tokens:,} tokens{redacted}"


_END = _Piece(None, str)


def _plain(text: str, style: Callable[[str], str] = str) -> list[_Piece]:
    pieces: list[_Piece] = []
    for number, line in enumerate(escape_controls(text).split("\n")):
        pieces += [_END] * bool(number)
        indentation = line[: min(len(line) - len(line.lstrip(" ")), _MAX_INDENTATION)]
        words = line.split()
        pieces += [_Piece(word if place else indentation + word, style) for place, word in enumerate(words)]
    return pieces


def _side_by_side(left: list[str], right: list[str], width: int) -> str:
    """Return two columns of lines, or the result below the originals if they do not fit."""
    if width < _MIN_SIDE_BY_SIDE:
        return "\n".join([_dim(_LEFT), *left, "", _dim("result"), *right])
    column = _column(width)
    rows = [f"{_heading(_LEFT, column)}{_dim(_GUTTER)}{_dim('result')}"]
    for first, second in zip_longest(left, right, fillvalue=""):
        space = " " * (column - text_width(click.unstyle(first)))
        rows.append(f"{first}{space}{_dim(_GUTTER)}{second}".rstrip())
    return "\n".join(rows)


def _heading(text: str, column: int) -> str:
    return _dim(text) + " " * (column - len(text))


def _flow(pieces: Iterable[_Piece], width: int) -> list[str]:
    """Wrap words to lines of a width, each word in its style; words that are too long are split."""
    lines: list[str] = []
    line: list[str] = []
    used = 0
    for word, style in _fitting(pieces, width):
        if word is None or used + text_width(word) + bool(line) > width:
            lines.append(" ".join(line))
            line, used = [], 0
        if word is not None:
            used += text_width(word) + bool(line)
            line.append(style(word))
    return [*lines, " ".join(line)] if line else lines


def _fitting(pieces: Iterable[_Piece], width: int) -> Iterator[_Piece]:
    for piece in pieces:
        rest = piece.word
        while rest is not None and text_width(rest) > width:
            part = rest[: max(width // 2, 1)] if not rest.isascii() else rest[:width]
            yield _Piece(part, piece.style)
            rest = rest[len(part) :]
        yield _Piece(rest, piece.style)


def _rule(title: str, width: int) -> str:
    room = width - text_width(click.unstyle(title)) - 4
    return f"{_dim('──')} {_bold(title)} {_dim('─' * max(room, 2))}"


def _width() -> int:
    """Return the width to use: that of the terminal; a pipe gets one column."""
    if not sys.stdout.isatty():
        return _PIPE_WIDTH - 1
    return min(shutil.get_terminal_size().columns, _MAX_WIDTH)


def _column(width: int) -> int:
    return width if width < _MIN_SIDE_BY_SIDE else (width - len(_GUTTER)) // 2


def _render_compacted(answer: ContextCompacted) -> str:
    state = click.style(answer.state, fg=_STATES.get(answer.state))
    why = f": {escape_controls(answer.reason)}" if answer.reason else ""
    lines = [f"{state}  {answer.strategy}{why}"]
    if answer.tokens_before:
        lines.append(f"{usage_bar(answer.tokens_after, answer.tokens_before)}")
        lines.append(
            f"{counted(answer.facts, 'key fact')}, {answer.carried_facts} carried next to the summaries · "
            f"{counted(answer.loss_notes, 'loss note')} · version {answer.version}"
        )
    lines += _degradations(answer.degraded)
    if answer.tokens_before:
        lines.append(_dim(f"See: weftline compaction show {answer.compaction_id}"))
    elif answer.state in {"queued", "running"}:
        lines.append(_dim("Follow it: weftline compaction list"))
    return "\n".join([*lines, *_decision(answer)])


def _render_list(found: CompactionList) -> str:
    if not found.compactions:
        return "No compactions."
    rows = [
        {
            "compaction_id": each.compaction_id,
            "state": each.state.value,
            "strategy": each.used or each.strategy,
            "before": f"{each.tokens_before:,}" if each.tokens_before else "",
            "after": f"{each.tokens_after:,}" if each.tokens_before else "",
            "facts": str(each.facts or ""),
            "carried": str(each.carried_facts or ""),
            "degraded": escape_controls("; ".join(map(_cause, each.degraded))),
            "at": cell(each.created_at),
        }
        for each in found.compactions
    ]
    more = [f"More: --cursor {found.next_cursor}"] if found.next_cursor else []
    return "\n\n".join([aligned(rows), *more])


def _render_expanded(found: CompactionExpanded) -> str:
    parts = [
        "\n".join([_bold(escape_controls(_event_title(event))), indent(escape_controls(_event_text(event)))])
        for event in found.events
    ]
    if found.unknown:
        parts.append(click.style(f"Not found: {escape_controls(', '.join(found.unknown))}", fg="yellow"))
        parts.append(
            "Ids of summaries are in weftline compaction show, of facts and events in weftline compaction facts --json."
        )
    if found.next_offset is not None:
        parts.append(f"More: --offset {found.next_offset}")
    return "\n\n".join(parts or ["No events."])


def _render_facts(found: FactList) -> str:
    if not found.facts:
        return "No key facts."
    more = [] if found.next_offset is None else [f"{found.total_count} facts. More: --offset {found.next_offset}"]
    rows = [_fact(fact) for fact in found.facts]
    return "\n\n".join([table(rows, wrapped="fact"), *more])


def _render_dropped(answer: CompactionDropped) -> str:
    if not answer.dropped:
        return "Nothing is compacted: prompts have the original events."
    return f"Dropped {', '.join(answer.dropped)}: prompts have the original events again."


FORMATTERS: dict[str, Callable[[Any], str]] = {
    "context.compact": _render_compacted,
    "compaction.list": _render_list,
    "compaction.show": _render_shown,
    "compaction.expand": _render_expanded,
    "compaction.facts": _render_facts,
    "compaction.apply": _head,
    "compaction.drop": _render_dropped,
}
