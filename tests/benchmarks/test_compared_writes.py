"""The check of writes that compare versions sees what one copy of a key could not have shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from benchmarks.kill_campaign import kinds
from benchmarks.kill_campaign.client import RunningServer
from benchmarks.kill_campaign.compared_writes import ComparedWrites, Seen
from benchmarks.servers import open_app

if TYPE_CHECKING:
    from pathlib import Path

_KEY = "compared0"
_FIRST = Seen(_KEY, 1, "value 1", 0.0, 1.0, wrote=True)
_SECOND = Seen(_KEY, 2, "value 2", 2.0, 3.0, wrote=True)


@pytest.mark.parametrize(
    ("calls", "found"),
    [
        ([_FIRST, _SECOND], 2),
        # Asked while the write went on, so either version is right.
        ([_FIRST, _SECOND, Seen(_KEY, 1, "value 1", 2.5, 4.0, wrote=False)], 3),
        # Asked after the write was answered.
        ([_FIRST, _SECOND, Seen(_KEY, 1, "value 1", 3.5, 4.0, wrote=False)], 2),
        # Two writers got the same version.
        ([_FIRST, _SECOND, Seen(_KEY, 2, "value 3", 2.0, 3.0, wrote=True)], 0),
        # Acknowledged, and not there.
        ([_FIRST, _SECOND, Seen(_KEY, 3, "value 3", 4.0, 5.0, wrote=True)], 2),
    ],
)
async def test_calls_are_compared_with_one_copy_of_the_key(tmp_path: Path, calls: list[Seen], found: int) -> None:
    app = await open_app(str(tmp_path / "weftline.db"))
    try:
        await app.tenants.create("default")
        await kinds.as_admin(app, "agent.create", agent_id="worker")
        await kinds.as_agent(app, "session.create", purpose="compare", session_id=kinds.SESSION)
        for value in ("value 1", "value 2"):
            await kinds.as_agent(app, "board.write", session_id=kinds.SESSION, key=_KEY, value=value)
        writes = ComparedWrites(RunningServer())
        writes.acknowledged = calls
        assert await writes.found(app) == found
    finally:
        await app.close()
