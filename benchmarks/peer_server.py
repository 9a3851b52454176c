"""The public server that Weft is compared with, installed on first use in a separate virtual environment."""

from __future__ import annotations

import shutil
import subprocess
import sys
from base64 import urlsafe_b64encode
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.servers import free_port, server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.servers import Served

NAME = "shared-context-server 1.1.10"
API_KEY = "an-api-key-of-at-least-32-characters"
_HOME = Path(__file__).parents[1] / ".bench-peer"
_REQUIREMENTS = Path(__file__).with_name("baselines") / "peer-requirements.txt"
# Written last, so that a partial installation is not mistaken for a complete one.
_INSTALLED = _HOME / "installed.txt"
_INSTALL_SECONDS = 600
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


class NoPeer(Exception):
    """The other server cannot be installed."""


def install() -> None:
    """Install the pinned version unless it is installed."""
    requirements = _REQUIREMENTS.read_text(encoding="utf-8")
    if _INSTALLED.exists() and _INSTALLED.read_text(encoding="utf-8") == requirements:
        return
    shutil.rmtree(_HOME, ignore_errors=True)
    try:
        _reinstall()
    except (OSError, subprocess.SubprocessError) as error:
        raise NoPeer(f"it cannot be installed: {_last_line(error)}") from error
    _INSTALLED.write_text(requirements, encoding="utf-8")


def _reinstall() -> None:
    pip = [str(_HOME / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in ([sys.executable, "-m", "venv", str(_HOME)], [*pip, "--requirement", str(_REQUIREMENTS)]):
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_INSTALL_SECONDS)


def _last_line(error: Exception) -> str:
    output = str(getattr(error, "stderr", None) or error).strip()
    return output.splitlines()[-1]


@contextmanager
def peer_server(data: Path) -> Iterator[Served]:
    """Serve a data folder with the other server's production defaults, without its logs."""
    with server([*_WITHOUT, str(_HOME / "bin" / "shared-context-server"), *_OPTIONS], _settings(data), "/health") as it:
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
