"""``weft push`` and ``weft pull``: persistent memory without writing JSON by hand."""

from __future__ import annotations

import base64
import mimetypes
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from weft.transports.cli.base import JSON, Command
from weft.transports.cli.params import AnyValue
from weft.transports.cli.render import harmless, show

if TYPE_CHECKING:
    from weft.capabilities.agent_context.pull import ContextPulled
    from weft.capabilities.agent_context.push import ContextPushed
    from weft.kernel.operation import Registry
    from weft.transports.cli.target import Target

_TYPES = click.Choice(["conversation_context", "learned_knowledge", "team_preferences", "work_artifacts"])
_SESSION = click.option("--session", "-s", envvar="WEFT_SESSION", show_envvar=True, help="The session you work in.")
_ACTS = {"write": "wrote", "delete": "removed"}
_BRANCH = click.option("--branch", help="A branch of your context, or main.")


@click.command(cls=Command, params=[JSON])
@click.argument("key", required=False, help="What to call it; / may divide it, as in billing/limits.")
@click.argument("value", required=False, type=AnyValue(), help="JSON, plain text, @FILE or -.")
@click.option("--file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A file to keep as it is.")
@click.option(
    "--type", "memory_type", type=_TYPES, default="learned_knowledge", show_default=True, help="Which sort of memory."
)
@click.option("--workflow", help="The workflow, for conversation_context.")
@click.option("--remove", multiple=True, metavar="KEY", help="An entry to remove. Repeatable.")
@click.option("--if-version", type=int, help="Only if your context is still at this version.")
@click.option("--reason", help="Why, for the log.")
@click.option("--step", help="The workflow step this belongs to.")
@_SESSION
@_BRANCH
@click.pass_context
def push(ctx: click.Context, /, *, key: str | None, file: Path | None, as_json: bool, **said: Any) -> None:  # noqa: ANN401
    """Save what was learned to your persistent memory.

    Without --if-version it is made for what your session has pulled, or for your context as it is now.
    """
    # A value may be null, so what counts is whether it was given.
    contents = (ctx.get_parameter_source("value") is ParameterSource.COMMANDLINE) + (file is not None)
    if contents != (key is not None):
        raise click.UsageError("Give a KEY with either a VALUE or --file.")
    if key is None and not said["remove"]:
        raise click.UsageError("Give a KEY and a VALUE, or entries to --remove.")
    place = {"memory_type": said["memory_type"], **_named(workflow_id=said["workflow"])}
    entries = [] if key is None else [{"key": key, **place, **_content(said["value"], file)}]
    raw = {
        "knowledge": entries,
        "remove": [{"key": gone, **place} for gone in said["remove"]],
        **_named(session_id=said["session"], reason=said["reason"], step=said["step"], branch=said["branch"]),
    }
    target: Target = ctx.obj
    operations = _operations()
    version = said["if_version"]
    if version is None:
        version = _known_version(target, operations, **_named(session_id=said["session"], branch=said["branch"]))
    pushed = target.call(operations["context.push"], {**raw, "if_version": version})
    show(pushed, as_json=as_json, form=_render_push)


@click.command(cls=Command, params=[JSON])
@_SESSION
@_BRANCH
@click.pass_obj
def pull(target: Target, /, *, session: str | None, branch: str | None, as_json: bool) -> None:
    """Take your latest context into a session, as a snapshot that stays as it is until the next pull."""
    if session is None:
        raise click.UsageError("Name the session with --session, or set WEFT_SESSION.")
    raw = {"session_id": session, **_named(branch=branch)}
    pulled: Any = target.call(_operations()["context.pull"], raw)
    show(pulled, as_json=as_json, form=_render_pull)


def _render_push(pushed: ContextPushed) -> str:
    if pushed.version == pushed.previous_version:
        return f"Nothing to push: v{pushed.version} says all of it already."
    said = [f"Pushed: v{pushed.previous_version} -> v{pushed.version}"]
    said += [
        harmless(f"  {_ACTS.get(entry.act, entry.act)} {entry.memory_type}/{entry.key}") for entry in pushed.changed
    ]
    said += [f"What was before is kept as {pushed.snapshot_before}."] if pushed.snapshot_before else []
    return "\n".join(said)


def _render_pull(pulled: ContextPulled) -> str:
    changed = [(act, entry) for act in ("added", "removed", "modified") for entry in getattr(pulled.changes, act)]
    return "\n".join(
        [pulled.message, *(harmless(f"  {act} {entry.memory_type}/{entry.key}") for act, entry in changed)]
    )


def _content(value: Any, file: Path | None) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    if file is None:
        return {"value": value}
    media_type, _ = mimetypes.guess_type(file.name)
    return {"base64": base64.b64encode(file.read_bytes()).decode(), **_named(media_type=media_type)}


def _known_version(target: Target, operations: Registry, **where: str) -> int:
    """Return the version a push is made for: what the session knows, or what there is."""
    status: Any = target.call(operations["context.status"], where)
    return int(status.version if status.known_version is None else status.known_version)


def _named(**fields: str | None) -> dict[str, str]:
    return {name: value for name, value in fields.items() if value is not None}


def _operations() -> Registry:
    from weft.app.registry import all_operations  # noqa: PLC0415 - help needs no operations

    return all_operations()
