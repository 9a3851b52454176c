"""Tool calls in answers: allowed ones keep every byte, refused ones become texts, in each form, whole and streamed."""

from __future__ import annotations

import gzip
import json
import re
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from weftline.models.language_models import answer_filter as filters
from weftline.models.language_models.answer_calls import CallChecks, Refusal, Replacement, checked_answer
from weftline.models.language_models.answer_filter import AnswerTooLarge, answer_filter, is_readable
from weftline.models.language_models.answers import read_answer_messages

if TYPE_CHECKING:
    from weftline.models.language_models.answer_calls import Verdict
    from weftline.models.language_models.content import WireForm

FORMS: tuple[WireForm, ...] = ("anthropic", "openai_chat", "openai_responses", "gemini")
TEXT, LIST, DELETE = "I will look.", ("list_files", {"path": "ü"}), ("delete_file", {"path": "a.txt", "force": True})
NO = "Weftline refused this call of delete_file. Ask a human."


def anthropic_whole(*calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    blocks = [
        {"type": "tool_use", "id": f"toolu_{at}", "name": name, "input": given}
        for at, (name, given) in enumerate(calls)
    ]
    return {
        "id": "msg_1",
        "content": [{"type": "text", "text": TEXT}, *blocks],
        "stop_reason": "tool_use",
        "usage": {"output_tokens": 4},
    }


def chat_whole(*calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    made = [
        {"id": f"call_{at}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
        for at, (name, given) in enumerate(calls)
    ]
    message = {"role": "assistant", "content": TEXT, "tool_calls": made}
    return {"id": "chat_1", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}], "usage": {}}


def responses_whole(*calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    said = {"id": "msg_0", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": TEXT}]}
    made = [
        {
            "id": f"fc_{at}",
            "type": "function_call",
            "call_id": f"call_{at}",
            "name": name,
            "arguments": json.dumps(given),
            "status": "completed",
        }
        for at, (name, given) in enumerate(calls)
    ]
    return {"id": "resp_1", "status": "completed", "output": [said, *made]}


def gemini_whole(*calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    made = [{"functionCall": {"name": name, "args": given}, "thoughtSignature": "EqQ="} for name, given in calls]
    parts = [{"text": TEXT}, *made]
    return {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}], "responseId": "g"}


WHOLE = dict(zip(FORMS, (anthropic_whole, chat_whole, responses_whole, gemini_whole), strict=True))


def anthropic_stream(*calls: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "msg_1", "usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": TEXT}},
        {"type": "content_block_stop", "index": 0},
    ]
    for at, (name, given) in enumerate(calls, 1):
        block = {"type": "tool_use", "id": f"toolu_{at}", "name": name, "input": {}}
        events.append({"type": "content_block_start", "index": at, "content_block": block})
        events.append({"type": "ping"})
        events += [
            {"type": "content_block_delta", "index": at, "delta": {"type": "input_json_delta", "partial_json": piece}}
            for piece in ("", *pieces(given))
        ]
        events.append({"type": "content_block_stop", "index": at})
    return [
        *events,
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 4}},
        {"type": "message_stop"},
    ]


