"""``weft validate``: the eight validations of the context engine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weft.kernel.operation import Response
from weft.transports.cli.base import JSON, Command, OfflineCommand, OrderedGroup
from weft.transports.cli.completion import complete_name
from weft.transports.cli.errors import FAILED
from weft.transports.cli.global_options import FLAGS, given
from weft.transports.cli.render import counted, show, table
from weft.validation.catalogue import VALIDATIONS
from weft.validation.model import ValidationResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.kernel.operation import Operation
    from weft.transports.cli.target import Target
    from weft.validation.model import Figure

_ANSWERS = {True: "yes", False: "NO", None: ""}
_WRITABLE = click.Path(file_okay=False, path_type=Path)
_READABLE = click.Path(dir_okay=False, path_type=Path)
_MAX_REVIEWERS = 50


class ValidationResults(Response, omit_defaults=False):
    """Results of validations, and the names of those that met all of their targets, or missed one."""

    met: list[str]
    missed: list[str]
    not_measured: list[str]
    validations: list[ValidationResult]


class SheetsWritten(Response, omit_defaults=False):
    """Sheets of a blind review. Give ``reviewers`` away, and keep ``key``."""

    questions: int
    reviewers: str
    sheets: list[str]
    key: str


@click.group(cls=OrderedGroup, no_args_is_help=True)
def validate() -> None:
    """Measure what Weft promises against its targets.

    Each validation works on a temporary database, which it removes. Your data is read only by tokens --receipts and
    retrieval --domain. Exits with 1 if a target is missed.
    """


@validate.command("all", cls=OfflineCommand, params=[JSON])
@click.pass_context
def validate_all(ctx: click.Context, *, as_json: bool) -> None:
    """Run all eight and print one table; takes a minute or two. The blind review needs people, see quality."""
    results = []
    for name in VALIDATIONS:
        click.echo(f"Running {name} ...", err=True)
        results.append(_run(ctx, name))
    _finish(ctx, results, as_json=as_json)


@validate.command("tokens", cls=Command, params=[JSON])
@click.option("--receipts", is_flag=True, help="Measure the prompts of your own agents, by their receipts.")
@click.option("--session", "-s", shell_complete=complete_name, help="Only receipts of this session.")
@click.option("--agent-id", shell_complete=complete_name, help="Only receipts of this agent.")
@click.pass_context
def validate_tokens(
    ctx: click.Context, session: str | None, agent_id: str | None, *, receipts: bool, as_json: bool
) -> None:
    """Measure the tokens of assembled prompts against the whole context, for the same tasks.

    Without options on the tasks of the demo, which also have to find their evidence in the prompt.
    """
    if not receipts and not session and not agent_id:
        _check_unused_target(ctx, "--receipts")
        _finish(ctx, [_run(ctx, "tokens")], as_json=as_json)
        return
    from weft.validation.tokens import tokens_of_receipts  # noqa: PLC0415 - help needs no storage

    report: Any = _target(ctx).call(
        _operation("receipt.savings"), {"by": "tenant", "session_id": session, "agent_id": agent_id}
    )
    figures = tokens_of_receipts(report)
    note = "Measured on your receipts." if figures else "There are no receipts: no prompt was assembled."
    _finish(ctx, [VALIDATIONS["tokens"].result(figures, note)], as_json=as_json)


@validate.command("quality", cls=OfflineCommand, params=[JSON])
@click.option("--export", "folder", type=_WRITABLE, help="Write sheets for reviewers, and their key, to a new folder.")
@click.option("--pairs", type=_READABLE, help="Answers to compare: JSON lines of question, with_weft, full_context.")
@click.option("--reviewers", type=click.IntRange(1, _MAX_REVIEWERS), default=3, show_default=True, help="Sheets.")
@click.option("--score", "sheets", type=_READABLE, multiple=True, help="A filled sheet; may be given several times.")
@click.option("--key-file", type=_READABLE, help="The exported key.json, with --score.")
@click.pass_context
def validate_quality(
    ctx: click.Context,
    folder: Path | None,
    pairs: Path | None,
    reviewers: int,
    sheets: tuple[Path, ...],
    key_file: Path | None,
    *,
    as_json: bool,
) -> None:
    """Compare answers with Weft with answers with the full context, by a blind review.

    --export writes sheets for people who do not know which answer is which; --score reads what they filled in. Without
    --pairs, the language model of WEFT_CHAT_MODEL answers the questions of the demo, with both contexts.
    """
    if (folder is None) == (not sheets) or (pairs is not None and folder is None):
        raise click.UsageError("Give --export FOLDER, with --pairs or not, or else --score SHEET.", ctx)
    if bool(sheets) != (key_file is not None):
        raise click.UsageError("--score needs --key-file, and --export has none.", ctx)
    if folder is not None:
        show(_write_sheets(ctx, folder, pairs, reviewers), as_json=as_json)
    elif key_file is not None:
        from weft.validation.review import score_sheets  # noqa: PLC0415 - help needs no review

        note = "Measured on the sheets of " + counted(len(sheets), "reviewer") + "."
        _finish(ctx, [VALIDATIONS["quality"].result(score_sheets(sheets, key_file), note)], as_json=as_json)


def _write_sheets(ctx: click.Context, folder: Path, pairs: Path | None, reviewers: int) -> SheetsWritten:
    from weft.validation.quality import answer_pairs  # noqa: PLC0415 - help needs no storage
    from weft.validation.review import read_pairs, write_sheets  # noqa: PLC0415 - likewise

    answers = asyncio.run(answer_pairs(_target(ctx).settings())) if pairs is None else read_pairs(pairs)
    instructions, *sheets, key = write_sheets(answers, folder, reviewers)
    return SheetsWritten(
        questions=len(answers), reviewers=str(instructions.parent), sheets=[each.name for each in sheets], key=str(key)
    )


@validate.command("retrieval", cls=Command, params=[JSON])
@click.option("--domain", shell_complete=complete_name, help="Evaluate the example questions of this domain instead.")
@click.pass_context
def validate_retrieval(ctx: click.Context, domain: str | None, *, as_json: bool) -> None:
    """Measure recall@10 of 100 questions whose answers are known, or of a domain's own example questions."""
    if domain is None:
        _check_unused_target(ctx, "--domain")
        _finish(ctx, [_run(ctx, "retrieval")], as_json=as_json)
        return
    from weft.validation.retrieval import recall_of_domain  # noqa: PLC0415 - help needs no storage

    evaluation: Any = _target(ctx).call(_operation("knowledge.evaluate_domain"), {"domain": domain})
    note = f"Measured on {counted(evaluation.documents, 'document')} of the domain {domain}."
    _finish(ctx, [VALIDATIONS["retrieval"].result(recall_of_domain(evaluation), note)], as_json=as_json)


