"""Records: a list as a log, one record with its metadata, and the resolution of a passage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from weftline.transports.cli.render import block, cell, counted, escape_controls, indent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from weftline.exchange.record_log.add import LifecycleSet, RecordsAdded
    from weftline.exchange.record_log.list_records import ListedRecord, Records
    from weftline.exchange.record_log.show import RecordSchema, RecordShown
    from weftline.records.resolution import PassageResolution
    from weftline.transports.cli.records import FileProblem, FileReport, ValidationSummary

_WIDTH = 100
# Fields that describe a record in a few words, the best first.
_TITLE_FIELDS = (
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
    more = [f"\nMore: --after {found.next_after}"] if found.next_after else []
    return "\n".join([*shown, *more])


def _entry(entry: ListedRecord) -> Iterator[str]:
    seq, kind = click.style(str(entry.seq), fg="yellow"), click.style(entry.type, fg="cyan")
    yield f"{seq}  {cell(entry.at)}  {kind}  {click.style(escape_controls(entry.id), bold=True)}"
    description = (_title(entry.record) + _content_or_size(entry.record)).removeprefix(": ")
    if description:
        yield f"    {_short(description)}"


def _title(record: Mapping[str, Any]) -> str:
    title = next((record[name] for name in _TITLE_FIELDS if isinstance(record.get(name), str)), "")
    state = record.get("redaction_state", "none")
    return f"{title} ({state})" if state != "none" else title


def _content_or_size(record: Mapping[str, Any]) -> str:
    if isinstance(record.get("content"), str):
        return f": {record['content']}"
    coverage = record.get("coverage") or {}
    if "estimated_tokens_before" in coverage and "estimated_tokens_after" in coverage:
        covered = counted(coverage.get("items_covered", len(record.get("source_item_refs", ()))), "item")
        return f": {covered}, {coverage['estimated_tokens_before']} → {coverage['estimated_tokens_after']} tokens"
    return f" ({record['byte_size']} bytes)" if "byte_size" in record else ""


def _short(text: str) -> str:
    line = escape_controls(" ".join(text.split()))
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"


def _render_record(shown: RecordShown) -> str:
    facts = {
        "recorded": f"{cell(shown.recorded_at)} by {escape_controls(shown.recorded_by or '')}"
        if shown.recorded_at
        else "",
        "changed": cell(shown.changed_at),
        "digest": shown.digest or "",
        "redaction": _redaction(shown),
        "stale": _stale(shown),
        "entities": escape_controls(", ".join(shown.entities)),
        "referenced by": ", ".join(f"{each.type} {escape_controls(each.id)}" for each in shown.referenced_by),
    }
    title = click.style(f"{shown.type} {escape_controls(shown.id)}", fg="yellow")
    record = msgspec.json.format(msgspec.json.encode(shown.record), indent=2).decode()
    parts = [title, block({name: text for name, text in facts.items() if text}), indent(escape_controls(record))]
    return "\n\n".join(filter(None, [*parts, _content(shown)]))


def _redaction(shown: RecordShown) -> str:
    redaction = shown.redaction
    if redaction is None:
        return ""
    reason = f": {redaction.reason}" if redaction.reason else ""
    return escape_controls(f"{redaction.state} by {redaction.redacted_by} ({redaction.method}){reason}")


def _stale(shown: RecordShown) -> str:
    stale = shown.stale
    return "" if stale is None else f"{counted(stale.count, 'source')} changed since. {stale.refresh}"


def _content(shown: RecordShown) -> str:
    if shown.base64 is not None:
        return f"(content: {len(shown.base64)} bytes of binary data; see --json)"
    if shown.content is msgspec.UNSET:
        return ""
    return escape_controls(
        shown.content if isinstance(shown.content, str) else msgspec.json.encode(shown.content).decode()
    )


def _render_added(answer: RecordsAdded) -> str:
    return "\n".join(
        f"{'Known' if each.known else 'Recorded'}: {each.type} {escape_controls(each.id)} (event {each.seq})"
        for each in answer.records
    )


def _render_lifecycle(answer: LifecycleSet) -> str:
    return f"{escape_controls(answer.record_id)}: {answer.previous} → {answer.lifecycle} (event {answer.seq})"


def _render_schema(answer: RecordSchema) -> str:
    return msgspec.json.format(msgspec.json.encode(answer.schema)).decode()


def render_validation(answer: ValidationSummary) -> str:
    return "\n".join(_file_report(file) for file in answer.files)


def _file_report(file: FileReport) -> str:
    name = escape_controls(file.file)
    if file.valid:
        return f"{name}: {click.style('ok', fg='green')} ({counted(file.records, 'record')})"
    return "\n".join(f"{name}:{problem.line} {_problem(problem)}" for problem in file.problems)


def _problem(problem: FileProblem) -> str:
    return f"{click.style(escape_controls(problem.path), bold=True)}: {escape_controls(problem.reason)}"


def render_resolution(found: PassageResolution) -> str:
    is_lost = found.outcome == "lost"
    facts = {
        "found by": found.found_by or "",
        "was": _selector(found.was),
        "now": _selector(found.now),
        "similarity": "" if is_lost else f"{found.similarity:.0%}",
        "confidence": "" if is_lost else f"{found.confidence:.0%}",
        "source": {True: "unchanged", False: "changed", None: ""}[found.source_unchanged],
    }
    colour = {"exact": "green", "moved": "yellow", "lost": "red"}[found.outcome]
    title = f"{click.style(found.outcome, fg=colour, bold=True)}: {escape_controls(found.reason)}"
    lines = [title, indent(block({name: text for name, text in facts.items() if text}))]
    if found.text:
        lines += ["", indent(escape_controls(found.text))]
    return "\n".join(lines)


def _selector(selector: Any) -> str:  # noqa: ANN401 - a selector of any kind
    return "" if selector is None else escape_controls(msgspec.json.encode(selector).decode())


FORMATTERS: dict[str, Callable[[Any], str]] = {
    "records.list": _render_list,
    "records.show": _render_record,
    "records.add": _render_added,
    "records.set_lifecycle": _render_lifecycle,
    "records.schema": _render_schema,
}
