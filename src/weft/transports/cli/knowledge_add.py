"""``weft knowledge add``: files and folders into a domain; and how domains, documents and models are shown."""

from __future__ import annotations

import asyncio
import io
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import click
import msgspec

from weft.transports.cli.base import JSON, Command
from weft.transports.cli.errors import FAILED
from weft.transports.cli.knowledge_sources import sync_source, watch
from weft.transports.cli.progress import Failure, bar, documents_in, told, wait_until_indexed
from weft.transports.cli.render import counted, harmless, show, table

if TYPE_CHECKING:
    from weft.capabilities.indexing.model_migration.operations import ModelMigrationInfo
    from weft.capabilities.knowledge.document_queries import DocumentList
    from weft.capabilities.knowledge.domain_operations import DomainInfo, DomainList
    from weft.capabilities.search.session_indexing.reindex import ReindexingShown
    from weft.client import Client
    from weft.open import Weft
    from weft.transports.cli.target import Target

_STANDARD_INPUT = "-"
_HIDDEN = "."
_AT_ONCE = 4


class Added(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the files. Searches find those that are indexed; so many ``pending`` ones of them soon."""

    domain: str
    documents: list[str]
    unchanged: int
    pending: int
    failed: list[Failure]


class _File(NamedTuple):
    """A file, and what it is called in the domain."""

    document_id: str
    path: str

    def open(self) -> BinaryIO:
        return io.BytesIO(sys.stdin.buffer.read()) if self.path == _STANDARD_INPUT else Path(self.path).open("rb")


@click.command(
    "add", cls=Command, params=[JSON], short_help="Put files, and folders with all that is in them, into a domain."
)
@click.argument("domain", help="The domain to put them into.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", help="Files and folders; - is standard input.")
@click.option("--prefix", default="", help="What the names of the documents begin with, such as guides/.")
@click.option("--name", help="What a single document is called, instead of its file's name.")
@click.option("--create", is_flag=True, help="Make the domain if it is not there.")
@click.option(
    "--wait/--no-wait", default=None, help="Wait until searches find them.  [default: unless a server is asked]"
)
@click.pass_context
def add(
    ctx: click.Context,
    /,
    *,
    domain: str,
    paths: tuple[str, ...],
    create: bool,
    wait: bool | None,
    **said: Any,  # noqa: ANN401 - as click hands over
) -> None:
    """Put files, and folders with all that is in them, into a domain as documents.

    A document is called like its file, those of a folder by their way from there. What has not changed since it was put
    costs nothing. Names that begin with a dot are left out.
    """
    target: Target = ctx.obj
    files = _files(paths, said["prefix"], said["name"])
    is_waiting = target.url is None if wait is None else wait
    added = asyncio.run(_add(target, domain, files, create=create, wait=is_waiting))
    show(added, as_json=said["as_json"], form=_render_added)
    if added.failed:
        ctx.exit(FAILED)


def _files(paths: Iterable[str], prefix: str, name: str | None) -> list[_File]:
    found = [file for path in paths for file in _files_of(path)]
    if name is not None:
        if len(found) != 1:
            raise click.UsageError("--name is for a single document.")
        return [_File(f"{prefix}{name}", found[0].path)]
    if any(file.document_id == _STANDARD_INPUT for file in found):
        raise click.UsageError("Say with --name what standard input is called.")
    uses = Counter(file.document_id for file in found)
    twice = next((each for each, number in uses.items() if number > 1), None)
    if twice is not None:
        raise click.UsageError(f"Two of the files would be called '{twice}': add them apart, with --prefix.")
    return [_File(f"{prefix}{file.document_id}", file.path) for file in found]


def _files_of(name: str) -> Iterator[_File]:
    path = Path(name)
    if name == _STANDARD_INPUT:
        yield _File(name, name)
    elif path.is_dir():
        inside = sorted(each for each in path.rglob("*") if each.is_file())
        for each in inside:
            parts = each.relative_to(path).parts
            if not any(part.startswith(_HIDDEN) for part in parts):
                yield _File(str(PurePosixPath(*parts)), str(each))
    elif path.is_file():
        yield _File(path.name, name)
    else:
        raise click.BadParameter(f"{name!r} is no file and no folder.", param_hint="PATH")


async def _add(target: Target, domain: str, files: list[_File], *, create: bool, wait: bool) -> Added:
    async with target.weft() as weft:
        if create:
            await _ensure(weft, domain)
        with bar(len(files), "Uploading") as progress:
            turns = asyncio.Semaphore(_AT_ONCE)
            unchanged = sum(await asyncio.gather(*(_put(weft, domain, file, turns, progress) for file in files)))
        names = [file.document_id for file in files]
        is_ours = set(names).__contains__
        if wait:
            failed, pending = await wait_until_indexed(weft, domain, is_ours, len(names)), 0
        else:
            failed, pending = [], len(await documents_in(weft, domain, "pending", is_ours))
        return Added(domain=domain, documents=names, unchanged=unchanged, pending=pending, failed=failed)


async def _ensure(weft: Client | Weft, domain: str) -> None:
    from weft.capabilities.knowledge.model import DomainExists  # noqa: PLC0415 - help needs none of it

    try:
        await weft.knowledge.create_domain(domain)
    except DomainExists:
        return


async def _put(
    weft: Client | Weft, domain: str, file: _File, turns: asyncio.Semaphore, progress: Callable[[int], None]
) -> bool:
    async with turns:
        try:
            opened = file.open()
        except OSError as error:
            raise click.BadParameter(f"{file.path!r} cannot be read: {error.strerror}.", param_hint="PATH") from None
        with opened:
            put = await weft.add_file(domain, file.document_id, opened)
        progress(1)
        return put.unchanged


def _render_added(added: Added) -> str:
    put = counted(len(added.documents) - len(added.failed), "document")
    known = f", {added.unchanged} unchanged" if added.unchanged else ""
    lost = f"; {len(added.failed)} could not be indexed:" if added.failed else "."
    lines = [f"{put} in {harmless(added.domain)}{known}{lost}", *told(added.failed)]
    if added.pending:
        lines.append(f"{added.pending} of them still to be indexed: weft knowledge show-domain tells how far that is.")
    return "\n".join(lines)


def _render_domains(listed: DomainList) -> str:
    if not listed.domains:
        return "There is no domain that you may look into: make one with weft knowledge create-domain."
    return table([_domain_row(domain) for domain in listed.domains])


def _domain_row(domain: DomainInfo) -> dict[str, str]:
    busy = [f"{number} {what}" for number, what in ((domain.pending, "pending"), (domain.failed, "failed")) if number]
    busy += [f"{domain.to_reindex} to reindex"] if domain.reindexing else []
    return {
        "domain": harmless(domain.domain),
        "documents": str(domain.documents),
        "chunks": str(domain.chunks),
        "clearance": str(domain.clearance),
        "for": harmless(", ".join(domain.agents)),
        "state": ", ".join(busy) or "indexed",
        "description": harmless(domain.description),
    }


def _render_documents(listed: DocumentList) -> str:
    if not listed.documents:
        return "No documents."
    rows = [
        {
            "document": harmless(each.document_id),
            "state": each.state,
            "version": str(each.version),
            "chunks": str(each.chunks),
            "bytes": str(each.bytes),
            "title": harmless(each.title),
            "error": harmless(each.error or ""),
        }
        for each in listed.documents
    ]
    more = f"\n\nThere are more: --cursor {harmless(listed.next_cursor or '')}" if listed.has_more else ""
    return table(rows) + more


def _render_model_migration(move: ModelMigrationInfo) -> str:
    lines = [harmless(f"{move.from_model} -> {move.to_model}: {move.state}")]
    if move.state == "embedding":
        lines.append(f"{move.embedded} of {counted(move.chunks, 'chunk')} embedded.")
    if move.comparison is not None:
        compared = move.comparison
        lines.append(
            f"Of {counted(compared.probes, 'probe')} the old model finds {compared.recall_before:.0%}, the new one "
            f"{compared.recall_after:.0%}; they agree on {compared.agreement:.0%}."
        )
    if move.problem is not None:
        lines.append(harmless(f"It does not go on: {move.problem}"))
    return "\n".join(lines)


def _render_reindexing(shown: ReindexingShown) -> str:
    lines = [harmless(f"{each.domain}: {counted(each.to_reindex, 'document')} left") for each in shown.domains]
    if shown.events is not None:
        lines.append(f"sessions and memory: {counted(shown.events, 'event')} left")
    return "\n".join(lines) or "Nothing is being indexed anew."


FORMS: dict[str, Callable[[Any], str]] = {
    "knowledge.list_domains": _render_domains,
    "knowledge.list_documents": _render_documents,
    "knowledge.start_model_migration": _render_model_migration,
    "knowledge.show_model_migration": _render_model_migration,
    "knowledge.cancel_model_migration": _render_model_migration,
    "knowledge.reindex_all": _render_reindexing,
    "knowledge.show_reindexing": _render_reindexing,
}
COMMANDS = (add, watch, sync_source)
