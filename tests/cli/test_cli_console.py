"""``weftline console``: a link that signs a browser in, on a server and on a data folder."""

from __future__ import annotations

import re
import signal
import socket
import stat
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx2
import pytest
from cli_support import CommandLine, clean_environment, free_port

from support import forked_python
from support.forked_python import server_process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LINK = re.compile(r"^(http://127\.0\.0\.1:\d+)/console/sign-in#([\w-]+\.[\w-]+\.([\w-]+))$")


def signed_in_as(link: str) -> str:
    """Open a link in a browser without scripts: paste it. Returns the principal that the console names."""
    found = LINK.match(link)
    assert found is not None, link
    with httpx2.Client(base_url=found[1], timeout=60) as browser:
        assert browser.post("/console/sign-in", data={"api_key": link}).status_code == 303
        assert browser.post("/console/sign-in", data={"api_key": link}).status_code == 401
        page = browser.get("/console").text
    principal = re.search(r"<summary>([\w-]+)</summary>", page)
    assert principal is not None, page
    return principal[1]


def secret_of(link: str) -> str:
    found = LINK.match(link)
    assert found is not None
    return found[3]


def test_a_link_of_a_server_is_for_the_owner_of_the_key(tmp_path: Path) -> None:
    with server_process(tmp_path, log_level="DEBUG") as server:
        remote = CommandLine(tmp_path, {"WEFTLINE_URL": server.url, "WEFTLINE_API_KEY": server.admin_key})
        link = remote.run("console", "--no-open").stdout.strip()
        assert link.startswith(server.url)
        assert signed_in_as(link) == "admin"
        made = remote.json("agent", "create", "ana", "--kind", "human", "--permissions", "read")
        ana = CommandLine(tmp_path, {"WEFTLINE_URL": server.url, "WEFTLINE_API_KEY": made["api_key"]})
        assert signed_in_as(ana.run("console", "--no-open").stdout.strip()) == "ana"
        remote.run("console", "--no-open", "--port", "9", code=2)
        token = remote.json("token", "issue", "admin", "admin", "-", stdin=server.admin_key)["token"]
        holder = CommandLine(tmp_path, {"WEFTLINE_URL": server.url, "WEFTLINE_API_KEY": token})
        assert "this is a token" in holder.run("console", "--no-open", code=3).stderr
        logged = server.logged()
    assert logged
    assert secret_of(link) not in logged
    assert server.admin_key not in logged.replace(f"  {server.admin_key}\n", "")


def test_on_a_data_folder_the_link_is_for_the_server_that_runs_there(tmp_path: Path) -> None:
    with server_process(tmp_path) as server:
        (announced,) = tmp_path.glob("*-server.json")
        assert stat.S_IMODE(announced.stat().st_mode) == 0o600
        here = CommandLine(tmp_path)
        link = here.run("console", "--no-open").stdout.strip()
        assert link.startswith(server.url)
        assert signed_in_as(link) == "admin"
        here.run("agent", "create", "planner")
        assert signed_in_as(here.run("--as", "planner", "console", "--no-open").stdout.strip()) == "planner"
        assert "'nobody' does not exist" in here.run("--as", "nobody", "console", "--no-open", code=3).stderr
        assert server.stop() == 0
        assert not announced.exists()


@contextmanager
def console_process(data: Path, *options: str) -> Iterator[list[str]]:
    """Run ``weftline console`` on a data folder without a server; yield its output as soon as it serves."""
    process = subprocess.Popen(
        [forked_python.python(), "-m", "weftline", "console", "--no-open", "--port", str(free_port()), *options],
        env={**clean_environment(), "WEFTLINE_DATA_DIR": str(data)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield [process.stdout.readline().strip()]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
        process.stdout.close()


@pytest.mark.parametrize("left_over", [False, True], ids=["new", "after a crash"])
def test_without_a_server_one_is_started(tmp_path: Path, *, left_over: bool) -> None:
    if left_over:
        (tmp_path / "weftline.db-server.json").write_text(f'{{"url": "http://127.0.0.1:{free_port()}", "pid": 1}}')
    with console_process(tmp_path) as (link,):
        assert signed_in_as(link) == "admin"
        # Another command finds it.
        again = CommandLine(tmp_path).run("console", "--no-open").stdout.strip()
        assert again.partition("#")[0] == link.partition("#")[0]
        assert signed_in_as(again) == "admin"


def test_a_browser_gets_a_file_that_others_cannot_read_and_no_token(tmp_path: Path) -> None:
    arguments, program = tmp_path / "arguments", tmp_path / "browser"
    program.write_text(f'#!/bin/sh\necho "$@" > {arguments}\n')
    program.chmod(0o700)
    with server_process(tmp_path):
        shown = CommandLine(tmp_path).process("console", BROWSER=f"{program} %s", TMPDIR=str(tmp_path))
    link = shown.stdout.strip()
    assert "Opening the console" in shown.stderr
    assert secret_of(link) not in arguments.read_text()
    (page,) = tmp_path.glob("weftline-console-*.html")
    assert arguments.read_text().strip() == page.as_uri()
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert f'content="0;url={link}"' in page.read_text()


def test_a_port_that_another_program_uses_is_reported(cli: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        refused = cli.run("console", "--no-open", "--port", str(other.getsockname()[1]), code=4)
    assert "CANNOT_LISTEN" in refused.stderr
    assert refused.stdout == ""
