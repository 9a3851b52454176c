"""Records for people: a list that reads like a log, and one record with all that belongs to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from weft.transports.cli.render import block, cell, harmless, indent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from weft.capabilities.record_log.add import LifecycleSet, RecordsAdded
    from weft.capabilities.record_log.list_records import ListedRecord, Records
    from weft.capabilities.record_log.show import RecordShown

_WIDTH = 100
# What of a record says in a few words what it is about, the most telling first.
_TELLING = (
    "question",
    "title",
    "query",
    "trigger",
    "event_type",
    "uri",
    "lifecycle",
    "method",
    "injection_point",
    "overflow_strategy",
    "target",
    "scope",
)


def _render_list(found: Records) -> str:
    shown = ["\n".join(_entry(entry)) for entry in found.records] or ["No records."]
    more = [f"\nThere is more: --after {found.next_after}"] if found.next_after else []
    return "\n".join([*shown, *more])


def _entry(entry: ListedRecord) -> Iterator[str]:
    seq, kind = click.style(str(entry.seq), fg="yellow"), click.style(entry.type, fg="cyan")
    yield f"{seq}  {cell(entry.at)}  {kind}  {click.style(harmless(entry.id), bold=True)}"
    told = _about(entry.record) + _said(entry.record)
    if told:
        yield f"    {_short(told)}"


def _about(record: Mapping[str, Any]) -> str:
    telling = next((record[name] for name in _TELLING if isinstance(record.get(name), str)), "")
    state = record.get("redaction_state", "none")
    return f"{telling} ({state})" if state != "none" else telling


def _said(record: Mapping[str, Any]) -> str:
    """Return what a record says, or how much that is."""
    if isinstance(record.get("content"), str):
        return f": {record['content']}"
    return f" ({record['byte_size']} bytes)" if "byte_size" in record else ""


def _short(text: str) -> str:
    line = harmless(" ".join(text.split()))
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"


def _render_record(shown: RecordShown) -> str:
    told = {
        "recorded": f"{cell(shown.recorded_at)} by {harmless(shown.recorded_by or '')}" if shown.recorded_at else "",
        "changed": cell(shown.changed_at),
        "digest": shown.digest or "",
        "redaction": _redaction(shown),
        "referenced by": ", ".join(f"{each.type} {harmless(each.id)}" for each in shown.referenced_by),
    }
    title = click.style(f"{shown.type} {harmless(shown.id)}", fg="yellow")
    record = msgspec.json.format(msgspec.json.encode(shown.record), indent=2).decode()
    parts = [title, block({name: text for name, text in told.items() if text}), indent(harmless(record))]
    return "\n\n".join(filter(None, [*parts, _content(shown)]))


def _redaction(shown: RecordShown) -> str:
    told = shown.redaction
    if told is None:
        return ""
    why = f": {told.reason}" if told.reason else ""
    return harmless(f"{told.state} by {told.redacted_by} ({told.method}){why}")


def _content(shown: RecordShown) -> str:
    if shown.base64 is not None:
        return f"(content: {len(shown.base64)} bytes that are no text; see --json)"
    if shown.content is msgspec.UNSET:
        return ""
    return harmless(shown.content if isinstance(shown.content, str) else msgspec.json.encode(shown.content).decode())


def _render_added(answer: RecordsAdded) -> str:
    return "\n".join(
        f"{'Known' if each.known else 'Recorded'}: {each.type} {harmless(each.id)} (event {each.seq})"
        for each in answer.records
    )


def _render_lifecycle(answer: LifecycleSet) -> str:
    return f"{harmless(answer.record_id)}: {answer.previous} → {answer.lifecycle} (event {answer.seq})"


# Which operations' answers are shown in a form of their own.
FORMS: dict[str, Callable[[Any], str]] = {
    "records.list": _render_list,
    "records.show": _render_record,
    "records.add": _render_added,
    "records.set_lifecycle": _render_lifecycle,
}
