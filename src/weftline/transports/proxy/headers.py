"""Headers that end at a proxy, and those that the proxy sends instead."""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from weftline.providers.jwt import JwtCodec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weftline.models.language_models.content import WireForm

    Header = tuple[bytes, bytes]

KEY_HEADER = b"x-weftline-key"
# Where providers take a key from.
CREDENTIALS = frozenset({b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key"})
_KEY_START, _BEARER, _BASIC = b"weftline.", b"bearer ", b"basic "
_OWN_KEY = re.compile(rb"weftline\.[\w-]{1,100}\.key_\w{1,100}\.[\w-]")
# The name of the key that signs a token of this server, and how every token begins.
_OWN_SIGNER, _TOKEN_START = re.compile(r"[\w-]{1,100}\.[0-9a-f]{16}"), b"eyJ"
# How many times a path or query is percent-decoded before it is searched.
_MAX_DECODED = 3
_KEY_PARAMETER = re.compile(rb"(?:\A|&)key=")
_CONNECTION, _HOST, _ENCODINGS = b"connection", b"host", b"accept-encoding"
_LENGTH, _CHUNKED = b"content-length", (b"transfer-encoding", b"chunked")
# RFC 9110, 7.6.1, and what older clients send.
_HOP_BY_HOP = frozenset(
    {
        _CONNECTION,
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
# The server has told the client to go on.
_ANSWERED_HERE = frozenset({b"expect", KEY_HEADER})
# Usage is read from answers, so they have to come in an encoding that can be read.
_READABLE = frozenset({b"gzip", b"x-gzip", b"deflate", b"identity"})


def request_headers(
    given: Iterable[Header], host: bytes, length: int | None, *, has_body: bool, is_plain: bool = False
) -> list[Header]:
    """Return the headers to send upstream; ``length`` is that of the body, None if it is not known.

    ``is_plain`` asks for an answer that is not compressed.
    """
    given = list(given)
    dropped = _HOP_BY_HOP | _ANSWERED_HERE | _named_by_connection(given) | {_HOST}
    if has_body:
        dropped |= {_LENGTH}
    sent = [(_HOST, host), *((name, value) for name, value in given if name not in dropped)]
    sent = [(name, _readable(value)) if name == _ENCODINGS else (name, value) for name, value in sent]
    if is_plain:
        sent = [*(header for header in sent if header[0] != _ENCODINGS), (_ENCODINGS, b"identity")]
    if has_body:
        sent.append(_CHUNKED if length is None else (_LENGTH, b"%d" % length))
    return sent


def own_key(headers: Iterable[Header]) -> bytes:
    """Return the Weftline key in the header for it, or where a program sends its provider's key; empty if none."""
    given = [*headers]
    sent = (_plain(value) for name, value in given if name in CREDENTIALS)
    return value_of(KEY_HEADER, given) or next((key for key in sent if key.startswith(_KEY_START)), b"")


def without_own_key(headers: Iterable[Header]) -> list[Header]:
    """Leave out what holds a credential of Weftline: also a header in which a server in front repeats the path."""
    return [(name, value) for name, value in headers if not _is_own(name, value)]


def has_misplaced_key(headers: Iterable[Header]) -> bool:
    """Tell whether a credential of Weftline is where that of the provider belongs."""
    return any(name in CREDENTIALS and _is_own(name, value) for name, value in headers)


def names_own_key(target: bytes) -> bool:
    """Tell whether a path or query has a Weftline key, for a server that decodes more of it than others."""
    for _ in range(_MAX_DECODED):
        if _OWN_KEY.search(target):
            return True
        target = unquote_to_bytes(target)
    return _OWN_KEY.search(target) is not None


def has_credential(headers: Iterable[Header], query: bytes) -> bool:
    """Tell whether a request has a credential of the provider."""
    own = any(name in CREDENTIALS and not _is_own(name, value) for name, value in headers)
    return own or _KEY_PARAMETER.search(query) is not None


def credential_header(provider: str, form: WireForm | None, key: bytes) -> Header:
    """Return the header with a key, as the API of a provider takes it."""
    if provider == "openai" or form in {"openai_chat", "openai_responses"}:
        return b"authorization", b"Bearer " + key
    return (b"x-goog-api-key" if provider == "gemini" else b"x-api-key"), key


def response_headers(given: Iterable[Header]) -> list[Header]:
    """Return the headers of a response for the client."""
    lowered = [(name.lower(), value) for name, value in given]
    dropped = _HOP_BY_HOP | _named_by_connection(lowered)
    return [header for header in lowered if header[0] not in dropped]


def value_of(name: bytes, headers: Iterable[Header]) -> bytes:
    return next((value for each, value in headers if each == name), b"")


def _is_own(name: bytes, value: bytes) -> bool:
    if name not in CREDENTIALS:
        return _KEY_START in value and _OWN_KEY.search(value) is not None
    plain = _plain(value)
    return plain.startswith(_KEY_START) or _OWN_KEY.search(_decoded(value)) is not None or _is_own_token(plain)


def _is_own_token(plain: bytes) -> bool:
    if not plain.startswith(_TOKEN_START):
        return False
    kid = JwtCodec().kid_of(plain.decode("latin-1"))
    return kid is not None and _OWN_SIGNER.fullmatch(kid) is not None


def _decoded(value: bytes) -> bytes:
    """Return a credential with its name and password, if it has the scheme with both."""
    if value[: len(_BASIC)].lower() != _BASIC:
        return value
    try:
        return base64.b64decode(value[len(_BASIC) :])
    except binascii.Error:
        return value


def _plain(value: bytes) -> bytes:
    """Return a credential without the name of its scheme."""
    return value[len(_BEARER) :].strip() if value[: len(_BEARER)].lower() == _BEARER else value.strip()


def _named_by_connection(headers: Iterable[Header]) -> frozenset[bytes]:
    return frozenset(
        token.strip().lower() for name, value in headers if name == _CONNECTION for token in value.split(b",")
    )


def _readable(encodings: bytes) -> bytes:
    """Leave out encodings that cannot be read here; unchanged if all can."""
    tokens = encodings.split(b",")
    kept = [token for token in tokens if token.partition(b";")[0].strip().lower() in _READABLE]
    if len(kept) == len(tokens):
        return encodings
    return b",".join(kept).strip() or b"identity"
