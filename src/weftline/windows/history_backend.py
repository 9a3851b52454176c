"""History backend of windows: log, diff, rollback, branch and merge of an agent's conversation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from weftline.access.grants import check_clearance
from weftline.access.model import AgentNotFound
from weftline.history.line_kinds import AGENT, ROLLBACK_CLEARANCE, SESSION, LineKind, check_may_forget
from weftline.history.model import branch_of, no_line
from weftline.history.store import Rule
from weftline.kernel.errors import PermissionDenied
from weftline.sessions.model import NotMember, SessionArchived, SessionNotFound, lock_session
from weftline.windows.model import PREFIX, WindowNotFound
from weftline.windows.service import Windows
from weftline.windows.sql import remove_windows_from_index, window_lines_of
from weftline.windows.window_writer import check_content_size, visible_versions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weftline.history.model import Head, Version
    from weftline.windows.model import Window
    from weftline.windows.window_writer import WindowWriter


@dataclass(frozen=True, slots=True)
class WindowLine:
    """The line of a window, opened for reading."""

    head: Head

    async def visible(self, versions: Iterable[Version]) -> list[Version]:
        return visible_versions(versions)


class WindowLines(msgspec.Struct, frozen=True):
    """Opens the lines of windows for those who may open the window."""

    windows: Windows

    async def to_read(self, line_id: str) -> WindowLine:
        await self._window(line_id)
        line = await self.windows.lines.find(line_id)
        if line is None:
            raise no_line(line_id)
        return WindowLine(line.head)

    async def to_write(self, line_id: str) -> WindowWriter:
        window = await self._window(line_id)
        if await self.windows.lines.find(line_id) is None:
            raise no_line(line_id)
        return await self.windows.to_write(window, await self.windows.lock_session(window))

    async def to_forget(self, line_id: str) -> WindowWriter:
        check_may_forget(self.windows.actor)
        window = await self._window(line_id)
        session, _ = await lock_session(window.session_id, self.windows.actor, self.windows.sessions)
        return await self.windows.to_write(window, session)

    async def check_rollback(self, line_id: str) -> None:
        """Require the least clearance: a window is its agent's own."""
        del line_id
        check_clearance(self.windows.actor, ROLLBACK_CLEARANCE, "A rollback")

    async def check_switch(self, before: str, after: str) -> None:
        """Refuse a branch without the instructions that those above the agent gave it."""
        await self.windows.check_keeps_instructions(before, after)

    async def expire(self, line_id: str, limit: int) -> bool:
        """Events do not expire."""
        del line_id, limit
        return False

    async def check_size(self, line_id: str, key: str, text: str) -> None:
        del line_id, key
        check_content_size(len(text.encode()))

    async def pin_referenced(self, line_id: str) -> None:
        """No other line refers to versions of a window."""

    async def _window(self, line_id: str) -> Window:
        """Return the window of a line itself, whatever window its agent shares and whatever branch it is on."""
        session_id, agent_id = WINDOW.named(SESSION, line_id), WINDOW.named(AGENT, line_id)
        try:
            window = await self.windows.open_own(session_id or "", agent_id or "")
        except (SessionNotFound, WindowNotFound, AgentNotFound, PermissionDenied, NotMember) as error:
            raise no_line(line_id, denied=error.denial) from error
        return structs.replace(window, branch=branch_of(line_id))


WINDOW = LineKind(
    prefix=PREFIX,
    names=(SESSION, AGENT),
    shared_labels=True,
    backend=WindowLines,
    retention={PREFIX: Rule(None, None)},
    write_errors=(SessionArchived,),
    item_kind="window_event",
    source_kind="weftline_window",
    edited_by=("context.ingest",),
    session_lines=window_lines_of,
    erase_session=remove_windows_from_index,
)
