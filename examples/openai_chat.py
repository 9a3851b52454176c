"""An agent on any OpenAI-compatible API: Weftline assembles each prompt, the agent sends it and reports the usage.

The conversation is ingested event by event. The data is in a temporary folder; only the provider is called:

    export OPENAI_API_KEY=...       # and OPENAI_BASE_URL, OPENAI_MODEL for another provider or model
    python examples/openai_chat.py
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from itertools import count
from typing import Any

import httpx2

from weftline import Weftline

BASE_URL = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
MODEL = os.environ.get("OPENAI_MODEL", "gpt-5.4-mini")
SESSION = "slow-orders"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read_metric",
            "description": "Read the current value of a metric.",
            "parameters": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        },
    }
]
numbers = count(1)


def variable(name: str, meaning: str) -> str:
    """Return an environment variable, or end with what to set."""
    return os.environ.get(name) or sys.exit(f"Set {name} to {meaning}: export {name}=...")


async def main() -> None:
    key = variable("OPENAI_API_KEY", "the API key of your provider")
    headers = {"Authorization": f"Bearer {key}"}
    with tempfile.TemporaryDirectory() as folder:
        async with (
            Weftline.open(folder) as weftline,
            httpx2.AsyncClient(base_url=BASE_URL, headers=headers, timeout=120) as provider,
        ):
            await weftline.agent.create("analysis")
            await weftline.session.create("Find out why orders became slow", session_id=SESSION, members=["analysis"])
            await weftline.board.write(SESSION, "scope", "Name the change that did it. Change nothing.")
            agent = weftline.acting_as("analysis")
            for question in ("Why are orders slow?", "Write the finding in one sentence."):
                print(f"\n{question}\n{await ask(agent, provider, question)}")
            total = (await agent.receipt.savings()).rows[0]
            print(f"\n{total.calls} calls, {total.input_tokens} input tokens, {total.cache_read_tokens} from the cache")


async def ask(agent: Weftline, provider: httpx2.AsyncClient, question: str) -> str:
    """Answer a question: assemble, call the model, run the tools it asks for, until it answers with a text."""
    await ingest(agent, role="user", content=question)
    while True:
        prompt = await agent.context.assemble(SESSION, question, model=MODEL, form="openai_chat", tools=TOOLS)
        answer, milliseconds = await post(provider, "/chat/completions", prompt.body)
        await agent.context.emit_metrics(SESSION, prompt.receipt_id, answer["usage"], latency_ms=milliseconds)
        print(f"  {prompt.receipt_id}: {prompt.tokens} tokens counted, {answer['usage']['prompt_tokens']} reported")
        message = answer["choices"][0]["message"]
        calls = message.get("tool_calls") or []
        await ingest(
            agent,
            role="assistant",
            content=message.get("content") or "",
            tool_calls=[{"call_id": call["id"], **call["function"]} for call in calls],
        )
        if not calls:
            return str(message["content"])
        for call in calls:
            await ingest(
                agent, role="tool", tool_call_id=call["id"], content=read_metric(call["function"]["arguments"])
            )


async def ingest(agent: Weftline, **event: object) -> None:
    await agent.context.ingest(SESSION, [{"event_id": f"event-{next(numbers)}", **event}])


async def post(provider: httpx2.AsyncClient, path: str, body: dict[str, Any]) -> tuple[dict[str, Any], float]:
    started = time.perf_counter()
    response = await provider.post(path, json=body)
    response.raise_for_status()
    return response.json(), (time.perf_counter() - started) * 1000


def read_metric(arguments: str) -> str:
    return f"{arguments}: 0.61 since Tuesday, 0.97 before"


if __name__ == "__main__":
    asyncio.run(main())
