"""``weft knowledge watch`` and ``sync-source``: where domains take their documents from, and how the last look went."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from weft.capabilities.knowledge.sources.model import SourceNotFound, Synced
from weft.transports.cli.base import JSON, Command
from weft.transports.cli.errors import FAILED
from weft.transports.cli.progress import LOOK_EVERY_SECONDS, Failure, told, wait_until_indexed
from weft.transports.cli.render import cell, counted, harmless, show, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weft.capabilities.knowledge.sources.operations import SourceAsked, SourceInfo, SourceList
    from weft.client import Client
    from weft.open import Weft
    from weft.transports.cli.target import Target

# Of what could not be taken, so much is shown; --json has more.
_SHOWN_FAILURES = 10


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a look at a source, or why there was none; ``failed`` are documents that could not be indexed."""

    source_id: str
    location: str
    error: str | None
    last: Synced
    failed: list[Failure]


@click.command("watch", cls=Command, params=[JSON], short_help="Have a domain keep up with a folder by itself.")
@click.argument("domain", help="The domain that takes its documents from there.")
@click.argument("folder", type=click.Path(path_type=Path), help="A folder that the server may read.")
@click.option("--every", "every_seconds", type=int, help="Look every so many seconds instead of watching.")
@click.option("--prefix", default="", help="What the names of the documents begin with, such as guides/.")
@click.pass_obj
def watch(
    target: Target, /, *, domain: str, folder: Path, every_seconds: int | None, prefix: str, as_json: bool
) -> None:
    """Have a domain keep up with a folder by itself: files that come, change and go.

    The folder is one of the server's, inside of those that WEFT_KNOWLEDGE_FOLDERS names. It is the server that looks at
    it, for as long as it runs.
    """
    from weft.app.registry import all_operations  # noqa: PLC0415 - help needs no operations

    place = folder if target.url is not None else folder.absolute()
    how = {"watch": True} if every_seconds is None else {"every_seconds": every_seconds}
    raw = {"domain": domain, "kind": "folder", "folder": str(place), "prefix": prefix, **how}
    show(target.call(all_operations()["knowledge.add_source"], raw), as_json=as_json)


@click.command("sync-source", cls=Command, params=[JSON], short_help="Have a source looked at now.")
@click.argument("domain", help="The domain that takes documents from it.")
@click.argument("source_id", help="As list-sources shows it.")
@click.option("--anew", is_flag=True, help="Read everything again, also what seems unchanged.")
@click.pass_context
def sync_source(ctx: click.Context, /, *, domain: str, source_id: str, anew: bool, as_json: bool) -> None:
    """Have a source looked at now, whatever its schedule says: only what has changed is read and indexed again.

    On the data folder this ends when searches find what has changed; a server is asked, and does so by itself. Needs
    the permission 'admin'.
    """
    target: Target = ctx.obj
    answer = asyncio.run(_sync(target, domain, source_id, anew=anew))
    show(answer, as_json=as_json, form=_render_looked if isinstance(answer, Looked) else _render_asked)
    if isinstance(answer, Looked) and (answer.error or answer.last.failed or answer.failed):
        ctx.exit(FAILED)


async def _sync(target: Target, domain: str, source_id: str, *, anew: bool) -> SourceAsked | Looked:
    async with target.weft() as weft:
        asked = await weft.knowledge.sync_source(domain, source_id, anew=anew)
        if target.url is not None:
            return asked
        source = await _looked_at(weft, domain, source_id)
        changed = source.last.added + source.last.updated
        failed = await wait_until_indexed(weft, domain, lambda name: _is_of(source, name), changed)
        return Looked(
            source_id=source_id, location=source.location, error=source.error, last=source.last, failed=failed
        )


async def _looked_at(weft: Client | Weft, domain: str, source_id: str) -> SourceInfo:
    """Return a source once nobody has to look at it, or is about to."""
    while True:
        listed = (await weft.knowledge.list_sources(domain)).sources
        source = next((each for each in listed if each.source_id == source_id), None)
        if source is None:
            raise SourceNotFound(f"The source '{source_id}' was removed meanwhile.", source_id=source_id)
        # It stays due until the look has come to an end, so that another would go on after a crash.
        if not source.asked and (source.next_at is None or source.next_at > datetime.now(UTC)):
            return source
        await asyncio.sleep(LOOK_EVERY_SECONDS)


def _is_of(source: SourceInfo, document_id: str) -> bool:
    return document_id == source.prefix if source.kind == "url" else document_id.startswith(source.prefix)


def _render_asked(asked: SourceAsked) -> str:
    return f"{asked.source_id} is looked at as soon as can be: weft knowledge list-sources shows how that went."


def _render_looked(looked: Looked) -> str:
    if looked.error is not None:
        return harmless(f"{looked.location} could not be looked at: {looked.error}")
    lines = [f"{harmless(looked.location)}: {_changes(looked.last)}."]
    if looked.last.failed:
        lines += [f"{counted(looked.last.failed, 'file')} could not be taken:", *_not_taken(looked.last)]
    if looked.failed:
        lines += [f"{counted(len(looked.failed), 'document')} could not be indexed:", *told(looked.failed)]
    return "\n".join(lines)


def _render_sources(listed: SourceList) -> str:
    if not listed.sources:
        return "The domain has no sources: add one with weft knowledge watch or weft knowledge add-source."
    problems = [line for source in listed.sources for line in _problems(source)]
    return "\n".join([table([_source_row(source) for source in listed.sources]), *problems])


def _source_row(source: SourceInfo) -> dict[str, str]:
    return {
        "source": source.source_id,
        "kind": source.kind,
        "location": harmless(source.location),
        "prefix": harmless(source.prefix),
        "looks": _looks(source),
        "state": _state(source),
        "looked at": cell(source.synced_at),
        "last": "" if source.synced_at is None else _changes(source.last),
    }


def _looks(source: SourceInfo) -> str:
    if source.kind == "hook":
        return "when called"
    every = "" if source.every_seconds is None else f"every {source.every_seconds} s"
    return "all the time" if source.watch else every or "when asked"


def _state(source: SourceInfo) -> str:
    if not source.enabled:
        return "stopped"
    if source.error is not None:
        return "failed"
    return "to be looked at" if source.asked else "well"


def _problems(source: SourceInfo) -> Iterator[str]:
    """Yield what went wrong with a source, below a line that says which one it is."""
    if source.error is not None:
        yield harmless(f"\n{source.source_id} {_state(source)}: {source.error}")
    if source.last.failed:
        yield f"\n{source.source_id} could not take {counted(source.last.failed, 'file')}:"
        yield from _not_taken(source.last)


def _not_taken(last: Synced) -> Iterator[str]:
    shown = last.failures[:_SHOWN_FAILURES]
    yield from (harmless(f"  {each.document_id}: {each.reason}") for each in shown)
    if last.failed > len(shown):
        yield f"  and {last.failed - len(shown)} more; --json shows up to a hundred"


def _changes(last: Synced) -> str:
    return ", ".join(f"{number} {what}" for what, number in last.figures.items() if number) or "nothing there"


FORMS: dict[str, Callable[[Any], str]] = {"knowledge.list_sources": _render_sources}
