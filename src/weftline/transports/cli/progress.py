"""Progress bars, and waiting until documents are indexed."""

from __future__ import annotations

import asyncio
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
import msgspec

from weftline.kernel.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weftline.client._client import Client
    from weftline.knowledge.documents import DocumentInfo
    from weftline.knowledge.model import DocumentState
    from weftline.open import Weftline

    DocumentFilter = Callable[[str], bool]


POLL_SECONDS = 0.5
_PAGE = 1_000
_HELD = (
    "It looks like an attempt to give agents instructions and is held for review: weftline knowledge "
    "get-document shows "
    "the passages, weftline knowledge release-document DOMAIN DOCUMENT VERSION releases it."
)


class IndexingFailure(msgspec.Struct, frozen=True):
    """Document that could not be indexed, and why."""

    document_id: str
    error: str


async def wait_until_indexed(
    weftline: Client | Weftline, domain: str, includes: DocumentFilter, expected: int
) -> list[IndexingFailure]:
    """Wait until no included document is pending, at most ``expected`` of them; return the failed ones."""
    left = await _count_pending(weftline, domain, includes, expected)
    with progress_bar(left, "Indexing") as advance:
        while left:
            await asyncio.sleep(POLL_SECONDS)
            now = min(left, await _count_pending(weftline, domain, includes, expected))
            advance(left - now)
            left = now
    failed = await documents_in(weftline, domain, "failed", includes)
    held = await documents_in(weftline, domain, "quarantined", includes)
    return [
        *(IndexingFailure(each.document_id, each.error or "") for each in failed),
        *(IndexingFailure(each.document_id, _HELD) for each in held),
    ]


async def documents_in(
    weftline: Client | Weftline, domain: str, state: DocumentState, includes: DocumentFilter
) -> list[DocumentInfo]:
    """Return the included documents in a state."""
    found: list[DocumentInfo] = []
    cursor: str | None = None
    while True:
        page = await weftline.knowledge.list_documents(domain, state=state, cursor=cursor, limit=_PAGE)
        found += [each for each in page.documents if includes(each.document_id)]
        if page.next_cursor is None:
            return found
        cursor = page.next_cursor


async def _count_pending(weftline: Client | Weftline, domain: str, includes: DocumentFilter, expected: int) -> int:
    """Count the included pending documents; an upper bound if there is more than one page."""
    page = await weftline.knowledge.list_documents(domain, state="pending", limit=_PAGE)
    if page.has_more:
        return min(expected, (await weftline.knowledge.show_domain(domain)).pending)
    return sum(includes(each.document_id) for each in page.documents)


@contextmanager
def progress_bar(total: int, label: str) -> Iterator[Callable[[int], None]]:
    """Show a progress bar in a terminal, and nothing in a pipe or log."""
    if not total or not sys.stderr.isatty():
        yield lambda _: None
        return
    with click.progressbar(length=total, label=f"{label:<9}", file=sys.stderr, show_pos=True) as shown:
        yield shown.update


# What commands that need weftline[server] say without it.


class ServerNotInstalled(Unavailable):
    """The packages of weftline[server] are not installed, or in versions that it cannot use."""

    code = "SERVER_NOT_INSTALLED"
    hint = (
        "Run pip install 'weftline[server]'. Where another package needs an older mcp, install it into an environment "
        "of its own: programs reach the server with weftline alone."
    )


@contextmanager
def server_packages(command: str) -> Iterator[None]:
    """Import modules that need weftline[server]; without its packages, raise an error that names the command."""
    try:
        yield
    except ImportError as error:
        raise ServerNotInstalled(f"{command} needs weftline[server]: {error}.") from error
