"""Command lines on an empty data folder, without the caller's environment variables."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from cli_support import CommandLine, clean_environment

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "data")


@pytest.fixture
def launch(cli: CommandLine, empty_file: Path) -> CommandLine:
    """Return a command line whose commands work in a session named launch."""
    # Copying the schema is faster than creating it.
    cli.data.mkdir(mode=0o700)
    shutil.copy(empty_file, cli.data / "weftline.db")
    cli.run("session", "create", "Plan the launch", "--session-id", "launch", "--members", "*")
    cli.env["WEFTLINE_SESSION"] = "launch"
    return cli
