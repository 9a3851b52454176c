"""What the model proxy changes in requests: the same bytes in every call of a conversation, whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any

import apsw
import pytest

from support.http_server import served
from support.raw_upstream import RawClient, post, upstream
from weftline.app import proxied_edits
from weftline.kernel.errors import SystemUnavailable, WeftlineError
from weftline.windows.conversations.handles import named_handles

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from support.raw_upstream import Received, Upstream, Writer
    from support.world import Caller, World
    from weftline.app.app import App

LOG = "\n".join(f"2026-11-02 10:{i // 60 % 60:02d}:{i % 60:02d} INFO worker handled request {i}" for i in range(500))
FAILED = LOG.replace("request 250", "request 250: ERROR connection refused")
PATHS = {
    "anthropic": "/anthropic/v1/messages",
    "openai_chat": "/openai/v1/chat/completions",
    "openai_responses": "/openai/v1/responses",
    "gemini": "/gemini/v1beta/models/gemini-2.5-flash:generateContent",
}
LISTS = {"openai_responses": "input", "gemini": "contents"}
USAGE = {"input_tokens": 10, "cache_read_input_tokens": 900, "cache_creation_input_tokens": 90, "output_tokens": 42}
FORMS = pytest.mark.parametrize("form", PATHS)


def user(form: str, text: str) -> dict[str, Any]:
    if form == "gemini":
        return {"role": "user", "parts": [{"text": text}]}
    return {"role": "user", "content": text}


def called(form: str, call_id: str, **arguments: Any) -> dict[str, Any]:
    """Return an answer with a call of a tool."""
    text = json.dumps(arguments)
    match form:
        case "anthropic":
            block = {"type": "tool_use", "id": call_id, "name": "run", "input": arguments}
            return {"role": "assistant", "content": [{"type": "text", "text": "I look."}, block]}
        case "openai_chat":
            call = {"id": call_id, "type": "function", "function": {"name": "run", "arguments": text}}
            return {"role": "assistant", "content": None, "tool_calls": [call]}
        case "openai_responses":
            return {"type": "function_call", "call_id": call_id, "name": "run", "arguments": text}
        case _:
            return {"role": "model", "parts": [{"functionCall": {"id": call_id, "name": "run", "args": arguments}}]}


def returned(form: str, call_id: str, text: str, **more: Any) -> dict[str, Any]:
    """Return the message with the result of a tool."""
    match form:
        case "anthropic":
            block = {"type": "tool_result", "tool_use_id": call_id, "content": text, **more}
            return {"role": "user", "content": [block]}
        case "openai_chat":
            return {"role": "tool", "tool_call_id": call_id, "content": text}
        case "openai_responses":
            return {"type": "function_call_output", "call_id": call_id, "output": text}
        case _:
            response = {"functionResponse": {"id": call_id, "name": "run", "response": {"output": text, **more}}}
            return {"role": "user", "parts": [response]}


def texts_of(form: str, message: dict[str, Any]) -> str:
    match form:
        case "anthropic":
            content = message["content"][0]["content"]
            return content if isinstance(content, str) else "".join(each.get("text", "") for each in content)
        case "openai_chat":
            return str(message["content"])
        case "openai_responses":
            return str(message["output"])
        case _:
            return str(message["parts"][0]["functionResponse"]["response"]["output"])


def body_of(form: str, messages: list[dict[str, Any]], **more: Any) -> bytes:
    # As no serialiser of ours writes it.
    about = {"model": "claude-sonnet-4-5", "x": [1.50, "\u00fc"], LISTS.get(form, "messages"): messages, **more}
    return json.dumps(about, indent=1).encode()


def messages_of(form: str, request: Received) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(request.body)[LISTS.get(form, "messages")]
    return found


async def answer(request: Received, writer: Writer) -> None:
    if request.value(b"x-stream"):
        await writer.start_stream()
        for event in (
            {"type": "message_start", "message": {"id": "msg_1", "model": "claude-sonnet-4-5", "usage": USAGE}},
            {"type": "message_delta", "usage": {"output_tokens": 42}},
        ):
            await writer.chunk(b"data: " + json.dumps(event).encode() + b"\n\n")
        await writer.chunk(b"")
        return
    said = {"model": "claude-sonnet-4-5", "usage": USAGE, "content": [{"type": "text", "text": "ok"}]}
    await writer.json(json.dumps(said).encode())


class Edited:
    """The proxy of a server, and the provider behind it."""

    def __init__(self, provider: Upstream, app: App, client: RawClient, key: str) -> None:
        self.provider = provider
        self.app = app
        self._client = client
        self._key = key

    async def send(
        self, form: str, messages: list[dict[str, Any]], *headers: str, path: str = "", **more: Any
    ) -> Received:
        """Send a request; return it as the provider received it."""
        body = body_of(form, messages, **more)
        await self._client.ask(post(path or PATHS[form], body, f"x-weftline-key: {self._key}", *headers))
        return self.provider.received[-1]


@pytest.fixture
async def provider() -> AsyncIterator[Upstream]:
    async with upstream(answer) as running:
        yield running


@asynccontextmanager
async def proxy(
    world: World, provider: Upstream, caller: Caller | None = None, **settings: Any
) -> AsyncIterator[Edited]:
    """Run a server; what it notes behind answers is stored when this ends."""
    where = f"anthropic={provider.url} openai={provider.url} gemini={provider.url}"
    app = await world.another_app(**{"proxy_upstreams": where, "proxy_wait_ms": 60_000, **settings})
    async with served(app) as server:
        client = await RawClient.connect(server.port)
        try:
            yield Edited(provider, app, client, (caller or world.planner).credential)
        finally:
            client.stream.close()


async def use_mode(world: World, mode: str, **settings: Any) -> None:
    await world.admin.call("layer.define", layer="tenant", proxy={"mode": mode, **settings})


@FORMS
@pytest.mark.both_databases
async def test_a_large_result_is_shortened_once_and_its_handle_opens_the_whole(
    form: str, world: World, provider: Upstream
) -> None:
    first = [user(form, "Why?"), called(form, "c1", path="log"), returned(form, "c1", FAILED)]
    async with proxy(world, provider) as edited:
        sent = messages_of(form, await edited.send(form, first))
        short = texts_of(form, sent[2])
        assert sent[:2] == first[:2]
        assert "connection refused" in short
        assert len(short) < len(FAILED) / 2
        note = short.splitlines()[-1]
        (handle,) = {named.handle for named in named_handles(note.encode())}
        assert f"{len(FAILED):,} characters in 500 lines" in note
        opened = await world.planner.call("conversation.open", handle=handle)
        assert (opened["text"], opened["lines"]) == (FAILED, 500)
        part = await world.planner.call("conversation.open", handle=handle, first_line=251, last_line=251)
        assert part["text"] == FAILED.splitlines()[250]
    asked = [*first, called(form, "c2", command=f"cat {handle}"), returned(form, "c2", "cat: no such file")]
    lines = [*asked, called(form, "c3", command=f"sed {handle}:251-252"), returned(form, "c3", "no")]
    async with proxy(world, provider) as edited:
        second = await edited.send(form, asked)
        third = messages_of(form, await edited.send(form, lines, "x-stream: 1"))
    assert messages_of(form, second)[:3] == sent
    assert texts_of(form, messages_of(form, second)[4]).startswith("cat: no such file\n[Weftline: the text of wl-")
    assert FAILED in texts_of(form, third[4])
    assert "\n".join(FAILED.splitlines()[250:252]) in texts_of(form, third[6])
    assert len(texts_of(form, third[6])) < 400


@FORMS
async def test_the_rest_of_a_request_keeps_its_bytes(form: str, world: World, provider: Upstream) -> None:
    messages = [user(form, "Why?"), called(form, "c1", path="log"), returned(form, "c1", LOG)]
    async with proxy(world, provider) as edited:
        received = await edited.send(form, messages)
    given = body_of(form, messages)
    start, end = given.index(json.dumps(LOG).encode()), len(json.dumps(LOG))
    assert received.body.startswith(given[:start])
    assert received.body.endswith(given[start + end :])
    assert received.value(b"content-length") == str(len(received.body)).encode()


@FORMS
async def test_what_was_forwarded_whole_stays_whole(form: str, world: World, provider: Upstream) -> None:
    messages = [user(form, "Why?"), called(form, "c1", path="log"), returned(form, "c1", LOG)]
    await use_mode(world, "observe")
    async with proxy(world, provider) as edited:
        assert (await edited.send(form, messages)).body == body_of(form, messages)
    await use_mode(world, "trim")
    async with proxy(world, provider) as edited:
        # A retry of the call, and the call after it.
        assert (await edited.send(form, messages)).body == body_of(form, messages)
        more = [*messages, called(form, "c2"), returned(form, "c2", FAILED)]
        sent = messages_of(form, await edited.send(form, more))
    assert sent[:3] == messages
    assert len(texts_of(form, sent[4])) < len(FAILED) / 2
    await use_mode(world, "observe")
    async with proxy(world, provider) as edited:
        last = [*more, called(form, "c3"), returned(form, "c3", LOG)]
        assert messages_of(form, await edited.send(form, last)) == [*sent, *last[5:]]


@pytest.mark.parametrize(
    "kept",
    [
        returned("anthropic", "c1", LOG, is_error=True),
        returned("anthropic", "c1", LOG[:2_000]),
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "image"}]}]},
        {"role": "user", "content": [{"type": "text", "text": LOG}]},
    ],
)
async def test_errors_small_results_and_what_is_no_result_stay_whole(
    kept: dict[str, Any], world: World, provider: Upstream
) -> None:
    messages = [user("anthropic", "Why?"), called("anthropic", "c1"), kept]
    async with proxy(world, provider) as edited:
        assert (await edited.send("anthropic", messages)).body == body_of("anthropic", messages)


async def test_a_result_before_a_cache_mark_of_an_earlier_message_stays_whole(world: World, provider: Upstream) -> None:
    marked = returned("anthropic", "c1", LOG, cache_control={"type": "ephemeral"})
    messages = [user("anthropic", "Why?"), called("anthropic", "c1"), marked, user("anthropic", "Well?")]
    async with proxy(world, provider) as edited:
        assert (await edited.send("anthropic", messages)).body == body_of("anthropic", messages)
        newest = [user("anthropic", "And?"), called("anthropic", "c1"), marked]
        sent = messages_of("anthropic", await edited.send("anthropic", newest))
    assert len(texts_of("anthropic", sent[2])) < len(LOG) / 2
    assert sent[2]["content"][0]["cache_control"] == {"type": "ephemeral"}


async def test_what_cannot_be_read_is_forwarded_as_it_is(world: World, provider: Upstream) -> None:
    async with proxy(world, provider) as edited:
        for body, *headers in (
            (b'{"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "' + b"x" * 20_000,),
            (body_of("anthropic", [returned("anthropic", "c1", LOG)]), "content-encoding: gzip"),
            (b'{"messages": "' + b"x" * 20_000 + b'"}',),
            (
                body_of(
                    "anthropic", [{"role": "user", "content": [{"type": "tool_result", "content": "\ud800" * 9_000}]}]
                ),
            ),
        ):
            request = post(PATHS["anthropic"], body, f"x-weftline-key: {world.planner.credential}", *headers)
            await edited._client.ask(request)
            assert provider.received[-1].body == body


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_locked_database_changes_nothing(world: World, provider: Upstream) -> None:
    messages = [user("anthropic", "Why?"), called("anthropic", "c1"), returned("anthropic", "c1", LOG)]
    async with proxy(world, provider, proxy_wait_ms=200) as edited:
        with contextlib.closing(apsw.Connection(world.url)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert (await edited.send("anthropic", messages)).body == body_of("anthropic", messages)
            other.execute("ROLLBACK")
        assert (await edited.send("anthropic", messages)).body == body_of("anthropic", messages)
    async with proxy(world, provider) as edited:
        assert (await edited.send("anthropic", messages)).body == body_of("anthropic", messages)


@pytest.mark.parametrize("how", ["fails", "is slow"])
async def test_a_database_that_fails_or_is_slow_has_a_result_forwarded_whole_for_ever(
    how: str, world: World, provider: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [user("anthropic", "Why?"), called("anthropic", "c1"), returned("anthropic", "c1", LOG)]

    async def add(*_: object) -> dict[str, str]:
        if how == "fails":
            raise SystemUnavailable
        await asyncio.sleep(0.2)
        return {}

    async with proxy(world, provider, proxy_wait_ms=60_000 if how == "fails" else 100) as edited:
        with monkeypatch.context() as patch:
            patch.setattr("weftline.windows.conversations.sql.EditStore.add", add)
            assert (await edited.send("anthropic", messages)).body == body_of("anthropic", messages)
        assert (await edited.send("anthropic", messages)).body == body_of("anthropic", messages)
    async with proxy(world, provider) as edited:
        assert (await edited.send("anthropic", messages)).body == body_of("anthropic", messages)


def empty(form: str, call_id: str, how: str) -> dict[str, Any]:
    """Return the message with the result of a tool that returned nothing."""
    message = returned(form, call_id, "")
    holder, field = {
        "anthropic": lambda: (message["content"][0], "content"),
        "openai_chat": lambda: (message, "content"),
        "openai_responses": lambda: (message, "output"),
        "gemini": lambda: (message["parts"][0]["functionResponse"]["response"], "output"),
    }[form]()
    holder.pop(field)
    if how != "missing":
        holder[field] = {"list": [], "null": None, "image": [{"type": "image", "source": {}}]}[how]
    return message


async def opened_by(edited: Edited, form: str, result: dict[str, Any], **arguments: Any) -> str:
    """Return as JSON the result that a model is given for a call with these arguments."""
    messages = [user(form, "Show me."), called(form, "o1", **arguments), result]
    return json.dumps(messages_of(form, await edited.send(form, messages))[2], ensure_ascii=False)


async def handle_for(edited: Edited, text: str) -> str:
    """Let a result be shortened, and return the handle of its text."""
    messages = [user("anthropic", f"Why? {len(text)}"), called("anthropic", "c1"), returned("anthropic", "c1", text)]
    short = texts_of("anthropic", messages_of("anthropic", await edited.send("anthropic", messages))[2])
    (handle,) = {named.handle for named in named_handles(short.encode())}
    return handle


@FORMS
async def test_a_text_that_the_request_has_already_is_not_added_again(
    form: str, world: World, provider: Upstream
) -> None:
    async with proxy(world, provider) as edited:
        handle = await handle_for(edited, FAILED)
        messages = [user(form, "Show me.")]
        for call in ("o1", "o2", "o3"):
            messages += [called(form, call, command=f"cat {handle} # {call}"), returned(form, call, "none")]
            sent = messages_of(form, await edited.send(form, messages))
        texts = [texts_of(form, message) for message in sent[2::2]]
        assert [FAILED in text for text in texts] == [True, False, False]
        assert all(f"an earlier result has the text of {handle}" in text for text in texts[1:])
        # A client that has left the earlier result out gets it again.
        rest = [messages[0], *messages[3:5]]
        rest[1:] = [called(form, "o9", command=f"cat {handle}"), returned(form, "o9", "none")]
        assert FAILED in texts_of(form, messages_of(form, await edited.send(form, rest))[2])


@pytest.mark.parametrize(
    ("form", "path"),
    [
        ("anthropic", "/anthropic/v1/messages/count_tokens"),
        ("openai_responses", "/openai/v1/responses/compact"),
        ("openai_responses", "/openai/v1/responses/input_tokens"),
        ("gemini", "/gemini/v1beta/models/gemini-2.5-flash:countTokens"),
    ],
)
@pytest.mark.parametrize("is_counted_first", [False, True])
async def test_what_is_counted_or_compacted_is_what_is_sent(
    form: str, path: str, world: World, provider: Upstream, *, is_counted_first: bool
) -> None:
    messages = [user(form, "Why?"), called(form, "c1", path="log"), returned(form, "c1", FAILED)]
    async with proxy(world, provider) as edited:
        orders = ((path, PATHS[form]) if is_counted_first else (PATHS[form], path), (PATHS[form], path))
        for order in orders:
            bodies = {(await edited.send(form, messages, path=each)).body for each in order}
            assert len(bodies) == 1
            assert len(bodies.pop()) < len(FAILED)
            messages += [called(form, "c2", path="other"), returned(form, "c2", LOG)]


@FORMS
async def test_a_result_without_content_opens_a_handle_too(form: str, world: World, provider: Upstream) -> None:
    async with proxy(world, provider) as edited:
        handle = await handle_for(edited, FAILED)
        for how in ("missing", "list", "null", "image"):
            if form == "gemini" and how in {"list", "null", "image"}:
                continue
            sent = await opened_by(edited, form, empty(form, "o1", how), path=f"{handle}:251-251")
            assert "request 250: ERROR connection refused" in sent
            assert sent.count("image") == (how == "image")


async def test_ranges_of_lines_are_all_opened_and_those_that_do_not_exist_are_named(
    world: World, provider: Upstream
) -> None:
    async with proxy(world, provider) as edited:
        handle = await handle_for(edited, FAILED)
        result = returned("anthropic", "o1", "none")
        both = await opened_by(edited, "anthropic", result, path=f"{handle}:3-4,251,499-700")
        assert all(f"request {number}" in both for number in (2, 3, 250, 498, 499))
        assert "lines 3 to 4 and 251 and 499 to 500 (it has 500 lines)" in both
        beyond = await opened_by(edited, "anthropic", result, path=f"{handle}:900-950")
        assert "it has 500 lines: none is 900 to 950" in beyond
        assert "INFO" not in beyond
        turned = await opened_by(edited, "anthropic", result, path=f"{handle}:12-11")
        assert "request 10" in turned
        assert "request 11" in turned


async def test_lines_are_counted_by_line_feeds_everywhere(world: World, provider: Upstream) -> None:
    lines = [f"{i:04} page\x0cof\u2028part\x85and\rrest {'x' * 30}" for i in range(1_200)]
    async with proxy(world, provider) as edited:
        for text in ("\n".join(lines), "\n".join(lines) + "\n", "\r\n".join(lines)):
            handle = await handle_for(edited, text)
            opened = await world.planner.call("conversation.open", handle=handle, first_line=700, last_line=700)
            assert opened["lines"] == 1_200
            assert opened["text"].rstrip("\r") == lines[699]
            sent = await opened_by(edited, "anthropic", returned("anthropic", "o1", "none"), path=f"{handle}:700")
            assert "0699 page" in sent
            assert "0700 page" not in sent
            assert "0698 page" not in sent


PATTERNS: list[dict[str, Any]] = [
    {"command": "grep -n 'ERROR connection' {}"},
    {"command": ["bash", "-lc", "grep -n 'ERROR connection' {} | head"]},
    {"command": "cat {} | grep -i 'error CONNECTION'"},
    {"cmd": "rg 'ERROR (connection|link) refused$' {}"},
    {"cmd": ["grep", "-E", "ERROR (connection|link)", "{}"]},
    {"command": r"grep 'ERROR con\|ERROR link' {}"},
    {"pattern": r"request 250\b", "path": "{}"},
    {"pattern": r"REQUEST 250:", "path": "{}", "-i": True},
    {"tool": "search", "input": {"regex": "ERROR", "file": "{}"}},
]


@pytest.mark.parametrize("arguments", PATTERNS)
async def test_a_call_with_a_pattern_gets_the_lines_that_match(
    arguments: dict[str, Any], world: World, provider: Upstream
) -> None:
    async with proxy(world, provider) as edited:
        handle = await handle_for(edited, FAILED)
        given = json.loads(json.dumps(arguments).replace("{}", handle))
        for form in PATHS:
            sent = await opened_by(edited, form, returned(form, "o1", "grep: no such file"), **given)
            assert "251:2026-11-02 10:04:10 INFO worker handled request 250: ERROR connection refused" in sent
            assert sent.count("INFO worker") == 1
            assert "1 of its 500 lines" in sent


async def test_a_pattern_without_a_match_or_that_is_none_is_said(world: World, provider: Upstream) -> None:
    async with proxy(world, provider) as edited:
        handle = await handle_for(edited, FAILED)
        result = returned("anthropic", "o1", "none")
        without = await opened_by(edited, "anthropic", result, command=f"grep unseen {handle}")
        assert "0 of its 500 lines, those that match 'unseen'" in without
        assert "INFO worker" not in without
        # What cannot be told opens the whole text.
        for command in (f"grep '(' -E {handle}", f"grep -v INFO {handle}", f"grep '{handle}"):
            assert "request 499" in await opened_by(edited, "anthropic", result, command=command)
        around = await opened_by(edited, "anthropic", result, command=f"grep -C1 ERROR {handle}")
        assert around.count("INFO worker") == 3


async def test_a_text_above_the_limit_is_opened_in_part_and_says_where_it_goes_on(
    world: World, provider: Upstream
) -> None:
    text = "\n".join(f"{i:06} {'abcdefgh' * 6}" for i in range(4_000))
    async with proxy(world, provider) as edited:
        handle = await handle_for(edited, text)
        result = returned("anthropic", "o1", "none")
        sent = await opened_by(edited, "anthropic", result, path=handle)
        assert len(sent) < 120_000
        (rest,) = re.findall(rf"lines ([\d,]+) to 4,000 left out: ask for {handle}:(\d+)-4000", sent)
        first = int(rest[1])
        assert rest[0] == f"{first:,}"
        assert f"{first - 2:06} abc" in sent
        assert f"{first - 1:06} abc" not in sent
        following = await opened_by(edited, "anthropic", result, path=f"{handle}:{first}-4000")
        assert f"{first - 1:06} abc" in following
        many = await opened_by(edited, "anthropic", result, command=f"grep abc {handle}")
        assert "the first 200 of its 4,000 lines" in many


@FORMS
async def test_an_id_of_a_call_that_comes_again_opens_what_the_new_call_asks_for(
    form: str, world: World, provider: Upstream
) -> None:
    async with proxy(world, provider) as edited:
        handle = await handle_for(edited, FAILED)
        messages = [user(form, "Show me.")]
        for line in (11, 251, 499):
            messages += [called(form, "same", path=f"{handle}:{line}"), returned(form, "same", "none")]
            sent = messages_of(form, await edited.send(form, messages))
        texts = [texts_of(form, message) for message in sent[2::2]]
        assert [f"request {number}" in text for text, number in zip(texts, (10, 250, 498), strict=True)] == [True] * 3
        assert all(text.count("INFO worker") == 1 for text in texts)
        # A line of another conversation with the same id of a call.
        other = [user(form, "Show me."), called(form, "same", path=f"{handle}:30"), returned(form, "same", "none")]
        again = texts_of(form, messages_of(form, await edited.send(form, other))[2])
        assert "request 29" in again


async def test_handles_open_for_their_agent_only(world: World, provider: Upstream) -> None:
    messages = [user("anthropic", "Why?"), called("anthropic", "c1"), returned("anthropic", "c1", LOG)]
    async with proxy(world, provider) as edited:
        short = texts_of("anthropic", messages_of("anthropic", await edited.send("anthropic", messages))[2])
    (handle,) = {named.handle for named in named_handles(short.encode())}
    for caller in (world.analysis, world.stranger):
        with pytest.raises(WeftlineError, match="no result"):
            await caller.call("conversation.open", handle=handle)
        asked = [user("anthropic", "Hi"), called("anthropic", "c9", path=handle), returned("anthropic", "c9", "none")]
        async with proxy(world, provider, caller) as edited:
            assert (await edited.send("anthropic", asked)).body == body_of("anthropic", asked)
    with pytest.raises(WeftlineError, match="Calls are open"):
        await world.analysis.call("conversation.open", handle=handle, agent_id="planner")
    opened = await world.admin.call("conversation.open", handle=handle, agent_id="planner")
    assert opened["text"] == LOG


async def test_a_handle_is_closed_by_a_redaction_and_gone_with_its_session(world: World, provider: Upstream) -> None:
    messages = [user("anthropic", "Why?"), called("anthropic", "c1"), returned("anthropic", "c1", LOG)]
    async with proxy(world, provider) as edited:
        short = texts_of("anthropic", messages_of("anthropic", await edited.send("anthropic", messages))[2])
    (handle,) = {named.handle for named in named_handles(short.encode())}
    assert (await world.planner.call("conversation.open", handle=handle))["text"] == LOG
    (session,) = [
        each
        for each in (await world.planner.call("session.list", limit=1000))["sessions"]
        if "proxy" in each["metadata"]
    ]
    events = (await world.planner.call("window.events", session_id=session["id"], limit=200))["events"]
    (event,) = [each for each in events if each["role"] == "tool"]
    redacted = {"item_id": event["item_id"], "session_id": session["id"], "reason": "secret"}
    await world.admin.call("records.redact", **redacted, state="removed")
    with pytest.raises(WeftlineError, match="no result"):
        await world.planner.call("conversation.open", handle=handle)
    await world.admin.call("records.redact", **redacted, state="none")
    assert (await world.planner.call("conversation.open", handle=handle))["text"] == LOG
    await world.planner.call("session.delete", session_id=session["id"], force=True)
    with pytest.raises(WeftlineError, match="no result"):
        await world.planner.call("conversation.open", handle=handle)


async def test_the_mode_is_that_of_the_agent_else_of_the_tenant(world: World) -> None:
    assert (await world.planner.call("conversation.settings"))["mode"] == "trim"
    await use_mode(world, "observe", trim_tokens=9_000)
    await world.admin.call("agent.define", agent_id="planner", config={"proxy": {"mode": "full"}})
    own = await world.planner.call("conversation.settings")
    assert (own["mode"], own["trim_tokens"]) == ("full", 9_000)
    assert (await world.admin.call("conversation.settings"))["mode"] == "observe"


@FORMS
@pytest.mark.both_databases
async def test_a_prefix_has_the_same_bytes_whatever_is_sent_after_it(
    form: str, world: World, provider: Upstream
) -> None:
    """Random conversations that go on, are sent again, go back, are edited, and change servers and modes between."""
    random = Random(37)
    conversations: list[list[dict[str, Any]]] = []
    # What was forwarded for each prefix of what was given.
    forwarded: dict[str, str] = {}
    for number in range(4):
        async with proxy(world, provider) as edited:
            for step in range(8):
                if not conversations or random.random() < 0.2:
                    conversations.append([user(form, f"Task {number} {step}")])
                messages = random.choice(conversations)
                match random.randrange(5):
                    case 0 if len(messages) > 3:
                        # Back, and on from there; the answers alternate with the results.
                        messages = messages[: random.randrange(1, len(messages), 2)]
                        conversations.append(messages)
                    case 1 if len(messages) > 3:
                        messages[-2:] = [called(form, f"e{number}{step}"), returned(form, f"e{number}{step}", FAILED)]
                    case 2:
                        pass
                    case _:
                        call_id = f"c{number}{step}"
                        text = random.choice(
                            [LOG, FAILED, "small", json.dumps([{"id": i, "n": "x" * 9} for i in range(900)])]
                        )
                        messages += [called(form, call_id), returned(form, call_id, text)]
                sent = messages_of(form, await edited.send(form, messages))
                assert len(sent) == len(messages)
                for length in range(1, len(messages) + 1):
                    prefix = json.dumps(messages[:length])
                    assert forwarded.setdefault(prefix, json.dumps(sent[:length])) == json.dumps(sent[:length])
        await use_mode(
            world, random.choice(["observe", "trim", "full"]), trim_tokens=random.choice([1_000, 4_000, 9_000])
        )
    changed = [given for given, sent in forwarded.items() if given != sent]
    assert len(changed) > len(forwarded) / 5


async def test_each_call_has_a_receipt_with_what_it_saved_net(world: World, provider: Upstream) -> None:
    first = [user("anthropic", "Why?"), called("anthropic", "c1"), returned("anthropic", "c1", LOG)]
    async with proxy(world, provider) as edited:
        sent = texts_of("anthropic", messages_of("anthropic", await edited.send("anthropic", first))[2])
        (handle,) = {named.handle for named in named_handles(sent.encode())}
    asked = [*first, called("anthropic", "c2", path=handle), returned("anthropic", "c2", "none")]
    async with proxy(world, provider) as edited:
        await edited.send("anthropic", asked)
        await edited.send("anthropic", [user("anthropic", "Hello")])
    calls = (await world.planner.call("conversation.calls"))["calls"]
    dearer, plain, cheaper = sorted(calls, key=lambda each: each["net_savings"])
    assert (plain["given_tokens"], plain["net_savings"]) == (plain["input_tokens"], 0)
    assert cheaper["given_tokens"] > cheaper["input_tokens"] == 1_000
    assert cheaper["net_savings"] == pytest.approx(cheaper["given_cost"] - cheaper["cost"])
    # The second one has the text that was asked for, at the price of new text.
    assert dearer["net_savings"] < 0 < cheaper["net_savings"]
    report = await world.admin.call("usage.report", kind="proxy", by="agent")
    (row,) = report["rows"]
    assert row["net_savings"] == pytest.approx(sum(each["net_savings"] for each in calls))
    assert row["naive_baseline_tokens"] == sum(each["given_tokens"] for each in calls)
    page = await world.planner.call("conversation.calls", limit=2)
    rest = await world.planner.call("conversation.calls", limit=2, cursor=page["next_cursor"])
    assert len({each["call_id"] for each in (*page["calls"], *rest["calls"])}) == 3
    assert rest["next_cursor"] is None


def system_of(form: str, request: Received) -> str:
    """Return the system text of a request."""
    given = json.loads(request.body)
    match form:
        case "anthropic":
            return str(given.get("system"))
        case "openai_chat":
            return str(given["messages"][0]["content"])
        case "openai_responses":
            return str(given.get("instructions"))
        case _:
            return str(given.get("systemInstruction", {}).get("parts"))


SYSTEMS: list[tuple[str, Any]] = [
    ("anthropic", None),
    ("anthropic", {"system": "Be brief."}),
    ("anthropic", {"system": [{"type": "text", "text": "Be brief."}]}),
    ("openai_chat", None),
    ("openai_responses", None),
    ("openai_responses", {"instructions": "Be brief."}),
    ("gemini", None),
    ("gemini", {"systemInstruction": {"parts": [{"text": "Be brief."}]}}),
]


@pytest.mark.parametrize(("form", "system"), SYSTEMS)
async def test_full_puts_the_layers_in_front_once_and_the_same_later(
    form: str, system: dict[str, Any] | None, world: World, provider: Upstream
) -> None:
    await use_mode(world, "full")
    await world.admin.call("layer.define", layer="tenant", text="Answer in English.")
    messages = [user(form, "Why?")]
    async with proxy(world, provider) as edited:
        first = system_of(form, await edited.send(form, messages, **(system or {})))
        await world.admin.call("layer.define", layer="tenant", text="Answer in French.")
        messages += [called(form, "c1"), returned(form, "c1", "ok")]
        second = system_of(form, await edited.send(form, messages, **(system or {})))
        # A conversation that goes on already has no layers put in front.
        other = [user(form, "And?"), called(form, "c2"), returned(form, "c2", "ok")]
        received = await edited.send(form, other, **(system or {}))
    assert "Answer in English." in first
    assert ("Be brief." in first) == (system is not None)
    assert first.rfind("Be brief.") in {-1} | set(range(first.find("Answer"), len(first)))
    assert second == first
    assert b"Answer in" not in received.body


@FORMS
async def test_full_adds_what_memory_says_to_the_newest_message(form: str, world: World, provider: Upstream) -> None:
    await use_mode(world, "full")
    fact = "The staging database of the billing service is called amber-heron."
    await world.planner.call("memory.set", key="staging", value=fact)
    await world.index_sessions()
    question = user(form, "What is the staging database of the billing service called?")
    async with proxy(world, provider) as edited:
        first = messages_of(form, await edited.send(form, [question]))
        assert "amber-heron" in json.dumps(first)
        assert "Sources: [1] " in json.dumps(first)
        later = [question, called(form, "c1"), returned(form, "c1", "ok")]
        assert messages_of(form, await edited.send(form, later))[0] == first[0]
        unrelated = [user(form, "Tell me a joke about penguins.")]
        assert messages_of(form, await edited.send(form, unrelated)) == unrelated
    await use_mode(world, "trim")
    async with proxy(world, provider) as edited:
        assert messages_of(form, await edited.send(form, later))[0] == first[0]
        new = [user(form, "How is the staging database of the billing service called?")]
        assert messages_of(form, await edited.send(form, new)) == new


@FORMS
async def test_what_a_search_finds_after_the_call_is_added_to_the_next_result(
    form: str, world: World, provider: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    await use_mode(world, "full")
    fact = "The staging database of the billing service is called amber-heron."
    await world.planner.call("memory.set", key="staging", value=fact)
    await world.index_sessions()
    monkeypatch.setattr(proxied_edits, "_SEARCH_PART", 0.001)
    for number, text in enumerate(("ok", LOG)):
        messages = [user(form, f"What is the staging database of the billing service called, {number}?")]
        may_go_on = asyncio.Event()
        async with proxy(world, provider) as edited:
            with monkeypatch.context() as patch:
                held_back(patch, edited.app, may_go_on)
                assert messages_of(form, await edited.send(form, messages)) == messages
                may_go_on.set()
                await asyncio.gather(*(each.task for each in edited.app.proxied_edits.late._searches.values()))
            messages += [called(form, "c1"), returned(form, "c1", text)]
            sent = messages_of(form, await edited.send(form, messages))
            assert sent[:2] == messages[:2]
            given = texts_of(form, sent[2])
            assert "amber-heron" in given
            assert given.startswith(text[:2])
            assert len(given) < len(LOG)
            # Once, and the same in later calls, also of another process and in another mode.
            assert messages_of(form, await edited.send(form, messages)) == sent
            messages += [called(form, "c2"), returned(form, "c2", "small")]
            later = messages_of(form, await edited.send(form, messages))
            assert later == [*sent, *messages[3:]]
        await use_mode(world, "trim")
        async with proxy(world, provider) as edited:
            assert messages_of(form, await edited.send(form, messages)) == later
        await use_mode(world, "full")


async def test_a_retry_gets_nothing_of_a_search_that_has_ended_since(
    world: World, provider: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    await use_mode(world, "full")
    await world.planner.call("memory.set", key="staging", value="The staging database is called amber-heron.")
    await world.index_sessions()
    monkeypatch.setattr(proxied_edits, "_SEARCH_PART", 0.001)
    may_go_on = asyncio.Event()
    async with proxy(world, provider) as edited:
        held_back(monkeypatch, edited.app, may_go_on)
        messages = [user("anthropic", "What is the staging database called?")]
        await edited.send("anthropic", messages)
        messages += [called("anthropic", "c1"), returned("anthropic", "c1", "ok")]
        first = (await edited.send("anthropic", messages)).body
        may_go_on.set()
        await asyncio.gather(*(each.task for each in edited.app.proxied_edits.late._searches.values()))
        assert (await edited.send("anthropic", messages)).body == first


def held_back(patch: pytest.MonkeyPatch, app: App, may_go_on: asyncio.Event) -> None:
    """Let searches of an app wait until they may go on."""
    call = app.call

    async def wait(operation: Any, *rest: Any) -> Any:
        if operation.name == "search.get_context":
            await may_go_on.wait()
        return await call(operation, *rest)

    patch.setattr(app, "call", wait)


async def test_full_stops_where_it_makes_a_conversation_dearer(world: World, provider: Upstream) -> None:
    await use_mode(world, "full")
    await world.admin.call("layer.define", layer="tenant", text="Answer in English. " * 20)
    messages = [user("anthropic", "Why?")]
    for number in range(10):
        async with proxy(world, provider) as edited:
            await edited.send("anthropic", messages)
        messages += [called("anthropic", f"c{number}"), returned("anthropic", f"c{number}", "ok")]
    fact = "The staging database of the billing service is called amber-heron."
    await world.planner.call("memory.set", key="staging", value=fact)
    await world.index_sessions()
    asked = [*messages, user("anthropic", "What is the staging database of the billing service called?")]
    async with proxy(world, provider) as edited:
        received = await edited.send("anthropic", asked)
    assert b"Answer in English." in received.body
    assert b"amber-heron" not in received.body
    calls = (await world.planner.call("conversation.calls"))["calls"]
    assert all(each["net_savings"] < 0 for each in calls)
    assert {each["mode"] for each in calls} == {"full", "stopped"}


def said(form: str, text: str) -> dict[str, Any]:
    """Return an answer without a call."""
    match form:
        case "gemini":
            return {"role": "model", "parts": [{"text": text}]}
        case "openai_responses":
            return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
        case _:
            return {"role": "assistant", "content": text}


@FORMS
async def test_full_puts_a_summary_in_the_place_of_the_earliest_messages(
    form: str, world: World, provider: Upstream
) -> None:
    await use_mode(world, "full")
    messages = [user(form, "We plan the move of the warehouse.")]
    for number in range(30):
        text = f"Step {number}: we agreed that team {number} moves on day {number}. " + "It rained a lot. " * 200
        if number % 3:
            messages += [said(form, f"Noted {number}."), user(form, text)]
        else:
            messages += [called(form, f"c{number}"), returned(form, f"c{number}", text)]
    async with proxy(world, provider) as edited:
        assert messages_of(form, await edited.send(form, messages)) == messages
    (session,) = [
        each
        for each in (await world.planner.call("session.list", limit=1000))["sessions"]
        if "proxy" in each["metadata"]
    ]
    compacted = await world.planner.call(
        "context.compact", session_id=session["id"], keep_recent=10, target=0.1, wait_seconds=60
    )
    assert compacted["state"] == "applied"
    messages += [said(form, "Good."), user(form, "What is next?")]
    async with proxy(world, provider) as edited:
        sent = messages_of(form, await edited.send(form, messages))
    kept = len(sent) - 1
    assert sent[1:] == messages[-kept:]
    assert 8 < kept < 40
    assert "[Weftline: a summary of the earlier part" in json.dumps(sent[0])
    # No result is parted from its call.
    ids = {f"c{number}" for number in range(30) if f'"c{number}"' in json.dumps(sent)}
    assert all(json.dumps(sent).count(f'"{each}"') == 2 for each in ids)
    await world.admin.call("layer.define", layer="tenant", proxy={"mode": "observe"})
    messages += [said(form, "The trucks."), user(form, "And then?")]
    async with proxy(world, provider) as edited:
        assert messages_of(form, await edited.send(form, messages)) == [*sent, *messages[-2:]]
        # Another history does not begin with what the summary stands for.
        other = [user(form, "We plan the move of the warehouse."), *messages[3:]]
        assert messages_of(form, await edited.send(form, other)) == other
    calls = (await world.planner.call("conversation.calls"))["calls"]
    assert any(each["given_tokens"] > each["input_tokens"] + 10_000 for each in calls)


@FORMS
async def test_a_summary_quotes_what_the_user_asked_for_in_full(form: str, world: World, provider: Upstream) -> None:
    """Compactions keep requests of the user, so that summaries of an agent's loop begin behind the first one."""
    await use_mode(world, "full")
    asked = ["Find out why the build of module 7 fails. Never push to main.", "Now do the same for module 9."]
    messages = []
    for number in range(60):
        if number % 30 == 0:
            messages += [*([said(form, "It passes.")] if number else []), user(form, asked[number // 30])]
        text = f"Module {number} was compiled by toolchain {number}. " + "It printed nothing else. " * 110
        messages += [called(form, f"c{number}", path=f"{number}.c"), returned(form, f"c{number}", text)]
    async with proxy(world, provider) as edited:
        assert messages_of(form, await edited.send(form, messages)) == messages
    (session,) = [
        each
        for each in (await world.planner.call("session.list", limit=1000))["sessions"]
        if "proxy" in each["metadata"]
    ]
    compacted = await world.planner.call(
        "context.compact", session_id=session["id"], keep_recent=10, target=0.1, wait_seconds=60
    )
    assert compacted["state"] == "applied"
    messages += [called(form, "last"), returned(form, "last", "ok")]
    async with proxy(world, provider) as edited:
        sent = messages_of(form, await edited.send(form, messages))
    assert len(sent) < 40
    assert sent[-9:] == messages[-9:]
    first = json.dumps(sent[0])
    assert "[Weftline: a summary of the earlier part" in first
    in_full = json.dumps(sent)
    assert [in_full.count(json.dumps(each)[1:-1]) for each in asked] == [1, 1]
