"""Who may read what a line said before: by the last word on it, there and wherever a branch has it from."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weft.capabilities.history.model import LATEST
from weft.capabilities.history.three_way import state_by_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weft.capabilities.board.model import Patterns
    from weft.capabilities.history.model import CommitRange, Version
    from weft.capabilities.history.store import LineStore

# From so many keys on, all that stand on a line are looked at in one go.
_MANY_KEYS = 10


class Saying(NamedTuple):
    """What a key said in one of its lives, from a commit on."""

    key: str
    incarnation: int
    seq: int

    @classmethod
    def of(cls, version: Version) -> Saying:
        return cls(version.change.key, version.change.incarnation, version.seq)


async def last_words(lines: LineStore, line_id: str, versions: Sequence[Version]) -> list[tuple[Patterns, ...]]:
    """Return, for each version, who may read its key now: in that life and today, on the line and on those before it.

    Deleting a key does not open what was closed before, and neither does branching off before it was closed.
    """
    words = AclHistory(lines, await lines.past(line_id, LATEST))
    return await words.on([Saying.of(version) for version in versions])


async def words_elsewhere(lines: LineStore, line_id: str, versions: Sequence[Version]) -> list[tuple[Patterns, ...]]:
    """Return the same, but only of the lines that a branch came from."""
    words = AclHistory(lines, (await lines.past(line_id, LATEST))[1:])
    return await words.on([Saying.of(version) for version in versions])


class AclHistory:
    """The last words on a line and on those before it, known once they were asked for."""

    def __init__(self, lines: LineStore, past: Sequence[CommitRange]) -> None:
        self._words = [_Words(lines, stretch) for stretch in past]

    async def on(self, sayings: Sequence[Saying]) -> list[tuple[Patterns, ...]]:
        for each in self._words:
            await each.prepare(sayings)
        return [tuple([said for each in self._words for said in await each.on(saying)]) for saying in sayings]


class _Words:
    """The last words on one line about keys that it shares up to a commit, asked for once each."""

    def __init__(self, lines: LineStore, stretch: CommitRange) -> None:
        self._lines = lines
        self._line_id = stretch.line_id
        self._shared_upto = stretch.upto
        self._has_more_to_say = True
        self._standing: dict[str, Version | None] = {}
        self._known: dict[tuple[str, int], tuple[Patterns, ...]] = {}

    async def prepare(self, sayings: Iterable[Saying]) -> None:
        shared = {saying.key for saying in sayings if saying.seq <= self._shared_upto}
        keys = shared - self._standing.keys()
        if self._shared_upto < LATEST:
            line = await self._lines.find(self._line_id) if shared else None
            self._has_more_to_say = line is not None and line.head.seq > self._shared_upto
        if len(keys) < _MANY_KEYS or not self._has_more_to_say:
            return
        standing = state_by_key(await self._lines.state_at(self._line_id, LATEST, values=False))
        self._standing |= {key: standing.get(key) for key in keys}

    async def on(self, saying: Saying) -> tuple[Patterns, ...]:
        if saying.seq > self._shared_upto or not self._has_more_to_say:
            return ()
        about = saying.key, saying.incarnation
        if about not in self._known:
            self._known[about] = tuple(await self._look_up(*about))
        return self._known[about]

    async def _look_up(self, key: str, incarnation: int) -> list[Patterns]:
        if key not in self._standing:
            self._standing[key] = await self._lines.latest(self._line_id, key, LATEST)
        today = self._standing[key]
        said = [] if today is None else [today]
        if today is None or today.change.incarnation != incarnation:
            said += await self._lines.versions(self._line_id, key, incarnation, 1)
        return [last.change.meta.readable_by for last in said if last.change.meta.readable_by is not None]
