"""Private memory as lines: its owner sees when each entry changed, and nobody sees what it said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import msgspec
from msgspec import structs

from weft.capabilities.history.model import BRANCH_MARK, Head, Version, no_line
from weft.capabilities.history.store import LineStore
from weft.capabilities.memory.model import scope_of
from weft.capabilities.sessions.store import SessionStore
from weft.kernel.errors import Conflict
from weft.kernel.identity import Actor

if TYPE_CHECKING:
    from collections.abc import Iterable


class MemoryForgets(Conflict):
    """Private memory keeps no earlier values, so it cannot be taken back, branched or merged."""

    code = "MEMORY_FORGETS"
    hint = "Set the entry again with set_memory. What must be kept in versions belongs in push_context or on a board."
    related = ("set_memory",)


class MemoryLines(msgspec.Struct, frozen=True):
    """The keeper of private memory."""

    actor: Actor
    sessions: SessionStore
    lines: LineStore

    async def to_read(self, line_id: str) -> MemoryLine:
        line = await self.lines.find(line_id) if await self._is_own(line_id) else None
        if line is None:
            raise no_line(line_id)
        return MemoryLine(line.head)

    async def to_write(self, line_id: str) -> NoReturn:
        await self.to_read(line_id)
        raise MemoryForgets

    def rollback_clearance(self, line_id: str) -> int:
        """Return a clearance that lets everyone on, to be told why it is no use."""
        del line_id
        return 0

    async def _is_own(self, line_id: str) -> bool:
        scope = scope_of(line_id)
        if scope is None or scope.owner != self.actor.principal_id or BRANCH_MARK in line_id:
            return False
        if scope.session_id is None:
            return True
        session = await self.sessions.find(scope.session_id)
        return session is not None and session.admits(self.actor)


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """What changed in a memory, as its owner sees it."""

    head: Head

    async def visible(self, versions: Iterable[Version]) -> list[Version]:
        """Return all of them, without what they said."""
        return [structs.replace(version, value=None) for version in versions]
