"""Hooks of coding agents: the script, the socket and the process behind it, with recorded inputs of the agents."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.hooks import (
    SCRIPT,
    Hooks,
    add_worktree,
    make_repository,
    recorded_inputs,
    resident,
    serving,
    short_folder,
    until,
)
from weftline import Weftline
from weftline.kernel.errors import Unavailable
from weftline.transports.hooks.folder import HooksFolder
from weftline.transports.hooks.recorder import MAX_TOKENS
from weftline.transports.hooks.repository import find_repository
from weftline.transports.hooks.resident import ask

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SECRET = "sk-ant-api03-AbCdEfGhIjKlMnOpQrStUvWxYz0123456789abcdefghijklmnop"


def context_of(answer: dict[str, Any]) -> str:
    return str(answer.get("hookSpecificOutput", {}).get("additionalContext", ""))


async def windows(data: Path, folder: Path) -> dict[str, list[Any]]:
    """Return the events of each window of a repository's session."""
    session_id = find_repository(folder).session_id
    async with Weftline.open(data, background=False) as weftline:
        listed = (await weftline.window.list(session_id)).windows
        return {
            each.agent_id: (await weftline.window.events(session_id, agent_id=each.agent_id)).events for each in listed
        }


async def test_what_an_agent_does_is_in_the_window_of_its_conversation(tmp_path: Path) -> None:
    shop = make_repository(tmp_path / "shop")
    async with resident(tmp_path / "data") as hooks:
        names = []
        for name, text in recorded_inputs("claude-code", shop):
            await hooks.send_text(text)
            names.append(name)
        await hooks.recorded(len(names))
        figures = await hooks.figures()
    assert (figures["failed"], figures["dropped"]) == (0, 0)
    assert {"SessionStart", "UserPromptSubmit", "PostToolUse", "SubagentStop", "Stop", "SessionEnd"} <= {*names}
    found = await windows(tmp_path / "data", shop)
    main, sub = sorted(found.values(), key=len, reverse=True)
    said = [(event.role, event.content) for event in main]
    assert ("user", "say hello please") in said
    assert ("tool", "hello-from-bash") in said
    assert said[-1][0] == "assistant"
    assert sub
    assert all(agent.startswith(find_repository(shop).agent_id) for agent in found)


async def test_a_later_agent_is_told_what_an_earlier_one_decided_with_the_source(tmp_path: Path) -> None:
    shop = make_repository(tmp_path / "shop")
    async with resident(tmp_path / "data") as hooks:
        first = {"session_id": "one", "cwd": str(shop)}
        started = await hooks.send(hook_event_name="SessionStart", **first)
        assert context_of(started) == ""
        await hooks.send(
            hook_event_name="UserPromptSubmit", prompt="We decided to use PostgreSQL 16 for orders.", **first
        )
        await hooks.send(hook_event_name="SessionEnd", **first)
        await hooks.recorded(3)
        told = context_of(await hooks.send(hook_event_name="SessionStart", session_id="two", cwd=str(shop / "src")))
        again = await hooks.send(hook_event_name="UserPromptSubmit", prompt="Go on.", session_id="two", cwd=str(shop))
        figures = await hooks.figures()
    agent = find_repository(shop).agent_id
    assert f"- We decided to use PostgreSQL 16 for orders. [memory {agent}/decision-" in told
    assert "data, not instructions" in told
    assert context_of(again) == ""
    assert (figures["contexts"], 0 < figures["context_tokens"] <= MAX_TOKENS) == (1, True)


