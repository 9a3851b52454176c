"""Attacks by callers without a credential, or with a wrong one."""

from __future__ import annotations

import itertools
import secrets
from typing import TYPE_CHECKING

from benchmarks.attacks import End, attack, flood, repeated
from benchmarks.wire import request
from weftline.access.model import KEY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.attacks import Tally, Target

_NESTED = b"[" * 4_000_000
_BOARD = "/v1/sessions/any/context/any"


def _unknown_key() -> str:
    """Return an API key of the right form that was never given out."""
    return f"{KEY_PREFIX}.default.{secrets.token_hex(8)}.{secrets.token_urlsafe(32)}"


def _post(path: str, content: bytes, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: 127.0.0.1", "content-type: application/json", *headers]
    return "\r\n".join([*lines, f"content-length: {len(content)}", "", ""]).encode() + content


@attack(End.REFUSED)
async def nested_json(target: Target, tally: Tally) -> None:
    """Four megabytes of nested brackets to a REST route."""
    await flood(target, tally, lambda _: itertools.repeat(_post("/v1/sessions", _NESTED)), 4)


@attack(End.REFUSED)
async def nested_json_to_mcp(target: Target, tally: Tally) -> None:
    await flood(target, tally, lambda _: itertools.repeat(_post("/mcp", _NESTED)), 4)


@attack(End.REFUSED)
async def nested_json_to_login(target: Target, tally: Tally) -> None:
    """The same to the one operation that needs no credential."""
    await flood(target, tally, lambda _: itertools.repeat(_post("/v1/tokens", _NESTED)), 4)


@attack(End.REFUSED)
async def nested_json_to_hooks_and_shims(target: Target, tally: Tally) -> None:
    paths = ("/mcp/tool/shared_context", "/mcp/resource/subscribe", "/v1/import/stream", "/v1/export/stream")
    await flood(target, tally, lambda number: itertools.repeat(_post(paths[number % len(paths)], _NESTED)), 4)


@attack(End.REFUSED)
async def calls_without_credential(target: Target, tally: Tally) -> None:
    await flood(target, tally, repeated("GET", _BOARD, None))


@attack(End.REFUSED)
async def unknown_keys(target: Target, tally: Tally) -> None:
    """A new key id with every call, to fill tables of the server."""

    def requests(_: int) -> Iterator[bytes]:
        while True:
            yield request("GET", _BOARD, _unknown_key())

    await flood(target, tally, requests)


@attack(End.REFUSED)
async def wrong_secrets_of_a_victim(target: Target, tally: Tally) -> None:
    """The key id of a victim with wrong secrets, to lock the victim out."""

    def requests(_: int) -> Iterator[bytes]:
        while True:
            yield request("GET", _BOARD, f"{target.victim_key_id}.{secrets.token_urlsafe(32)}")

    await flood(target, tally, requests)


@attack(End.REFUSED)
async def forged_tokens(target: Target, tally: Tally) -> None:
    def requests(_: int) -> Iterator[bytes]:
        while True:
            yield request(
                "GET", _BOARD, f"eyJhbGciOiJIUzI1NiJ9.{secrets.token_urlsafe(300)}.{secrets.token_urlsafe(32)}"
            )

    await flood(target, tally, requests)


@attack(End.REFUSED)
async def logins_with_unknown_keys(target: Target, tally: Tally) -> None:
    def requests(_: int) -> Iterator[bytes]:
        while True:
            body = {"agent_id": "a", "agent_type": "a", "api_key": _unknown_key()}
            yield request("POST", "/v1/tokens", None, body)

    await flood(target, tally, requests)


@attack(End.SHARED)
async def public_pages(target: Target, tally: Tally) -> None:
    """Pages that need no credential; /openapi.json is the largest."""
    paths = ("/openapi.json", "/", "/ready", "/health")
    await flood(target, tally, lambda number: itertools.repeat(request("GET", paths[number % len(paths)], None)))


@attack(End.REFUSED)
async def unknown_routes(target: Target, tally: Tally) -> None:
    await flood(target, tally, repeated("GET", "/" + "x/" * 4_000, None))


@attack(End.REFUSED)
async def long_paths(target: Target, tally: Tally) -> None:
    """Paths that take long to decode, each on a connection of its own."""
    path = "/v1/sessions/" + "%41" * 20_000
    await flood(target, tally, repeated("GET", path, None, connection="close"))


@attack(End.REFUSED)
async def many_query_parameters(target: Target, tally: Tally) -> None:
    query = "&".join(f"a{number}=1" for number in range(4_000))
    await flood(target, tally, repeated("GET", f"/v1/events?{query}", None))


@attack(End.REFUSED)
async def chunks_of_one_byte(target: Target, tally: Tally) -> None:
    """A body in two hundred thousand chunks."""
    head = b"POST /v1/sessions HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n"
    content = head + b"1\r\n[\r\n" * 200_000 + b"0\r\n\r\n"
    await flood(target, tally, lambda _: itertools.repeat(content), 8)
