"""``weftline hooks``: the switch, the status, and deletion of what was recorded; ``weftline mcp --repository``."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from support.hooks import make_repository
from weftline import Weftline
from weftline.transports.hooks.hook_input import read_hook
from weftline.transports.hooks.recorder import Recorder
from weftline.transports.hooks.repository import find_repository

if TYPE_CHECKING:
    from pathlib import Path

    from cli_support import CommandLine


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = make_repository(tmp_path / "shop")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("WEFTLINE_HOOKS_DIR", str(tmp_path / "hooks"))
    return folder


def test_one_command_switches_hooks_off_and_on(shop: Path, cli: CommandLine) -> None:
    assert cli.json("hooks", "status")["hooks"] == "on"
    cli.run("hooks", "off")
    assert "Hooks are off." in cli.run("hooks", "status").stdout
    cli.run("hooks", "on")
    shown = cli.json("hooks", "status")
    repository = find_repository(shop)
    assert (shown["hooks"], shown["session_id"], shown["agent_id"]) == (
        "on",
        repository.session_id,
        repository.agent_id,
    )
    assert shown["figures"] is None


async def _record(data: Path, folders: list[Path]) -> None:
    async with Weftline.open(data) as weftline:
        recorder = Recorder(weftline)
        for folder in folders:
            given = {"session_id": "c", "cwd": str(folder)}
            prompt = {"hook_event_name": "UserPromptSubmit", "prompt": "We decided to use PostgreSQL 16.", **given}
            end = {"hook_event_name": "SessionEnd", **given}
            await recorder.record(read_hook("codex", json.dumps(prompt).encode(), "/"), find_repository(folder))
            await recorder.push(read_hook("codex", json.dumps(end).encode(), "/"), find_repository(folder))


async def _entries(data: Path, folder: Path) -> list[str]:
    async with Weftline.open(data, background=False) as weftline:
        read = await weftline.acting_as(find_repository(folder).agent_id).context.read()
        return [entry.key for entry in read.entries]


def test_what_was_recorded_of_a_repository_is_deleted_and_nothing_else(
    shop: Path, cli: CommandLine, tmp_path: Path
) -> None:
    bank = make_repository(tmp_path / "bank")
    asyncio.run(_record(cli.data, [shop, bank]))
    assert len(asyncio.run(_entries(cli.data, shop))) == 1
    refused = cli.run("hooks", "delete", code=1)
    assert "--yes" in refused.stderr
    deleted = cli.json("hooks", "delete", "--yes")
    assert deleted == {"sessions": [find_repository(shop).session_id], "entries": 1}
    assert asyncio.run(_entries(cli.data, shop)) == []
    assert len(asyncio.run(_entries(cli.data, bank))) == 1
    sessions = [each["id"] for each in cli.json("session", "list")["sessions"]]
    assert sessions == [find_repository(bank).session_id]


def test_a_hook_is_sent_by_hand_only_to_a_process(shop: Path, cli: CommandLine) -> None:
    assert shop.exists()
    assert "No process answers hooks" in cli.run("hooks", "send", "codex", code=1, stdin="{}").stderr


def test_mcp_for_a_repository_chooses_agent_and_session_itself(shop: Path, cli: CommandLine) -> None:
    assert shop.exists()
    assert "omit --as and --session" in cli.run("mcp", "--repository", "--session", "x", code=2).stderr
