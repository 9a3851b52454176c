"""Verify: recompute the hashes of a context, and check its values in object storage."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import structs

from weftline.history.composite_lines import PART_MARK, entry_at
from weftline.history.line_kinds import is_composite
from weftline.history.log import READ_ERRORS, Blame, blame_of
from weftline.history.model import BranchNotFound, Damage, LineNotFound, Version, VersionPruned
from weftline.history.object_storage import ObjectDamaged, ObjectMissing, ObjectStorageUnavailable, Pointer, Staging
from weftline.history.revisions import HEAD, ContextId, HistoryKey, VersionName, own_transactions_read
from weftline.history.service import History
from weftline.kernel.errors import InvalidInput
from weftline.kernel.identity import Actor
from weftline.kernel.operation import Request, Response
from weftline.kernel.ports import Transactions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.history.line_kinds import OpenLine


_POINTER_PAGE = 100
_MAX_CONCURRENT_FETCHES = 4
_OBJECT_PROBLEMS = {ObjectMissing: "missing", ObjectDamaged: "not what was stored"}


class VerifyContext(Request):
    """Context to verify."""

    context_id: ContextId
    deep: Annotated[
        bool,
        msgspec.Meta(description="Also verify the contexts it branched from, its parts, and values in object storage."),
    ] = False


class Verified(Response, kw_only=True, omit_defaults=True):
    """Whether every hash matches. ``problem`` names the damaged key to admins only."""

    context_id: str
    intact: bool
    commits: int
    contexts: int
    problem: str | None = None


@own_transactions_read(
    "history.verify",
    heavy=True,
    action="verify",
    http="POST /v1/history/{context_id}/verify",
    errors=(LineNotFound, BranchNotFound, ObjectStorageUnavailable),
)
async def verify_context(
    request: VerifyContext, actor: Actor, transactions: Transactions[History], staging: Staging
) -> Verified:
    """Recompute every hash of a context, to prove that nothing was altered since it was written."""
    verified = await transactions.read(actor, lambda history: _verify_hashes(request, history), heavy=True)
    if not (request.deep and verified.intact):
        return verified
    damage = await _ObjectCheck(request.context_id, actor, transactions, staging).damage()
    if damage is None:
        return verified
    return structs.replace(verified, intact=False, problem=_problem(damage, actor))


async def _verify_hashes(request: VerifyContext, history: History) -> Verified:
    line = await history.to_read(request.context_id)
    checked = await _related_lines(history, line) if request.deep else [line.head.line_id]
    commits = 0
    for line_id in checked:
        damage = await history.lines.verify(line_id)
        if damage is not None:
            where = "" if line_id == request.context_id else f"{line_id}: "
            return Verified(
                context_id=request.context_id,
                intact=False,
                commits=commits,
                contexts=len(checked),
                problem=where + _problem(damage, history.actor),
            )
        commits += await _own_commits(history, line_id)
    return Verified(context_id=request.context_id, intact=True, commits=commits, contexts=len(checked))


def _problem(damage: Damage, actor: Actor) -> str:
    return damage.detail if actor.is_admin else damage.kind


class _ObjectCheck:
    """Check of the values that a line and its related lines have in object storage, between transactions."""

    def __init__(self, context_id: str, actor: Actor, transactions: Transactions[History], staging: Staging) -> None:
        self._context_id = context_id
        self._actor = actor
        self._transactions = transactions
        self._staging = staging
        self._fetches = asyncio.Semaphore(_MAX_CONCURRENT_FETCHES)

    async def damage(self) -> Damage | None:
        """Return the first object that is missing or altered."""
        for line_id in await self._transactions.read(self._actor, self._lines, heavy=True):
            after = b""
            while pointers := await self._pointers(line_id, after):
                found = await asyncio.gather(*(self._check(text) for _, text in pointers))
                wrong = {pointer[0]: damage for pointer, damage in zip(pointers, found, strict=True) if damage}
                # Read the pointers again: retention may have removed a value meanwhile.
                still_there = {pointer[0] for pointer in await self._pointers(line_id, after)} if wrong else set()
                for blob_hash, damage in wrong.items():
                    if blob_hash in still_there:
                        return damage
                after = pointers[-1][0]
        return None

    async def _lines(self, history: History) -> list[str]:
        return await _related_lines(history, await history.to_read(self._context_id))

    async def _pointers(self, line_id: str, after: bytes) -> Sequence[tuple[bytes, str]]:
        return await self._transactions.read(
            self._actor, lambda history: history.lines.pointers(line_id, after, _POINTER_PAGE), heavy=True
        )

    async def _check(self, text: str) -> Damage | None:
        async with self._fetches:
            try:
                await self._staging.fetch(self._actor.tenant, Pointer.decode(text))
            except (ObjectMissing, ObjectDamaged) as error:
                kind = f"a value in object storage is {_OBJECT_PROBLEMS[type(error)]}"
                return Damage(f"{kind}: {_object_hash(text)}", kind)
        return None


def _object_hash(text: str) -> str:
    try:
        return Pointer.decode(text).sha256
    except ObjectDamaged:
        return "unreadable pointer"


async def _related_lines(history: History, line: OpenLine) -> list[str]:
    """Return a line, those it branched from, and the parts of a composite line."""
    ancestors = [commits.line_id for commits in await history.lines.past(line.head.line_id, line.head.seq)]
    parts: list[str] = []
    if is_composite(line.head.line_id):
        for version in await history.lines.state_at(line.head.line_id, line.head.seq):
            parts += _part_named_by(version)
    return list(dict.fromkeys([line.head.line_id, *ancestors, *parts]))


def _part_named_by(version: Version) -> list[str]:
    """Return the part that an entry of a root points at; none if the entry is damaged."""
    try:
        named: Any = msgspec.json.decode(version.value or "null")
    except msgspec.DecodeError:
        return []
    line_id = named.get("line") if isinstance(named, dict) and named.keys() == {"line", "seq", "hash"} else None
    return [line_id] if isinstance(line_id, str) else []


async def _own_commits(history: History, line_id: str) -> int:
    line = await history.lines.find(line_id)
    return line.head.seq - line.base_seq if line else 0


# Bisect: find the version in which a key first contained a text.

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
