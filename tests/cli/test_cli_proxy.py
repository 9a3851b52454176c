"""``weftline proxy`` as a process: what it prints, and what it meters."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import httpx2
import pytest
from cli_support import CommandLine, free_port

from support import forked_python

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ANSWER = json.dumps(
    {"model": "gpt-5-mini", "usage": {"prompt_tokens": 1000, "completion_tokens": 42, "total_tokens": 1042}}
).encode()


class _Provider(BaseHTTPRequestHandler):
    """A provider with one answer."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Log nothing."""


@contextmanager
def provider() -> Iterator[str]:
    """Run a provider, and return its address."""
    with HTTPServer(("127.0.0.1", 0), _Provider) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def running(data: Path, *options: str, stderr: int | None = None) -> Iterator[subprocess.Popen[str]]:
    """Run the command in front of a provider."""
    with provider() as url:
        settings = {
            "WEFTLINE_DATA_DIR": str(data),
            "WEFTLINE_PROXY_PORT": str(free_port()),
            "WEFTLINE_PROXY_UPSTREAMS": f"openai={url}",
        }
        command = [forked_python.python(), "-m", "weftline", *options, "proxy"]
        environment = {**os.environ, **settings}
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)
            assert process.stdout is not None
            process.stdout.close()


def call(process: subprocess.Popen[str]) -> list[str]:
    """Make a call as the printed variables say; return the note that was printed, and the line of the call."""
    assert process.stdout is not None
    anthropic, openai, gemini, note = (process.stdout.readline().strip() for _ in range(4))
    assert anthropic.startswith("export ANTHROPIC_BASE_URL=http://127.0.0.1:")
    assert anthropic.endswith("/anthropic")
    assert gemini == anthropic.replace("ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL").replace("/anthropic", "/gemini")
    url = openai.removeprefix("export OPENAI_BASE_URL=")
    answer = httpx2.post(f"{url}/chat/completions", json={"model": "gpt-5-mini"}, trust_env=False, timeout=60)
    assert answer.content == ANSWER
    return [note, process.stdout.readline().strip()]


def test_calls_are_shown_with_what_they_cost_and_nothing_is_created(tmp_path: Path) -> None:
    with running(tmp_path / "none") as process:
        note, line = call(process)
    assert "not recorded: there is no database yet" in note
    assert "gpt-5-mini  1,000 in  42 out  $0.0003" in line
    assert not (tmp_path / "none").exists()


def test_calls_are_metered_for_the_agent_of_the_command_if_there_is_a_database(tmp_path: Path) -> None:
    line = CommandLine(tmp_path)
    line.run("agent", "create", "coder")
    with running(tmp_path, "--as", "coder") as process:
        assert "metered for coder" in call(process)[0]
    (row,) = line.json("usage", "report", "--by", "agent", "--kind", "proxy")["rows"]
    assert (row["group"], row["calls"], row["total_tokens"]) == ("coder", 1, 1042)


def test_a_database_without_a_tenant_gets_the_default_one_and_nothing_stands_between_the_lines(tmp_path: Path) -> None:
    CommandLine(tmp_path).run("db", "migrate")
    with running(tmp_path, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        shown = [process.stdout.readline().strip() for _ in range(2)]
        assert shown[0].startswith("Created the tenant 'default'.")
        assert shown[1].startswith("weftline.default.key_")
        note, line = call(process)
        assert "metered for admin" in note
        assert "gpt-5-mini  1,000 in  42 out" in line
        process.terminate()
        # Logs of the operations that record the call are not wanted here, unless a level is set.
        assert process.stdout.read() == ""


def test_an_unknown_agent_is_refused(tmp_path: Path) -> None:
    line = CommandLine(tmp_path)
    line.run("session", "create", "Plan")
    failed = line.process("--as", "nobody", "proxy", "--port", str(free_port()))
    assert failed.returncode != 0
    assert "nobody" in failed.stderr
    assert "Traceback" not in failed.stderr


PROGRAM = """
import os, sys, urllib.request
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
answer = urllib.request.urlopen(urllib.request.Request(url, b"{}", {"content-type": "application/json"}))
print(answer.status, *sys.argv[1:])
sys.exit(int(os.environ["CODE"]))
"""


@pytest.mark.parametrize("code", [0, 7])
def test_a_wrapped_program_finds_the_proxy_and_ends_as_it_does_alone(code: int, tmp_path: Path) -> None:
    line = CommandLine(tmp_path)
    line.run("agent", "create", "coder")
    with provider() as url:
        program = ["--as", "coder", "wrap", sys.executable, "-c", PROGRAM, "--as", "--json", "x y"]
        # Where the program would have gone without the proxy; a proxy for the internet is none for this machine.
        before = {"OPENAI_BASE_URL": f"{url}/v1", "CODE": str(code), "http_proxy": "http://127.0.0.1:9"}
        ended = line.process(*program, **before)
    assert (ended.returncode, ended.stdout) == (code, "200 --as --json x y\n")
    assert ended.stderr == "Weftline: 1 model call, 1,000 tokens in, 42 out, $0.0003\n"
    (row,) = line.json("usage", "report", "--by", "agent", "--kind", "proxy")["rows"]
    assert (row["group"], row["calls"]) == ("coder", 1)


def test_a_wrapped_program_is_told_that_the_terminal_has_gone(tmp_path: Path) -> None:
    program = "trap 'echo ended; exit 9' HUP; echo ready; while :; do sleep 0.05; done"
    # A process of its own: not all signals reach a forked one.
    command = [sys.executable, "-m", "weftline", "wrap", "bash", "-c", program]
    environment = {**os.environ, "WEFTLINE_DATA_DIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGHUP)
        assert process.stdout.read() == "ended\n"
    assert process.returncode == 9


def test_a_program_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    assert "no program 'no-such-program'" in CommandLine(tmp_path).run("wrap", "no-such-program", code=2).stderr
