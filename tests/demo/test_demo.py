"""The demo: a real server process, three MCP clients, the whole interaction cycle."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.types import CallToolResult

from support import forked_python
from support.staying_demo import listed_keys, staying_demo
from weftline.demo import agents as demo_agents
from weftline.demo.agents import Agent
from weftline.demo.run import Narrator, _short, _weftline
from weftline.demo.story import _conclude
from weftline.kernel.errors import SystemUnavailable
from weftline.settings import Settings


@pytest.fixture(scope="module")
def played() -> subprocess.CompletedProcess[str]:
    """Play the demo."""
    return subprocess.run(
        [forked_python.python(), "-m", "weftline", "demo"],
        env={name: value for name, value in os.environ.items() if name != "WEFTLINE_PORT"},
        check=True,
        capture_output=True,
        text=True,
        timeout=180,
    )


@pytest.fixture(scope="module")
def output(played: subprocess.CompletedProcess[str]) -> str:
    """Return the output of the demo."""
    return played.stdout


def test_the_demo_prints_no_warnings(played: subprocess.CompletedProcess[str]) -> None:
    assert [line for line in played.stderr.splitlines() if not line.startswith("Weftline is at http")] == []


def test_a_demo_that_ends_leaves_the_default_port_to_a_server(played: subprocess.CompletedProcess[str]) -> None:
    assert "Weftline is at http://127.0.0.1:" in played.stderr
    assert ":8787" not in played.stderr


@pytest.mark.req("WX-03")
def test_a_sub_agent_of_the_demo_is_asked_by_a_direct_message(output: str) -> None:
    asked = output.index("remediation  inbox()\n              → planner: “The user approves the revert.")
    assert "→ empty now" in output[asked:]


@pytest.mark.req("SC-21")
def test_the_demo_plays_the_whole_cycle_with_separate_agents(output: str) -> None:
    assert "findings_summary           1      24  subagent:analysis" in output
    assert "deliverables_status        1      12  subagent:remediation" in output
    assert "decisions_made             1      18  orchestrator:planner" in output
    assert "open_questions has changed" in output
    assert "gone; it was at version 1" in output
    assert "PERMISSION_DENIED" in output


@pytest.mark.req("CE-U1", part="the evidence for each step in fewer tokens than the conversation alone")
def test_the_demo_assembles_prompts_that_are_smaller_and_have_the_evidence(output: str) -> None:
    assert output.count("20 messages, calls and results") == 3
    assert output.count("→ has “") == 9
    assert "→ lacks" not in output
    pattern = r"    all +9 +([\d,]+) +([\d,]+) +(\d+)% +([\d,]+) +(\d+)% +\$[\d.]+ +(\d+)%\n"
    comparison = re.search(pattern, output)
    assert comparison is not None
    sent, alone, saved, whole, saved_of_whole, money = (int(each.replace(",", "")) for each in comparison.groups())
    assert saved == round(100 * (1 - sent / alone))
    assert saved_of_whole == round(100 * (1 - sent / whole))
    assert 60 <= saved <= saved_of_whole
    assert money > 0
    receipt = output.partition("10 · The receipt of a prompt")[2]
    assert re.search(r"\$ weftline receipt show (receipt_\w+)\s+Receipt \1 ", receipt)
    assert "Omitted: " in receipt


@pytest.mark.req("WX-10", part="the same agent costs less with the model proxy, and its provider's cache holds")
def test_the_demo_runs_an_agent_without_and_with_the_model_proxy(output: str) -> None:
    scene = output.partition("11 · Without a line of code")[2]
    rows = re.findall(r"(without|with) +(\d+) +([\d,]+) +(\d+)% +\$([\d.]+) +(-?\d+)%", scene)
    (_, calls, sent, cached, cost, _), (_, proxied_calls, proxied, still_cached, lower, saved) = rows
    assert calls == proxied_calls
    assert int(proxied.replace(",", "")) < int(sent.replace(",", "")) / 2
    assert int(still_cached) >= int(cached) - 1
    assert int(saved) == round(100 * (1 - float(lower) / float(cost))) > 0
    assert "→ the last request has “order" in scene


@pytest.mark.req("SC-21")
def test_stay_keeps_serving_the_session_of_the_demo(tmp_path: Path) -> None:
    """In a database; tests/demo/test_demo_console.py has one in a data folder."""
    with staying_demo(tmp_path, WEFTLINE_DATABASE_URL="kept.db", WEFTLINE_DATA_DIR="unused") as output:
        assert "decisions_made" in listed_keys(output)
    # But for what the model proxy of the last scene keeps of calls until they are stored.
    assert {path.name for path in (tmp_path / "unused").glob("*")} <= {"proxied-calls"}


_ANSWERS: dict[str, dict[str, Any]] = {
    "shared_context": {"keys": [], "metadata": {"total_size_tokens": 0}},
    "search": {"results": [], "confidence": 0.5},
}


class _Indexing(Client):
    """A client whose searches have something pending at first, as on a server that still embeds."""

    def __init__(self, name: str, waits: float, log: list[str]) -> None:
        self.name, self.waits, self.log = name, waits, log

    async def call_tool(self, name: str, *arguments: Any, **_: Any) -> CallToolResult:
        self.waits -= 1
        pending = {"pending": {"by_words": True}} if self.waits >= 0 and name == "search" else {}
        if name == "search" and not pending:
            self.log.append(f"{self.name}: {arguments[0]['query']}")
        return CallToolResult(content=[], structured_content=pending or _ANSWERS[name])


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_agents, "_POLL_SECONDS", 0)


@pytest.mark.usefixtures("impatient")
async def test_the_demo_searches_by_meaning_once_what_every_agent_wrote_has_vectors() -> None:
    log: list[str] = []
    agents = [Agent(name, _Indexing(name, waits, log), Narrator()) for name, waits in (("a", 2), ("b", 9), ("c", 0))]
    await _conclude(agents, Narrator())
    assert [line.partition(":")[0] for line in log] == ["a", "b", "c", "a"]
    assert log[-1] == "a: what made ordering so sluggish?"


@pytest.mark.usefixtures("impatient")
async def test_the_demo_says_that_indexing_does_not_end() -> None:
    with pytest.raises(SystemUnavailable, match="by_words"):
        await Agent("a", _Indexing("a", float("inf"), []), Narrator()).search("what?")


async def test_the_demo_waits_for_a_slow_machine_within_the_rate_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def slept(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(demo_agents.asyncio, "sleep", slept)
    await Agent("a", _Indexing("a", 90, []), Narrator()).search("what?")
    assert len(waits) == 90
    # An agent may send 100 searches in a minute, and its prompts search as well.
    assert sum(waits[:60]) > 55


def test_passwords_are_not_printed() -> None:
    settings = Settings(database_url="postgresql://weftline:secret@db.internal/weftline")
    assert _weftline(settings).startswith('WEFTLINE_DATABASE_URL="${WEFTLINE_DATABASE_URL:?}" ')
    assert "secret" not in _weftline(settings)


@pytest.mark.parametrize("command", [["demo", "--stay"], ["serve"]], ids=" ".join)
def test_a_used_port_is_reported_before_data_is_created(command: list[str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        refused = subprocess.run(
            [forked_python.python(), "-m", "weftline", *command, "--port", port, "--data-dir", str(tmp_path / "data")],
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
    assert refused.returncode == 4
    assert refused.stdout == ""
    assert f"CANNOT_LISTEN: Weftline cannot listen on 127.0.0.1:{port}" in refused.stderr
    assert "Choose another port with --port or WEFTLINE_PORT." in refused.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("short", '"short"'),
        ("It's here", '"It\'s here"'),
        ("word " * 30, '"' + "word " * 10 + 'word…"'),
        (["scope", "goal"], '["scope", "goal"]'),
        (3, "3"),
    ],
)
def test_arguments_are_shown_as_json_and_truncated(value: object, shown: str) -> None:
    assert _short(value) == shown
