"""A provider of models on loopback: answers by the script in a model's name, and keeps every byte it receives.

It speaks Anthropic Messages, OpenAI Chat Completions and Responses, and Gemini, whole and streamed.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import h11

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

TOOL_CALLS = 20
ANSWER = "All twenty steps are done."
_READ_BYTES = 65_536
_DELAY_SECONDS = 5.0
_USAGE = {"input": 1_200, "cached": 1_000, "output": 42}
# Tools by which agents run a command, and their arguments; the first one that is offered is called.
_SHELLS = {
    "exec_command": lambda command: {"cmd": command},
    "shell": lambda command: {"command": ["sh", "-c", command]},
    "shell_command": lambda command: {"command": command},
    "local_shell": lambda command: {"command": ["sh", "-c", command]},
    "run_shell_command": lambda command: {"command": command, "description": "a step"},
    "bash": lambda command: {"command": command, "description": "a step"},
    "Bash": lambda command: {"command": command, "description": "a step"},
    "get_weather": lambda command: {"city": command},
}


class Exchange(NamedTuple):
    """A request as it came in, and all bytes that were answered."""

    method: bytes
    target: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


class Call(NamedTuple):
    """A call of a tool that the model makes."""

    call_id: str
    name: str
    arguments: dict[str, Any]


class Turn(NamedTuple):
    """What the model says."""

    text: str
    calls: tuple[Call, ...] = ()
    thinking: str = ""


@dataclass(slots=True)
class ModelUpstream:
    """The running provider."""

    port: int = 0
    received: list[Exchange] = field(default_factory=list)
    sent: list[bytes] = field(default_factory=list)
    # Tries of each scenario that fails at first.
    _tries: Counter[str] = field(default_factory=Counter)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h11.Connection(h11.SERVER)
        # A client that gives up ends the wait for its answer.
        with suppress(ConnectionError, asyncio.CancelledError):
            while (exchange := await read_message(connection, reader)) is not None:
                self.received.append(exchange)
                index = len(self.sent)
                self.sent.append(b"")
                status, headers, parts, wait = self._answer(exchange)
                await asyncio.sleep(wait)
                # Chunked, as a provider's streams are.
                fields = [
                    ("content-type", headers.pop("content-type")),
                    ("transfer-encoding", "chunked"),
                    *headers.items(),
                ]
                writer.write(connection.send(h11.Response(status_code=status, headers=fields)) or b"")
                for part in parts:
                    self.sent[index] += part
                    writer.write(connection.send(h11.Data(data=part)) or b"")
                    await writer.drain()
                writer.write(connection.send(h11.EndOfMessage()) or b"")
                await writer.drain()
                connection.start_next_cycle()
        writer.close()

    def _answer(self, exchange: Exchange) -> tuple[int, dict[str, str], list[bytes], float]:
        path = exchange.target.decode().partition("?")[0]
        try:
            body = json.loads(exchange.body) if exchange.body else {}
        except ValueError:
            body = {}
        scenario = _scenario(path, body)
        wait = 0.0
        if scenario in {"retry", "timeout"}:
            self._tries[scenario + path] += 1
            first = self._tries[scenario + path] % 2 == 1
            if first and scenario == "retry":
                text = {"error": {"type": "rate_limit_error", "message": "scripted", "code": "rate_limit"}}
                return 429, {"content-type": "application/json", "retry-after": "0"}, [_bytes(text)], 0
            wait = _DELAY_SECONDS if first else 0.0
        form = _form(path)
        if form is None:
            return 404, {"content-type": "application/json"}, [b'{"error":{"message":"no such path"}}'], 0
        if path.endswith("count_tokens"):
            return 200, {"content-type": "application/json"}, [b'{"input_tokens":1200}'], 0
        streams = body.get("stream") is True or path.endswith(":streamGenerateContent")
        parts = list(_PARTS[form](body, _turn(form, scenario, body), streams))
        return 200, {"content-type": "text/event-stream" if streams else "application/json"}, parts, wait


@asynccontextmanager
async def model_upstream() -> AsyncIterator[ModelUpstream]:
    running = ModelUpstream()
    server = await asyncio.start_server(running.serve, "127.0.0.1", 0)
    running.port = server.sockets[0].getsockname()[1]
    try:
        yield running
    finally:
        server.close()


async def read_message(connection: h11.Connection, reader: asyncio.StreamReader) -> Exchange | None:
    """Read a whole request, or None if the client leaves."""
    request: h11.Request | None = None
    body = b""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_READ_BYTES))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage) and request is not None:
            return Exchange(request.method, request.target, tuple(request.headers.raw_items()), body)
        else:
            return None


def _form(path: str) -> str | None:
    for end, form in (
        ("/messages", "anthropic"),
        ("/messages/count_tokens", "anthropic"),
        ("/chat/completions", "chat"),
        ("/responses", "responses"),
    ):
        if path.endswith(end):
            return form
    return "gemini" if re.search(r":(stream)?generateContent$", path, re.IGNORECASE) else None


def _scenario(path: str, body: dict[str, Any]) -> str:
    model = str(body.get("model") or path)
    found = re.search(r"scripted-([a-z]+)", model)
    return found[1] if found else "agent"


def _turn(form: str, scenario: str, body: dict[str, Any]) -> Turn:
    """Return what the model says: as many calls of a tool as the scenario has, then a text."""
    text = json.dumps(body)
    results = len(re.findall(_RESULTS[form], text))
    offered = [name for name in _SHELLS if name in _tool_names(form, body)]
    thinking = "Let me think." if scenario == "thinking" else ""
    wanted = {"tools": 1, "parallel": 1, "agent": TOOL_CALLS}.get(scenario, 0)
    if not offered or results >= wanted:
        return Turn(ANSWER if scenario == "agent" else "Done.", thinking=thinking)
    name = offered[0]
    count = 2 if scenario == "parallel" else 1
    numbers = range(results + 1, results + 1 + count)
    return Turn("", tuple(Call(f"call_{number:04}", name, _SHELLS[name](f"echo step-{number}")) for number in numbers))


_RESULTS = {
    "anthropic": r'"type": "tool_result"',
    "chat": r'"role": "tool"',
    "responses": r'"type": "(?:function|custom_tool)_call_output"',
    "gemini": r'"functionResponse"',
}


def _tool_names(form: str, body: dict[str, Any]) -> set[str]:
    tools = body.get("tools") or []
    if form == "gemini":
        return {each["name"] for tool in tools for each in tool.get("functionDeclarations", [])}
    return {str(tool.get("name") or tool.get("function", {}).get("name")) for tool in tools}


def _anthropic(body: dict[str, Any], turn: Turn, streams: bool) -> Iterator[bytes]:  # noqa: FBT001 - one of four alike
    blocks: list[dict[str, Any]] = []
    if turn.thinking:
        blocks.append({"type": "thinking", "thinking": turn.thinking, "signature": "c2lnbmVk"})
    blocks += [
        {"type": "tool_use", "id": f"toolu_{call.call_id}", "name": call.name, "input": call.arguments}
        for call in turn.calls
    ]
    if turn.text:
        blocks.append({"type": "text", "text": turn.text})
    stop = "tool_use" if turn.calls else "end_turn"
    usage = {
        "input_tokens": 200,
        "cache_read_input_tokens": _USAGE["cached"],
        "cache_creation_input_tokens": 0,
        "output_tokens": _USAGE["output"],
    }
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "content": blocks,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": usage,
    }
    if not streams:
        yield _bytes(message)
        return
    yield _event("message_start", {"message": {**message, "content": [], "stop_reason": None}})
    yield b'event: ping\ndata: {"type": "ping"}\n\n'
    for index, block in enumerate(blocks):
        kind = block["type"]
        empty = {"thinking": {"thinking": "", "signature": ""}, "text": {"text": ""}, "tool_use": {"input": {}}}[kind]
        yield _event("content_block_start", {"index": index, "content_block": {**block, **empty}})
        for delta in _anthropic_deltas(block):
            yield _event("content_block_delta", {"index": index, "delta": delta})
        yield _event("content_block_stop", {"index": index})
    yield _event("message_delta", {"delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage})
    yield _event("message_stop", {})


def _anthropic_deltas(block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if block["type"] == "text":
        for part in _halves(block["text"]):
            yield {"type": "text_delta", "text": part}
    elif block["type"] == "thinking":
        yield {"type": "thinking_delta", "thinking": block["thinking"]}
        yield {"type": "signature_delta", "signature": block["signature"]}
    else:
        for part in _halves(json.dumps(block["input"])):
            yield {"type": "input_json_delta", "partial_json": part}


def _chat(body: dict[str, Any], turn: Turn, streams: bool) -> Iterator[bytes]:  # noqa: FBT001 - likewise
    calls = [
        {
            "index": index,
            "id": call.call_id,
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
        }
        for index, call in enumerate(turn.calls)
    ]
    finish = "tool_calls" if calls else "stop"
    usage = {
        "prompt_tokens": _USAGE["input"],
        "completion_tokens": _USAGE["output"],
        "total_tokens": _USAGE["input"] + _USAGE["output"],
        "prompt_tokens_details": {"cached_tokens": _USAGE["cached"]},
    }
    about = {"id": "chatcmpl-1", "created": 1, "model": body.get("model")}
    if not streams:
        message = {"role": "assistant", "content": turn.text or None, **({"tool_calls": calls} if calls else {})}
        yield _bytes(
            {
                **about,
                "object": "chat.completion",
                "choices": [{"index": 0, "message": message, "finish_reason": finish}],
                "usage": usage,
            }
        )
        return
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": part} for part in _halves(turn.text)]
    for call in calls:
        function = call["function"]
        deltas.append({"tool_calls": [{**call, "function": {"name": function["name"], "arguments": ""}}]})
        deltas += [
            {"tool_calls": [{"index": call["index"], "function": {"arguments": part}}]}
            for part in _halves(function["arguments"])
        ]
    for delta, ends in [*((delta, None) for delta in deltas), ({}, finish)]:
        choice = {"index": 0, "delta": delta, "finish_reason": ends}
        yield _data({**about, "object": "chat.completion.chunk", "choices": [choice]})
    yield _data({**about, "object": "chat.completion.chunk", "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def _responses(body: dict[str, Any], turn: Turn, streams: bool) -> Iterator[bytes]:  # noqa: FBT001 - likewise
    items: list[dict[str, Any]] = [
        {
            "type": "function_call",
            "id": f"fc_{call.call_id}",
            "call_id": call.call_id,
            "name": call.name,
            "arguments": json.dumps(call.arguments),
            "status": "completed",
        }
        for call in turn.calls
    ]
    if turn.thinking:
        items.insert(
            0, {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": turn.thinking}]}
        )
    if turn.text:
        part = {"type": "output_text", "text": turn.text, "annotations": []}
        items.append({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]})
    usage = {
        "input_tokens": _USAGE["input"],
        "input_tokens_details": {"cached_tokens": _USAGE["cached"]},
        "output_tokens": _USAGE["output"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": _USAGE["input"] + _USAGE["output"],
    }
    response = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": body.get("model"),
        "output": items,
        "usage": usage,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    if not streams:
        yield _bytes(response)
        return
    events: list[tuple[str, dict[str, Any]]] = [
        ("response.created", {"response": {**response, "status": "in_progress", "output": [], "usage": None}})
    ]
    for index, item in enumerate(items):
        events.append(
            (
                "response.output_item.added",
                {"output_index": index, "item": {**item, **({"content": []} if "content" in item else {})}},
            )
        )
        if item["type"] == "message":
            where = {"item_id": item["id"], "output_index": index, "content_index": 0}
            events.append(
                (
                    "response.content_part.added",
                    {**where, "part": {"type": "output_text", "text": "", "annotations": []}},
                )
            )
            events += [("response.output_text.delta", {**where, "delta": part}) for part in _halves(turn.text)]
            events.append(("response.output_text.done", {**where, "text": turn.text}))
            events.append(("response.content_part.done", {**where, "part": item["content"][0]}))
        elif item["type"] == "function_call":
            where = {"item_id": item["id"], "output_index": index}
            events += [
                ("response.function_call_arguments.delta", {**where, "delta": part})
                for part in _halves(item["arguments"])
            ]
            events.append(("response.function_call_arguments.done", {**where, "arguments": item["arguments"]}))
        events.append(("response.output_item.done", {"output_index": index, "item": item}))
    events.append(("response.completed", {"response": response}))
    for number, (name, about) in enumerate(events):
        yield _event(name, {"sequence_number": number, **about})


def _gemini(body: dict[str, Any], turn: Turn, streams: bool) -> Iterator[bytes]:  # noqa: FBT001 - likewise
    del body
    parts: list[dict[str, Any]] = [{"functionCall": {"name": call.name, "args": call.arguments}} for call in turn.calls]
    if turn.text:
        parts.append({"text": turn.text})
    usage = {
        "promptTokenCount": _USAGE["input"],
        "cachedContentTokenCount": _USAGE["cached"],
        "candidatesTokenCount": _USAGE["output"],
        "totalTokenCount": _USAGE["input"] + _USAGE["output"],
    }
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
    answer = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-scripted"}
    yield _data(answer) if streams else _bytes(answer)


_PARTS = {"anthropic": _anthropic, "chat": _chat, "responses": _responses, "gemini": _gemini}


def _halves(text: str) -> list[str]:
    middle = len(text) // 2
    return [part for part in (text[:middle], text[middle:]) if part]


def _bytes(value: object) -> bytes:
    return json.dumps(value).encode()


def _data(value: object) -> bytes:
    return b"data: " + _bytes(value) + b"\n\n"


def _event(name: str, about: dict[str, Any]) -> bytes:
    return f"event: {name}\n".encode() + _data({"type": name, **about})