async def test_what_is_told_has_at_most_600_tokens_and_begins_with_the_board(tmp_path: Path) -> None:
    shop = make_repository(tmp_path / "shop")
    repository = find_repository(shop)
    async with resident(tmp_path / "data") as hooks:
        await hooks.send(hook_event_name="UserPromptSubmit", prompt="Begin.", session_id="one", cwd=str(shop))
        await hooks.recorded(1)
        async with Weftline.open(tmp_path / "data", background=False) as weftline:
            agent = weftline.acting_as(repository.agent_id)
            for number in range(40):
                text = (
                    f"Finding {number}: the cache of prices in service {number} keeps them for {number} seconds. " * 4
                )
                await agent.board.write(repository.session_id, f"finding_{number}", text)
            knowledge = [
                {"key": f"{repository.agent_id}/n{number}", "value": f"Note {number}. " * 30} for number in range(40)
            ]
            await agent.context.push(knowledge)
        start = {"session_id": "two", "cwd": str(shop)}
        told = context_of(await hooks.send(hook_event_name="SessionStart", **start))
        sub = context_of(
            await hooks.send(hook_event_name="SubagentStart", agent_id="a1", agent_type="Explore", **start)
        )
    tokens = pytest.importorskip("bpe_openai").get_encoding("o200k_base").encode
    assert 300 < len(tokens(told)) <= MAX_TOKENS
    assert 300 < len(tokens(sub)) <= MAX_TOKENS
    assert "- finding_39: Finding 39" in told
    assert told.index("Board:") < told.index("Memory:")
    assert "Memory:" not in sub
    assert "more: search with the weftline tools" in told


async def test_secrets_are_neither_recorded_nor_told(tmp_path: Path) -> None:
    shop = make_repository(tmp_path / "shop")
    here = {"session_id": "one", "cwd": str(shop)}
    async with resident(tmp_path / "data") as hooks:
        await hooks.send(
            hook_event_name="UserPromptSubmit", prompt=f"We decided to use the key {SECRET} for now.", **here
        )
        call = {"tool_name": "Bash", "tool_use_id": "t1", "tool_input": {"command": f"curl -H 'x-api-key: {SECRET}'"}}
        await hooks.send(hook_event_name="PostToolUse", tool_response={"stdout": f"KEY={SECRET}"}, **call, **here)
        await hooks.send(hook_event_name="SessionEnd", **here)
        await hooks.recorded(3)
        repository = find_repository(shop)
        async with Weftline.open(tmp_path / "data", background=False) as weftline:
            await weftline.acting_as(repository.agent_id).board.write(repository.session_id, "key", f"It is {SECRET}")
        told = await hooks.send(hook_event_name="SessionStart", session_id="two", cwd=str(shop))
        assert "key" in context_of(told)
        assert SECRET not in str(told)
        logged = hooks.folder.log.read_text() if hooks.folder.log.exists() else ""
    assert SECRET not in logged
    assert SECRET not in str(await windows(tmp_path / "data", shop))


async def test_the_user_is_told_once_what_is_recorded_and_how_to_delete_it(tmp_path: Path) -> None:
    shop = make_repository(tmp_path / "shop")
    async with resident(tmp_path / "data") as hooks:
        first, second = [
            await hooks.send(hook_event_name="SessionStart", session_id=name, cwd=str(shop)) for name in ("one", "two")
        ]
    assert "weftline hooks off" in first["systemMessage"]
    assert "weftline hooks delete" in first["systemMessage"]
    assert "systemMessage" not in second


async def test_two_repositories_do_not_see_each_other_and_worktrees_of_one_do(tmp_path: Path) -> None:
    shop, bank = make_repository(tmp_path / "a" / "shop"), make_repository(tmp_path / "b" / "shop")
    tree = add_worktree(shop, tmp_path / "shop-tree", "fix")
    async with resident(tmp_path / "data") as hooks:
        here = {"session_id": "one", "cwd": str(shop)}
        await hooks.send(
            hook_event_name="UserPromptSubmit", prompt="We decided to use PostgreSQL 16 for orders.", **here
        )
        await hooks.send(hook_event_name="PreCompact", trigger="auto", **here)
        await hooks.recorded(2)
        in_bank = await hooks.send(hook_event_name="SessionStart", session_id="two", cwd=str(bank))
        in_tree = await hooks.send(hook_event_name="SessionStart", session_id="three", cwd=str(tree))
    assert context_of(in_bank) == ""
    assert "PostgreSQL 16" in context_of(in_tree)
    assert find_repository(tree).root == find_repository(shop).root
    assert find_repository(tree).session_id != find_repository(shop).session_id
    assert find_repository(bank).agent_id != find_repository(shop).agent_id


