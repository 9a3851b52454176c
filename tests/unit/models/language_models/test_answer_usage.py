"""Usage read from the bytes of answers, however they are cut, and what cannot be read."""

from __future__ import annotations

import gzip
import json
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weftline.models.language_models.answer_usage import MAX_KEPT_BYTES, Usage, answer_reader, requested_model

JSON, STREAM = b"application/json; charset=utf-8", b"text/event-stream"
REPORTED = {"input_tokens": 10, "cache_read_input_tokens": 900, "cache_creation_input_tokens": 90, "output_tokens": 42}
USAGE = Usage(input_tokens=1000, output_tokens=42, cache_read_tokens=900, cache_write_tokens=90)
WHOLE = json.dumps({"model": "m", "content": [{"input": {"usage": 1}}], "usage": REPORTED}).encode()
EVENTS = "".join(
    f"event: {name}\r\ndata: {json.dumps(data)}\r\n\r\n"
    for name, data in (
        ("message_start", {"message": {"model": "m", "usage": {**REPORTED, "output_tokens": 1}}}),
        ("content_block_delta", {"delta": {"partial_json": '{"usage": {"input_tokens": 5}}'}}),
        ("ping", {"type": "ping"}),
        ("message_delta", {"usage": {"output_tokens": 42, "input_tokens": None}}),
        ("error", {"error": '"usage"'}),
    )
).encode()


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(places)]


@pytest.mark.parametrize(("kind", "content"), [(JSON, WHOLE), (STREAM, EVENTS)])
@pytest.mark.parametrize("coding", [b"", b"gzip", b"deflate"])
@given(cuts=st.lists(st.integers(0, 10_000), max_size=12))
def test_usage_is_read_however_an_answer_is_cut(kind: bytes, content: bytes, coding: bytes, cuts: list[int]) -> None:
    packed = {b"": content, b"gzip": gzip.compress(content), b"deflate": zlib.compress(content)}[coding]
    reader = answer_reader(kind, coding)
    assert reader is not None
    for piece in pieces(packed, cuts):
        reader.feed(piece)
    assert (reader.finish(), reader.model) == (USAGE, "m")


def test_the_usage_of_a_list_of_answers_is_that_of_the_last() -> None:
    reader = answer_reader(JSON, b"")
    assert reader is not None
    last = {"usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 2}, "modelVersion": "gemini-x"}
    reader.feed(json.dumps([{"modelVersion": "gemini-x"}, last]).encode())
    assert (reader.finish(), reader.model) == (Usage(input_tokens=7, output_tokens=2), "gemini-x")


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff", b'{"usage":7}', b'{"usage":{"input_tokens":-1,"output_tokens":1}}', b"[" * 100_000],
)
def test_an_answer_that_cannot_be_read_has_no_usage(content: bytes) -> None:
    for kind in (JSON, STREAM):
        for prefix in (b"", b"data: "):
            reader = answer_reader(kind, b"")
            assert reader is not None
            reader.feed(prefix + content + b"\n")
            assert reader.finish() is None


def test_an_event_or_answer_that_is_too_large_is_left_out() -> None:
    reader = answer_reader(STREAM, b"")
    assert reader is not None
    for _ in range(MAX_KEPT_BYTES // 65_536 + 2):
        reader.feed(b"x" * 65_536)
    reader.feed(b'"usage" of a lost line\n' + EVENTS)
    assert reader.finish() == USAGE
    whole = answer_reader(JSON, b"")
    assert whole is not None
    whole.feed(b" " * MAX_KEPT_BYTES)
    whole.feed(WHOLE)
    assert whole.finish() is None


def test_what_a_few_bytes_unpack_to_is_bounded() -> None:
    reader = answer_reader(JSON, b"gzip")
    assert reader is not None
    reader.feed(gzip.compress(b" " * (MAX_KEPT_BYTES * 8) + WHOLE))
    assert reader.finish() is None


@pytest.mark.parametrize(("kind", "coding"), [(b"audio/mpeg", b""), (b"", b""), (JSON, b"br"), (JSON, b"gzip, br")])
def test_other_answers_are_not_read(kind: bytes, coding: bytes) -> None:
    assert answer_reader(kind, coding) is None


@pytest.mark.parametrize(
    ("body", "model"),
    [(b'{"messages":[],"model":"m","usage":{"include":true}}', "m"), (b'{"model":1}', ""), (b"x", ""), (b"", "")],
)
def test_the_model_of_a_request_is_read(body: bytes, model: str) -> None:
    assert requested_model(body) == model
