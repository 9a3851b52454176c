"""``weftline hooks``: the process that records what coding agents do, and tells them what others know."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from functools import partial
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from weftline.kernel.errors import NotFound
from weftline.kernel.operation import Response
from weftline.transports.cli.base import JSON, YES, ConfirmationNeeded, OfflineCommand, OrderedGroup, ask, interactive
from weftline.transports.cli.render import escape_controls, show
from weftline.transports.hooks.folder import HooksFolder
from weftline.transports.hooks.hook_input import CLIENTS
from weftline.transports.hooks.repository import find_repository

if TYPE_CHECKING:
    from weftline.client._client import Client
    from weftline.open import Weftline
    from weftline.transports.cli.target import Target

_LOG_BYTES = 1_000_000


class HooksStatus(Response, omit_defaults=False):
    """Hooks of this user. ``figures``: where the process records and what it did, null if none runs."""

    hooks: str
    repository: str
    session_id: str
    agent_id: str
    figures: dict[str, str | int] | None


class RecordingDeleted(Response, omit_defaults=False):
    """Sessions that are deleted, and entries removed from the memory of the repository."""

    sessions: list[str]
    entries: int


@click.group(cls=OrderedGroup)
def hooks() -> None:
    """Record what coding agents do in a repository, and tell them what others know.

    weftline init writes the hooks of Claude Code, Codex, Cursor, Gemini CLI and opencode. A process in the background
    answers them; it starts with the first hook and ends when none has come for half an hour. It works on the data
    folder, or on the server in WEFTLINE_URL with the key in WEFTLINE_API_KEY, as the environment of the agent says.
    """


@hooks.command(cls=OfflineCommand, params=[JSON])
def status(*, as_json: bool) -> None:
    """Show whether hooks are on, what was recorded, and the session of this repository."""
    from weftline.transports.hooks.resident import ask as ask_process  # noqa: PLC0415 - help needs no process

    folder = HooksFolder.of_user()
    answer = asyncio.run(ask_process(folder, "status"))
    repository = find_repository(Path.cwd())
    shown = HooksStatus(
        hooks="off" if folder.off.exists() else "on",
        repository=str(repository),
        session_id=repository.session_id,
        agent_id=repository.agent_id,
        figures=msgspec.json.decode(answer) if answer else None,
    )
    show(shown, as_json=as_json, formatter=_render_status)


@hooks.command(cls=OfflineCommand)
def on() -> None:
    """Switch hooks on again, for all agents of this user."""
    folder = HooksFolder.of_user()
    folder.create()
    folder.off.unlink(missing_ok=True)
    click.echo("Hooks are on.")


@hooks.command(cls=OfflineCommand)
def off() -> None:
    """Switch hooks off for all agents of this user, at once: nothing is recorded and nothing is told."""
    from weftline.transports.hooks.resident import ask as ask_process  # noqa: PLC0415 - help needs no process

    folder = HooksFolder.of_user()
    folder.create()
    folder.off.touch()
    asyncio.run(ask_process(folder, "stop"))
    click.echo("Hooks are off. weftline hooks on switches them on again.")


@hooks.command(params=[JSON, YES])
@click.pass_context
def delete(ctx: click.Context, /, *, as_json: bool, yes: bool) -> None:
    """Delete what hooks recorded of this repository: its sessions with their windows, and its memory."""
    target: Target = ctx.obj
    repository = find_repository(Path.cwd())
    if not yes:
        subject = f"all sessions and the memory of {repository.root}, on {target.place}"
        if not interactive():
            raise ConfirmationNeeded(f"'{ctx.command_path}' cannot be undone: {subject}.")
        ask(f"This cannot be undone: {subject}. Are you sure?")
    show(asyncio.run(_delete(target)), as_json=as_json, formatter=_render_deleted)


async def _delete(target: Target) -> RecordingDeleted:
    repository = find_repository(Path.cwd())
    async with target.weftline(reads=True) as weftline:
        client = _as_agent(weftline, repository.agent_id)
        sessions: list[str] = []
        cursor, is_last = None, False
        while not is_last:
            page = await client.session.list(limit=200, cursor=cursor, include_archived=True)
            root = str(repository.root)
            sessions += [each.id for each in page.sessions if each.metadata.get("repository") == root]
            cursor, is_last = page.next_cursor, page.next_cursor is None
        for session_id in sessions:
            await client.session.delete(session_id, force=True)
        entries = await _delete_memory(client, f"{repository.agent_id}/")
    return RecordingDeleted(sessions=sessions, entries=entries)


def _as_agent(weftline: Client | Weftline, agent_id: str) -> Client | Weftline:
    from weftline.open import Weftline  # noqa: PLC0415 - help needs no database

    return weftline.acting_as(agent_id) if isinstance(weftline, Weftline) else weftline


async def _delete_memory(client: Client | Weftline, prefix: str) -> int:
    removed = 0
    while True:
        read = await client.context.read(memory_type="learned_knowledge", limit=200)
        keys = [{"key": entry.key} for entry in read.entries if entry.key.startswith(prefix)]
        if not keys:
            return removed
        version = (await client.context.status()).version
        await client.context.push([], remove=keys, if_version=version, reason="weftline hooks delete")
        removed += len(keys)


@hooks.command()
@click.option("--idle", type=click.FloatRange(min=1), metavar="SECONDS", help="End after this time without a hook.")
@click.pass_obj
def serve(target: Target, idle: float | None) -> None:
    """Answer hooks until none comes for half an hour. Hooks start this themselves."""
    from weftline.transports.hooks.resident import IDLE_SECONDS, Resident  # noqa: PLC0415 - help needs no process

    folder = HooksFolder.of_user()
    folder.create()
    if not sys.stderr.isatty():
        # Not in the group of the agent's terminal, which ends with it.
        if os.getpid() != os.getpgrp():
            os.setsid()
        _log_to(folder)
    resident = Resident(
        folder, partial(target.weftline, background=True), target.place, idle_seconds=idle or IDLE_SECONDS
    )

    async def run() -> bool:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, resident.stop)
        return await resident.serve()

    if not asyncio.run(run()):
        click.echo("Another process of yours answers hooks already.", err=True)


@hooks.command(cls=OfflineCommand)
@click.argument("client", type=click.Choice(CLIENTS), help="The agent whose hook it is.")
def send(client: str) -> None:
    """Send the input of one hook, from standard input, to the process, and print its answer."""
    from weftline.transports.hooks.resident import ask as ask_process  # noqa: PLC0415 - help needs no process

    answer = asyncio.run(ask_process(HooksFolder.of_user(), client, sys.stdin.buffer.read()))
    if answer is None:
        raise HooksNotRunning("No process answers hooks.")
    sys.stdout.buffer.write(answer)


class HooksNotRunning(NotFound):
    """No process of this user answers hooks."""

    code = "HOOKS_NOT_RUNNING"
    hint = "The first hook of an agent starts it, and so does weftline hooks serve."


def _log_to(folder: HooksFolder) -> None:
    handler = RotatingFileHandler(folder.log, maxBytes=_LOG_BYTES, backupCount=1)
    folder.log.chmod(0o600)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    logging.getLogger("weftline").setLevel(logging.WARNING)


def _render_status(shown: HooksStatus) -> str:
    lines = [f"Hooks are {shown.hooks}."]
    lines.append(f"This repository: {shown.repository}, session {shown.session_id}, agent {shown.agent_id}.")
    if shown.figures is None:
        lines.append("No process runs; the next hook starts one.")
    else:
        figures = dict(shown.figures)
        lines.append(f"The process records in {figures.pop('place')}. Since its start:")
        lines += [f"  {name.replace('_', ' '):<16}{count:>10,}" for name, count in figures.items()]
    return escape_controls("\n".join(lines))


def _render_deleted(deleted: RecordingDeleted) -> str:
    what = f"{len(deleted.sessions)} sessions and {deleted.entries} entries of memory"
    return f"Deleted {what}. Earlier versions of the memory go with retention: weftline history prune."
