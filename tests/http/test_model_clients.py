"""The provider and the comparison of ``make clients``: equal bytes are found equal, and a changed one is found."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from model_clients import Tap, compare
from model_upstream import TOOL_CALLS, model_upstream

TOOLS = {
    "/v1/messages": [{"name": "bash", "input_schema": {"type": "object"}}],
    "/v1/chat/completions": [{"type": "function", "function": {"name": "bash"}}],
    "/v1/responses": [{"type": "function", "name": "bash"}],
    "/v1beta/models/x:streamGenerateContent": [{"functionDeclarations": [{"name": "bash"}]}],
}


@pytest.mark.parametrize("streams", [False, True])
async def test_equal_bytes_are_found_equal_and_a_changed_one_is_found(*, streams: bool) -> None:
    async with model_upstream() as upstream:
        tap = Tap(upstream.port)
        server = await asyncio.start_server(tap.serve, "127.0.0.1", 0)
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with httpx2.AsyncClient(base_url=address, trust_env=False) as client:
            for path, tools in TOOLS.items():
                body = {"model": "scripted-agent", "stream": streams, "tools": tools, "messages": []}
                answer = await client.post(path, json=body)
                assert "echo step-1" in answer.text
        server.close()
        pairs = await tap.exchanges()
        assert len(pairs) == len(TOOLS)
        assert compare(upstream, pairs) == (len(TOOLS), [])
        upstream.received[0] = upstream.received[0]._replace(body=upstream.received[0].body + b" ")
        upstream.sent[1] = b"x" + upstream.sent[1]
        equal, problems = compare(upstream, pairs)
    assert equal == len(TOOLS) - 2
    assert "nothing with this body came" in problems[0]
    assert "the answer differs" in problems[1]


async def test_the_scripted_agent_calls_a_tool_twenty_times_and_then_answers() -> None:
    messages: list[Any] = []
    async with model_upstream() as upstream, httpx2.AsyncClient(trust_env=False) as client:
        url = f"http://127.0.0.1:{upstream.port}/v1/messages"
        for number in range(1, TOOL_CALLS + 1):
            sent = {"model": "any", "messages": messages, "tools": TOOLS["/v1/messages"]}
            answer = (await client.post(url, json=sent)).json()
            assert json.dumps(answer["content"]).count(f"echo step-{number}") == 1
            messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x"}]})
        last = (await client.post(url, json={"messages": messages, "tools": TOOLS["/v1/messages"]})).json()
    assert last["stop_reason"] == "end_turn"
