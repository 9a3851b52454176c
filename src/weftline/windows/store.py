"""Storage port of windows, and the cache of their events."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from weftline.kernel.ports import CacheKey
    from weftline.state.agent_context.settings import ResolvedCompaction
    from weftline.windows.model import Window, WindowEvent, WindowRoute, WindowSettings


class LineEvents(NamedTuple):
    """All events of a line at one commit, by number."""

    seq: int
    hash: bytes
    events: tuple[WindowEvent, ...]


class EventCache(Protocol):
    """Events by tenant and line, of the latest commit that was read."""

    def get(self, key: CacheKey) -> LineEvents | None: ...

    def put(self, key: CacheKey, value: LineEvents, weight: int = 1) -> None: ...


class IndexedCheckpoint(NamedTuple):
    """A label on the line of a window, or on a branch of it."""

    agent_id: str
    line_id: str
    label: str
    seq: int
    created_by: str
    created_at: int
    automatic: bool


class LineCompaction(NamedTuple):
    """What compactions mean for the size of a line.

    ``saved`` tokens are not part of prompts. ``tokens``: those of the line at its latest compaction, 0 if there was
    none; ``is_open``: that one is not finished.
    """

    saved: int = 0
    tokens: int = 0
    is_open: bool = False


class CompactionQueue(Protocol):
    """Compactions of windows that reach their threshold."""

    async def of_line(self, line_id: str) -> LineCompaction: ...

    def foresee(self, window: Window) -> None:
        """Prepare for a compaction of a window that is on its way to the threshold."""
        ...

    async def add(self, window: Window, settings: ResolvedCompaction, tokens: int) -> None:
        """Queue a compaction of a window with this many tokens, unless one is open."""
        ...

    async def restored(self, line_id: str) -> None:
        """Note that events were changed or removed: what a compacted view saves is not known any more."""
        ...


class WindowStore(Protocol):
    """The windows and routes of the transaction's tenant."""

    async def add(self, window: WindowSettings) -> bool:
        """Add a window; False if the agent has one in this session."""
        ...

    async def find(self, session_id: str, agent_id: str) -> WindowSettings | None: ...

    async def of_session(self, session_id: str, after: str, limit: int) -> Sequence[WindowSettings]:
        """Return windows of a session by agent id, after ``after``."""
        ...

    async def owners_of(self, agent_id: str) -> Sequence[tuple[str, str]]:
        """Return the sessions in which an agent has a window, each with the agent whose events it shows."""
        ...

    async def sharing(self, session_id: str, agent_id: str) -> Sequence[WindowSettings]:
        """Return the window of an agent and those that share it, by agent id."""
        ...

    async def children(self, session_id: str, agent_id: str) -> Sequence[WindowSettings]:
        """Return the windows that inherit from an agent's window, by agent id."""
        ...

    async def update(self, window: WindowSettings) -> None:
        """Store the settings of a window, not its numbers."""
        ...

    async def advance(self, window: WindowSettings, now: int) -> None:
        """Store the number of the newest event and the size of all; with autosave, the window is now unsaved."""
        ...

    async def unsaved(self, before: int, limit: int) -> Sequence[WindowSettings]:
        """Return windows that have been unsaved since a time, longest first."""
        ...

    async def saved(self, session_id: str, agent_id: str) -> None: ...

    async def delete(self, session_id: str, agent_id: str) -> None:
        """Delete a window and its routes."""
        ...

    async def checkpoints(self, session_id: str) -> Sequence[IndexedCheckpoint]:
        """Return the labels on all windows of a session, newest first."""
        ...

    async def add_route(self, route: WindowRoute) -> bool:
        """Add a route; False if it exists."""
        ...

    async def remove_route(self, route: WindowRoute) -> bool:
        """Remove a route; False if there is none."""
        ...

    async def routes_from(self, session_id: str, agent_id: str) -> Sequence[WindowRoute]: ...

    async def routes_to(
        self, session_id: str, agent_id: str, agent_type: str, teams: Collection[str]
    ) -> Sequence[WindowRoute]:
        """Return the routes of other agents that lead to an agent, to its type or to one of its teams."""
        ...