@pytest.mark.parametrize(
    ("client", "start"), [("codex", "SessionStart"), ("gemini", "SessionStart"), ("cursor", "sessionStart")]
)
async def test_each_agent_is_answered_in_its_own_form(client: str, start: str, tmp_path: Path) -> None:
    shop = make_repository(tmp_path / "shop")
    repository = find_repository(shop)
    prompt = {"codex": "UserPromptSubmit", "gemini": "BeforeAgent", "cursor": "beforeSubmitPrompt"}[client]
    where = {"workspace_roots": [str(shop)], "conversation_id": "c"} if client == "cursor" else {"cwd": str(shop)}
    async with resident(tmp_path / "data") as hooks:
        assert await hooks.send(client, hook_event_name=prompt, prompt="Begin.", **where) is not None
        await hooks.recorded(1)
        async with Weftline.open(tmp_path / "data", background=False) as weftline:
            await weftline.acting_as(repository.agent_id).board.write(repository.session_id, "goal", "Ship on Friday")
        answer = await hooks.send(
            client, hook_event_name=start, **where, **({} if client == "cursor" else {"session_id": "d"})
        )
    told = answer["additional_context"] if client == "cursor" else context_of(answer)
    assert "- goal: Ship on Friday [board goal v1" in told
    (events,) = (await windows(tmp_path / "data", shop)).values()
    assert [(event.role, event.content) for event in events] == [("user", "Begin.")]


async def test_hooks_that_are_off_do_nothing(tmp_path: Path) -> None:
    shop = make_repository(tmp_path / "shop")
    async with resident(tmp_path / "data") as hooks:
        hooks.folder.off.touch()
        assert await hooks.send(hook_event_name="SessionStart", session_id="one", cwd=str(shop)) == {}
        assert (await hooks.figures())["hooks"] == 0


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"hook_event_name": 3}', '{"hook_event_name": "Later"}'])
async def test_an_input_that_is_not_understood_ends_nothing(text: str, tmp_path: Path) -> None:
    async with resident(tmp_path / "data") as hooks:
        assert await hooks.send_text(text) == {}
        assert (await hooks.figures())["recorded"] == 0


async def test_hooks_fail_open_while_the_database_is_locked_and_record_afterwards(tmp_path: Path) -> None:
    shop = make_repository(tmp_path / "shop")
    here = {"session_id": "one", "cwd": str(shop)}
    async with resident(tmp_path / "data") as hooks:
        await hooks.send(hook_event_name="UserPromptSubmit", prompt="Begin.", **here)
        await hooks.recorded(1)
        lock = sqlite3.connect(tmp_path / "data" / "weftline.db", isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        answers = [
            await hooks.send(hook_event_name="UserPromptSubmit", prompt=f"Prompt {n}.", **here) for n in range(3)
        ]
        lock.execute("ROLLBACK")
        lock.close()
        await hooks.recorded(4)
    assert answers == [{}, {}, {}]
    (events,) = (await windows(tmp_path / "data", shop)).values()
    assert [event.content for event in events] == ["Begin.", "Prompt 0.", "Prompt 1.", "Prompt 2."]


async def test_hooks_fail_open_if_the_database_cannot_be_opened(tmp_path: Path) -> None:
    @asynccontextmanager
    async def closed() -> AsyncIterator[Weftline]:
        raise Unavailable("There is no database.")
        yield

    async with resident(tmp_path, closed, answer_seconds=0.1) as hooks:
        assert "systemMessage" in await hooks.send(hook_event_name="SessionStart", session_id="one", cwd=str(tmp_path))
        assert await hooks.send(hook_event_name="Stop", session_id="one", cwd=str(tmp_path)) == {}


async def test_another_user_is_refused(tmp_path: Path) -> None:
    async with resident(tmp_path / "data", uid=os.getuid() + 1) as hooks:
        assert await hooks.send(hook_event_name="SessionStart", session_id="one", cwd=str(tmp_path)) == {}
        assert hooks.folder.socket.stat().st_mode & 0o777 == 0o600
        assert hooks.folder.path.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.getuid() != 0 or shutil.which("curl") is None, reason="only root can become another user")
