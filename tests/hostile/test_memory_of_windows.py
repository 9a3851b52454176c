"""One agent fills windows with long events and has prompts assembled from them: the server's memory stays bounded."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import httpx2
import pytest
from benchmarks.harness import resident_bytes

from support.team import opened
from weftline.testing.server import server_process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from weftline.testing.server import ServerProcess

pytestmark = pytest.mark.req("MS-11")
_MEBIBYTE = 2**20
_EVENT_BYTES = 100_000
_BATCH = 30
# 80 MB, more than the cache of events has room for: every prompt read all of them and kept them for long.
_EVENTS = 800
_PROMPTS = 12
_AT_ONCE = 3
_MOST_GROWTH = 300 * _MEBIBYTE
# Above what the caches may have.
_MOST_KEPT = 200 * _MEBIBYTE
_SECONDS = 30.0


class Attacker:
    """An agent of the lowest clearance, with the limits that every agent has."""

    def __init__(self, server: ServerProcess) -> None:
        self._pid = server.process.pid
        with httpx2.Client(base_url=server.url, headers=_signed(server.admin_key), verify=False) as admin:
            created = admin.post("/v1/agents", json={"agent_id": "mallory", "clearance": 1})
        assert created.status_code == 201, created.text
        self._http = httpx2.Client(
            base_url=server.url, headers=_signed(created.json()["api_key"]), timeout=120, verify=False
        )
        opening = self._http.post("/v1/sessions", json={"purpose": "an attack", "session_id": "s1"})
        assert opening.status_code == 201, opening.text

    def close(self) -> None:
        self._http.close()

    @property
    def resident(self) -> int:
        return resident_bytes(self._pid)

    def fill(self, events: int) -> httpx2.Response:
        """Add long events until they are refused; return the last answer."""
        for start in range(0, events, _BATCH):
            texts = [("abcdefgh"[number % 8] * _EVENT_BYTES, number) for number in range(start, start + _BATCH)]
            roles = ("user", "assistant")
            batch = [{"event_id": f"e{at}", "role": roles[at % 2], "content": text} for text, at in texts]
            answer = self._http.post("/v1/sessions/s1/ingest", json={"events": batch})
            if answer.status_code != 200:
                break
        return answer

    def assemble(self, number: int) -> int:
        """Have a prompt assembled; return the memory of the server afterwards."""
        answer = self._http.post("/v1/sessions/s1/assemble", json={"task_description": f"What is new in {number}?"})
        assert answer.status_code == 200, answer.text
        return self.resident

    def assemble_many(self) -> int:
        """Have prompts assembled at the same time; return the most memory that the server had after one of them."""
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            return max(threads.map(self.assemble, range(_PROMPTS)))


def _signed(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture
def attacker(tmp_path: Path) -> Iterator[Attacker]:
    with server_process(tmp_path, log_level="ERROR") as server:
        found = Attacker(server)
        yield found
        found.close()


def test_prompts_of_a_window_of_long_events_do_not_fill_the_memory(attacker: Attacker) -> None:
    # The first event of this length loads the model that looks for attacks.
    attacker.fill(_BATCH)
    attacker.assemble(-1)
    before = attacker.resident
    refused = attacker.fill(_EVENTS)
    assert attacker.assemble_many() - before < _MOST_GROWTH
    assert refused.status_code == 409
    error = refused.json()
    assert (error["code"], error["context"]["limit_window_bytes"]) == ("QUOTA_EXCEEDED", 32 * _MEBIBYTE)
    assert "source_refs" in error["suggestions"][0]


async def test_memory_of_a_window_that_no_cache_can_hold_is_given_back(attacker: Attacker, tmp_path: Path) -> None:
    attacker.fill(_BATCH)
    attacker.assemble(-1)
    before = attacker.resident
    async with opened(tmp_path) as app:
        await app.tenants.set_plan("default", "enterprise", window_bytes=1_024 * _MEBIBYTE)
    assert attacker.fill(_EVENTS).status_code == 200
    attacker.assemble_many()
    deadline = time.monotonic() + _SECONDS
    # The server does not tell when it gives memory back.
    while attacker.resident - before > _MOST_KEPT and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.5)
    assert attacker.resident - before < _MOST_KEPT
