"""Who may read what a board said: by what was said with it, and by the last word on its key since."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weft.capabilities.board.model import intersect_acls
from weft.capabilities.board.read_acl import AclHistory, Saying
from weft.capabilities.history.model import LATEST
from weft.kernel.identity import ANYONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.board.model import Patterns
    from weft.capabilities.history.model import Version
    from weft.capabilities.history.store import LineStore
    from weft.kernel.identity import Actor


@dataclass(frozen=True, slots=True)
class VersionAcl:
    """The rules that hold for one caller, looked up once for each line however many versions are asked about."""

    actor: Actor
    lines: LineStore
    _words: dict[str, AclHistory] = field(default_factory=dict)

    async def seen(self, line_id: str, versions: Sequence[Version]) -> list[tuple[Version, Patterns]]:
        """Return those versions of a board's line that the caller may read, each with all who may."""
        words = await self._words_of(line_id)
        sayings = [Saying.of(version) for version in versions]
        closings = [(_readers(version), *said) for version, said in zip(versions, await words.on(sayings), strict=True)]
        return [
            (version, intersect_acls(*closed))
            for version, closed in zip(versions, closings, strict=True)
            if self._is_open(closed)
        ]

    async def may_know(self, line_id: str, sayings: Sequence[Saying]) -> list[bool]:
        """Tell of each saying of a board's line whether its key is still open to the caller."""
        words = await self._words_of(line_id)
        return [self._is_open(said) for said in await words.on(sayings)]

    async def _words_of(self, line_id: str) -> AclHistory:
        if line_id not in self._words:
            self._words[line_id] = AclHistory(self.lines, await self.lines.past(line_id, LATEST))
        return self._words[line_id]

    def _is_open(self, closings: Sequence[Patterns]) -> bool:
        return all(patterns == ANYONE or self.actor.matches(patterns) for patterns in closings)


def _readers(version: Version) -> Patterns:
    said = version.change.meta.readable_by
    return ANYONE if said is None else said
