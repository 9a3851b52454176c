"""A reader of the event stream that resumes after each kill: it must see every event once, in order."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from benchmarks.kill_campaign.client import OutcomeUnknown
from benchmarks.kill_campaign.kinds import SESSION, Kind, as_agent

if TYPE_CHECKING:
    from weftline.app.app import App

_PAUSE_SECONDS = 0.02


class EventStream(Kind):
    """Events of the session that most other kinds write to. ``acknowledged`` are the numbers of those received."""

    name = "event_stream"

    async def keep_working(self) -> None:
        while True:
            self.tried += 1
            try:
                await self.work(self.acknowledged[-1] if self.acknowledged else 0)
            except OutcomeUnknown:
                self.interrupted += 1
            await asyncio.sleep(_PAUSE_SECONDS)

    async def work(self, number: int) -> None:
        """Read the stream from after an event until the server is gone."""
        text = b""
        async for chunk in self.client.stream(f"/v1/events/stream?session_id={SESSION}&after={number}"):
            *events, text = (text + chunk).split(b"\n\n")
            self.acknowledged += [int(event[4:].partition(b"\n")[0]) for event in events if event.startswith(b"id: ")]

    async def found(self, app: App) -> int:
        """Return how many of the received are in the log, less those that were missed or came twice or out of order."""
        stored: set[int] = set()
        after, last = 0, self.acknowledged[-1] if self.acknowledged else 0
        while after < last:
            page = await as_agent(app, "events.read", session_id=SESSION, after=after)
            if page["next_after"] == after:
                break
            stored |= {event["seq"] for event in page["events"] if event["seq"] <= last}
            after = page["next_after"]
        received = set(self.acknowledged)
        in_order = sorted(received) == self.acknowledged
        return len(received & stored) - len(stored - received) if in_order else 0
