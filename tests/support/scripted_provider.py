"""An HTTP server with the APIs of OpenAI, Anthropic and Google: scripted answers, usage of a simulated cache."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from weftline.models.language_models.answer_usage import Usage
from weftline.models.language_models.catalog import load_catalog
from weftline.models.language_models.content import ToolCall, WireForm
from weftline.testing.prompt_cache import CacheSimulator

# ``drip``: a byte now and then, without end. ``reset``: the connection is reset after half of the answer.
Failure = Literal["timeout", "disconnect", "malformed", "drip", "reset"]
FORMS: dict[str, WireForm] = {
    "/v1/chat/completions": "openai_chat",
    "/v1/responses": "openai_responses",
    "/v1/messages": "anthropic",
}
# The address names the model.
GEMINI = re.compile(r"/v1beta/models/([^:]+):generateContent")
_MAX_BREAKPOINTS = 4


@dataclass(frozen=True, slots=True)
class Answer:
    """What the provider answers to one call: a text or tool calls, an error, or nothing that can be read.

    ``finish``: the text was cut off at the limit of output tokens, or the model refuses. ``error``: the message of a
    status other than 200. ``input_tokens``: what the usage reports, if not the size of the request, as of a server that
    cuts the input.
    """

    text: str = "Done."
    tool_calls: tuple[ToolCall, ...] = ()
    output_tokens: int = 5
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    failure: Failure | None = None
    finish: Literal["stop", "length", "refusal"] = "stop"
    error: str = "scripted"
    input_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ReceivedCall:
    """A request that the provider received, and the usage that it reported."""

    form: WireForm
    headers: dict[str, str]
    body: dict[str, Any]
    usage: Usage | None


@dataclass(slots=True)
class ScriptedProvider:
    """Answers as scripted, then as ``respond`` says for a body, else with the usual answer.

    ``now`` is the clock of its prompt cache, in seconds.
    """

    url: str = ""
    script: list[Answer] = field(default_factory=list)
    usual: Answer = field(default_factory=Answer)
    respond: Callable[[dict[str, Any]], Answer] | None = None
    concurrent: int = 0
    max_concurrent: int = 0
    now: Callable[[], float] = time.monotonic
    calls: list[ReceivedCall] = field(default_factory=list)
    _caches: dict[str, CacheSimulator] = field(default_factory=dict)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _head(reader):
            first, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
            content = await reader.readexactly(int(headers.get("content-length", "0")))
            self.concurrent += 1
            self.max_concurrent = max(self.max_concurrent, self.concurrent)
            try:
                is_open = await self._answer(writer, first.split()[1], headers, content)
            except ConnectionError:
                break
            finally:
                self.concurrent -= 1
            if not is_open:
                break
        writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, path: str, headers: dict[str, str], content: bytes) -> bool:
        """Answer one request; return whether the connection stays open."""
        answer = self._next_answer(content)
        if answer.failure == "timeout":
            await self._stop.wait()
        if answer.failure in {"timeout", "disconnect"}:
            return False
        status, sent = self._response(path, headers, content, answer)
        lines = [f"HTTP/1.1 {status} .", "content-type: application/json", f"content-length: {len(sent)}"]
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        if answer.failure == "drip":
            await self._drip(writer, sent)
            return False
        writer.write(sent[: len(sent) // 2] if answer.failure == "reset" else sent)
        await writer.drain()
        if answer.failure == "reset":
            # With a linger time of 0, closing sends a reset instead of an orderly end.
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        return answer.failure is None or answer.failure == "malformed"

    async def _drip(self, writer: asyncio.StreamWriter, sent: bytes) -> None:
        for byte in sent:
            if self._stop.is_set():
                return
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.02)

    def _next_answer(self, content: bytes) -> Answer:
        if self.script:
            return self.script.pop(0)
        return self.respond(json.loads(content)) if self.respond is not None else self.usual

    def stop(self) -> None:
        """End the calls that wait for an answer that does not come."""
        self._stop.set()

    def _response(self, path: str, headers: dict[str, str], content: bytes, answer: Answer) -> tuple[int, bytes]:
        named = GEMINI.fullmatch(path)
        form: WireForm | None = "gemini" if named else FORMS.get(path)
        if form is None:
            return 404, b'{"error":{"type":"not_found_error","message":"no such path"}}'
        body = json.loads(content)
        model = named[1] if named else str(body.get("model"))
        problem = invalid(form, body)
        failed = problem is not None or answer.status != 200
        usage = None if failed else self._usage(form, model, body, answer)
        self.calls.append(ReceivedCall(form, headers, body, usage))
        if usage is None:
            status = 400 if problem is not None else answer.status
            return status, json.dumps({"error": {"type": "scripted", "message": problem or answer.error}}).encode()
        if answer.failure == "malformed":
            return 200, b'{"choices": [{"mess'
        return 200, json.dumps(_ANSWERS[form](body, answer, usage)).encode()

    def _usage(self, form: WireForm, model: str, body: dict[str, Any], answer: Answer) -> Usage:
        cache = self._caches.setdefault(model, CacheSimulator(load_catalog().find(model)))
        usage = cache.call(form, body, self.now(), answer.output_tokens).usage
        if answer.input_tokens is None:
            return usage
        return Usage(input_tokens=answer.input_tokens, output_tokens=answer.output_tokens)


def invalid(form: WireForm, body: dict[str, Any]) -> str | None:
    """Return why a provider would refuse a body with status 400; None if it would not."""
    if bool(body.get("model")) == (form == "gemini"):
        return "model: field required, for Gemini in the address"
    return _CHECKS[form](body)


def _invalid_chat(body: dict[str, Any]) -> str | None:
    if not body.get("messages"):
        return "messages: field required"
    waiting: set[str] = set()
    for message in body["messages"]:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return f"messages: no call for result {message['tool_call_id']}"
            waiting.discard(message["tool_call_id"])
            continue
        if waiting:
            return f"messages: calls without results {sorted(waiting)}"
        waiting = {call["id"] for call in message.get("tool_calls") or ()}
    return f"messages: calls without results {sorted(waiting)}" if waiting else None


def _invalid_responses(body: dict[str, Any]) -> str | None:
    if not body.get("input"):
        return "input: field required"
    items = [] if isinstance(body["input"], str) else body["input"]
    called = {item["call_id"] for item in items if item.get("type") == "function_call"}
    answered = {item["call_id"] for item in items if item.get("type") == "function_call_output"}
    return None if called == answered else f"input: calls and outputs differ: {sorted(called ^ answered)}"


def _invalid_anthropic(body: dict[str, Any]) -> str | None:
    if not body.get("messages") or not body.get("max_tokens"):
        return "messages, max_tokens: field required"
    if body["messages"][0]["role"] != "user":
        return "messages.0: must be of the user"
    waiting: set[str] = set()
    before = ""
    for message in body["messages"]:
        if message["role"] == before:
            return "messages: roles must alternate"
        before = message["role"]
        problem = _invalid_turn(message["content"], waiting)
        if problem is not None:
            return problem
        waiting = {block["id"] for block in message["content"] if block["type"] == "tool_use"}
    return _invalid_marks(body) or (f"messages: calls without results {sorted(waiting)}" if waiting else None)


def _invalid_turn(content: list[dict[str, Any]], waiting: set[str]) -> str | None:
    results = [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
    if any(block["type"] != "tool_result" for block in content[: len(results)]):
        return "messages: tool results must come first"
    if sorted(results) != sorted(waiting):
        return f"messages: calls and results differ: {sorted(set(results) ^ waiting)}"
    if any(block["type"] == "text" and not block["text"].strip() for block in content):
        return "messages: text must not be blank"
    return None


def _invalid_gemini(body: dict[str, Any]) -> str | None:
    if not body.get("contents"):
        return "contents: field required"
    if body["contents"][0]["role"] != "user":
        return "contents: must begin with a turn of the user"
    waiting: dict[str, set[str]] = {}
    before = ""
    for content in [*(body["contents"]), {"role": "end", "parts": [{"text": "."}]}]:
        if content["role"] == before or not content["parts"]:
            return "contents: roles must alternate, and each needs parts"
        before = content["role"]
        answered = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        if sorted(each["id"] for each in answered) != sorted(waiting):
            return f"contents: calls and responses differ: {waiting} {answered}"
        is_first = all("functionResponse" in part for part in content["parts"][: len(answered)])
        if not is_first or any(each["name"] not in waiting[each["id"]] for each in answered):
            return f"contents: responses must come first and have the names of their calls: {waiting} {answered}"
        waiting = {}
        for call in (part["functionCall"] for part in content["parts"] if "functionCall" in part):
            waiting.setdefault(call["id"], set()).add(call["name"])
    return None


def _invalid_marks(body: dict[str, Any]) -> str | None:
    blocks = [*body.get("tools", ()), *body.get("system", ())]
    blocks += [block for message in body["messages"] for block in message["content"]]
    marks = [block["cache_control"].get("ttl", "5m") for block in blocks if "cache_control" in block]
    if len(marks) > _MAX_BREAKPOINTS:
        return "cache_control: at most 4"
    return None if marks == sorted(marks, key=lambda ttl: ttl == "5m") else "cache_control: 1h must precede 5m"


_CHECKS: dict[WireForm, Callable[[dict[str, Any]], str | None]] = {
    "openai_chat": _invalid_chat,
    "openai_responses": _invalid_responses,
    "anthropic": _invalid_anthropic,
    "gemini": _invalid_gemini,
}


def _chat_answer(body: dict[str, Any], answer: Answer, usage: Usage) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text}
    if answer.finish == "refusal":
        message = {"role": "assistant", "content": None, "refusal": answer.text}
    if answer.tool_calls:
        message["tool_calls"] = [
            {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in answer.tool_calls
        ]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": _finish_reason(answer)}],
        "usage": {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.input_tokens + usage.output_tokens,
            "prompt_tokens_details": {
                "cached_tokens": usage.cache_read_tokens,
                "cache_write_tokens": usage.cache_write_tokens,
            },
        },
    }


def _finish_reason(answer: Answer) -> str:
    return "tool_calls" if answer.tool_calls else "length" if answer.finish == "length" else "stop"


_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "refusal": "refusal"}


def _responses_answer(body: dict[str, Any], answer: Answer, usage: Usage) -> dict[str, Any]:
    text = {"type": "output_text", "text": answer.text, "annotations": []}
    output: list[dict[str, Any]] = [
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]}
    ]
    output += [
        {
            "type": "function_call",
            "id": f"fc_{call.call_id}",
            "call_id": call.call_id,
            "name": call.name,
            "arguments": call.arguments,
            "status": "completed",
        }
        for call in answer.tool_calls
    ]
    return {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "model": body["model"],
        "output": output,
        "usage": {
            "input_tokens": usage.input_tokens,
            "input_tokens_details": {
                "cached_tokens": usage.cache_read_tokens,
                "cache_write_tokens": usage.cache_write_tokens,
            },
            "output_tokens": usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
            "total_tokens": usage.input_tokens + usage.output_tokens,
        },
    }


def _anthropic_answer(body: dict[str, Any], answer: Answer, usage: Usage) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": answer.text}]
    content += [
        {"type": "tool_use", "id": call.call_id, "name": call.name, "input": json.loads(call.arguments)}
        for call in answer.tool_calls
    ]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": content,
        "stop_reason": "tool_use" if answer.tool_calls else _STOP_REASONS[answer.finish],
        "usage": {
            "input_tokens": usage.uncached_tokens,
            "cache_read_input_tokens": usage.cache_read_tokens,
            "cache_creation_input_tokens": usage.cache_write_tokens,
            "cache_creation": {
                "ephemeral_5m_input_tokens": usage.cache_write_tokens - usage.cache_write_1h_tokens,
                "ephemeral_1h_input_tokens": usage.cache_write_1h_tokens,
            },
            "output_tokens": usage.output_tokens,
        },
    }


def _gemini_answer(_: dict[str, Any], answer: Answer, usage: Usage) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"text": answer.text}]
    parts += [
        {"functionCall": {"id": call.call_id, "name": call.name, "args": json.loads(call.arguments)}}
        for call in answer.tool_calls
    ]
    return {
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {
            "promptTokenCount": usage.input_tokens,
            "cachedContentTokenCount": usage.cache_read_tokens,
            "candidatesTokenCount": usage.output_tokens,
            "totalTokenCount": usage.input_tokens + usage.output_tokens,
        },
        "responseId": "gen_1",
    }


_ANSWERS: dict[WireForm, Callable[[dict[str, Any], Answer, Usage], dict[str, Any]]] = {
    "openai_chat": _chat_answer,
    "openai_responses": _responses_answer,
    "anthropic": _anthropic_answer,
    "gemini": _gemini_answer,
}


async def _head(reader: asyncio.StreamReader) -> str:
    try:
        return (await reader.readuntil(b"\r\n\r\n")).decode()
    except (asyncio.IncompleteReadError, ConnectionError):
        return ""


@asynccontextmanager
async def scripted_provider(
    *script: Answer, now: Callable[[], float] = time.monotonic
) -> AsyncIterator[ScriptedProvider]:
    """Run a provider on a free port."""
    provider = ScriptedProvider(script=list(script), now=now)
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    provider.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield provider
    finally:
        provider.stop()
        server.close()
        await server.wait_closed()
