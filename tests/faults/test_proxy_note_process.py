"""The process that stores the calls of the model proxy: it is started again when it ends, and adds nothing twice."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from weftline.app.authentication import Local
from weftline.app.call_notes import CallNote
from weftline.app.proxied_conversations import ConversationCall
from weftline.models.language_models.chat_model import ChatCaller
from weftline.models.metering import UsageSums
from weftline.transports.proxy.note_process import NoteProcess

if TYPE_CHECKING:
    from support.world import World

SUMS = UsageSums(reported_calls=1, total_tokens=11, input_tokens=10, output_tokens=1, unpriced_calls=1)


def note(world: World, number: int) -> CallNote:
    messages = [{"role": "user", "content": f"question {each}"} for each in range(number + 1)]
    request = json.dumps({"model": "m", "messages": messages}).encode()
    at = world.clock.now()
    return CallNote(
        call_id=f"call_{number}",
        at=at,
        caller=ChatCaller(world.tenant, "planner"),
        model="m",
        sums=SUMS,
        seconds=0.5,
        person=Local(world.tenant, "planner"),
        conversation=ConversationCall("anthropic", request, {b"x-session-id": b"s1"}, b"", is_stream=False, at=at),
    )


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_process_that_is_killed_is_followed_by_another(world: World) -> None:
    settings = replace(world.settings, session_indexing="off")
    async with NoteProcess(settings, world.app.proxied_edits, None) as process, asyncio.timeout(60):
        await process.store(note(world, 0))
        assert process._process is not None
        process._process.kill()
        # What it may have stored without saying so is sent again, and what comes meanwhile as well.
        await asyncio.gather(*(process.store(note(world, number)) for number in range(3)))
    calls = (await world.planner.call("conversation.calls"))["calls"]
    assert len(calls) == 3
    # On a busy machine, what a call says may be recorded with the next one only.
    (session_id,) = {call["session_id"] for call in calls} - {""}
    events = (await world.planner.call("window.events", session_id=session_id))["events"]
    assert [event.get("message", event)["content"] for event in events] == ["question 0", "question 1", "question 2"]
