"""``weftline validate``: the eight validations of the context engine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weftline.kernel.operation import Response
from weftline.transports.cli.base import JSON, Command, OfflineCommand, OrderedGroup
from weftline.transports.cli.completion import complete_name
from weftline.transports.cli.errors import FAILED
from weftline.transports.cli.global_options import FLAGS, given
from weftline.transports.cli.render import counted, show, table
from weftline.validation.catalogue import VALIDATIONS
from weftline.validation.model import ValidationResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.kernel.operation import Operation
    from weftline.transports.cli.target import Target
    from weftline.validation.compaction import Said
    from weftline.validation.model import Figure

_ANSWERS = {True: "yes", False: "NO", None: ""}
_WRITABLE = click.Path(file_okay=False, path_type=Path)
_READABLE = click.Path(dir_okay=False, path_type=Path)
_MAX_REVIEWERS = 50
# Own messages that a validation uses, and how many are read at once.
_MAX_OWN, _PAGE = 1_000, 200
_ROLES = frozenset({"user", "assistant", "tool"})


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
    """Measure what Weftline promises against its targets.

    Each validation works on a temporary database, which it removes. Your data is read only by tokens --receipts,
    retrieval --domain and --session. Exits with 1 if a target is missed.
    """


_random_seed = click.option(
    "--random-seed", type=int, default=0, show_default=True, help="Another number draws other texts."
)
_session = click.option(
    "--session", "-s", shell_complete=complete_name, help="Use the newest messages of this session of yours."
)
_agent_id = click.option(
    "--agent-id", shell_complete=complete_name, help="Whose window of the session; by default yours."
)


@validate.command("all", cls=OfflineCommand, params=[JSON])
@_random_seed
@click.pass_context
def validate_all(ctx: click.Context, random_seed: int, *, as_json: bool) -> None:
    """Run all eight and print one table; takes a minute or two. The blind review needs people, see quality."""
    results = []
    for name in VALIDATIONS:
        click.echo(f"Running {name} ...", err=True)
        results.append(_run(ctx, name, random_seed))
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
    from weftline.validation.tokens import tokens_of_receipts  # noqa: PLC0415 - help needs no storage

    report: Any = _target(ctx).call(
        _operation("receipt.savings"), {"by": "tenant", "session_id": session, "agent_id": agent_id}
    )
    figures = tokens_of_receipts(report)
    note = "Measured on your receipts." if figures else "There are no receipts: no prompt was assembled."
    _finish(ctx, [VALIDATIONS["tokens"].result(figures, note)], as_json=as_json)


@validate.command("quality", cls=OfflineCommand, params=[JSON])
@click.option("--export", "folder", type=_WRITABLE, help="Write sheets for reviewers, and their key, to a new folder.")
@click.option(
    "--pairs", type=_READABLE, help="Answers to compare: JSON lines of question, with_weftline, full_context."
)
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
    """Compare answers with Weftline with answers with the full context, by a blind review.

    --export writes sheets for people who do not know which answer is which; --score reads what they filled in. Without
    --pairs, the language model of WEFTLINE_CHAT_MODEL answers the questions of the demo, with both contexts.
    """
    if (folder is None) == (not sheets) or (pairs is not None and folder is None):
        raise click.UsageError("Give --export FOLDER, with --pairs or not, or else --score SHEET.", ctx)
    if bool(sheets) != (key_file is not None):
        raise click.UsageError("--score needs --key-file, and --export has none.", ctx)
    if folder is not None:
        show(_write_sheets(ctx, folder, pairs, reviewers), as_json=as_json)
    elif key_file is not None:
        from weftline.validation.review import score_sheets  # noqa: PLC0415 - help needs no review

        note = "Measured on the sheets of " + counted(len(sheets), "reviewer") + "."
        _finish(ctx, [VALIDATIONS["quality"].result(score_sheets(sheets, key_file), note)], as_json=as_json)


def _write_sheets(ctx: click.Context, folder: Path, pairs: Path | None, reviewers: int) -> SheetsWritten:
    from weftline.validation.quality import answer_pairs  # noqa: PLC0415 - help needs no storage
    from weftline.validation.review import read_pairs, write_sheets  # noqa: PLC0415 - likewise

    answers = asyncio.run(answer_pairs(_target(ctx).settings())) if pairs is None else read_pairs(pairs)
    instructions, *sheets, key = write_sheets(answers, folder, reviewers)
    return SheetsWritten(
        questions=len(answers), reviewers=str(instructions.parent), sheets=[each.name for each in sheets], key=str(key)
    )


@validate.command("compaction", cls=Command, params=[JSON])
@_random_seed
@_session
@_agent_id
@click.pass_context
def validate_compaction(
    ctx: click.Context, random_seed: int, session: str | None, agent_id: str | None, *, as_json: bool
) -> None:
    """Measure the statements that prompts still have after each of 50 compactions.

    The statements are of authors who did not see Weftline, in four languages. --session spreads them among your
    messages.
    """
    _finish(ctx, [_run_on(ctx, "compaction", random_seed, session, agent_id)], as_json=as_json)


@validate.command("retrieval", cls=Command, params=[JSON])
@click.option("--domain", shell_complete=complete_name, help="Evaluate the example questions of this domain instead.")
@_random_seed
@_session
@_agent_id
@click.pass_context
def validate_retrieval(
    ctx: click.Context,
    domain: str | None,
    random_seed: int,
    session: str | None,
    agent_id: str | None,
    *,
    as_json: bool,
) -> None:
    """Measure recall@10 of messages by two of their words, and of 100 questions whose answers are known.

    --session looks for your messages, and --domain asks a domain's own example questions.
    """
    if domain is None:
        _finish(
            ctx, [_run_on(ctx, "retrieval", random_seed, session, agent_id, "--domain or --session")], as_json=as_json
        )
        return
    if session is not None:
        raise click.UsageError("Give --domain or --session.", ctx)
    from weftline.validation.retrieval import recall_of_domain  # noqa: PLC0415 - help needs no storage

    evaluation: Any = _target(ctx).call(_operation("knowledge.evaluate_domain"), {"domain": domain})
    note = f"Measured on {counted(evaluation.documents, 'document')} of the domain {domain}."
    _finish(ctx, [VALIDATIONS["retrieval"].result(recall_of_domain(evaluation), note)], as_json=as_json)


@validate.command("immutability", cls=Command, params=[JSON])
@_random_seed
@_session
@_agent_id
@click.pass_context
def validate_immutability(
    ctx: click.Context, random_seed: int, session: str | None, agent_id: str | None, *, as_json: bool
) -> None:
    """Try to change an agent's role, rights, guardrails or layers as the agent itself, by every vector.

    Attempted by an agent with every permission and clearance 5: calls, tools, content, prompts, database. The words of
    its attempts are drawn from texts of others, with --session from your messages.
    """
    _finish(ctx, [_run_on(ctx, "immutability", random_seed, session, agent_id)], as_json=as_json)


def _add_command(name: str) -> None:
    """Add the command of a validation without options."""

    @validate.command(name, cls=OfflineCommand, params=[JSON], help=_help(name))
    @click.pass_context
    def run(ctx: click.Context, *, as_json: bool) -> None:
        _finish(ctx, [_run(ctx, name)], as_json=as_json)


def _help(name: str) -> str:
    shows, note = VALIDATIONS[name].shows, VALIDATIONS[name].note
    return f"{shows[0].upper()}{shows[1:]}.\n\n{note}"


for _name in ("push-pull", "isolation", "failures"):
    _add_command(_name)


def _target(ctx: click.Context) -> Target:
    target: Target = ctx.obj
    return target


def _operation(name: str) -> Operation:
    from weftline.app.registry import all_operations  # noqa: PLC0415 - help needs no operations

    return all_operations()[name]


def _check_unused_target(ctx: click.Context, option: str) -> None:
    """Refuse global options of a command that works on a temporary database."""
    if chosen := given(ctx):
        raise click.UsageError(f"{FLAGS[chosen[0]]} needs {option}: otherwise your data is not used.", ctx)


def _run(ctx: click.Context, name: str, random_seed: int = 0) -> ValidationResult:
    from weftline.validation.compaction import Material  # noqa: PLC0415 - help needs no texts

    return asyncio.run(VALIDATIONS[name].run(_target(ctx).settings(), Material(random_seed)))


def _run_on(
    ctx: click.Context,
    name: str,
    random_seed: int,
    session: str | None,
    agent_id: str | None,
    option: str = "--session",
) -> ValidationResult:
    """Run a validation on the messages of a session, if one is given."""
    if session is None:
        _check_unused_target(ctx, option)
        if agent_id is not None:
            raise click.UsageError("--agent-id needs --session.", ctx)
        return _run(ctx, name, random_seed)
    from weftline.validation.compaction import Material  # noqa: PLC0415 - help needs no texts

    own = _own_messages(_target(ctx), session, agent_id)
    if not own:
        return VALIDATIONS[name].result((), f"The session {session} has no messages in this window.")
    note = f"Measured on {counted(len(own), 'message')} of the session {session}."
    return asyncio.run(VALIDATIONS[name].run(_target(ctx).settings(), Material(random_seed, own), note))


def _own_messages(target: Target, session: str, agent_id: str | None) -> list[Said]:
    """Return the newest messages of a window that have a text."""
    from weftline.validation.compaction import Said  # noqa: PLC0415 - help needs no texts

    request = {"session_id": session, "agent_id": agent_id}
    operation = _operation("window.events")
    oldest: Any = target.call(operation, {**request, "limit": 1})
    total, own = oldest.total_count, []
    offset = max(0, total - _MAX_OWN)
    while offset < total:
        page: Any = target.call(operation, {**request, "limit": _PAGE, "offset": offset})
        own += [Said(each.content, each.role) for each in page.events if each.content.strip() and each.role in _ROLES]
        offset += max(page.count, 1)
    return own


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
