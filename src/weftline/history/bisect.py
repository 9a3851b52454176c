"""Bisect: find the version in which a key first contained a text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from weftline.history.composite_lines import PART_MARK, entry_at
from weftline.history.fields import ContextId, HistoryKey, own_transactions_read
from weftline.history.line_kinds import is_composite
from weftline.history.log import READ_ERRORS, Blame, blame_of
from weftline.history.model import Version, VersionPruned
from weftline.history.object_storage.model import ObjectDamaged, ObjectMissing, ObjectStorageUnavailable, Pointer
from weftline.history.object_storage.store import Staging
from weftline.history.revisions import HEAD, VersionName
from weftline.history.service import History
from weftline.kernel.errors import InvalidInput
from weftline.kernel.identity import Actor
from weftline.kernel.operation import Request, Response
from weftline.kernel.ports import Transactions

if TYPE_CHECKING:
    from weftline.history.line_backend import OpenLine

_LOG_PAGE = 1_000


class Bisect(Request):
    """Context, key and text to search for, and the range of versions."""

    context_id: ContextId
    key: HistoryKey
    contains: Annotated[
        str,
        msgspec.Meta(min_length=1, max_length=1_000, description="Text to find in the value (in memory: in its JSON)."),
    ]
    from_version: Annotated[VersionName, msgspec.Meta(description="A version without the text.")] = "0"
    to_version: Annotated[VersionName, msgspec.Meta(description="A version with the text.")] = HEAD


class Bisected(Response):
    """First version with the text; if there is none, ``remark`` is the reason."""

    key: str
    found: bool
    versions_checked: int
    first: Blame | None = None
    remark: str | None = None


@own_transactions_read(
    "history.bisect",
    heavy=True,
    action="bisect",
    http="GET /v1/history/{context_id}/bisect",
    errors=(*READ_ERRORS, VersionPruned, ObjectStorageUnavailable, ObjectMissing, ObjectDamaged),
)
async def bisect(request: Bisect, actor: Actor, transactions: Transactions[History], staging: Staging) -> Bisected:
    """Find the first version in which a key contains a text, by binary search up to to_version.

    to_version must contain the text, and every version after the first must too. For context:AGENT, name an entry
    PART/KEY.
    """
    if is_composite(request.context_id) and PART_MARK not in request.key:
        raise InvalidInput("key: name an entry of this context as PART/KEY", field="key")
    seqs, last = await transactions.read(actor, lambda history: _candidates(request, history), heavy=True)
    search = _Search(request, actor, transactions, staging)
    if not seqs or not await search.matches(seqs[-1]):
        remark = f"Version {last} does not contain the text; to_version must be one that does."
        return Bisected(key=request.key, found=False, versions_checked=search.versions_checked, remark=remark)
    lowest, highest = 0, len(seqs) - 1
    while lowest < highest:
        middle = (lowest + highest) // 2
        if await search.matches(seqs[middle]):
            highest = middle
        else:
            lowest = middle + 1
    found = await search.version(seqs[lowest])
    return Bisected(
        key=request.key,
        found=True,
        versions_checked=search.versions_checked,
        first=None if found is None else blame_of(found),
    )


async def _candidates(request: Bisect, history: History) -> tuple[list[int], int]:
    """Return the versions to search, oldest first, and the number of the last version of the range."""
    line = await history.to_read(request.context_id)
    first, last = [await history.resolve(line, name) for name in (request.from_version, request.to_version)]
    if first.seq > last.seq:
        raise InvalidInput("from_version: is later than to_version", field="from_version")
    # A change of an entry of a composite line changes the part's entry in the root.
    key = request.key.partition(PART_MARK)[0] if is_composite(request.context_id) else request.key
    return await _versions_of_key(history, line, key, first.seq, last.seq), last.seq


class _Search:
    """Reads one key at one version after another; values in object storage are fetched between transactions."""

    def __init__(self, request: Bisect, actor: Actor, transactions: Transactions[History], staging: Staging) -> None:
        self._request = request
        self._actor = actor
        self._transactions = transactions
        self._staging = staging
        self.versions_checked = 0

    async def matches(self, seq: int) -> bool:
        version = await self.version(seq)
        if version is None:
            return False
        # Only visible versions count: a hidden key must look like one that never existed.
        self.versions_checked += 1
        if version.value is None:
            raise VersionPruned(f"The value of '{self._request.key}' at version {seq} was pruned.", version=seq)
        if version.change.meta.outside:
            content = await self._staging.fetch(self._actor.tenant, Pointer.decode(version.value))
            return self._request.contains in content.decode(errors="replace")
        return self._request.contains in version.value

    async def version(self, seq: int) -> Version | None:
        return await self._transactions.read(self._actor, lambda history: self._read(history, seq))

    async def _read(self, history: History, seq: int) -> Version | None:
        line = await history.to_read(self._request.context_id)
        found = await entry_at(history.lines, line.head.line_id, self._request.key, seq)
        visible = await line.visible([found] if found else [])
        return visible[0] if visible else None


async def _versions_of_key(history: History, line: OpenLine, key: str, first: int, last: int) -> list[int]:
    """Return the commits that changed a key after ``first`` up to ``last``, and the one in effect at ``first``."""
    seqs: list[int] = []
    at = last
    while at > 0:
        commits = await history.lines.log(line.head.line_id, at, _LOG_PAGE, key)
        seqs += [commit.commit.seq for commit in commits]
        if len(commits) < _LOG_PAGE or seqs[-1] <= first:
            break
        at = seqs[-1] - 1
    within = [seq for seq in reversed(seqs) if seq > first]
    before = next((seq for seq in seqs if seq <= first), None)
    return within if before is None else [before, *within]
