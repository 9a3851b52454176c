"""The public server that Weftline is compared with, installed on first use in a separate virtual environment."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from contextlib import contextmanager
from typing import TYPE_CHECKING

from benchmarks.environments import Environment
from benchmarks.servers import free_port, server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.servers import Served

NAME = "shared-context-server 1.1.10"
API_KEY = "an-api-key-of-at-least-32-characters"
PEER = Environment("peer")
_OPTIONS = ("--transport", "http", "--log-level", "ERROR")
# With any of these variables set it assumes that it runs under test, and stores its data elsewhere.
_WITHOUT = (
    "env",
    "-u",
    "CI",
    "-u",
    "GITHUB_ACTIONS",
    "-u",
    "PYTEST_CURRENT_TEST",
    "-u",
    "PYTEST_XDIST_WORKER",
    "-u",
    "_",
)


@contextmanager
def peer_server(data: Path) -> Iterator[Served]:
    """Serve a data folder with the other server's production defaults, without its logs."""
    with server([*_WITHOUT, PEER.program("shared-context-server"), *_OPTIONS], _settings(data), "/health") as it:
        yield it


def _settings(data: Path) -> dict[str, str]:
    return {
        "ENVIRONMENT": "production",
        # It refuses its own default, every origin, in production.
        "CORS_ORIGINS": "http://127.0.0.1",
        "API_KEY": API_KEY,
        "JWT_SECRET_KEY": "a-signing-key-of-at-least-32-characters",
        "JWT_ENCRYPTION_KEY": urlsafe_b64encode(b"an encryption key of 32 bytes...").decode(),
        "DATABASE_PATH": str(data / "peer.db"),
        "XDG_DATA_HOME": str(data),
        "HTTP_HOST": "127.0.0.1",
        "WEBSOCKET_PORT": str(free_port()),
        "LOG_LEVEL": "ERROR",
        "FASTMCP_LOG_LEVEL": "ERROR",
    }
