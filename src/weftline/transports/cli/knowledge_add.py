"""``weftline knowledge add``: add files and folders to a domain."""

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

from weftline.transports.cli.base import JSON, Command
from weftline.transports.cli.completion import complete_name
from weftline.transports.cli.errors import FAILED
from weftline.transports.cli.formatters.knowledge import render_added
from weftline.transports.cli.knowledge_sources import sync_source, watch
from weftline.transports.cli.params import Json
from weftline.transports.cli.progress import IndexingFailure, documents_in, progress_bar, wait_until_indexed
from weftline.transports.cli.render import show
from weftline.transports.cli.text_params import TemplateFile

if TYPE_CHECKING:
    from weftline.client._client import Client
    from weftline.knowledge.document_operations import FileOptions
    from weftline.open import Weftline
    from weftline.transports.cli.target import Target

_STANDARD_INPUT = "-"
_MAX_CONCURRENT_UPLOADS = 4


class FilesAdded(msgspec.Struct, frozen=True, kw_only=True):
    """Result of adding files; ``pending`` counts those not indexed yet."""

    domain: str
    documents: list[str]
    unchanged: int
    pending: int
    failed: list[IndexingFailure]


class _File(NamedTuple):
    """File on disk and the id of its document."""

    document_id: str
    path: str

    def open(self) -> BinaryIO:
        if self.path != _STANDARD_INPUT:
            return Path(self.path).open("rb")
        content = sys.stdin.buffer.read()
        if not content.strip():
            raise click.UsageError("Standard input is empty: nothing was added.")
        return io.BytesIO(content)


@click.command("add", cls=Command, params=[JSON], short_help="Add files and folders to a domain.")
@click.argument("domain", shell_complete=complete_name, help="Domain to add to.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", help="Files and folders; - is standard input.")
@click.option("--prefix", default="", help="Prefix of the document ids, such as guides/.")
@click.option("--name", help="Document id of a single file, instead of its name.")
@click.option("--create", is_flag=True, help="Create the domain if it does not exist.")
@click.option("--template", type=TemplateFile(), help="Template for --create: a name, or a TOML or JSON file.")
@click.option("--metadata", type=Json(), help="Metadata of all documents: names and values. Given as JSON, @FILE or -.")
@click.option("--wait/--no-wait", default=None, help="Wait until they are indexed.  [default: only on the data folder]")
@click.pass_context
def add(
    ctx: click.Context,
    /,
    *,
    domain: str,
    paths: tuple[str, ...],
    create: bool,
    wait: bool | None,
    **options: Any,  # noqa: ANN401 - options of several types
) -> None:
    """Add files and folders to a domain as documents.

    The document id is the file's name; for a folder, the path below it. Unchanged files are not indexed again. Names
    that begin with a dot are skipped, and links in a folder.
    """
    target: Target = ctx.obj
    if options["template"] is not None and not create:
        raise click.UsageError("--template needs --create.")
    files = _files(paths, options["prefix"], options["name"])
    is_waiting = target.url is None if wait is None else wait
    about: FileOptions = {} if options["metadata"] is None else {"metadata": options["metadata"]}
    new = {"template": options["template"]} if create else None
    added = asyncio.run(_add(target, domain, files, about, new=new, wait=is_waiting))
    show(added, as_json=options["as_json"], formatter=render_added)
    if added.failed:
        ctx.exit(FAILED)


def _files(paths: Iterable[str], prefix: str, name: str | None) -> list[_File]:
    found = [file for path in paths for file in _files_of(path)]
    if name is not None:
        if len(found) != 1:
            raise click.UsageError("--name needs a single file.")
        return [_File(f"{prefix}{name}", found[0].path)]
    if any(file.document_id == _STANDARD_INPUT for file in found):
        raise click.UsageError("Name the document from standard input with --name.")
    uses = Counter(file.document_id for file in found)
    twice = next((each for each, number in uses.items() if number > 1), None)
    if twice is not None:
        raise click.UsageError(f"Two files would get the document id '{twice}': add them separately, with --prefix.")
    return [_File(f"{prefix}{file.document_id}", file.path) for file in found]


def _files_of(name: str) -> Iterator[_File]:
    path = Path(name)
    if name == _STANDARD_INPUT:
        yield _File(name, name)
    elif path.is_dir():
        inside = {each: each.relative_to(path).parts for each in sorted(path.rglob("*")) if each.is_file()}
        shown = {each: parts for each, parts in inside.items() if not any(part.startswith(".") for part in parts)}
        # A link may lead to a file that the folder's owner must not read or publish.
        links = [each for each in shown if _is_link(each, path)]
        if links:
            more = f" and {len(links) - 1} more" if links[1:] else ""
            click.echo(f"Links are skipped: {links[0]}{more}. Name a linked file itself to add it.", err=True)
        yield from (_File(str(PurePosixPath(*parts)), str(each)) for each, parts in shown.items() if each not in links)
    elif path.is_file():
        yield _File(path.name, name)
    else:
        raise click.BadParameter(f"{name!r} is neither a file nor a folder.", param_hint="PATH")


def _is_link(file: Path, folder: Path) -> bool:
    """Tell whether a file or a folder on the way to it is a link, symbolic or hard."""
    on_the_way = [each for each in file.parents if folder in each.parents]
    return file.lstat().st_nlink > 1 or any(each.is_symlink() for each in (file, *on_the_way))


async def _add(
    target: Target, domain: str, files: list[_File], about: FileOptions, *, new: dict[str, Any] | None, wait: bool
) -> FilesAdded:
    async with target.weftline(background=wait) as weftline:
        if new is not None:
            await _ensure_domain(weftline, domain, new)
        with progress_bar(len(files), "Uploading") as advance:
            limit = asyncio.Semaphore(_MAX_CONCURRENT_UPLOADS)
            uploads = (_upload(weftline, domain, file, about, limit, advance) for file in files)
            unchanged = sum(await asyncio.gather(*uploads))
        names = [file.document_id for file in files]
        includes = set(names).__contains__
        if wait:
            failed, pending = await wait_until_indexed(weftline, domain, includes, len(names)), 0
        else:
            failed, pending = [], len(await documents_in(weftline, domain, "pending", includes))
        return FilesAdded(domain=domain, documents=names, unchanged=unchanged, pending=pending, failed=failed)


async def _ensure_domain(weftline: Client | Weftline, domain: str, options: dict[str, Any]) -> None:
    from weftline.knowledge.model import DomainExists  # noqa: PLC0415 - help needs no operations

    try:
        await weftline.knowledge.create_domain(domain, **options)
    except DomainExists:
        return


async def _upload(
    weftline: Client | Weftline,
    domain: str,
    file: _File,
    about: FileOptions,
    limit: asyncio.Semaphore,
    advance: Callable[[int], None],
) -> bool:
    """Add a file; return whether its document was there unchanged."""
    async with limit:
        try:
            opened = file.open()
        except OSError as error:
            raise click.BadParameter(f"{file.path!r} cannot be read: {error.strerror}.", param_hint="PATH") from None
        with opened:
            document = await weftline.add_file(domain, file.document_id, opened, **about)
        advance(1)
        return document.unchanged


COMMANDS = (add, watch, sync_source)
