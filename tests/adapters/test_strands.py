"""Strands with Weftline, with a scripted model; in process, since it needs an older mcp than the server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from weftline import SyncClient, Weftline

pytest.importorskip("strands", reason="make adapters installs Strands")

from strands import Agent
from strands.models import Model
from strands.session import FileSessionManager
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

from weftline.adapters.strands import WeftlineSessionRepository, weftline_session


class ScriptedModel(Model):
    """Answers the same each time, and keeps what it was sent."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def update_config(self, **config: Any) -> None: ...

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *_: Any, **__: Any) -> AsyncIterator[Any]:
        self.sent.append([*messages])
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": "Hello."}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


def talk(said: str, client: Any) -> list[Any]:
    model = ScriptedModel()
    agent = Agent(
        model=model, agent_id="desk", session_manager=weftline_session("talk/1", client), callback_handler=None
    )
    agent(said)
    return model.sent[-1]  # type: ignore[no-any-return]


def test_a_conversation_goes_on_in_another_process(folder: Path) -> None:
    for said in ("I am Bo.", "Who am I?"):
        with Weftline.open_sync(folder) as weftline:
            sent = talk(said, weftline)
    assert [each["content"][0]["text"] for each in sent] == ["I am Bo.", "Hello.", "Who am I?"]


def test_it_answers_as_the_file_repository_of_strands_does(folder: Path, tmp_path: Path) -> None:
    with Weftline.open_sync(folder) as weftline:
        own = FileSessionManager("own", storage_dir=str(tmp_path / "own"))
        for each in (WeftlineSessionRepository(weftline), own):
            assert each.read_session("s") is None
            each.create_session(Session("s", SessionType.AGENT))
            with pytest.raises(SessionException):
                each.create_session(Session("s", SessionType.AGENT))
            agent = SessionAgent("a", {"count": 1.0}, {})
            each.create_agent("s", agent)
            agent.state = {"count": 2}
            each.update_agent("s", agent)
            read = each.read_agent("s", "a")
            assert read is not None
            assert (read.state, read.created_at) == ({"count": 2}, agent.created_at)
            assert each.read_agent("s", "b") is None
            with pytest.raises(SessionException):
                each.update_agent("s", SessionAgent("b", {}, {}))
            message: Any = {"role": "user", "content": [{"image": {"format": "png", "source": {"bytes": b"\x00\xff"}}}]}
            for n in range(12):
                each.create_message("s", "a", SessionMessage(message, n))
            assert [found.message_id for found in each.list_messages("s", "a", limit=3, offset=9)] == [9, 10, 11]
            redacted = SessionMessage(message, 4, redact_message={"role": "user", "content": [{"text": "-"}]})
            each.update_message("s", "a", redacted)
            assert each.read_message("s", "a", 4) == redacted
            assert each.list_messages("s", "a")[5].message == message
            assert each.read_message("s", "a", 99) is None
            with pytest.raises(SessionException):
                each.update_message("s", "a", SessionMessage(message, 99))
            with pytest.raises(ValueError, match="must be an integer"):
                each.read_message("s", "a", "../1")  # type: ignore[arg-type]
            each.delete_session("s")
            assert each.read_session("s") is None


def test_the_agent_hears_of_a_failure_as_strands_tells_it() -> None:
    with (
        SyncClient("http://127.0.0.1:9", "weftline.k.k", retries=0) as nobody,
        pytest.raises(SessionException, match="not reachable"),
    ):
        talk("Hello", nobody)
