"""The backend of deepagents over board and memory: equal to its own, and in an agent with a scripted model."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from weftline import SyncClient, Weftline
from weftline.adapters.bridge import AdapterWarning
from weftline.client._operations import SyncOperations
from weftline.errors import SystemUnavailable

pytest.importorskip("deepagents", reason="make adapters installs deepagents")

from deepagents import create_deep_agent
from deepagents.backends import StoreBackend
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.store.memory import InMemoryStore

from weftline.adapters.deepagents import WeftlineBackend
from weftline.adapters.langchain import WeftlineMiddleware

PATHS = ("/board/goal", "/board/cause", "/memories/ü b.md", "/notes.txt", "/a/b/c.py", "/a/d.py", "/a")
TEXTS = ("", "one", "one\ntwo\none\n", "def f():\n    return 1\n", "1.0", "[1]")
TIMES = {"created_at", "modified_at"}


def plain(result: Any) -> Any:
    """Return what a backend answers, without times."""
    if isinstance(result, list):
        return [plain(each) for each in result]
    if isinstance(result, dict):
        return {key: plain(value) for key, value in result.items() if key not in TIMES}
    return plain(asdict(result)) if hasattr(result, "__dataclass_fields__") else result


def perform(backend: Any, pick: random.Random) -> Any:
    """Perform one command that is the same for the same state of the generator."""
    path, text = pick.choice(PATHS), pick.choice(TEXTS)
    commands = ["write", "write", "edit", "read", "ls", "grep", "glob", "delete", "upload_files", "download_files"]
    command = pick.choice(commands)
    texts, folders, folder = ["one", "1", "x"], ["/", "/a", "/board", "/memories/"], pick.choice([None, "/a"])
    arguments: dict[str, list[Any]] = {
        "write": [path, text],
        "edit": [path, pick.choice(texts), text, pick.random() < 0.5],
        "read": [path, pick.choice([0, 1, 9]), pick.choice([1, 2000])],
        "ls": [pick.choice(folders)],
        "grep": [pick.choice(["one", "return"]), folder, pick.choice([None, "*.py"])],
        "glob": [pick.choice(["**/*.py", "*", "/board/*"])],
        "delete": [pick.choice([*PATHS, "/a", "/nothing"])],
        "upload_files": [[(path, pick.choice([b"\xff\x00", b"text"]))]],
        "download_files": [[path, "/nothing"]],
    }
    return getattr(backend, command)(*arguments[command])


async def done(client: Any, step: Any) -> Any:
    return step if isinstance(client, SyncOperations) else await step


def test_it_answers_as_the_backend_of_deepagents_does(
    folder: Path, record_property: Callable[[str, object], None]
) -> None:
    """Two hundred commands in a random order, and everything that can be read after them."""
    with Weftline.open_sync(folder) as weftline:
        backend = WeftlineBackend(weftline, "files", strict=True)
        own = StoreBackend(namespace=lambda _: ("files",), store=InMemoryStore())
        for number in range(200):
            answers = [plain(perform(each, random.Random(number))) for each in (backend, own)]
            for each in answers:
                if isinstance(each, dict) and isinstance(each.get("matches"), list):
                    each["matches"].sort(key=str)
            assert answers[0] == answers[1], number
        assert plain(backend.download_files([*PATHS])) == plain(own.download_files([*PATHS]))
    record_property("conformance", "200 commands equal to StoreBackend")


async def test_files_are_on_the_board_and_in_memory_with_every_client(any_client: Any) -> None:
    session_id = f"files-{type(any_client).__name__.lower()}"
    config = {"namespaces": True}
    await done(any_client, any_client.session.create("Files", session_id=session_id, config=config, exist_ok=True))
    await done(any_client, any_client.board.write(session_id, "plan", {"steps": 2}))
    backend = WeftlineBackend(any_client, session_id, strict=True)
    assert (await backend.awrite("/board/finding/cause", "The cache.")).error is None
    await backend.awrite("/memories/bo.md", "Bo likes tea.")
    await backend.awrite("/scratch.md", "one")
    assert (await backend.aedit("/scratch.md", "one", "two")).occurrences == 1
    assert (await done(any_client, any_client.board.read(session_id, "finding:cause"))).value == "The cache."
    assert (await backend.aread("/board/plan")).file_data["content"] == '{\n  "steps": 2\n}'
    other = WeftlineBackend(any_client, f"{session_id}-other", strict=True)
    assert [each["path"] for each in (await other.als("/")).entries] == ["/memories/"]
    assert (await other.aread("/memories/bo.md")).file_data["content"] == "Bo likes tea."
    found = await done(any_client, any_client.search.query("What does Bo like?", sources=["memory"]))
    assert "tea" in found.results[0].text
    for path in ("/memories", "/scratch.md", "/board/finding/cause"):
        assert (await backend.adelete(path)).error is None
    assert [each["path"] for each in (await backend.als("/board")).entries] == ["/board/plan"]


def scripted(*messages: AIMessage) -> Any:
    class Scripted(GenericFakeChatModel):
        def bind_tools(self, *_: Any, **__: Any) -> Any:  # the agent's tools are in the script
            return self

    return Scripted(messages=iter(messages))


def call(name: str, **arguments: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"id": f"{name}-{len(str(arguments))}", "name": name, "args": arguments}])


async def test_a_deep_agent_works_on_the_board_of_other_agents(opened: Weftline) -> None:
    await opened.session.create("Launch", session_id="launch")
    await opened.board.write("launch", "goal", "Announce release 4.")
    model = scripted(
        call("read_file", file_path="/board/goal"),
        call("write_file", file_path="/board/finding", content="It starts faster."),
        call("write_file", file_path="/board/Not A Key.md", content="x"),
        AIMessage("It is on the board."),
    )
    agent = create_deep_agent(
        model=model,
        backend=WeftlineBackend(opened, "launch", strict=True),
        middleware=[WeftlineMiddleware(opened, session_id="launch", strict=True)],
    )
    state = await agent.ainvoke({"messages": [("human", "What is the goal?")]})
    answers = [str(each.content) for each in state["messages"] if isinstance(each, ToolMessage)]
    assert "Announce release 4." in answers[0]
    assert (await opened.board.read("launch", "finding")).value == "It starts faster."
    assert "cannot be on the board" in answers[2]
    assert state["messages"][-1].text == "It is on the board."
    assert (await opened.receipt.list(session_id="launch")).receipts


async def test_an_agent_goes_on_without_weftline_and_its_user_is_warned_once() -> None:
    with SyncClient("http://127.0.0.1:9", "weftline.k.k", retries=0) as nobody:
        backend = WeftlineBackend(nobody, "s")
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", AdapterWarning)
            assert (await backend.awrite("/a.md", "one")).error is None
            assert (await backend.aedit("/a.md", "one", "two")).occurrences == 1
            assert (await backend.aread("/a.md")).file_data["content"] == "two"
            assert [each["path"] for each in (await backend.als("/")).entries] == ["/a.md"]
        assert len([each for each in warned if each.category is AdapterWarning]) == 1
        with pytest.raises(SystemUnavailable):
            WeftlineBackend(nobody, "s", strict=True).read("/a.md")
