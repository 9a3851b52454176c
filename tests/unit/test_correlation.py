"""Correlation ids are read from headers and MCP metadata; invalid ones are ignored."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.correlation import BAGGAGE, CORRELATION, META, SPAN, TASK, TRACE, TRACEPARENT, TURN
from weftline.kernel.correlation import (
    NO_CORRELATION,
    Correlation,
    NativeId,
    ids_from_headers,
    ids_from_meta,
    is_native_id,
    is_sampled,
    make_correlation,
    trace_headers,
    with_ids,
)
from weftline.kernel.errors import InvalidInput

pytestmark = pytest.mark.req("AC-12")
NAMES = [name for name in Correlation.__struct_fields__ if not name.startswith(("trace_", "span_", "mcp_", "jsonrpc_"))]


def test_headers_give_the_trace_and_weftline_baggage_members_only() -> None:
    assert with_ids(NO_CORRELATION, ids_from_headers(TRACEPARENT, BAGGAGE)) == CORRELATION


def test_mcp_metadata_gives_the_same_ids() -> None:
    assert with_ids(NO_CORRELATION, ids_from_meta(META)) == CORRELATION
    assert with_ids(NO_CORRELATION, ids_from_meta({"traceparent": TRACEPARENT, "baggage": BAGGAGE})) == CORRELATION
    assert ids_from_meta({"baggage": BAGGAGE, "weftline/turn_id": "nearer"})["turn_id"] == "nearer"


@pytest.mark.parametrize("name", NAMES)
def test_every_id_can_be_sent_as_header_and_as_metadata(name: str) -> None:
    assert ids_from_headers(None, f"weftline.{name}=x") == {name: "x"}
    assert ids_from_meta({f"weftline/{name}": "x"}) == {name: "x"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        TRACEPARENT.upper(),
        f"{TRACEPARENT}-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00-{TRACE}é-{SPAN}-01",
        f"00_{TRACE}_{SPAN}_01",
        "0" * 100_000,
    ],
)
def test_an_invalid_traceparent_is_ignored(text: str) -> None:
    assert ids_from_headers(text, None) == {}


def test_a_future_traceparent_version_may_have_more_fields() -> None:
    assert ids_from_headers(f"cc-{TRACE}-{SPAN}-01-what-the-future-is-like", None) == {
        "trace_id": TRACE,
        "span_id": SPAN,
    }


@pytest.mark.parametrize(
    "baggage",
    [
        "",
        ",,,;;;===",
        "weftline.turn_id",
        "weftline.turn_id=",
        "weftline.turn_id=;a=b",
        "weftline.turn_id=%00",
        "weftline.turn_id=a%20b",
        "weftline.turn_id=a%0Ab",
        "weftline.turn_id=%7F",
        "weftline.turn_id=%C2%85",
        "weftline.turn_id=%FF%FE",
        "weftline.turn_id=%ED%A0%80",
        "weftline.turn_id=é",
        f"weftline.turn_id={'x' * 201}",
        "WEFTLINE.TURN_ID=x",
        "turn_id=x",
        "weftline.trace_id=" + TRACE,
        "weftline.mcp_session_id=x",
        "weftline.tenant=other",
        "weftline.turn_id=x," + "a" * 40_000,
    ],
)
def test_invalid_ids_are_ignored(baggage: str) -> None:
    assert ids_from_headers(None, baggage) == {}


def test_one_invalid_baggage_member_does_not_affect_the_others() -> None:
    assert ids_from_headers("nonsense", "weftline.turn_id=a%00,é=ü,weftline.task_id=t") == {"task_id": "t"}


@pytest.mark.parametrize("value", [None, 5, ["x"], {"x": 1}, True, "", "a b", "\ud800", "x" * 201])
def test_invalid_ids_in_metadata_are_ignored(value: object) -> None:
    assert ids_from_meta({"weftline/turn_id": value, "traceparent": value, "baggage": value, "other": "x"}) == {}


@given(st.text(), st.text())
def test_any_header_text_is_parsed_without_an_error(traceparent: str, baggage: str) -> None:
    for ids in (ids_from_headers(traceparent, baggage), ids_from_headers(traceparent, f"weftline.turn_id={baggage}")):
        assert all(is_native_id(value) for value in ids.values())


@given(st.text())
def test_ids_match_the_pattern_of_events(text: str) -> None:
    try:
        msgspec.convert(text, NativeId)
    except msgspec.ValidationError:
        assert not is_native_id(text)
    else:
        assert is_native_id(text)


_ID = st.text(min_size=1, max_size=200).filter(is_native_id)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, _ID)))
def test_client_headers_round_trip_to_the_server(ids: dict[str, str]) -> None:
    correlation = make_correlation({**ids, "traceparent": TRACEPARENT})
    headers = trace_headers(correlation)
    assert all(value.isascii() and value.isprintable() for value in headers.values())
    assert with_ids(NO_CORRELATION, ids_from_headers(headers["traceparent"], headers.get("baggage"))) == correlation


def test_all_ids_together_fit_the_header_limit() -> None:
    correlation = make_correlation(dict.fromkeys(NAMES, "😀" * 200))
    assert with_ids(NO_CORRELATION, ids_from_headers(None, trace_headers(correlation)["baggage"])) == correlation


def test_no_ids_send_no_headers() -> None:
    assert trace_headers(NO_CORRELATION) == {}
    assert make_correlation({}) is NO_CORRELATION
    assert make_correlation({"turn_id": None}, make_correlation({"turn_id": TURN})) is NO_CORRELATION


def test_ids_are_merged_with_existing_ones() -> None:
    before = make_correlation({"task_id": TASK, "traceparent": TRACEPARENT})
    assert make_correlation({"turn_id": TURN}, before) == Correlation(
        turn_id=TURN, task_id=TASK, trace_id=TRACE, span_id=SPAN
    )
    assert make_correlation({"traceparent": None}, before) == Correlation(task_id=TASK)


@pytest.mark.parametrize("value", ["", "a b", "x" * 201, "\x00", "\ud800", 7])
def test_an_explicit_invalid_id_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="turn_id"):
        make_correlation({"turn_id": value})
    with pytest.raises(InvalidInput, match="traceparent"):
        make_correlation({"traceparent": value})


def test_ids_of_the_transport_cannot_be_set_by_callers() -> None:
    with pytest.raises(TypeError, match="mcp_session_id"):
        make_correlation({"mcp_session_id": "x"})


def test_the_sampled_flag_is_read_from_the_traceparent() -> None:
    assert is_sampled(TRACEPARENT)
    assert not is_sampled(f"00-{TRACE}-{SPAN}-00")
    assert is_sampled(f"00-{TRACE}-{SPAN}-03")
    assert is_sampled(None)
    assert is_sampled("nonsense")
