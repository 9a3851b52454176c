"""Entries of the board: what is written, read, listed and deleted, in the seed's own shapes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from support.world import refused

if TYPE_CHECKING:
    from support.world import World

NOON = "2026-02-20T14:30:00Z"


@pytest.mark.req("SC-02")
@pytest.mark.req("SC-03")
async def test_write_answers_in_the_seed_s_shape(world: World) -> None:
    assert await world.analysis.write("problem_summary", "It broke.") == {
        "key": "problem_summary",
        "version": 1,
        "written_by": "subagent:analysis",
        "written_at": NOON,
    }
