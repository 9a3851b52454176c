"""Hostile requests from clients that have not authenticated."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx2
import pytest

from support.forked_python import server_process

if TYPE_CHECKING:
    from pathlib import Path

    from support.team import Team


def answer_to(team: Team, head: bytes) -> bytes:
    """Send a request head repeatedly until the server answers or closes the connection."""
    address = urlsplit(team.url)
    with socket.create_connection((address.hostname, address.port), timeout=60) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n")
        try:
            for _ in range(200):
                connection.sendall(head)
            return connection.recv(1_000)
        except ConnectionError:
            return b""


@pytest.mark.parametrize("head", [b"x-filler: " + b"a" * 10_000 + b"\r\n", b"x-one-long-header: " + b"a" * 10_000])
def test_an_endless_request_head_is_refused(team: Team, head: bytes) -> None:
    assert answer_to(team, head)[:12] in {b"HTTP/1.1 431", b""}
    assert httpx2.get(f"{team.url}/health").status_code == 200


def test_forwarded_headers_do_not_bypass_rate_limits(tmp_path: Path) -> None:
    with server_process(tmp_path) as server, httpx2.Client(base_url=server.url) as http:
        codes = [
            http.get(
                "/v1/sessions",
                headers={
                    "Authorization": f"Bearer weftline.default.key_{number:016x}.x",
                    "X-Forwarded-For": f"10.0.0.{number}",
                },
            ).status_code
            for number in range(80)
        ]
    assert codes[0] == 401
    assert codes[-1] == 429
