"""History backend of private memory: its owner sees when each entry changed; earlier values are not kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import msgspec
from msgspec import structs

from weftline.history.line_kinds import LineKind, check_may_forget
from weftline.history.model import BRANCH_MARK, Head, Version, no_line
from weftline.kernel.errors import Conflict
from weftline.kernel.guards import ImpliedCall
from weftline.state.memory.model import check_value_size, scope_of
from weftline.state.memory.service import Memories, MemoryWriter
from weftline.state.memory.sql import erase_memories, memory_lines_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from weftline.history.line_kinds import CommitMeta
    from weftline.kernel.events import EventType


class HistoryNotKept(Conflict):
    """Private memory keeps no earlier values, so it cannot be rolled back, branched or merged."""

    code = "HISTORY_NOT_KEPT"
    hint = "Set the entry again with `memory.set`. Use `context.push` or a board for data that needs versions."
    related = ("set_memory",)


class MemoryLines(msgspec.Struct, frozen=True):
    """Opens the lines of private memory."""

    memories: Memories

    async def to_read(self, line_id: str) -> MemoryLine:
        line = await self.memories.lines.find(line_id) if await self._is_own(line_id) else None
        if line is None:
            raise no_line(line_id)
        return MemoryLine(line.head)

    async def to_write(self, line_id: str) -> NoReturn:
        await self.to_read(line_id)
        raise HistoryNotKept

    async def to_forget(self, line_id: str) -> LockedMemory:
        check_may_forget(self.memories.actor)
        scope = scope_of(line_id)
        if scope is None or BRANCH_MARK in line_id or await self.memories.lines.find(line_id) is None:
            raise no_line(line_id)
        return LockedMemory(await self.memories.to_forget(scope))

    async def check_rollback(self, line_id: str) -> None:
        """Require nothing, so that every caller gets HistoryNotKept instead of a missing clearance."""

    async def expire(self, line_id: str, limit: int) -> bool:
        del line_id, limit
        return False

    async def check_size(self, line_id: str, key: str, text: str) -> None:
        del line_id, key
        check_value_size(len(text.encode()))

    async def check_switch(self, before: str, after: str) -> None:
        """Let everybody who may read a branch switch to it."""
        del before, after

    async def pin_referenced(self, line_id: str) -> None:
        """Private memory is never pruned."""

    async def _is_own(self, line_id: str) -> bool:
        scope = scope_of(line_id)
        if scope is None or scope.owner != self.memories.actor.principal_id or BRANCH_MARK in line_id:
            return False
        if scope.session_id is None:
            return True
        session = await self.memories.sessions.find(scope.session_id)
        return session is not None and session.admits(self.memories.actor)


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """A line of private memory, opened by its owner."""

    head: Head

    async def visible(self, versions: Iterable[Version]) -> list[Version]:
        """Return all versions without values."""
        return [structs.replace(version, value=None) for version in versions]


@dataclass(slots=True)
class LockedMemory:
    """A private memory, locked to delete or relabel entries on behalf of an admin, who cannot read them."""

    memory: MemoryWriter

    @property
    def head(self) -> Head:
        return self.memory.head

    async def visible(self, versions: Iterable[Version]) -> list[Version]:
        return [structs.replace(version, value=None) for version in versions]

    async def apply(self, state: Mapping[str, Version | None], commit_meta: CommitMeta) -> Head:
        del commit_meta
        for key, version in state.items():
            if version is None:
                await self.memory.forget(key)
            else:
                await self.memory.relabel(key, version.change.meta.trust)
        await self.memory.publish()
        return self.memory.head

    async def announce(self, event_type: EventType, subject: str, data: Mapping[str, object]) -> None:
        """Announce nothing: a private memory has no events of its own."""

    async def note_branches(self, change: int) -> None:
        """Do nothing: a private memory has no branches."""


def _implied_calls(line_id: str, key: str, version: Version | None) -> Iterator[ImpliedCall]:
    """Yield the deletion of an entry: nothing but a deletion of more removes one, and nothing brings one back."""
    scope = scope_of(line_id)
    if version is None and scope is not None:
        of_session = {} if scope.session_id is None else {"session_id": scope.session_id}
        yield ImpliedCall("memory.delete", {"key": key, **of_session})


PRIVATE_MEMORY = LineKind(
    prefix="memory",
    names=("agent", "session?"),
    backend=MemoryLines,
    write_errors=(HistoryNotKept,),
    edited_by=("memory.set", "memory.delete"),
    session_lines=memory_lines_of,
    erase_session=erase_memories,
    implied_calls=_implied_calls,
    item_kind="memory_entry",
    source_kind="weftline_memory",
)
