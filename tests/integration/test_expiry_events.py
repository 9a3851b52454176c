"""Whoever watches a board is told when a key's time has run out, though nobody touches the board."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from weft import Weft


@pytest.mark.req("SC-14")
@pytest.mark.req("SC-16")
async def test_a_watcher_is_told_that_a_key_has_expired(tmp_path: Path) -> None:
    async with Weft.open(tmp_path) as weft, asyncio.timeout(20):
        await weft.session.create("watch", session_id="s")
        await weft.board.write("s", "blocking_issues", "the build is red", ttl_seconds=1)
        async for event in weft.follow("s", after=0):
            if event.type == "board.expired":
                assert (event.subject, event.actor) == ("blocking_issues", "system")
                break
        history = await weft.board.read_history("s", "blocking_issues")
        assert history.ended == "expired"
