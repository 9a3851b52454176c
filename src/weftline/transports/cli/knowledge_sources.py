"""``weftline knowledge watch`` and ``sync-source``."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from weftline.transports.cli.base import JSON, Command
from weftline.transports.cli.completion import complete_name
from weftline.transports.cli.errors import FAILED
from weftline.transports.cli.formatters.knowledge import render_sync, render_sync_requested
from weftline.transports.cli.progress import POLL_SECONDS, IndexingFailure, wait_until_indexed
from weftline.transports.cli.render import show

if TYPE_CHECKING:
    from weftline.client._client import Client
    from weftline.knowledge.source_operations import SourceInfo, SyncRequested
    from weftline.knowledge.sources import SyncCounts
    from weftline.open import Weftline
    from weftline.transports.cli.target import Target


class SyncResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a synchronisation; ``failed`` lists documents that could not be indexed."""

    source_id: str
    location: str
    error: str | None
    last: SyncCounts
    failed: list[IndexingFailure]


@click.command("watch", cls=Command, params=[JSON], short_help="Keep a domain in sync with a folder.")
@click.argument("domain", shell_complete=complete_name, help="Domain to keep in sync.")
@click.argument("folder", type=click.Path(path_type=Path), help="Folder that the server may read.")
@click.option("--every", "every_seconds", type=int, help="Poll at this interval in seconds instead of watching.")
@click.option("--prefix", default="", help="Prefix of the document ids, such as guides/.")
@click.pass_obj
def watch(
    target: Target, /, *, domain: str, folder: Path, every_seconds: int | None, prefix: str, as_json: bool
) -> None:
    """Keep a domain in sync with a folder: files that are added, changed and deleted.

    The folder must be on the server, below one of WEFTLINE_KNOWLEDGE_FOLDERS. The server watches it while it runs.
    """
    from weftline.app.registry import all_operations  # noqa: PLC0415 - help needs no operations

    place = folder if target.url is not None else folder.absolute()
    how = {"watch": True} if every_seconds is None else {"every_seconds": every_seconds}
    raw = {"domain": domain, "kind": "folder", "folder": str(place), "prefix": prefix, **how}
    show(target.call(all_operations()["knowledge.add_source"], raw), as_json=as_json)


@click.command("sync-source", cls=Command, params=[JSON], short_help="Synchronise a source now.")
@click.argument("domain", shell_complete=complete_name, help="Domain of the source.")
@click.argument("source_id", help="Source id from list-sources.")
@click.option("--full", is_flag=True, help="Read everything again, unchanged documents too.")
@click.pass_context
def sync_source(ctx: click.Context, /, *, domain: str, source_id: str, full: bool, as_json: bool) -> None:
    """Synchronise a source now; only changed documents are read and indexed.

    On the data folder the command waits until they are indexed; a server does it in the background. Needs the
    permission 'admin'.
    """
    target: Target = ctx.obj
    answer = asyncio.run(_sync(target, domain, source_id, full=full))
    if not isinstance(answer, SyncResult):
        show(answer, as_json=as_json, formatter=render_sync_requested)
        return
    show(answer, as_json=as_json, formatter=render_sync)
    if answer.error or answer.last.failed or answer.failed:
        ctx.exit(FAILED)


async def _sync(target: Target, domain: str, source_id: str, *, full: bool) -> SyncRequested | SyncResult:
    async with target.weftline(background=True) as weftline:
        requested = await weftline.knowledge.sync_source(domain, source_id, full=full)
        if target.url is not None:
            return requested
        source = await _synced(weftline, domain, source_id)
        changed = source.last_sync.added + source.last_sync.updated
        failed = await wait_until_indexed(weftline, domain, lambda name: _is_document_of(source, name), changed)
        return SyncResult(
            source_id=source_id, location=source.location, error=source.error, last=source.last_sync, failed=failed
        )


async def _synced(weftline: Client | Weftline, domain: str, source_id: str) -> SourceInfo:
    """Poll until a source is neither queued nor being synchronised, and return it."""
    from weftline.knowledge.sources import SourceNotFound  # noqa: PLC0415 - help needs no operations

    while True:
        listed = (await weftline.knowledge.list_sources(domain)).sources
        source = next((each for each in listed if each.source_id == source_id), None)
        if source is None:
            raise SourceNotFound(f"The source '{source_id}' was removed in the meantime.", source_id=source_id)
        # It stays due until the synchronisation ends, so that another process resumes it after a crash.
        if not source.sync_requested and (source.next_sync_at is None or source.next_sync_at > datetime.now(UTC)):
            return source
        await asyncio.sleep(POLL_SECONDS)


def _is_document_of(source: SourceInfo, document_id: str) -> bool:
    return document_id == source.prefix if source.kind == "url" else document_id.startswith(source.prefix)
