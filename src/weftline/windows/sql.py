"""Windows and their routes, the cache of their events, and the port of the compaction queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec
from msgspec import structs

from weftline.indexing.collections import WINDOWS, WindowPlace
from weftline.indexing.sql import CollectionStore
from weftline.kernel.identity import TEAM
from weftline.kernel.ports import CacheKey
from weftline.kernel.transaction import SqlStore
from weftline.state.agent_context.settings import ResolvedCompaction
from weftline.windows.model import Category, Window, WindowEvent, WindowRoute, WindowSettings

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from weftline.kernel.transaction import Row, Transaction, Value

_COLUMNS = """
session_id, agent_id, model, model_max_tokens, shared_cw_max_tokens, reserved_tokens, shares, parent_id, shares_with,
compaction_threshold, autosave, last_number, stored_bytes, unsaved_since, created_at, updated_at
"""
_WINDOW = f"SELECT {_COLUMNS} FROM windows WHERE tenant = $1 "  # noqa: S608 - our own column names
_ADD = f"""
INSERT INTO windows (tenant, {_COLUMNS})
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17) ON CONFLICT DO NOTHING
"""  # noqa: S608 - likewise
_UPDATE = """
UPDATE windows SET model = $1, model_max_tokens = $2, shared_cw_max_tokens = $3, reserved_tokens = $4, shares = $5,
    parent_id = $6, shares_with = $7, compaction_threshold = $8, autosave = $9,
    unsaved_since = CASE WHEN CAST($9 AS {bigint}) = 1 THEN unsaved_since END, updated_at = $10
WHERE tenant = $11 AND session_id = $12 AND agent_id = $13
"""
_ADVANCE = """
UPDATE windows SET last_number = $1, stored_bytes = $2, updated_at = $3,
    unsaved_since = CASE WHEN autosave = 1 THEN COALESCE(unsaved_since, $3) END
