"""Making sure that a line is what was written, and finding where a key began to say something."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from weft.capabilities.history.model import LineNotFound, Version, VersionPruned
from weft.capabilities.timeline.model import HEAD, ContextId, HistoryKey, VersionName
from weft.capabilities.timeline.operations import READ_ERRORS, TOOL, Blame, blame_of
from weft.capabilities.timeline.timelines import Timelines
from weft.kernel.errors import InvalidInput
from weft.kernel.identity import Permission
from weft.kernel.operation import Effect, RateClass, Request, Response, operation

if TYPE_CHECKING:
    from weft.capabilities.history.keeping import OpenLine

_KEYS_OWN_VERSIONS = 1_000


class VerifyLine(Request):
    """Which line to check."""

    context_id: ContextId
    deep: Annotated[
        bool, msgspec.Meta(description="Also the lines it goes on from, and the parts of an agent's context.")
    ] = False


class Verified(Response, kw_only=True, omit_defaults=True):
    """Whether everything is as it was written."""

    context_id: str
    intact: bool
    commits: int
    lines: int
    problem: str | None = None


class Bisect(Request):
    """What to look for, and where."""

    context_id: ContextId
    key: HistoryKey
    contains: Annotated[str, msgspec.Meta(min_length=1, max_length=1_000, description="The text to look for.")]
    from_version: Annotated[VersionName, msgspec.Meta(description="A version that does not have it.")] = "0"
    to_version: Annotated[VersionName, msgspec.Meta(description="A version that has it.")] = HEAD


class Bisected(Response):
    """The first version that has the text; none if the last one does not have it either."""

    key: str
    found: bool
    looked_at: int
    first: Blame | None = None


@operation(
    "history.verify",
    tool=TOOL,
    action="verify",
    http="POST /v1/history/{context_id}/verify",
    permission=Permission.READ,
    rate=RateClass.BOARD,
    effect=Effect.READ,
    errors=(LineNotFound,),
    heavy=True,
)
async def verify_line(request: VerifyLine, timelines: Timelines) -> Verified:
    """Recompute every hash of a line, to know that nothing was altered since it was written."""
    line = await timelines.to_read(request.context_id)
    checked = await _lines_behind(timelines, line) if request.deep else [line.head.line_id]
    commits = 0
    for line_id in checked:
        problem = await timelines.lines.verify(line_id)
        if problem is not None:
            where = "" if line_id == request.context_id else f"{line_id}: "
            return Verified(
                context_id=request.context_id,
                intact=False,
                commits=commits,
                lines=len(checked),
                problem=where + problem,
            )
        commits += await _own_commits(timelines, line_id)
    return Verified(context_id=request.context_id, intact=True, commits=commits, lines=len(checked))


@operation(
    "history.bisect",
    tool=TOOL,
    action="bisect",
    http="GET /v1/history/{context_id}/bisect",
    permission=Permission.READ,
    rate=RateClass.BOARD,
    effect=Effect.READ,
    errors=(*READ_ERRORS, VersionPruned),
    heavy=True,
)
async def bisect(request: Bisect, timelines: Timelines) -> Bisected:
    """Find the version in which a key first said something, looking at as few of its versions as possible."""
    line = await timelines.to_read(request.context_id)
    first, last = [await timelines.moment(line, name) for name in (request.from_version, request.to_version)]
    if first.seq > last.seq:
        raise InvalidInput("from_version: comes behind to_version", field="from_version")
    seqs = await _versions_of_key(timelines, line, request.key, first.seq, last.seq)
    search = _Search(timelines, line, request.key, request.contains)
    lowest, highest = 0, len(seqs) - 1
    if not seqs or not await search.has(seqs[-1]):
        return Bisected(key=request.key, found=False, looked_at=search.looked_at)
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


class _Search:
    """What one key said at one version after another."""

    def __init__(self, timelines: Timelines, line: OpenLine, key: str, text: str) -> None:
        self._timelines = timelines
        self._line = line
        self._key = key
        self._text = text
        self.looked_at = 0

    async def has(self, seq: int) -> bool:
        """Tell whether the key had the text right after a commit."""
        self.looked_at += 1
        version = await self.version(seq)
        if version is None:
            return False
        if version.value is None:
            raise VersionPruned(f"What '{self._key}' said at version {seq} is no longer kept.", version=seq)
        return self._text in version.value

    async def version(self, seq: int) -> Version | None:
        found = await self._timelines.lines.latest(self._line.head.line_id, self._key, seq)
        visible = await self._line.visible([found] if found else [])
        return visible[0] if visible else None


async def _versions_of_key(timelines: Timelines, line: OpenLine, key: str, first: int, last: int) -> list[int]:
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


async def _lines_behind(timelines: Timelines, line: OpenLine) -> list[str]:
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


async def _own_commits(timelines: Timelines, line_id: str) -> int:
    line = await timelines.lines.find(line_id)
    return line.head.seq - line.base_seq if line else 0
