"""The events of a line at its head: read once, then only the commits after the cached one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weftline.history.model import ChangeKind
from weftline.windows.model import (
    agent_of,
    as_read_by,
    content_key,
    decode_event,
    event_weight,
    is_content,
)
from weftline.windows.store import LineEvents

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from weftline.history.model import Head, Version
    from weftline.history.store import LineStore
    from weftline.windows.model import WindowEvent
    from weftline.windows.store import EventCache

_PAGE = 1_000


class _Reader(NamedTuple):
    lines: LineStore
    head: Head

    async def after(self, cached: LineEvents) -> LineEvents | None:
        """Return the cached events with the changes since; None if the cache is not of this history."""
        if not 0 < cached.seq <= self.head.seq:
            return None
        if cached.seq == self.head.seq:
            return cached if cached.hash == self.head.hash else None
        commit = await self.lines.commit_at(self.head.line_id, cached.seq)
        if commit is None or commit.hash != cached.hash:
            return None
        changed = await self._changes(cached.seq)
        return None if changed is None else self._with(cached, changed)

    async def all(self) -> LineEvents:
        state = {version.change.key: version for version in await self.lines.state_at(self.head.line_id, self.head.seq)}
        return self._ordered(self._decoded(version, state) for key, version in state.items() if not is_content(key))

    async def _changes(self, after: int) -> dict[str, Version] | None:
        """Return the last change of each key after a commit; None if they are on another line."""
        changed: dict[str, Version] = {}
        while after < self.head.seq:
            page = await self.lines.changes_after(self.head.line_id, after, _PAGE)
            if not page:
                return None
            changed |= {version.change.key: version for version in page if version.seq <= self.head.seq}
            after = page[-1].seq
        return changed

    def _with(self, cached: LineEvents, changed: Mapping[str, Version]) -> LineEvents | None:
        events = {event.event_id: event for event in cached.events}
        for key, version in changed.items():
            if is_content(key):
                continue
            if version.change.act is not ChangeKind.WRITE:
                events.pop(key, None)
                continue
            events[key] = self._decoded(version, changed)
            if events[key].content_hash and not events[key].message.content:
                # The content was written by an earlier commit.
                return None
        return self._ordered(events.values())

    def _ordered(self, events: Iterable[WindowEvent]) -> LineEvents:
        ordered = sorted(events, key=lambda event: (event.number, event.at, event.event_id))
        return LineEvents(self.head.seq, self.head.hash, tuple(ordered))

    def _decoded(self, version: Version, values: Mapping[str, Version]) -> WindowEvent:
        content = values.get(content_key(version.change.key))
        event = decode_event(self.head.line_id, version, None if content is None else content.value)
        return as_read_by(event, agent_of(self.head.line_id))


async def events_of_line(
    lines: LineStore, cache: EventCache, tenant: str, head: Head, *, committed: bool = True
) -> LineEvents:
    """Return the events of a line at its head; what is not ``committed`` is not cached."""
    reader, name = _Reader(lines, head), (tenant, head.line_id)
    cached = cache.get(name)
    found = None if cached is None else await reader.after(cached)
    if found is None:
        found = await reader.all()
    if committed and found is not cached:
        cache.put(name, found, sum(map(event_weight, found.events)))
    return found