WHERE tenant = $4 AND session_id = $5 AND agent_id = $6
"""
_UNSAVED = f"{_WINDOW} AND unsaved_since IS NOT NULL AND unsaved_since <= $2 ORDER BY unsaved_since LIMIT $3"
_TENANTS_UNSAVED = "SELECT DISTINCT tenant FROM windows WHERE unsaved_since IS NOT NULL AND unsaved_since <= $1"
# The lines of a session's windows, with their branches.
_WINDOW_LINES = """
SELECT w.tenant, w.agent_id, l.line_id FROM windows w
JOIN lines l ON l.tenant = w.tenant AND l.line_id = 'window:' || w.session_id || ':' || w.agent_id
WHERE w.tenant = $1 AND w.session_id = $2
UNION ALL
SELECT w.tenant, w.agent_id, l.line_id FROM windows w
JOIN lines l ON l.tenant = w.tenant AND l.trunk = 'window:' || w.session_id || ':' || w.agent_id
WHERE w.tenant = $1 AND w.session_id = $2
"""
_CHECKPOINTS = f"""
SELECT w.agent_id, w.line_id, t.label, t.seq, t.created_by, t.created_at, t.automatic FROM ({_WINDOW_LINES}) w
JOIN tags t ON t.tenant = w.tenant AND t.line_id = w.line_id ORDER BY t.created_at DESC, t.label, w.line_id
"""  # noqa: S608 - a fixed statement
_ROUTE = "SELECT session_id, agent_id, category, to_agent, to_type FROM window_routes WHERE tenant = $1 "
_ADD_ROUTE = """
INSERT INTO window_routes (tenant, session_id, agent_id, category, to_agent, to_type) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT DO NOTHING
"""
_REMOVE_ROUTE = """
DELETE FROM window_routes
WHERE tenant = $1 AND session_id = $2 AND agent_id = $3 AND category = $4 AND to_agent = $5 AND to_type = $6
"""
# The column to_type also holds teams, as team:NAME: names of types have no colon.
_ROUTES_TO = f"""
{_ROUTE} AND session_id = $2 AND agent_id <> $3 AND (to_agent = $3 OR to_type = $4 OR to_type LIKE '{TEAM}%')
ORDER BY agent_id, category
"""
_shares = msgspec.json.Decoder(dict[Category, float])


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


class WindowStore(SqlStore):
    """The windows and routes of the transaction's tenant."""

    async def add(self, window: WindowSettings) -> bool:
        """Add a window; False if the agent has one in this session."""
        values = structs.asdict(window) | {"autosave": int(window.autosave), "shares": _encode_shares(window)}
        return await self._tx.changed(_ADD, self._tenant, *values.values()) > 0

    async def find(self, session_id: str, agent_id: str) -> WindowSettings | None:
        row = await self._tx.one(_WINDOW + "AND session_id = $2 AND agent_id = $3", self._tenant, session_id, agent_id)
        return None if row is None else _window(row)

    async def of_session(self, session_id: str, after: str, limit: int) -> Sequence[WindowSettings]:
        """Return windows of a session by agent id, after ``after``."""
        rows = await self._tx.all(
            _WINDOW + "AND session_id = $2 AND agent_id > $3 ORDER BY agent_id LIMIT $4",
            self._tenant,
            session_id,
            after,
            limit,
        )
        return [_window(row) for row in rows]

    async def owners_of(self, agent_id: str) -> Sequence[tuple[str, str]]:
        """Return the sessions in which an agent has a window, each with the agent whose events it shows."""
        rows = await self._tx.all(
            "SELECT session_id, COALESCE(shares_with, agent_id) FROM windows WHERE tenant = $1 AND agent_id = $2",
            self._tenant,
            agent_id,
        )
        return [(row[0], row[1]) for row in rows]

    async def sharing(self, session_id: str, agent_id: str) -> Sequence[WindowSettings]:
        """Return the window of an agent and those that share it, by agent id."""
        return await self._of_session(session_id, "(agent_id = $3 OR shares_with = $3)", agent_id)

    async def children(self, session_id: str, agent_id: str) -> Sequence[WindowSettings]:
        """Return the windows that inherit from an agent's window, by agent id."""
        return await self._of_session(session_id, "parent_id = $3", agent_id)

    async def update(self, window: WindowSettings) -> None:
        """Store the settings of a window, not its numbers."""
        await self._tx.run(
            _UPDATE,
            window.model,
            window.model_max_tokens,
            window.shared_cw_max_tokens,
            window.reserved_tokens,
            _encode_shares(window),
            window.parent_id,
            window.shares_with,
            window.compaction_threshold,
            int(window.autosave),
            window.updated_at,
            self._tenant,
            window.session_id,
            window.agent_id,
        )

    async def advance(self, window: WindowSettings, now: int) -> None:
        """Store the number of the newest event and the size of all; with autosave, the window is now unsaved."""
        counts = window.last_number, window.stored_bytes
        await self._tx.run(_ADVANCE, *counts, now, self._tenant, window.session_id, window.agent_id)

    async def unsaved(self, before: int, limit: int) -> Sequence[WindowSettings]:
        """Return windows that have been unsaved since a time, longest first."""
        return [_window(row) for row in await self._tx.all(_UNSAVED, self._tenant, before, limit)]

    async def saved(self, session_id: str, agent_id: str) -> None:
        await self._tx.run(
            "UPDATE windows SET unsaved_since = NULL WHERE tenant = $1 AND session_id = $2 AND agent_id = $3",
            self._tenant,
            session_id,
            agent_id,
        )

    async def delete(self, session_id: str, agent_id: str) -> None:
        """Delete a window and its routes."""
        await remove_window_from_index(self._tx, session_id, agent_id)
        for statement in (
            "DELETE FROM window_routes WHERE tenant = $1 AND session_id = $2 AND (agent_id = $3 OR to_agent = $3)",
            "DELETE FROM windows WHERE tenant = $1 AND session_id = $2 AND agent_id = $3",
        ):
            await self._tx.run(statement, self._tenant, session_id, agent_id)

    async def checkpoints(self, session_id: str) -> Sequence[IndexedCheckpoint]:
        """Return the labels on all windows of a session, newest first."""
        rows = await self._tx.all(_CHECKPOINTS, self._tenant, session_id)
        return [IndexedCheckpoint(*plain, bool(automatic)) for *plain, automatic in rows]  # type: ignore[call-arg]

    async def add_route(self, route: WindowRoute) -> bool:
        """Add a route; False if it exists."""
        return await self._tx.changed(_ADD_ROUTE, self._tenant, *_route_values(route)) > 0

    async def remove_route(self, route: WindowRoute) -> bool:
        """Remove a route; False if there is none."""
        return await self._tx.changed(_REMOVE_ROUTE, self._tenant, *_route_values(route)) > 0

    async def routes_from(self, session_id: str, agent_id: str) -> Sequence[WindowRoute]:
        statement = _ROUTE + "AND session_id = $2 AND agent_id = $3 ORDER BY category, to_agent, to_type"
        return [_route(row) for row in await self._tx.all(statement, self._tenant, session_id, agent_id)]

    async def routes_to(
        self, session_id: str, agent_id: str, agent_type: str, teams: Collection[str]
    ) -> Sequence[WindowRoute]:
        """Return the routes of other agents that lead to an agent, to its type or to one of its teams."""
        rows = await self._tx.all(_ROUTES_TO, self._tenant, session_id, agent_id, agent_type)
        routes = [_route(row) for row in rows]
        return [route for route in routes if route.to_team is None or route.to_team in teams]

    async def _of_session(self, session_id: str, condition: str, agent_id: str) -> list[WindowSettings]:
        statement = f"{_WINDOW} AND session_id = $2 AND {condition} ORDER BY agent_id"
        return [_window(row) for row in await self._tx.all(statement, self._tenant, session_id, agent_id)]


