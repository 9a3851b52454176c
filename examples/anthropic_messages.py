"""An agent on Anthropic's API that keeps its conversation itself and sends it to Weftline with each call.

Weftline recognises what it has already stored, adds what matters, leaves out what does not, and marks cache
breakpoints. The data is in a temporary folder; only the provider is called:

    export ANTHROPIC_API_KEY=...    # and ANTHROPIC_BASE_URL, ANTHROPIC_MODEL for another endpoint or model
    python examples/anthropic_messages.py
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from typing import Any

import httpx2

from weftline import Weftline

BASE_URL = os.environ.get("ANTHROPIC_BASE_URL", "https://api.anthropic.com")
MODEL = os.environ.get("ANTHROPIC_MODEL", "claude-sonnet-4-5")
SESSION = "slow-orders"
SYSTEM = "You find out why a system became slow. Read metrics before you answer."
TOOLS = [
    {
        "name": "read_metric",
        "description": "Read the current value of a metric.",
        "input_schema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    }
]


def variable(name: str, meaning: str) -> str:
    """Return an environment variable, or end with what to set."""
    return os.environ.get(name) or sys.exit(f"Set {name} to {meaning}: export {name}=...")


async def main() -> None:
    key = variable("ANTHROPIC_API_KEY", "your API key of Anthropic")
    headers = {"x-api-key": key, "anthropic-version": "2023-06-01"}
    with tempfile.TemporaryDirectory() as folder:
        async with (
            Weftline.open(folder) as weftline,
            httpx2.AsyncClient(base_url=BASE_URL, headers=headers, timeout=120) as provider,
        ):
            await weftline.agent.create("analysis")
            # An agent cannot write its own system prompt: who is above it registers what its runtime hands over.
            await weftline.agent.define("analysis", system_prompt=SYSTEM)
            await weftline.session.create("Find out why orders became slow", session_id=SESSION, members=["analysis"])
            await weftline.board.write(SESSION, "scope", "Name the change that did it. Change nothing.")
            messages: list[dict[str, Any]] = []
            for question in ("Why are orders slow?", "Write the finding in one sentence."):
                messages.append({"role": "user", "content": question})
                print(f"\n{question}\n{await ask(weftline.acting_as('analysis'), provider, question, messages)}")
            shown = await weftline.receipt.list(session_id=SESSION)
            print("\nprompts, newest first:", ", ".join(f"{each.mode} ({each.tokens})" for each in shown.receipts))


async def ask(agent: Weftline, provider: httpx2.AsyncClient, question: str, messages: list[dict[str, Any]]) -> str:
    """Answer a question: assemble, call the model, run the tools it asks for, until it answers with a text."""
    while True:
        prompt = await agent.context.assemble(
            SESSION, question, model=MODEL, form="anthropic", messages=messages, system=SYSTEM, tools=TOOLS
        )
        started = time.perf_counter()
        response = await provider.post("/v1/messages", json=prompt.body)
        response.raise_for_status()
        answer = response.json()
        reported = await agent.context.emit_metrics(
            SESSION, prompt.receipt_id, answer["usage"], latency_ms=(time.perf_counter() - started) * 1000
        )
        print(
            f"  {prompt.receipt_id}: {reported.input_tokens} input tokens, {reported.cache_read_tokens} from the cache"
        )
        messages.append({"role": "assistant", "content": answer["content"]})
        calls = [block for block in answer["content"] if block["type"] == "tool_use"]
        if not calls:
            return "".join(block["text"] for block in answer["content"] if block["type"] == "text")
        results = [
            {"type": "tool_result", "tool_use_id": call["id"], "content": read_metric(call["input"])} for call in calls
        ]
        messages.append({"role": "user", "content": results})


def read_metric(arguments: dict[str, Any]) -> str:
    return f"{json.dumps(arguments)}: 0.61 since Tuesday, 0.97 before"


if __name__ == "__main__":
    asyncio.run(main())
