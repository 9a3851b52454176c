"""Key facts are extracted in turns: a long window does not keep others waiting."""

from __future__ import annotations

import asyncio

import pytest

from support.conversations import Conversation
from weftline.windows.compaction.facts.extraction import extract_facts, extract_in_turns


def _conversation(messages: int) -> Conversation:
    conversation = Conversation()
    for number in range(messages):
        conversation.user(f"We decided to use engine-{number} for part {number} by 12 May 2026, at 30 EUR. " * 8)
    return conversation


async def test_turns_have_the_same_result() -> None:
    events = _conversation(60).events
    assert await extract_in_turns(events) == extract_facts(events)


async def test_a_short_window_does_not_wait_for_a_long_one() -> None:
    long = asyncio.create_task(extract_in_turns(_conversation(1_500).events))
    await asyncio.sleep(0.05)
    await extract_in_turns(_conversation(2).events)
    assert not long.done(), "the long one takes several seconds"
    long.cancel()
    with pytest.raises(asyncio.CancelledError):
        await long
