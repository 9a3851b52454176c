"""Encoding of calls as HTTP requests."""

from __future__ import annotations

import msgspec
import pytest

from weftline.client._wire import outgoing
from weftline.errors import InvalidInput
from weftline.sessions.model import SessionConfig


def test_path_fields_go_into_the_path_and_others_into_the_body() -> None:
    request = outgoing("board.write", {"session_id": "s", "key": "ns:goal", "value": "é", "if_version": 0})
    assert (request.method, request.target) == ("PUT", "/v1/sessions/s/context/ns%3Agoal")
    assert msgspec.json.decode(request.content or b"") == {"value": "é", "if_version": 0}


def test_a_read_carries_its_fields_in_the_query() -> None:
    request = outgoing("board.read_history", {"session_id": "s", "key": "goal", "versions": [1, 2]})
    assert (request.target, request.content) == ("/v1/sessions/s/history/goal?versions=1&versions=2", None)


def test_booleans_are_sent_as_json() -> None:
    request = outgoing("session.list", {"limit": 5, "include_archived": True})
    assert request.target == "/v1/sessions?limit=5&include_archived=true"


def test_structs_are_sent_as_objects() -> None:
    request = outgoing("session.create", {"purpose": "x", "config": SessionConfig(keep_versions=3)})
    assert msgspec.json.decode(request.content or b"")["config"]["keep_versions"] == 3


def test_a_waiting_call_extends_the_timeout() -> None:
    assert outgoing("events.read", {"wait_seconds": 60}).wait_seconds == 60


@pytest.mark.parametrize("key", ["", ".", "..", "a/b", "../../x"])
def test_an_invalid_path_segment_is_refused(key: str) -> None:
    # DELETE /v1/sessions/s/context/.. would be normalised to DELETE /v1/sessions/s and delete the session.
    with pytest.raises(InvalidInput, match="key"):
        outgoing("board.delete", {"session_id": "s", "key": key})


def test_the_slashes_of_a_memory_key_are_part_of_the_path() -> None:
    assert outgoing("memory.get", {"key": "billing/limit:v1.2"}).target == "/v1/memory/billing/limit%3Av1.2"


@pytest.mark.parametrize("key", ["", "/", "a/", "a//b", "a/../b", "./a", ".."])
def test_a_memory_key_that_urls_would_change_is_refused(key: str) -> None:
    with pytest.raises(InvalidInput, match="key"):
        outgoing("memory.delete", {"key": key})


@pytest.mark.parametrize("key", ["a?b", "a#b", "a%2Fb", "..\\..", "a b"])
def test_path_segments_are_escaped(key: str) -> None:
    target = outgoing("board.read", {"session_id": "s", "key": key}).target
    assert target.count("/") == 5
    assert not {"?", "#", " "} & set(target)


@pytest.mark.parametrize("field", ["key", "value"])
def test_lone_surrogates_are_refused_before_sending(field: str) -> None:
    arguments = {"session_id": "s", "key": "goal", "value": "ship", field: "\ud800"}
    with pytest.raises(InvalidInput, match="surrogate"):
        outgoing("board.write", arguments)


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], {1: 2}, b"bytes", {"deep": {"set": {1}}}])
def test_non_json_values_are_refused_before_sending(value: object) -> None:
    with pytest.raises(InvalidInput):
        outgoing("memory.set", {"key": "k", "value": value})


def test_an_oversized_number_is_refused_before_sending() -> None:
    with pytest.raises(InvalidInput):
        outgoing("memory.set", {"key": "k", "value": 10**5_000})
