"""Every shell command of README, quickstart and guides runs: one after another, in one folder and one environment.

Variables that one page leaves behind are there for the next one, as in a terminal that stays open.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from support import forked_python

ROOT = Path(__file__).parents[2]
GUIDES = ROOT / "docs" / "guides"
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
LISTED = re.compile(r"\]\(guides/([a-z-]+)\.md\)")
# Commands that a page expects to fail, and the error it promises.
PROMISED = re.compile(r'\|\| echo "(\w+: ([A-Z_]+))"')
# Blocks that need the network or run until they are stopped.
SKIPPED = re.compile(r"pip install|weftline serve(?! --port 8790 &)")
# Lines that install Weftline and play the demo.
INSTALLING = re.compile(r"^(?:make run|\. \.venv/).*\n", re.MULTILINE)
DEFAULT_PORT, GUIDE_PORT = "8787", "8790"
SERVE = f"weftline serve --port {GUIDE_PORT} &\n"
# The data folder that the demo of the README leaves.
PLAYED = "weftline --data-dir weftline-data tenant create default\n"
# A new terminal, without the session of the README's walk, and the agents and the server that the demo leaves.
DEMO = (
    "unset WEFTLINE_SESSION\n"
    "export WEFTLINE_DATA_DIR=weftline-data\n"
    "weftline agent create planner\n"
    "weftline agent create analysis --parent-id planner\n"
    "key_of() { python -c 'import json, sys; print(json.load(sys.stdin)[\"api_key\"])'; }\n"
    f"export WEFTLINE_API_KEY=$(weftline key create admin --json | key_of)\n{SERVE}"
    f"weftline --url http://127.0.0.1:{GUIDE_PORT} doctor --wait 60\n"
    "unset WEFTLINE_API_KEY\n"
)
# Operators install into folders of their choice.
WITHOUT_FOLDER = {"run-in-production"}


def pages() -> list[Path]:
    """Return README, quickstart and the guides, in the order in which the index lists them."""
    names = LISTED.findall((ROOT / "docs" / "index.md").read_text("utf-8"))
    guides = [GUIDES / f"{name}.md" for name in names]
    return [page for page in (ROOT / "README.md", ROOT / "docs" / "quickstart.md", *guides) if script_of(page)]


def script_of(page: Path) -> str:
    """Return the commands of a page."""
    blocks = [INSTALLING.sub("", block) for block in BLOCK.findall(page.read_text("utf-8"))]
    return "".join(block for block in blocks if not SKIPPED.search(block))


def command_path() -> str:
    """Return a PATH with the commands weftline and python and those of this Python environment."""
    return os.pathsep.join([str(forked_python.folder()), str(Path(sys.executable).parent), os.environ["PATH"]])


def free_port() -> str:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which all pages run."""
    return tmp_path_factory.mktemp("reader")


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file that passes variables from one page to the next."""
    return tmp_path_factory.mktemp("variables") / "exported"


@pytest.mark.req("WX-08")
@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_the_commands_of_every_page_run_one_after_another_in_one_folder(
    page: Path, folder: Path, variables: Path
) -> None:
    commands = {"quickstart": DEMO, "README": PLAYED}.get(page.stem, "") + script_of(page)
    if "curl" in commands and shutil.which("curl") is None:
        pytest.skip("the page uses curl, which is not installed")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("WEFTLINE_")}
    run = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", in_terminal(commands, variables)],
        cwd=folder,
        env={**inherited, "PATH": command_path(), "HOME": str(variables.parent)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-1_000:] + run.stderr
    for said, code in PROMISED.findall(commands):
        assert said in run.stdout
        assert f"{code}: " in run.stderr
    assert {each.name for each in folder.iterdir()} <= ignored_folders()


@pytest.mark.req("WX-08")
def test_the_servers_of_guides_leave_the_port_of_the_demo_free() -> None:
    starting = [page for page in pages() if page.parent == GUIDES and "weftline serve" in script_of(page)]
    assert len(starting) >= 6
    assert not [page.stem for page in starting if DEFAULT_PORT in script_of(page)]


def in_terminal(commands: str, variables: Path) -> str:
    """Return commands that begin with the variables of the page before and leave theirs; servers get a free port."""
    port, file = free_port(), shlex.quote(str(variables))
    commands = commands.replace(SERVE, "weftline serve > /dev/null 2>&1 &\n")
    commands = re.sub(f"{DEFAULT_PORT}|{GUIDE_PORT}", port, commands)
    commands = commands.replace("curl ", "curl --fail --silent --show-error ")
    return (
        f"if [ -f {file} ]; then . {file}; fi\nexport WEFTLINE_PORT={port}\n"
        "trap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n"
        f"{commands}\nexport -p | grep -E '^declare -x WEFTLINE_' > {file}\n"
    )


def ignored_folders() -> set[str]:
    """Return the folders at the top of the repository that git ignores."""
    lines = (ROOT / ".gitignore").read_text("utf-8").splitlines()
    return {line.strip("/") for line in lines if line.startswith("/")}


@pytest.mark.req("WX-08")
def test_every_guide_works_in_a_folder_of_its_own() -> None:
    guides = {page.stem: script_of(page) for page in pages() if page.parent == GUIDES}
    started = {name for name, script in guides.items() if f"cd guide-data/{name}\n" in script}
    assert started == set(guides) - WITHOUT_FOLDER
    assert all(script.count("guide-data/") == 2 for name, script in guides.items() if name in started)


def test_every_page_that_shows_commands_is_run() -> None:
    """All but the page on performance, whose commands measure for hours."""
    shown = {page.stem for page in (ROOT / "docs").rglob("*.md") if script_of(page)} - {"performance"}
    assert shown | {"README"} == {page.stem for page in pages()}
