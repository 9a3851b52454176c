"""Making sure that a line is what was written, and finding where a key began to say something."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import structs

from weft.capabilities.agent_context.model import PART_MARK
from weft.capabilities.history.composite_lines import entry_at, is_whole_context
from weft.capabilities.history.line_ids import TOOL, ContextId, HistoryKey
from weft.capabilities.history.log import READ_ERRORS, Blame, blame_of
from weft.capabilities.history.model import BranchNotFound, Damage, LineNotFound, Version, VersionPruned
from weft.capabilities.history.revisions import HEAD, VersionName
from weft.capabilities.history.service import History
from weft.capabilities.object_storage.model import ObjectDamaged, ObjectMissing, ObjectStorageUnavailable, Pointer
from weft.capabilities.object_storage.staging import Staging
from weft.kernel.errors import InvalidInput
from weft.kernel.identity import Actor, Permission
from weft.kernel.operation import Effect, RateClass, Request, Response, operation
from weft.kernel.transactions import Transactions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.history.line_backend import OpenLine

_KEYS_OWN_VERSIONS = 1_000
_POINTERS_AT_ONCE = 100
_FETCHED_AT_ONCE = 4
_LOST = {ObjectMissing: "missing", ObjectDamaged: "not what was stored"}


class VerifyLine(Request):
    """Which line to check."""

    context_id: ContextId
    deep: Annotated[
        bool,
        msgspec.Meta(
            description="Also the lines it goes on from, the parts of an agent's context, and values kept outside."
        ),
    ] = False


class Verified(Response, kw_only=True, omit_defaults=True):
    """Whether everything is as it was written. Which key is damaged is told to admins."""

    context_id: str
    intact: bool
    commits: int
    lines: int
    problem: str | None = None


class Bisect(Request):
    """What to look for, and where."""

    context_id: ContextId
    key: HistoryKey
    contains: Annotated[
        str,
        msgspec.Meta(min_length=1, max_length=1_000, description="The text to look for; in memory, in a value's JSON."),
    ]
    from_version: Annotated[VersionName, msgspec.Meta(description="A version that does not have it.")] = "0"
    to_version: Annotated[VersionName, msgspec.Meta(description="A version that has it.")] = HEAD


class Bisected(Response):
    """Since when a key has said something; if it was not found, ``remark`` says why."""

    key: str
    found: bool
    looked_at: int
    first: Blame | None = None
    remark: str | None = None


@operation(
    "history.verify",
    tool=TOOL,
    action="verify",
    http="POST /v1/history/{context_id}/verify",
    permission=Permission.READ,
    rate=RateClass.BOARD,
    effect=Effect.OWN_TRANSACTIONS,
    errors=(LineNotFound, BranchNotFound, ObjectStorageUnavailable),
)
async def verify_line(request: VerifyLine, actor: Actor, errands: Transactions[History], staging: Staging) -> Verified:
    """Recompute every hash of a line, to know that nothing was altered since it was written."""
    verified = await errands.read(actor, lambda timelines: _verified(request, timelines), heavy=True)
    if not (request.deep and verified.intact):
        return verified
    outside = _Outside(request.context_id, actor, errands, staging)
    damage = await outside.damage()
    if damage is None:
        return verified
    return structs.replace(verified, intact=False, problem=_problem(damage, actor))


async def _verified(request: VerifyLine, timelines: History) -> Verified:
    """Check what the database holds."""
    line = await timelines.to_read(request.context_id)
    checked = await _lines_behind(timelines, line) if request.deep else [line.head.line_id]
    commits = 0
    for line_id in checked:
        damage = await timelines.lines.verify(line_id)
        if damage is not None:
            where = "" if line_id == request.context_id else f"{line_id}: "
            return Verified(
                context_id=request.context_id,
                intact=False,
                commits=commits,
                lines=len(checked),
                problem=where + _problem(damage, timelines.actor),
            )
        commits += await _own_commits(timelines, line_id)
    return Verified(context_id=request.context_id, intact=True, commits=commits, lines=len(checked))


def _problem(damage: Damage, actor: Actor) -> str:
    """Say what is wrong; the names of keys and snapshots are for those who may know of all of them."""
    return damage.told if actor.is_admin else damage.kind


class _Outside:
    """The values of a line, and of those behind it, that are kept outside the database. They are fetched in between."""

    def __init__(self, context_id: str, actor: Actor, errands: Transactions[History], staging: Staging) -> None:
        self._context_id = context_id
        self._actor = actor
        self._errands = errands
        self._staging = staging
        self._room = asyncio.Semaphore(_FETCHED_AT_ONCE)

    async def damage(self) -> Damage | None:
        """Return what is not as it was stored; None if everything is."""
        for line_id in await self._errands.read(self._actor, self._lines, heavy=True):
            after = b""
            while pointers := await self._pointers(line_id, after):
                found = await asyncio.gather(*(self._checked(text) for _, text in pointers))
                wrong = {pointer[0]: damage for pointer, damage in zip(pointers, found, strict=True) if damage}
                # What retention removed meanwhile is missing for a good reason.
                still_there = {pointer[0] for pointer in await self._pointers(line_id, after)} if wrong else set()
                for blob_hash, damage in wrong.items():
                    if blob_hash in still_there:
                        return damage
                after = pointers[-1][0]
        return None

    async def _lines(self, timelines: History) -> list[str]:
        return await _lines_behind(timelines, await timelines.to_read(self._context_id))

    async def _pointers(self, line_id: str, after: bytes) -> Sequence[tuple[bytes, str]]:
        return await self._errands.read(
            self._actor, lambda timelines: timelines.lines.pointers(line_id, after, _POINTERS_AT_ONCE), heavy=True
        )

    async def _checked(self, text: str) -> Damage | None:
        async with self._room:
            try:
                await self._staging.fetch(self._actor.tenant, Pointer.decode(text))
            except (ObjectMissing, ObjectDamaged) as error:
                kind = f"a value outside the database is {_LOST[type(error)]}"
                return Damage(f"{kind}: {_place(text)}", kind)
        return None


def _place(text: str) -> str:
    """Return the hash in the path of an object, if what points there can be read."""
    try:
        return Pointer.decode(text).sha256
    except ObjectDamaged:
        return "nowhere"


@operation(
    "history.bisect",
    tool=TOOL,
    action="bisect",
    http="GET /v1/history/{context_id}/bisect",
    permission=Permission.READ,
    rate=RateClass.BOARD,
    effect=Effect.OWN_TRANSACTIONS,
    errors=(*READ_ERRORS, VersionPruned, ObjectStorageUnavailable, ObjectMissing, ObjectDamaged),
)
async def bisect(request: Bisect, actor: Actor, errands: Transactions[History], staging: Staging) -> Bisected:
    """Find since when a key has said something: the first version from which on, up to to_version, it has the text.

    to_version must have it. As few versions as possible are looked at, on the understanding that what has the text
    keeps it until then. An entry of a whole context is named PART/KEY.
    """
    _check_key(request)
    seqs, last = await errands.read(actor, lambda timelines: _candidates(request, timelines), heavy=True)
    search = _Search(request, actor, errands, staging)
    if not seqs or not await search.has(seqs[-1]):
        remark = f"Version {last} does not have it; to_version must be one that does."
        return Bisected(key=request.key, found=False, looked_at=search.looked_at, remark=remark)
    lowest, highest = 0, len(seqs) - 1
    while lowest < highest:
        middle = (lowest + highest) // 2
        if await search.has(seqs[middle]):
            highest = middle
        else:
            lowest = middle + 1
    found = await search.version(seqs[lowest])
    return Bisected(
        key=request.key, found=True, looked_at=search.looked_at, first=None if found is None else blame_of(found)
    )


def _check_key(request: Bisect) -> None:
    if is_whole_context(request.context_id) and PART_MARK not in request.key:
        raise InvalidInput("key: name an entry of a whole context as PART/KEY", field="key")


async def _candidates(request: Bisect, timelines: History) -> tuple[list[int], int]:
    """Return the versions to search, in order, and the last one that is meant."""
    line = await timelines.to_read(request.context_id)
    first, last = [await timelines.moment(line, name) for name in (request.from_version, request.to_version)]
    if first.seq > last.seq:
        raise InvalidInput("from_version: comes behind to_version", field="from_version")
    whole = is_whole_context(request.context_id)
    key = request.key.partition(PART_MARK)[0] if whole else request.key
    return await _versions_of_key(timelines, line, key, first.seq, last.seq), last.seq


class _Search:
    """What one key said at one version after another. What is kept outside is fetched between transactions."""

    def __init__(self, request: Bisect, actor: Actor, errands: Transactions[History], staging: Staging) -> None:
        self._request = request
        self._actor = actor
        self._errands = errands
        self._staging = staging
        self.looked_at = 0

    async def has(self, seq: int) -> bool:
        """Tell whether the key had the text right after a commit."""
        version = await self.version(seq)
        if version is None:
            return False
        # Only what the caller may see counts: a key that is hidden must look like one that never was.
        self.looked_at += 1
        if version.value is None:
            key = self._request.key
            raise VersionPruned(f"What '{key}' said at version {seq} is no longer kept.", version=seq)
        if version.change.meta.outside:
            content = await self._staging.fetch(self._actor.tenant, Pointer.decode(version.value))
            return self._request.contains in content.decode(errors="replace")
        return self._request.contains in version.value

    async def version(self, seq: int) -> Version | None:
        return await self._errands.read(self._actor, lambda timelines: self._version(timelines, seq))

    async def _version(self, timelines: History, seq: int) -> Version | None:
        line = await timelines.to_read(self._request.context_id)
        found = await entry_at(timelines.lines, line.head.line_id, self._request.key, seq)
        visible = await line.visible([found] if found else [])
        return visible[0] if visible else None


async def _versions_of_key(timelines: History, line: OpenLine, key: str, first: int, last: int) -> list[int]:
    """Return the commits that made a key what it was from one moment to another, in order."""
    seqs: list[int] = []
    at = last
    while at > 0:
        commits = await timelines.lines.log(line.head.line_id, at, _KEYS_OWN_VERSIONS, key)
        seqs += [commit.commit.seq for commit in commits]
        if len(commits) < _KEYS_OWN_VERSIONS or seqs[-1] <= first:
            break
        at = seqs[-1] - 1
    within = [seq for seq in reversed(seqs) if seq > first]
    before = next((seq for seq in seqs if seq <= first), None)
    return within if before is None else [before, *within]


async def _lines_behind(timelines: History, line: OpenLine) -> list[str]:
    """Return a line, those it goes on from, and those that an agent's context is made of."""
    own = [stretch.line_id for stretch in await timelines.lines.past(line.head.line_id, line.head.seq)]
    parts: list[str] = []
    if line.head.line_id.startswith("context:"):
        for version in await timelines.lines.state_at(line.head.line_id, line.head.seq):
            parts += _part_of(version)
    return list(dict.fromkeys([line.head.line_id, *own, *parts]))


def _part_of(version: Version) -> list[str]:
    """Return the line that an entry of an agent's whole context names, if it names one."""
    try:
        named: Any = msgspec.json.decode(version.value or "null")
    except msgspec.DecodeError:
        return []
    line_id = named.get("line") if isinstance(named, dict) and named.keys() == {"line", "seq", "hash"} else None
    return [line_id] if isinstance(line_id, str) else []


async def _own_commits(timelines: History, line_id: str) -> int:
    line = await timelines.lines.find(line_id)
    return line.head.seq - line.base_seq if line else 0
