"""Headers that a proxy passes on, and those that end at it."""

from __future__ import annotations

import pytest

from weftline.transports.proxy.headers import request_headers, response_headers


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
