"""Expiry of a key is published without a write to the board."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from weftline import Weftline


@pytest.mark.req("SC-14")
@pytest.mark.req("SC-16")
async def test_a_subscriber_receives_the_expiry_of_a_key(tmp_path: Path) -> None:
    async with Weftline.open(tmp_path) as weftline, asyncio.timeout(60):
        await weftline.session.create("watch", session_id="s")
        await weftline.board.write("s", "blocking_issues", "the build is red", ttl_seconds=1)
        async for event in weftline.follow("s", after=0):
            if event.type == "board.expired":
                assert (event.subject, event.actor) == ("blocking_issues", "system")
                break
        history = await weftline.board.read_history("s", "blocking_issues")
        assert history.ended == "expired"
