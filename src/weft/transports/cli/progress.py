"""Waiting until documents can be found, with a bar for whoever watches, and telling which of them never will be."""

from __future__ import annotations

import asyncio
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
import msgspec

from weft.transports.cli.render import harmless

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from weft.capabilities.knowledge.documents import DocumentInfo
    from weft.capabilities.knowledge.model import State
    from weft.client import Client
    from weft.open import Weft

    IsOurs = Callable[[str], bool]

LOOK_EVERY_SECONDS = 0.5
_LISTED = 1_000


class Failure(msgspec.Struct, frozen=True):
    """A document that could not be indexed, why, and what to do."""

    document_id: str
    error: str


async def wait_until_indexed(weft: Client | Weft, domain: str, is_ours: IsOurs, most: int) -> list[Failure]:
    """Wait until none of ours, ``most`` at most, is to be indexed any more; return those that could not be."""
    left = await _left(weft, domain, is_ours, most)
    with bar(left, "Indexing") as progress:
        while left:
            await asyncio.sleep(LOOK_EVERY_SECONDS)
            now = min(left, await _left(weft, domain, is_ours, most))
            progress(left - now)
            left = now
    failed = await documents_in(weft, domain, "failed", is_ours)
    return [Failure(each.document_id, each.error or "") for each in failed]


async def documents_in(weft: Client | Weft, domain: str, state: State, is_ours: IsOurs) -> list[DocumentInfo]:
    """Return those of our documents that are in a state."""
    found: list[DocumentInfo] = []
    cursor: str | None = None
    while True:
        page = await weft.knowledge.list_documents(domain, state=state, cursor=cursor, limit=_LISTED)
        found += [each for each in page.documents if is_ours(each.document_id)]
        if page.next_cursor is None:
            return found
        cursor = page.next_cursor


async def _left(weft: Client | Weft, domain: str, is_ours: IsOurs, most: int) -> int:
    """Return how many of ours are to be indexed; where very many are, that is not counted to the last."""
    page = await weft.knowledge.list_documents(domain, state="pending", limit=_LISTED)
    if page.has_more:
        return min(most, (await weft.knowledge.show_domain(domain)).pending)
    return sum(is_ours(each.document_id) for each in page.documents)


def told(failed: Iterable[Failure]) -> list[str]:
    """Return a line for each document that could not be indexed."""
    return [harmless(f"  {each.document_id}: {each.error}") for each in failed]


@contextmanager
def bar(total: int, label: str) -> Iterator[Callable[[int], None]]:
    """Show how far it is to whoever watches; a pipe or log is shown nothing."""
    if not total or not sys.stderr.isatty():
        yield lambda _: None
        return
    with click.progressbar(length=total, label=f"{label:<9}", file=sys.stderr, show_pos=True) as shown:
        yield shown.update
