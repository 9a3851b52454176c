"""An agent that knows Weftline only as an MCP server: it ingests, assembles and reports with three tools.

It needs a running server (`weftline serve`), the key of an orchestrator, because it creates a session (`weftline agent
create lead`, or after the demo `weftline key create planner`), and an OpenAI-compatible provider:

    export WEFTLINE_URL=http://127.0.0.1:8787 WEFTLINE_API_KEY=...
    export OPENAI_API_KEY=...       # and OPENAI_BASE_URL, OPENAI_MODEL for another provider or model
    python examples/mcp_agent.py
"""

from __future__ import annotations

import asyncio
import os
import sys
from itertools import count
from typing import Any

import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

BASE_URL = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
MODEL = os.environ.get("OPENAI_MODEL", "gpt-5.4-mini")
numbers = count(1)


def variable(name: str, meaning: str) -> str:
    """Return an environment variable, or end with what to set."""
    return os.environ.get(name) or sys.exit(f"Set {name} to {meaning}: export {name}=...")


async def main() -> None:
    url = variable("WEFTLINE_URL", "the URL of a running server, such as http://127.0.0.1:8787")
    weftline_headers = {"Authorization": f"Bearer {variable('WEFTLINE_API_KEY', 'the API key of an orchestrator')}"}
    model_headers = {"Authorization": f"Bearer {variable('OPENAI_API_KEY', 'the API key of your provider')}"}
    async with (
        httpx2.AsyncClient(headers=weftline_headers, timeout=60) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http)) as weftline,
        httpx2.AsyncClient(base_url=BASE_URL, headers=model_headers, timeout=120) as provider,
    ):
        session = (await call(weftline, "create_session", purpose="Find out why orders became slow"))["session_id"]
        for question in ("Why are orders slow?", "Write the finding in one sentence."):
            print(f"\n{question}\n{await ask(weftline, provider, session, question)}")
        saved = await call(weftline, "receipts", action="savings", by="session", session_id=session)
        print(f"\n{saved['rows'][0]['calls']} calls, {saved['rows'][0]['input_tokens']} input tokens reported")


async def ask(weftline: Client, provider: httpx2.AsyncClient, session: str, question: str) -> str:
    """Answer a question: ingest it, assemble the prompt, call the model, report its usage, ingest the answer."""
    await ingest(weftline, session, role="user", content=question)
    prompt = await call(
        weftline, "assemble_context", session_id=session, task_description=question, model=MODEL, form="openai_chat"
    )
    response = await provider.post("/chat/completions", json=prompt["body"])
    response.raise_for_status()
    answer = response.json()
    await call(weftline, "emit_metrics", session_id=session, receipt_id=prompt["receipt_id"], usage=answer["usage"])
    print(f"  {prompt['receipt_id']}: {prompt['mode']}, {prompt['tokens']} tokens")
    text = str(answer["choices"][0]["message"]["content"])
    await ingest(weftline, session, role="assistant", content=text)
    return text


async def ingest(weftline: Client, session: str, **event: object) -> None:
    await call(weftline, "ingest_event", session_id=session, events=[{"event_id": f"event-{next(numbers)}", **event}])


async def call(weftline: Client, tool: str, **arguments: object) -> dict[str, Any]:
    result = await weftline.call_tool(tool, arguments)
    answer: dict[str, Any] = result.structured_content or {}
    if result.is_error:
        raise RuntimeError(f"{tool}: {answer.get('code')}: {answer.get('error')}")
    return answer


if __name__ == "__main__":
    asyncio.run(main())
