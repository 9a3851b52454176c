"""Writes that name the version they replace, from several clients at once: they must be linearisable for each key."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.kill_campaign.client import CallRefused, Client, OutcomeUnknown, RunningServer
from benchmarks.kill_campaign.kinds import SESSION, Kind, as_agent

if TYPE_CHECKING:
    from weftline.app.app import App

_KEYS = [f"compared{number}" for number in range(4)]
_CLIENTS = 4


@dataclass(frozen=True, slots=True)
class Seen:
    """What one call saw: a key at a version with a value. Times are of this process."""

    key: str
    version: int
    value: str
    asked: float
    answered: float
    wrote: bool


class ComparedWrites(Kind):
    """Each client reads a key, and replaces the version that it has read: of several, one may succeed."""

    name = "compared_writes"

    def __init__(self, server: RunningServer) -> None:
        super().__init__(server)
        self._clients = [Client(server) for _ in range(_CLIENTS)]
        self._numbers = itertools.count(1)

    async def keep_working(self) -> None:
        await asyncio.gather(*(self._keep_comparing(client) for client in self._clients))

    async def _keep_comparing(self, client: Client) -> None:
        while True:
            self.tried += 1
            number = next(self._numbers)
            key = _KEYS[number % len(_KEYS)]
            try:
                read = await self._read(client, key)
                await self._write(client, key, read.version if read else 0, f"value {number}")
            except OutcomeUnknown:
                self.interrupted += 1
            except CallRefused as error:
                if "VERSION_CONFLICT" not in str(error):
                    self.refusals.append(str(error))
                await asyncio.sleep(0.01)

    async def _read(self, client: Client, key: str) -> Seen | None:
        asked = time.monotonic()
        try:
            entry = await client.call("GET", f"/v1/sessions/{SESSION}/context/{key}")
        except CallRefused as error:
            if "KEY_NOT_FOUND" in str(error):
                return None
            raise
        seen = Seen(key, entry["version"], entry["value"], asked, time.monotonic(), wrote=False)
        self.acknowledged.append(seen)
        return seen

    async def _write(self, client: Client, key: str, replaces: int, value: str) -> None:
        asked = time.monotonic()
        body = {"value": value, "if_version": replaces}
        entry = await client.call("PUT", f"/v1/sessions/{SESSION}/context/{key}", body)
        self.acknowledged.append(Seen(key, entry["version"], value, asked, time.monotonic(), wrote=True))

    async def work(self, number: int) -> Any:  # noqa: ANN401 - see keep_working
        raise NotImplementedError

    async def found(self, app: App) -> int:
        """Return how many calls saw what a single copy of each key would have shown them."""
        return sum([await self._consistent(app, key) for key in _KEYS])

    async def _consistent(self, app: App, key: str) -> int:
        calls = [seen for seen in self.acknowledged if seen.key == key]
        if not calls:
            return 0
        versions = (await as_agent(app, "board.read_history", session_id=SESSION, key=key))["versions"]
        stored = {version["version"]: version["value"] for version in versions}
        if sorted(stored) != list(range(1, len(stored) + 1)):
            return 0
        written = [seen.version for seen in calls if seen.wrote]
        if len(written) != len(set(written)):
            return 0
        return sum(stored.get(seen.version) == seen.value for seen in calls) - self._stale(calls)

    def _stale(self, calls: list[Seen]) -> int:
        """Count calls that saw an older version than one that was answered before they asked."""
        answered = sorted(calls, key=lambda seen: seen.answered)
        stale, newest, following = 0, 0, 0
        for seen in sorted(calls, key=lambda seen: seen.asked):
            while following < len(answered) and answered[following].answered < seen.asked:
                newest = max(newest, answered[following].version)
                following += 1
            stale += seen.version < newest + seen.wrote
        return stale
