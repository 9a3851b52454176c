"""Headers that a proxy passes on, and those that end at it."""

from __future__ import annotations

import base64

import pytest

from weftline.providers.jwt import JwtCodec
from weftline.transports.proxy.headers import (
    has_credential,
    has_misplaced_key,
    names_own_key,
    own_key,
    request_headers,
    response_headers,
    without_own_key,
)


def test_hop_by_hop_headers_and_the_weftline_key_stay_here() -> None:
    given = [
        (b"host", b"127.0.0.1"),
        (b"connection", b"keep-alive, X-One"),
        (b"x-one", b"1"),
        (b"te", b"trailers"),
        (b"transfer-encoding", b"chunked"),
        (b"expect", b"100-continue"),
        (b"x-weftline-key", b"k"),
        (b"x-api-key", b"sk"),
        (b"anthropic-beta", b"a"),
        (b"anthropic-beta", b"b"),
    ]
    own = [(b"x-api-key", b"sk"), (b"anthropic-beta", b"a"), (b"anthropic-beta", b"b")]
    host = (b"host", b"api.example")
    assert request_headers(given, b"api.example", 5, has_body=True) == [host, *own, (b"content-length", b"5")]
    chunked = (b"transfer-encoding", b"chunked")
    assert request_headers(given, b"api.example", None, has_body=True) == [host, *own, chunked]
    assert request_headers(given, b"api.example", None, has_body=False) == [host, *own]


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (b"gzip, deflate", b"gzip, deflate"),
        (b"gzip;q=0.5,  *;q=0", b"gzip;q=0.5"),
        (b"gzip, br, zstd", b"gzip"),
        (b"br, gzip", b"gzip"),
        (b"br", b"identity"),
        (b"", b"identity"),
    ],
)
def test_only_encodings_that_can_be_read_are_asked_for(given: bytes, sent: bytes) -> None:
    headers = request_headers([(b"accept-encoding", given)], b"h", None, has_body=False)
    assert headers == [(b"host", b"h"), (b"accept-encoding", sent)]


def test_headers_of_a_response_keep_their_order_and_repetitions() -> None:
    given = [(b"Set-Cookie", b"a"), (b"Connection", b"x-hop"), (b"X-Hop", b"1"), (b"Retry-After", b"7")]
    given += [(b"Set-Cookie", b"b"), (b"Transfer-Encoding", b"chunked")]
    assert response_headers(given) == [(b"set-cookie", b"a"), (b"retry-after", b"7"), (b"set-cookie", b"b")]


KEY = b"weftline.default.key_0123456789abcdef.secret-of-the-key"
TOKEN = JwtCodec().encode({"sub": "planner"}, "default.0123456789abcdef", b"k" * 32).encode()
OTHER_TOKEN = JwtCodec().encode({"sub": "user"}, "19344e65-bbc9-44d1-a9d0-f957b079bd0e", b"k" * 32).encode()


@pytest.mark.parametrize(
    "header",
    [
        (b"authorization", b"Bearer " + KEY),
        (b"authorization", b"bearer  " + KEY),
        (b"authorization", KEY),
        (b"authorization", b"Basic " + base64.b64encode(b"user:" + KEY)),
        (b"authorization", b"Bearer " + TOKEN),
        (b"x-api-key", KEY),
    ],
)
def test_a_credential_of_weftline_is_known_wherever_one_of_a_provider_belongs(header: tuple[bytes, bytes]) -> None:
    given = [(b"accept", b"*/*"), header]
    assert has_misplaced_key(given)
    assert not has_credential(given, b"")
    assert without_own_key(given) == [(b"accept", b"*/*")]


@pytest.mark.parametrize("value", [b"Bearer sk-1", b"Bearer " + OTHER_TOKEN, b"Basic dXNlcjpr", b"Basic weftline", b""])
def test_credentials_of_providers_are_forwarded(value: bytes) -> None:
    given = [(b"authorization", value), (b"user-agent", b"weftline.example/1.0")]
    assert not has_misplaced_key(given)
    assert without_own_key(given) == given


def test_a_header_that_repeats_the_path_with_its_key_is_left_out() -> None:
    given = [(b"x-original-uri", b"/openai/" + KEY + b"/v1"), (b"authorization", b"Bearer sk")]
    assert without_own_key(given) == given[1:]
    assert own_key(given) == b""


@pytest.mark.parametrize("encodings", [0, 1, 2, 3])
def test_a_weftline_key_in_a_path_or_query_is_found_however_it_is_encoded(encodings: int) -> None:
    target = b"key=" + KEY
    for each in range(encodings):
        target = target.replace(b".", b"%2E") if each == 0 else target.replace(b"%", b"%25")
    assert names_own_key(target)
    assert not names_own_key(b"/v1/models/weftline.model?key=sk-1")
