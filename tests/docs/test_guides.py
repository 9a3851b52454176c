"""Every shell command of the guides runs, guide by guide, each in an empty folder with its own data."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support import forked_python

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
LAUNCH = 'weft session create "Plan the launch" --session-id launch\n'
# Guides for agents that already have a key and a session.
FOR_AGENTS = {"exchange-messages", "use-private-memory"}
PLANNER = LAUNCH + (
    "export WEFT_SESSION=launch\n"
    "key_of() { python -c 'import json, sys; print(json.load(sys.stdin)[\"api_key\"])'; }\n"
    "export WEFT_API_KEY=$(weft agent create planner --json | key_of)\n"
)
# Placeholders of the guides for the server's URL and key.
DEFAULT_URL, ADMIN_KEY = "http://127.0.0.1:8787", "the-key-that-weft-serve-printed"
# Blocks that need the network or run until they are stopped.
SKIPPED = ("pip install", "weft serve")


def guides() -> list[Path]:
    return [guide for guide in sorted(GUIDES.glob("*.md")) if commands(guide.read_text("utf-8"))]


def commands(text: str) -> str:
    """Return the commands of a text."""
    return "".join(block for block in BLOCK.findall(text) if not any(word in block for word in SKIPPED))


def script_of(guide: Path) -> str:
    """Return a guide's commands in order, after those it presupposes; sections for admins use the admin's key."""
    sections = guide.read_text("utf-8").split("\n## ")
    as_admin = f"export WEFT_API_KEY={ADMIN_KEY}\n"
    parts = [(as_admin if "as an admin" in part.partition("\n")[0] else "") + commands(part) for part in sections]
    script = "".join(parts)
    if guide.stem in FOR_AGENTS:
        return PLANNER + script
    return script if LAUNCH in script else LAUNCH + script


def command_path() -> str:
    """Return a PATH with the commands weft and python and those of this Python environment."""
    return os.pathsep.join([str(forked_python.folder()), str(Path(sys.executable).parent), os.environ["PATH"]])


@contextmanager
def environment_of(script: str, folder: Path) -> Iterator[dict[str, str]]:
    """Yield the environment of a script: a server if the script uses one, otherwise a data folder."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
    data = folder / "weft-data"
    if "WEFT_URL" in script or "WEFT_API_KEY" in script:
        data.mkdir()
        with forked_python.server_process(data) as server:
            yield {**inherited, "WEFT_URL": server.url, "WEFT_API_KEY": server.admin_key}
    else:
        yield {**inherited, "WEFT_DATA_DIR": str(data)}


@pytest.mark.parametrize("guide", guides(), ids=lambda guide: guide.stem)
def test_the_commands_of_a_guide_run_in_order(guide: Path, tmp_path: Path) -> None:
    script = script_of(guide)
    if "curl" in script and shutil.which("curl") is None:
        pytest.skip("the guide uses curl, which is not installed")
    work = tmp_path / "work"
    work.mkdir()
    with environment_of(script, work) as environment:
        for placeholder, name in ((DEFAULT_URL, "WEFT_URL"), (ADMIN_KEY, "WEFT_API_KEY")):
            script = script.replace(placeholder, environment.get(name, placeholder))
        run = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script.replace("curl ", "curl --fail --silent --show-error ")],
            cwd=work,
            env={**environment, "PATH": command_path()},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert run.returncode == 0, run.stdout[-1_000:] + run.stderr


def test_every_guide_that_shows_commands_is_run() -> None:
    shown = {guide.stem for guide in GUIDES.glob("*.md") if "```sh" in guide.read_text("utf-8")}
    assert shown == {guide.stem for guide in guides()}