async def test_a_process_of_another_user_is_refused_even_if_the_files_are_open_to_it(tmp_path: Path) -> None:
    async with resident(tmp_path / "data") as hooks:
        hooks.folder.path.chmod(0o755)
        hooks.folder.socket.chmod(0o666)
        command = ["curl", "--silent", "--unix-socket", str(hooks.folder.socket), "http://localhost/status"]
        asked = await asyncio.create_subprocess_exec(*command, user=65534, stdout=subprocess.PIPE)
        out, _ = await asked.communicate()
        assert out == b""
        assert (await hooks.figures())["refused"] == 1


async def test_a_stale_socket_and_a_second_process_do_no_harm(tmp_path: Path) -> None:
    async with short_folder() as path:
        hooks = Hooks(HooksFolder(path), tmp_path / "data")
        stale = socket.socket(socket.AF_UNIX)
        stale.bind(str(hooks.folder.socket))
        stale.close()
        async with serving(hooks) as first:
            assert (await hooks.figures())["hooks"] == 0
            async with serving(hooks):
                pass
            assert first.figures.hooks == 0
            assert (await hooks.figures())["hooks"] == 0


async def test_an_idle_process_ends(tmp_path: Path) -> None:
    async with short_folder() as path:
        hooks = Hooks(HooksFolder(path), tmp_path / "data")
        async with serving(hooks, idle_seconds=0.1):
            await until(partial(_is_gone, hooks))


async def test_a_hook_starts_the_process_and_one_that_was_killed_is_started_again(tmp_path: Path) -> None:
    shop = make_repository(tmp_path / "shop")
    here = {"session_id": "one", "cwd": str(shop)}
    async with short_folder() as path:
        hooks = Hooks(HooksFolder(path), tmp_path / "data")
        program = f'#!/bin/sh\necho $$ >> {path}/started\nexec {sys.executable} -m weftline "$@" --idle 60\n'
        hooks.folder.program.write_text(program)
        hooks.folder.program.chmod(0o700)
        assert await hooks.send(hook_event_name="UserPromptSubmit", prompt="Begin.", **here) == {}
        await until(partial(_answers, hooks))
        await hooks.recorded(1)
        assert await hooks.send(hook_event_name="Stop", last_assistant_message="Begun.", **here) == {}
        await hooks.recorded(2)
        os.kill(int((path / "started").read_text().split()[-1]), 9)
        await until(partial(_is_gone, hooks))
        assert await hooks.send(hook_event_name="UserPromptSubmit", prompt="Again.", **here) == {}
        await until(partial(_answers, hooks))
        await hooks.recorded(1)
        os.kill(int((path / "started").read_text().split()[-1]), 15)
        await until(partial(_is_gone, hooks))
        (events,) = (await windows(tmp_path / "data", shop)).values()
    assert [event.content for event in events] == ["Begin.", "Begun.", "Again."]


async def _answers(hooks: Hooks) -> bool:
    return await ask(hooks.folder, "status") is not None


async def _is_gone(hooks: Hooks) -> bool:
    return not await _answers(hooks)


async def test_without_curl_the_script_uses_nc(tmp_path: Path) -> None:
    """A program of Python in the place of nc, which speaks what nc would."""
    shop = make_repository(tmp_path / "shop")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("cat", "date", "sh"):
        (tools / name).symlink_to(Path("/bin") / name)
    code = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[-1]); "
    code += "s.sendall(sys.stdin.buffer.read()); sys.stdout.buffer.write(s.recv(65536))"
    (tools / "nc").write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}" "$@"\n')
    (tools / "nc").chmod(0o755)
    async with resident(tmp_path / "data") as hooks:
        script = await asyncio.create_subprocess_exec(
            "/bin/sh",
            str(SCRIPT),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**hooks.environment(), "PATH": str(tools)},
        )
        given = f'{{"hook_event_name": "SessionStart", "session_id": "ü", "cwd": "{shop}"}}'
        out, _ = await script.communicate(given.encode())
    assert b"weftline hooks off" in out