async def remove_window_from_index(transaction: Transaction, session_id: str, agent_id: str) -> None:
    collections = CollectionStore(transaction)
    await collections.lock(WINDOWS)
    await collections.remove_place(WINDOWS, str(WindowPlace(session_id, agent_id)))


async def remove_windows_from_index(transaction: Transaction, session_id: str) -> None:
    """Remove the windows of a session from their collection."""
    rows = await transaction.all(
        "SELECT agent_id FROM windows WHERE tenant = $1 AND session_id = $2 ORDER BY agent_id",
        transaction.tenant,
        session_id,
    )
    for (agent_id,) in rows:
        await remove_window_from_index(transaction, session_id, agent_id)


async def window_lines_of(transaction: Transaction, session_id: str) -> list[str]:
    """Return the lines of all windows of a session, with their branches."""
    return [line_id for *_, line_id in await transaction.all(_WINDOW_LINES, transaction.tenant, session_id)]


async def tenants_with_unsaved_windows(transaction: Transaction, before: int) -> list[str]:
    return [tenant for (tenant,) in await transaction.all(_TENANTS_UNSAVED, before)]


def _window(row: Row) -> WindowSettings:
    values = dict(zip(WindowSettings.__struct_fields__, row, strict=True))
    values["shares"] = None if values["shares"] is None else _shares.decode(values["shares"])
    values["autosave"] = bool(values["autosave"])
    return WindowSettings(**values)


def _encode_shares(window: WindowSettings) -> str | None:
    return None if window.shares is None else msgspec.json.encode(window.shares).decode()


def _route_values(route: WindowRoute) -> tuple[Value, ...]:
    to_type = route.to_type or "" if route.to_team is None else f"{TEAM}{route.to_team}"
    return route.session_id, route.agent_id, route.category.value, route.to_agent or "", to_type


def _route(row: Row) -> WindowRoute:
    session_id, agent_id, category, to_agent, to_type = row
    to_team = to_type.removeprefix(TEAM) if to_type.startswith(TEAM) else None
    return WindowRoute(
        session_id=session_id,
        agent_id=agent_id,
        category=Category(category),
        to_agent=to_agent or None,
        to_type=None if to_team else to_type or None,
        to_team=to_team,
    )
