"""Who may read what a line said before: by the last word on it, there and wherever a branch has it from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.capabilities.history.merging import state_by_key
from weft.capabilities.history.model import LATEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weft.capabilities.board.model import Patterns
    from weft.capabilities.history.model import Change, Stretch, Version
    from weft.capabilities.history.store import LineStore

# From so many keys on, all that stand on a line are looked at in one go.
_MANY_KEYS = 10


async def last_words(lines: LineStore, line_id: str, versions: Sequence[Version]) -> list[tuple[Patterns, ...]]:
    """Return, for each version, who may read its key now: in that life and today, on the line and on those before it.

    Deleting a key does not open what was closed before, and neither does branching off before it was closed.
    """
    words = [_Words(lines, stretch) for stretch in await lines.past(line_id, LATEST)]
    return await _all_on(words, versions)


async def words_elsewhere(lines: LineStore, line_id: str, versions: Sequence[Version]) -> list[tuple[Patterns, ...]]:
    """Return the same, but only of the lines that a branch came from."""
    words = [_Words(lines, stretch) for stretch in (await lines.past(line_id, LATEST))[1:]]
    return await _all_on(words, versions)


async def _all_on(words: Sequence[_Words], versions: Sequence[Version]) -> list[tuple[Patterns, ...]]:
    for each in words:
        await each.prepare(versions)
    return [tuple([said for each in words for said in await each.on(version)]) for version in versions]


class _Words:
    """The last words on one line about keys that it shares up to a commit, asked for once each."""

    def __init__(self, lines: LineStore, stretch: Stretch) -> None:
        self._lines = lines
        self._line_id = stretch.line_id
        self._shared_upto = stretch.upto
        self._has_more_to_say = True
        self._standing: dict[str, Version | None] = {}
        self._known: dict[tuple[str, int], tuple[Patterns, ...]] = {}

    async def prepare(self, versions: Iterable[Version]) -> None:
        keys = {version.change.key for version in versions if version.seq <= self._shared_upto}
        if self._shared_upto < LATEST:
            line = await self._lines.find(self._line_id) if keys else None
            self._has_more_to_say = line is not None and line.head.seq > self._shared_upto
        if len(keys) < _MANY_KEYS or not self._has_more_to_say:
            return
        standing = state_by_key(await self._lines.state_at(self._line_id, LATEST, values=False))
        self._standing = {key: standing.get(key) for key in keys}

    async def on(self, version: Version) -> tuple[Patterns, ...]:
        if version.seq > self._shared_upto or not self._has_more_to_say:
            return ()
        about = version.change.key, version.change.life
        if about not in self._known:
            self._known[about] = tuple(await self._look_up(version.change))
        return self._known[about]

    async def _look_up(self, change: Change) -> list[Patterns]:
        if change.key not in self._standing:
            self._standing[change.key] = await self._lines.latest(self._line_id, change.key, LATEST)
        today = self._standing[change.key]
        said = [] if today is None else [today]
        if today is None or today.change.life != change.life:
            said += await self._lines.versions(self._line_id, change.key, change.life, 1)
        return [last.change.meta.readable_by for last in said if last.change.meta.readable_by is not None]
