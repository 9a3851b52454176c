"""``weftline push``, ``weftline pull`` and the prompts of sessions, each command in its own process or app."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

from cli_support import CommandLine

TASK = "On which weekday is the release?"


@pytest.fixture
def bot(tmp_path: Path) -> CommandLine:
    """The commands of a sub-agent in two sessions."""
    cli = CommandLine(tmp_path / "data", {"WEFTLINE_SEMANTIC_SEARCH": "off"})
    cli.run("agent", "create", "planner", "--clearance", "3")
    cli.run("agent", "create", "bot", "--parent-id", "planner")
    for session in ("s1", "s2"):
        cli.run("--as", "planner", "session", "create", "x", "--session-id", session, "--members", "tree:planner")
    return cli


@pytest.mark.req("CE-F16")
@pytest.mark.req("CE-F18")
@pytest.mark.req("CE-U4")
def test_a_prompt_says_what_the_session_pulled_not_what_others_pushed(bot: CommandLine) -> None:
    def prompt(session: str) -> str:
        return bot.run("--as", "bot", "context", "assemble", TASK, "--session", session).stdout

    bot.run("--as", "bot", "push", "release/day", "The release is on Tuesday.")
    assert "snapshot v0 -> v1" in bot.run("--as", "bot", "pull", "--session", "s1").stdout
    bot.run("--as", "bot", "push", "release/day", "The release is on Friday.", "--session", "s2")
    assert "Tuesday" in bot.run("--as", "bot", "context", "read", "release/day", "--session", "s1").stdout
    assert "Tuesday" in prompt("s1")
    assert "Friday" not in prompt("s1")
    assert "Friday" in prompt("s2")
    found = bot.run("--as", "bot", "search", TASK, "--session", "s1", "--low-confidence").stdout
    assert "Tuesday" in found
    assert "Friday" not in found
    assert "snapshot v1 -> v2" in bot.run("--as", "bot", "pull", "--session", "s1").stdout
    assert "Friday" in prompt("s1")
    assert "Tuesday" not in prompt("s1")


@pytest.mark.req("WX-04")
def test_a_pull_shows_the_versions_of_shared_memory(bot: CommandLine) -> None:
    bot.run("team", "create", "core")
    bot.run("team", "add-member", "core", "bot")
    bot.run("--as", "bot", "push", "tone", "brief", "--owner", "team:core")
    assert "team:core v0 -> v1" in bot.run("--as", "bot", "pull", "--session", "s1").stdout
    bot.run("--as", "bot", "push", "tone", "long", "--owner", "team:core")
    assert "team:core v1 -> v2" in bot.run("--as", "bot", "pull", "--session", "s1").stdout
    assert "team:core" not in bot.run("--as", "bot", "pull", "--session", "s1").stdout
