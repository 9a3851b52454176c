"""``weftline push`` and ``weftline pull``: persistent memory without JSON."""

from __future__ import annotations

import base64
import mimetypes
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from weftline.transports.cli.base import JSON, Command
from weftline.transports.cli.completion import complete_name
from weftline.transports.cli.params import AnyValue
from weftline.transports.cli.render import escape_controls, show

if TYPE_CHECKING:
    from weftline.state.agent_context.pull import ContextPulled
    from weftline.state.agent_context.push import ContextPushed
    from weftline.transports.cli.target import Target

_TYPES = click.Choice(["conversation_context", "learned_knowledge", "team_preferences", "work_artifacts"])
_SESSION = click.option(
    "--session",
    "-s",
    envvar="WEFTLINE_SESSION",
    show_envvar=True,
    shell_complete=complete_name,
    help="Session you work in.",
)
_VERBS = {"write": "wrote", "delete": "removed"}
_BRANCH = click.option("--branch", help="Branch of your context, or main.")


@click.command(cls=Command, params=[JSON])
@click.argument("key", required=False, help="Key; may contain /, as in billing/limits.")
@click.argument("value", required=False, type=AnyValue(), help="JSON, plain text, @FILE or -.")
@click.option("--file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="File to store unchanged.")
@click.option(
    "--type", "memory_type", type=_TYPES, default="learned_knowledge", show_default=True, help="Type of memory."
)
@click.option("--owner", help="team:NAME or user:ID, to save to memory that you share. Default: yourself.")
@click.option("--workflow", help="Workflow, for conversation_context.")
@click.option("--remove", multiple=True, metavar="KEY", help="Entry to remove. Repeatable.")
@click.option("--if-version", type=int, help="Fail unless the context is at this version.")
@click.option("--reason", help="Reason, for the log.")
@click.option("--step", help="Workflow step.")
@_SESSION
@_BRANCH
@click.pass_context
def push(ctx: click.Context, /, *, key: str | None, file: Path | None, as_json: bool, **options: Any) -> None:  # noqa: ANN401
    """Save knowledge to your persistent memory, or to that of a team or user.

    Without --if-version, the version that your session pulled is expected, or else the current one.
    """
    # A value may be null, so the source of the parameter is checked.
    contents = (ctx.get_parameter_source("value") is ParameterSource.COMMANDLINE) + (file is not None)
    if contents != (key is not None):
        raise click.UsageError("Give a KEY with either a VALUE or --file.")
    if key is None and not options["remove"]:
        raise click.UsageError("Give a KEY and a VALUE, or entries to --remove.")
    scope = {"memory_type": options["memory_type"], **_given(workflow_id=options["workflow"])}
    where = _given(session_id=options["session"], branch=options["branch"])
    request = {
        "knowledge": [] if key is None else [{"key": key, **scope, **_content(options["value"], file)}],
        "remove": [{"key": removed, **scope} for removed in options["remove"]],
        **where,
        **_given(owner=options["owner"], reason=options["reason"], step=options["step"]),
    }
    target: Target = ctx.obj
    version = options["if_version"]
    if version is None:
        version = _expected_version(target, {**where, **_given(owner=options["owner"])})
    pushed = _call(target, "context.push", {**request, "if_version": version})
    show(pushed, as_json=as_json, formatter=_render_push)


@click.command(cls=Command, params=[JSON])
@_SESSION
@_BRANCH
@click.pass_obj
def pull(target: Target, /, *, session: str | None, branch: str | None, as_json: bool) -> None:
    """Pull your persistent memory into a session: its prompts and searches have this version until the next pull."""
    if session is None:
        raise click.UsageError("Name the session with --session, or set WEFTLINE_SESSION.")
    pulled = _call(target, "context.pull", {"session_id": session, **_given(branch=branch)})
    show(pulled, as_json=as_json, formatter=_render_pull)


def _render_push(pushed: ContextPushed) -> str:
    if pushed.version == pushed.previous_version:
        return f"Nothing to push: v{pushed.version} already contains it."
    lines = [f"Pushed: v{pushed.previous_version} -> v{pushed.version}"]
    lines += [
        escape_controls(f"  {_VERBS.get(entry.act, entry.act)} {entry.memory_type}/{entry.key}")
        for entry in pushed.changed
    ]
    lines += [f"Snapshot of the previous state: {pushed.snapshot_before}."] if pushed.snapshot_before else []
    return "\n".join(lines)


def _render_pull(pulled: ContextPulled) -> str:
    changed = [(act, entry) for act in ("added", "removed", "modified") for entry in getattr(pulled.changes, act)]
    shared = [each for each in pulled.shared if each.version != (each.from_version or 0)]
    return "\n".join(
        [
            pulled.message,
            *(escape_controls(f"  {act} {entry.memory_type}/{entry.key}") for act, entry in changed),
            *(f"  {each.context_id} v{each.from_version or 0} -> v{each.version}" for each in shared),
        ]
    )


def _content(value: Any, file: Path | None) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    if file is None:
        return {"value": value}
    media_type, _ = mimetypes.guess_type(file.name)
    return {"base64": base64.b64encode(file.read_bytes()).decode(), **_given(media_type=media_type)}


def _expected_version(target: Target, where: dict[str, str]) -> int:
    """Return the version that the session pulled, or the current one, which is 0 before the first push."""
    from weftline.transports.cli.target import InstallationNotFound  # noqa: PLC0415 - help needs no target

    try:
        status = _call(target, "context.status", where)
    except InstallationNotFound:
        return 0
    return int(status.version if status.known_version is None else status.known_version)


def _given(**fields: str | None) -> dict[str, str]:
    return {name: value for name, value in fields.items() if value is not None}


def _call(target: Target, operation: str, request: dict[str, Any]) -> Any:  # noqa: ANN401 - the answer
    from weftline.app.registry import all_operations  # noqa: PLC0415 - help needs no operations

    return target.call(all_operations()[operation], request)
