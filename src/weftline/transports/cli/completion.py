"""Tab completion of session ids, agents, board keys and knowledge domains."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from click.shell_completion import CompletionItem

from weftline.transports.cli import global_options

if TYPE_CHECKING:
    import click

    from weftline.storage.sql.name_lookup import NameKind
    from weftline.transports.cli.target import Target

_SERVER_TIMEOUT_SECONDS = 2.0
_FIELDS: dict[str, NameKind] = {
    "session_id": "session",
    "session": "session",
    "agent_id": "agent",
    "parent_id": "agent",
    "recipient": "agent",
    "recipient_id": "agent",
    "sender": "agent",
    "principal": "agent",
    "agent": "agent",
    "domain": "domain",
    "domains": "domain",
}
_BOARD_FIELDS: dict[str, NameKind] = {"key": "key", "keys": "key"}


def complete_name(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a parameter by its name; ``key`` is completed in the board group only."""
    is_board = ctx.parent is not None and ctx.parent.info_name == "board"
    kind = (_BOARD_FIELDS if is_board else {}).get(param.name or "") or _FIELDS.get(param.name or "")
    if kind is None:
        return []
    try:
        names = _names(ctx, kind, incomplete)
    except Exception:  # noqa: BLE001 - an error message would end up in the user's command line
        return []
    return [CompletionItem(name, help=about) for name, about in names if name.startswith(incomplete)]


def _names(ctx: click.Context, kind: NameKind, prefix: str) -> list[tuple[str, str]]:
    options = ctx.find_root().params
    if options["url"]:
        global_options.check_server(ctx, options["url"], global_options.given(ctx))
    session_id = ctx.params.get("session_id") or ctx.params.get("session")
    file = _sqlite_file(options)
    if file is None:
        return _ask(options, kind, session_id)
    from weftline.storage.sql.name_lookup import find_names  # noqa: PLC0415 - a server needs no SQLite

    return find_names(file, kind, prefix, tenant=options["tenant"] or "default", session_id=session_id)


def _sqlite_file(options: dict[str, str | None]) -> Path | None:
    """Return the database file, or None for a server or PostgreSQL."""
    database_url = options["database_url"] or ""
    if options["url"] or "://" in database_url:
        return None
    return Path(database_url or Path(options["data_dir"] or "~/.weftline") / "weftline.db").expanduser()


def _ask(options: dict[str, str | None], kind: NameKind, session_id: str | None) -> list[tuple[str, str]]:
    """List names over the server or PostgreSQL, with a timeout."""
    import asyncio  # noqa: PLC0415 - reading a file does without

    from weftline.transports.cli.target import Target  # noqa: PLC0415 - likewise

    async def within_timeout() -> list[tuple[str, str]]:
        async with asyncio.timeout(_SERVER_TIMEOUT_SECONDS):
            return await _list(Target.from_options(options), kind, session_id)

    return asyncio.run(within_timeout())


async def _list(target: Target, kind: NameKind, session_id: str | None) -> list[tuple[str, str]]:
    async with target.weftline(reads=True) as weftline:
        match kind:
            case "session":
                return [(each.id, each.purpose) for each in (await weftline.session.list()).sessions]
            case "agent":
                return [(each.agent_id, each.agent_type) for each in (await weftline.agent.list()).agents]
            case "domain":
                return [(each.domain, each.description) for each in (await weftline.knowledge.list_domains()).domains]
            case "key":
                return [(each.key, "") for each in (await weftline.board.list_keys(session_id or "")).keys]
