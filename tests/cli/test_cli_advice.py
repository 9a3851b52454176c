"""``weftline advise``: recommendations as text, and the commands that they print, which are run as they are."""

from __future__ import annotations

import asyncio
import shlex
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from support.replays import score
from weftline.app.app import App
from weftline.app.authentication import Local
from weftline.app.dispatch import CallContext
from weftline.insight.recommendations import commands
from weftline.jobs.session_indexing import INDEX
from weftline.jobs.vectors import EMBED
from weftline.settings import Settings
from weftline.testing.clock import FrozenClock

if TYPE_CHECKING:
    from pathlib import Path

    from cli_support import CommandLine

CALLS = 20
TOOLS = [
    {"type": "function", "function": {"name": name, "description": f"{name} something. " * 20, "parameters": {}}}
    for name in ("look_up", "draw_chart")
]


async def _work(data: Path) -> None:
    """Let an agent make calls with tools, documents, a pin and a board entry, none of which its answers use."""
    clock = FrozenClock()
    app = App(Settings(database_url=str(data / "weftline.db"), data_dir=str(data), rate_limits="off"), clock=clock)

    async def call(operation: str, principal: str = "admin", **fields: Any) -> Any:
        context = CallContext(Local("default", principal))
        return msgspec.to_builtins(await app.call(app.registry[operation], fields, context))

    await app.open(background=False)
    try:
        await call("agent.create", agent_id="worker")
        await call("agent.define", agent_id="worker", config={"note": "kept"})
        await call("layer.define", layer="tenant", text="Be polite.")
        await call("knowledge.create_domain", domain="handbook")
        text = "Parcels are sent within two days. " * 20
        documents = [{"document_id": name, "text": text, "pinned": True} for name in ("parcels", "copy of parcels")]
        await call("knowledge.add_documents", domain="handbook", documents=documents)
        await app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
        message = await call("message.add", session_id="launch", content="The team meets on Mondays. " * 10)
        await call("pin.add", session_id="launch", message_id=message["message_id"])
        await app.scheduler.drain(INDEX, EMBED)
        await call("board.write", session_id="launch", key="status", value="All is well. " * 20)
        learned = {"key": "parcels", "value": "When parcels are sent was asked before. " * 10}
        await call("context.push", "worker", session_id="launch", knowledge=[learned])
        worker = CallContext(Local("default", "worker"))
        await app.call(app.registry["context.pull"], {"session_id": "launch"}, worker)
        await app.scheduler.drain(INDEX, EMBED)
        for number in range(CALLS):
            events = [
                {"event_id": f"q{number}", "content": f"When are parcels sent to customer {number}?"},
                {
                    "event_id": f"a{number}",
                    "role": "assistant",
                    "tool_calls": [{"call_id": f"c{number}", "name": "look_up", "arguments": "{}"}],
                },
                {"event_id": f"t{number}", "role": "tool", "tool_call_id": f"c{number}", "content": "In two days."},
            ]
            await call("context.ingest", "worker", session_id="launch", events=events)
            clock.advance(seconds=20)
            task = {"session_id": "launch", "task_description": "When are parcels sent?", "model": "gpt-4o"}
            await call("context.assemble", "worker", form="openai_chat", tools=TOOLS, token_budget=4_000, **task)
        await score(SimpleNamespace(app=app, tenant="default"), lambda ref: ref.startswith("window:"), "worker")  # type: ignore[arg-type]
        await call("layer.define", layer="tenant", text="Be brief.")
    finally:
        await app.close()


@pytest.fixture
def worked(launch: CommandLine) -> CommandLine:
    asyncio.run(_work(launch.data))
    return launch


def run_command(line: CommandLine, command: str) -> None:
    """Run the command of a recommendation, word for word."""
    for each in command.splitlines():
        name, *words = shlex.split(each)
        assert name == "weftline"
        line.run(*words)


@pytest.mark.req("CE-F47", part="model, compaction, shares, tools, documents, pins and minimum score")
@pytest.mark.req("CE-U6")
def test_every_recommendation_has_evidence_an_effect_and_a_command_that_works(worked: CommandLine) -> None:
    listed = worked.json("advise", "list", "--agent-id", "worker")["recommendations"]
    found = {each["kind"]: worked.json("advise", "show", each["recommendation_id"]) for each in listed}
    kinds = {"tools", "board_keys", "pins", "documents", "duplicate_documents", "stale_context", "model"}
    assert kinds | {"learned_memory"} <= found.keys()
    deletions = {"documents", "duplicate_documents", "board_keys", "learned_memory"}
    order = [each["kind"] in deletions for each in listed]
    assert order == sorted(order), "what others may need is never deleted first"
    assert all(not each["title"].startswith("Delete") for each in listed if each["kind"] == "documents")
    for kind, advice in found.items():
        assert advice["evidence"]
        assert advice["trial"] is None or advice["trial"]["exact"] == CALLS
        text = worked.run("advise", "show", advice["recommendation_id"]).stdout
        assert "To make the change" in text
        assert all(line in text for line in advice["command"].splitlines())
        assert kind in {"stale_context", "duplicate_documents"} or (
            advice["trial"]["tried_tokens"] < advice["trial"]["tokens"] or kind == "model"
        )
    tried = worked.run("advise", "try", found["board_keys"]["recommendation_id"]).stdout
    assert f"{CALLS} of the last {CALLS} calls come out as they were sent" in tried
    # The copy is deleted before the document that nothing uses, which is both of them.
    for kind in ("duplicate_documents", "tools", "board_keys", "pins", "learned_memory", "stale_context", "model"):
        run_command(worked, found[kind]["command"])
    assert worked.json("agent", "read-definition", "worker")["config"].keys() == {"note", "model"}
    assert worked.json("pin", "list")["pins"] == []
    assert "parcels" not in worked.run("--as", "worker", "context", "read").stdout
    remaining = [each["document_id"] for each in worked.json("knowledge", "list-documents", "handbook")["documents"]]
    assert len(remaining) == 1
    run_command(worked, commands.delete_documents([f"knowledge://handbook/{remaining[0]}".replace(" ", "%20")]))
    run_command(worked, commands.update("worker", 0.75))
    run_command(worked, commands.update_window("launch", "worker", {"DIALOG": 0.5, "CONTEXT": 0.2}))
    compaction = {"strategy": "key_facts", "threshold": 0.3}
    run_command(worked, commands.define("worker", {"note": "kept"}, compaction=compaction))
    assert "Nothing to recommend" not in worked.run("advise", "list", "--agent-id", "worker").stdout


def test_without_calls_it_says_what_is_needed(launch: CommandLine) -> None:
    said = launch.run("advise").stdout
    assert said.startswith("Nothing to recommend. Analysed: no calls. An agent needs 20 calls")
    refused = launch.run("advise", "try", code=1).stderr
    assert "Give either a recommendation or settings of your own." in refused
    assert "weftline advise list" in refused
