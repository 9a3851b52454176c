"""Agents of the demo: separate MCP clients, each with its own API key."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.subscriptions import ResourceUpdated

from weftline.kernel.errors import SystemUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from weftline.demo.run import Narrator

# Messages and documents are indexed shortly after they are written; on a busy machine, a little later.
_MAX_POLLS = 120
_POLL_SECONDS = 0.25
# Of one wait: more searches in a minute than an agent may send would end the demo.
_LONGEST_WAIT = 1.0


class Agent:
    """MCP client that narrates its calls."""

    def __init__(self, name: str, client: Client, narrator: Narrator) -> None:
        self.name = name
        self._client = client
        self._narrator = narrator

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401 - a tool's arguments
        """Call a tool and return its structured answer."""
        result = await self._client.call_tool(tool, arguments)
        answer: dict[str, Any] = result.structured_content or {}
        self._narrator.does(self.name, tool, arguments, _gist(answer))
        return answer

    async def board(self, action: str, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401 - a tool's arguments
        """Use the shared_context tool inside the session this client is connected to."""
        return await self.call("shared_context", action=action, **arguments)

    async def search(self, query: str) -> None:
        """Search after everything in scope has been indexed, and what this agent wrote is found by its meaning."""
        answer = await self._settled(query)
        self._narrator.does(self.name, "search", {"query": query}, _gist(answer))
        if "lexical_only" in answer:
            self._narrator.aside(f"Only words were matched, not meaning: {answer['lexical_only']}.")

    async def until_found(self) -> None:
        """Wait until what this agent wrote is found by its meaning, also by others: a search waits for its caller's."""
        await self._settled("what is new?")

    async def _settled(self, query: str) -> dict[str, Any]:
        """Return the answer of a search that has nothing pending."""
        answer: dict[str, Any] = {}
        for poll in range(1, _MAX_POLLS + 1):
            answer = (await self._client.call_tool("search", {"query": query, "top_k": 1})).structured_content or {}
            if "pending" not in answer:
                return answer
            await asyncio.sleep(min(_POLL_SECONDS * poll, _LONGEST_WAIT))
        raise SystemUnavailable(f"The demo's server still has something to index: {answer['pending']}")

    async def ingest(self, events: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Add events to this agent's window, without narration."""
        result = await self._client.call_tool("ingest_event", {"events": events})
        return result.structured_content or {}

    async def assemble(self, question: str, *, model: str, token_budget: int) -> dict[str, Any]:
        """Assemble the prompt for a question that is the newest event of this agent's window."""
        arguments = {"task_description": question, "token_budget": token_budget, "model": model, "form": "anthropic"}
        result = await self._client.call_tool("assemble_context", arguments)
        answer: dict[str, Any] = result.structured_content or {}
        self._narrator.does(self.name, "assemble_context", {"task_description": question}, _gist(answer))
        return answer

    async def next_change(self, uri: str, cause: Any) -> str:  # noqa: ANN401 - an awaitable of any result
        """Subscribe to a resource, await ``cause``, and return the URI of the notification."""
        async with self._client.listen(resource_subscriptions=[uri]) as changes:
            working = asyncio.ensure_future(cause)
            async for change in changes:
                await working
                return change.uri if isinstance(change, ResourceUpdated) else uri
        raise ConnectionError("the server ended the subscription")


@asynccontextmanager
async def connected(name: str, url: str, key: str, narrator: Narrator) -> AsyncIterator[Agent]:
    """Connect an agent over streamable HTTP."""
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=120)
        )
        client = await stack.enter_async_context(
            Client(streamable_http_client(url, http_client=http), mode="2026-07-28")
        )
        yield Agent(name, client, narrator)


_BLOCKS = {"conversation": "events", "retrieved": "passages", "board": "board entries"}
# One-line summary of an answer, by a field that only this kind of answer has.
_GISTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "code": lambda a: f"{a['code']}: {a['error']}",
    "prompt_hash": lambda a: (
        f"{a['tokens']:,} tokens ({a['mode']}), conversation alone {a['savings']['naive_baseline_tokens']:,}: "
        f"{_parts(a)}"
    ),
    "entries": lambda a: " · ".join(f"{entry['key']}: “{entry['value']}”" for entry in a["entries"]),
    "confidence": lambda a: (
        f"{_place(a['results'][0])}: “{' '.join(a['results'][0]['text'].split())}”"
        if a["results"]
        else "nothing is indexed yet"
    ),
    "unread": lambda a: " · ".join(f"{each['sender']}: “{each['content']}”" for each in a["messages"]) or "empty now",
    "message_id": lambda a: f"message {a['message_id']}",
    "stored_at": lambda a: f"remembered, {a['scope']}, for this agent alone",
    "keys": lambda a: (
        ", ".join(f"{key['key']} ({key['value_size_tokens']})" for key in a["keys"])
        + f" · {a['metadata']['total_size_tokens']} tokens in all"
    ),
    "value": lambda a: f"“{a['value']}”  (version {a['version']}, by {a['written_by']})",
    "deleted": lambda a: f"gone; it was at version {a['previous_version']}",
    "version": lambda a: f"version {a['version']}, written by {a['written_by']}",
    "label": lambda a: f"kept as '{a['label']}'",
    "session_id": lambda a: str(a["session_id"]),
}


def _place(found: dict[str, Any]) -> str:
    name = found.get("key") or found.get("message_id") or found.get("title") or found.get("document_id")
    return f"{found['source']} {name}, score {found['score']:.2f}"


def _parts(assembled: dict[str, Any]) -> str:
    blocks = [each for each in assembled["blocks"] if each["kind"] in _BLOCKS]
    return ", ".join(f"{each['items']} {_BLOCKS[each['kind']]}" for each in blocks)


def _gist(answer: dict[str, Any]) -> str:
    return next((gist(answer) for field, gist in _GISTS.items() if field in answer), "done")