def _add_command(name: str) -> None:
    """Add the command of a validation without options."""

    @validate.command(name, cls=OfflineCommand, params=[JSON], help=_help(name))
    @click.pass_context
    def run(ctx: click.Context, *, as_json: bool) -> None:
        _finish(ctx, [_run(ctx, name)], as_json=as_json)


def _help(name: str) -> str:
    shows, note = VALIDATIONS[name].shows, VALIDATIONS[name].note
    return f"{shows[0].upper()}{shows[1:]}.\n\n{note}"


for _name in ("compaction", "push-pull", "immutability", "isolation", "failures"):
    _add_command(_name)


def _target(ctx: click.Context) -> Target:
    target: Target = ctx.obj
    return target


def _operation(name: str) -> Operation:
    from weft.app.registry import all_operations  # noqa: PLC0415 - help needs no operations

    return all_operations()[name]


def _check_unused_target(ctx: click.Context, option: str) -> None:
    """Refuse global options of a command that works on a temporary database."""
    if chosen := given(ctx):
        raise click.UsageError(f"{FLAGS[chosen[0]]} needs {option}: otherwise your data is not used.", ctx)


def _run(ctx: click.Context, name: str) -> ValidationResult:
    return asyncio.run(VALIDATIONS[name].run(_target(ctx).settings()))


def _finish(ctx: click.Context, results: Sequence[ValidationResult], *, as_json: bool) -> None:
    """Print the results, and exit with 1 if a target was missed or nothing was measured."""
    named = {state: [each.validation for each in results if each.state == state] for state in ("met", "missed")}
    open_ = [each.validation for each in results if each.state == "not_measured"]
    report = ValidationResults(**named, not_measured=open_, validations=list(results))
    show(report, as_json=as_json, formatter=_text)
    ctx.exit(FAILED if report.missed or not report.met else 0)


def _text(report: ValidationResults) -> str:
    parts = [table([row for result in report.validations for row in _table_rows(result)])]
    misses = [
        f"{result.validation}: {figure.measured}: {', '.join(figure.misses)}"
        for result in report.validations
        for figure in result.figures
        if figure.misses
    ]
    notes = [f"{result.validation}: {result.note}" for result in report.validations if result.note]
    return "\n\n".join(["\n".join(lines) for lines in (parts, misses, notes, [_summary(report)]) if lines])


def _table_rows(result: ValidationResult) -> list[dict[str, str]]:
    if not result.figures:
        return [{"validation": result.validation, "measured": "not measured", "value": "", "target": "", "met": ""}]
    return [_row(result.validation, figure) for figure in result.figures]


def _row(name: str, figure: Figure) -> dict[str, str]:
    value = f"{figure.value:,.10g} {figure.unit}".strip()
    row = {"validation": name, "measured": figure.measured, "value": value, "target": figure.target}
    return {**row, "met": _ANSWERS[figure.met]}


def _summary(report: ValidationResults) -> str:
    parts = [
        f"{len(names)} {word}" + (f" ({', '.join(names)})" if word != "met" and names else "")
        for word, names in (("met", report.met), ("missed", report.missed), ("not measured", report.not_measured))
        if names
    ]
    return "; ".join(parts) + "."