def chat_stream(*calls: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    def delta(given: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {"id": "chat_1", "choices": [{"index": 0, "delta": given, "finish_reason": finish}]}

    events = [delta({"role": "assistant", "content": ""}), delta({"content": TEXT})]
    for at, (name, given) in enumerate(calls):
        function = {"name": name, "arguments": ""}
        events.append(delta({"tool_calls": [{"index": at, "id": f"call_{at}", "function": function}]}))
        events += [delta({"tool_calls": [{"index": at, "function": {"arguments": piece}}]}) for piece in pieces(given)]
    return [*events, delta({}, "tool_calls"), {"id": "chat_1", "choices": [], "usage": {"prompt_tokens": 1}}]


def responses_stream(*calls: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    whole = responses_whole(*calls)
    events: list[dict[str, Any]] = [{"type": "response.created", "response": {"id": "resp_1", "output": []}}]
    for at, item in enumerate(whole["output"]):
        place = {"output_index": at, "item_id": item["id"]}
        begun = {**item, "arguments": "", "status": "in_progress"} if at else {**item, "content": []}
        events.append({"type": "response.output_item.added", "output_index": at, "item": begun})
        if at:
            kind = "response.function_call_arguments"
            events += [{"type": f"{kind}.delta", **place, "delta": each} for each in pieces(calls[at - 1][1])]
            events.append({"type": f"{kind}.done", **place, "arguments": item["arguments"]})
        else:
            events.append({"type": "response.output_text.delta", **place, "content_index": 0, "delta": TEXT})
        events.append({"type": "response.output_item.done", "output_index": at, "item": item})
    events.append({"type": "response.completed", "response": whole})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def gemini_stream(*calls: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    parts = gemini_whole(*calls)["candidates"][0]["content"]["parts"]
    return [{"candidates": [{"content": {"role": "model", "parts": [part]}}], "responseId": "g"} for part in parts] + [
        {"candidates": [{"content": {"parts": []}, "finishReason": "STOP"}], "usageMetadata": {}}
    ]


STREAMS = dict(zip(FORMS, (anthropic_stream, chat_stream, responses_stream, gemini_stream), strict=True))


def pieces(given: dict[str, Any]) -> list[str]:
    text = json.dumps(given)
    return [text[:3], text[3:9], text[9:]]


def stream_bytes(form: WireForm, events: list[dict[str, Any]], newline: str = "\n") -> bytes:
    named = form in {"anthropic", "openai_responses"}
    shown = [
        (f"event: {event['type']}{newline}" if named else "") + f"data: {json.dumps(event)}{newline}{newline}"
        for event in events
    ]
    end = f"data: [DONE]{newline}{newline}" if form == "openai_chat" else ""
    return ("".join([f": comment{newline}{newline}", *shown]) + end).encode()


def refusing(*names: str, verdict: Verdict = Refusal(NO)) -> tuple[CallChecks, list[tuple[str, dict[str, Any]]]]:  # noqa: B008 - frozen
    asked: list[tuple[str, dict[str, Any]]] = []

    async def decide(name: str, arguments: dict[str, Any]) -> Verdict:
        asked.append((name, arguments))
        return verdict if name in names else None

    return CallChecks(lambda _: True, decide), asked


async def passed(form: WireForm, data: bytes, checks: CallChecks, cuts: list[int] | None = None) -> bytes:
    """Return what a stream becomes, given in the pieces between the cuts."""
    answer, out = answer_filter(form, b"", checks, is_stream=True), b""
    for start, end in zip([0, *(cuts or [])], [*(cuts or []), len(data)], strict=True):
        out += b"".join([part async for part in answer.feed(data[start:end])])
    return out + b"".join([part async for part in answer.finish()])


def said(form: WireForm, answer: bytes, *, is_stream: bool) -> tuple[str, list[tuple[str, Any]]]:
    """Return the text and the calls of an answer as a client reads them."""
    messages = read_answer_messages(form, answer, is_stream=is_stream).messages
    calls = [(call.name, json.loads(call.arguments)) for message in messages for call in message.tool_calls]
    return "\n".join(message.content for message in messages if message.content), calls


def stop_reasons(answer: bytes) -> set[str]:
    return set(re.findall(r'"(?:stop|finish)_reason": ?"(\w+)"', answer.decode()))


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("form", FORMS)
async def test_an_allowed_stream_keeps_every_byte_however_it_is_cut(form: WireForm, newline: str) -> None:
    data = stream_bytes(form, STREAMS[form](LIST, DELETE), newline)
    checks, asked = refusing()
    random = Random(7)
    for _ in range(50):
        cuts = sorted(random.sample(range(len(data)), 12))
        assert await passed(form, data, checks, cuts) == data
        assert asked == [LIST, DELETE]
        asked.clear()


@pytest.mark.parametrize("form", FORMS)
async def test_a_call_in_a_last_event_without_an_empty_line_is_decided_about(form: WireForm) -> None:
    events = STREAMS[form](DELETE)
    (last,) = [at for at, event in enumerate(events) if "delete_file" in json.dumps(event)][:1]
    data = stream_bytes(form, events[: last + 1]).replace(b"data: [DONE]\n\n", b"").rstrip(b"\n")
    checks, _ = refusing("delete_file")
    assert re.search(rb'"name": ?"delete_file"', data)
    assert not re.search(rb'"name": ?"delete_file"', await passed(form, data, checks))


async def test_a_large_event_is_searched_once_however_it_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = 0

    class Ends:
        def search(self, buffer: bytearray, start: int) -> re.Match[bytes] | None:
            nonlocal searched
            searched += len(buffer) - start
            return pattern.search(buffer, start)

    pattern = filters._EVENT_END
    monkeypatch.setattr(filters, "_EVENT_END", Ends())
    data = stream_bytes("openai_responses", [{"type": "response.image", "partial_image_b64": "x" * 100_000}])
    checks, _ = refusing()
    assert await passed("openai_responses", data, checks, [*range(50, len(data), 50)]) == data
    assert searched < 1.2 * len(data)


@pytest.mark.parametrize("form", FORMS)
async def test_a_stream_waits_only_for_the_calls_that_rules_are_about(form: WireForm) -> None:
    events = STREAMS[form](LIST, DELETE)
    checks, asked = refusing()
    checks = checks._replace(concerns=lambda name: name == "delete_file")
    answer = answer_filter(form, b"", checks, is_stream=True)
    held = b""
    for event in events:
        data = stream_bytes(form, [event]).replace(b": comment\n\n", b"").replace(b"data: [DONE]\n\n", b"")
        out = b"".join([part async for part in answer.feed(data)])
        held += data
        if out:
            assert out == held
            held = b""
        else:
            assert b"delete_file" in held
    assert asked == [DELETE]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_refused_call_becomes_a_text_and_the_others_stay(form: WireForm, is_stream: bool) -> None:  # noqa: FBT001
    async def answered(*calls: tuple[str, dict[str, Any]]) -> bytes:
        checks, _ = refusing("delete_file")
        if is_stream:
            return await passed(form, stream_bytes(form, STREAMS[form](*calls)), checks)
        return await checked_answer(form, json.dumps(WHOLE[form](*calls)).encode(), checks)

    for calls, left in (((DELETE, LIST), [LIST]), ((LIST, DELETE, LIST), [LIST, LIST]), ((DELETE,), [])):
        answer = await answered(*calls)
        text, made = said(form, answer, is_stream=is_stream)
        assert made == left
        assert TEXT in text
        assert NO in text
        assert b"a.txt" not in answer
        names = {"anthropic": ("tool_use", "end_turn"), "openai_chat": ("tool_calls", "stop")}.get(form)
        if names is not None:
            assert stop_reasons(answer) == {names[0] if left else names[1]}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_stream", [False, True])
async def test_masked_arguments_take_the_place_of_the_models(form: WireForm, is_stream: bool) -> None:  # noqa: FBT001
    checks, _ = refusing("delete_file", verdict=Replacement({"path": "[MASKED]"}))
    if is_stream:
        answer = await passed(form, stream_bytes(form, STREAMS[form](LIST, DELETE)), checks)
    else:
        answer = await checked_answer(form, json.dumps(WHOLE[form](LIST, DELETE)).encode(), checks)
    text, made = said(form, answer, is_stream=is_stream)
    assert (text, made) == (TEXT, [LIST, ("delete_file", {"path": "[MASKED]"})])
    assert b"a.txt" not in answer


@pytest.mark.parametrize("verdict", [Refusal(NO), Replacement({"path": "[MASKED]"})])
async def test_events_of_responses_stay_numbered_and_agree_with_the_whole_answer(verdict: Verdict) -> None:
    checks, _ = refusing("delete_file", verdict=verdict)
    data = await passed("openai_responses", stream_bytes("openai_responses", responses_stream(DELETE, LIST)), checks)
    events = [json.loads(line[6:]) for line in data.decode().split("\n") if line.startswith("data: {")]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert events[-1]["response"]["output"] == done


async def test_chat_calls_are_numbered_without_gaps() -> None:
    checks, _ = refusing("delete_file")
    data = await passed("openai_chat", stream_bytes("openai_chat", chat_stream(LIST, DELETE, LIST)), checks)
    events = [json.loads(line[6:]) for line in data.decode().split("\n") if line.startswith("data: {")]
    indexes = {
        call["index"]
        for event in events
        for choice in event["choices"]
        for call in choice["delta"].get("tool_calls", ())
    }
    assert indexes == {0, 1}


async def test_tools_of_other_kinds_are_checked_too() -> None:
    shell = {"type": "local_shell_call", "id": "l_1", "call_id": "c", "action": {"command": ["rm", "-r"]}}
    custom = {"type": "custom_tool_call", "id": "c_1", "call_id": "d", "name": "patch", "input": "*** Begin"}
    search = {"type": "web_search_call", "id": "w_1", "action": {"query": "q"}}
    checks, asked = refusing("local_shell_call")
    answer = await checked_answer("openai_responses", json.dumps({"output": [shell, custom, search]}).encode(), checks)
    assert asked == [("local_shell_call", {"command": ["rm", "-r"]}), ("patch", {"input": "*** Begin"})]
    assert json.loads(answer)["output"][1:] == [custom, search]
    message = {
        "function_call": {"name": "old", "arguments": "{}"},
        "tool_calls": [{"type": "custom", "custom": {"name": "patch", "input": "x"}}],
    }
    checks, asked = refusing("old", "patch")
    whole = {"choices": [{"message": message, "finish_reason": "function_call"}]}
    answer = await checked_answer("openai_chat", json.dumps(whole).encode(), checks)
    assert asked == [("patch", {"input": "x"}), ("old", {})]
    assert json.loads(answer) == {"choices": [{"message": {"content": f"{NO}\n\n{NO}"}, "finish_reason": "stop"}]}


async def test_calls_that_are_only_in_the_whole_answer_at_the_end_are_checked() -> None:
    checks, asked = refusing("delete_file")
    last = responses_stream(DELETE)[-1:]
    data = await passed("openai_responses", stream_bytes("openai_responses", last), checks)
    assert asked == [DELETE]
    assert b"a.txt" not in data
    assert NO.encode() in data


@pytest.mark.parametrize("form", FORMS[:3])
async def test_a_call_that_is_not_whole_is_refused(form: WireForm) -> None:
    checks, asked = refusing()
    data = stream_bytes(form, STREAMS[form](DELETE))
    cut = data[: data.index(b"a.txt")]
    out = await passed(form, cut[: cut.rindex(b"\n\n") + 2], checks)
    assert asked == []
    assert b"not whole" in out
    assert b'"force' not in out


async def test_a_compressed_answer_is_read_as_well() -> None:
    checks, _ = refusing("delete_file")
    data = stream_bytes("anthropic", anthropic_stream(DELETE))
    answer = answer_filter("anthropic", b"gzip", checks, is_stream=True)
    compressed, out = gzip.compress(data), b""
    for at in range(0, len(compressed), 7):
        out += b"".join([part async for part in answer.feed(compressed[at : at + 7])])
    assert said("anthropic", out, is_stream=True)[1] == []
    assert is_readable(b"text/event-stream", b"gzip")
    assert not is_readable(b"text/event-stream", b"br")
    assert not is_readable(b"text/plain", b"")


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_call_that_is_too_large_is_given_up_with_every_byte(
    is_stream: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(filters, "MAX_HELD_BYTES", 500)
    checks, asked = refusing()
    given = ("delete_file", {"path": "a" * 900})
    data = stream_bytes("anthropic", anthropic_stream(given))
    answer, out = answer_filter("anthropic", b"", checks, is_stream=is_stream), bytearray()

    async def feed(piece: bytes) -> None:
        async for part in answer.feed(piece):
            out.extend(part)

    with pytest.raises(AnswerTooLarge):
        await feed(data[:1400])
    out += answer.give_up()
    await feed(data[1400:])
    out += b"".join([part async for part in answer.finish()])
    assert out == data
    assert asked == []
