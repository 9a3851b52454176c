"""Google ADK with Weftline: what its own tests ask of services; the plugin and compaction, with a scripted model."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from weftline import SyncClient, Weftline
from weftline.adapters.bridge import AdapterWarning
from weftline.client._operations import SyncOperations
from weftline.errors import SystemUnavailable

pytest.importorskip("google.adk", reason="make adapters installs Google ADK")

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.apps.app import EventsCompactionConfig
from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types

from weftline.adapters.google_adk import (
    WeftlineMemoryService,
    WeftlinePlugin,
    WeftlineSessionService,
    WeftlineSummarizer,
)

# ADK warns of parts of it that may change.
pytestmark = pytest.mark.filterwarnings("ignore:.EXPERIMENTAL:UserWarning")

APP: Any = {"app_name": "desk", "user_id": "bo"}


class ScriptedModel(BaseLlm):
    """Answers as its script says, and keeps what it was sent."""

    model: str = "gemini-scripted"
    answers: list[types.Part]
    sent: list[LlmRequest]

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,  # noqa: ARG002, FBT001, FBT002 - ADK's signature
    ) -> AsyncGenerator[LlmResponse, None]:
        self.sent.append(llm_request.model_copy(deep=True))
        usage = types.GenerateContentResponseUsageMetadata(prompt_token_count=310, candidates_token_count=12)
        content = types.Content(role="model", parts=[self.answers[len(self.sent) - 1]])
        yield LlmResponse(content=content, usage_metadata=usage)


def model(*answers: str | types.Part) -> ScriptedModel:
    parts = [types.Part(text=each) if isinstance(each, str) else each for each in answers]
    return ScriptedModel(answers=parts, sent=[])


def call(name: str) -> types.Part:
    function_call = types.FunctionCall(name="read_metric", args={"name": name})
    return types.Part(function_call=function_call, thought_signature=b"signed")


def text(said: str, *, role: str = "user") -> types.Content:
    return types.Content(role=role, parts=[types.Part(text=said)])


def event(n: float = 1, said: str = "", **delta: Any) -> Event:
    content = text(said) if said else None
    state = {key.replace("__", ":"): value for key, value in delta.items()}
    return Event(
        invocation_id=f"i{n}", author="user", timestamp=n, content=content, actions=EventActions(state_delta=state)
    )


async def say(runner: Runner, said: str, session_id: str = "s") -> list[Event]:
    return [each async for each in runner.run_async(user_id="bo", session_id=session_id, new_message=text(said))]


async def get(service: WeftlineSessionService, session_id: str = "s", **more: Any) -> Session:
    session = await service.get_session(**{**APP, **more}, session_id=session_id)
    assert session is not None
    return session


@pytest.fixture
async def service(opened: Weftline) -> WeftlineSessionService:
    return WeftlineSessionService(opened, strict=True)


class TestSessions:
    """What ADK's tests ask of each session service."""

    async def test_what_is_created_is_read_with_every_client(self, any_client: Any) -> None:
        service = WeftlineSessionService(any_client, strict=True)
        assert await service.get_session(**APP, session_id="nobody") is None
        created = await service.create_session(**APP, state={"key": "value", "user:pet": "cat"})
        await service.append_event(created, event(created.last_update_time + 1, "Hello", key=1.5, app__n=1))
        read = await get(WeftlineSessionService(any_client, strict=True), created.id)
        assert read == created
        assert read.state == {"key": 1.5, "user:pet": "cat", "app:n": 1}
        assert await service.get_user_state(**APP) == {"pet": "cat"}
        await service.delete_session(**APP, session_id=created.id)
        assert await service.get_session(**APP, session_id=created.id) is None

    async def test_sessions_are_listed_by_user_in_the_order_of_their_last_event(
        self, service: WeftlineSessionService
    ) -> None:
        for user, name in (("bo", "a"), ("bo", "b"), ("cy", "c")):
            created = await service.create_session(
                app_name="desk", user_id=user, session_id=name, state={"k": name, "app:shared": "x"}
            )
            await service.append_event(created, event({"a": 30, "b": 20, "c": 10}[name]))
        listed = (await service.list_sessions(**APP)).sessions
        assert [(each.id, each.state["k"], each.events) for each in listed] == [("b", "b", []), ("a", "a", [])]
        assert [each.id for each in (await service.list_sessions(app_name="desk")).sessions] == ["c", "b", "a"]
        assert all(each.state["app:shared"] == "x" for each in listed)
        assert (await service.list_sessions(app_name="other")).sessions == []

    async def test_state_is_shared_by_the_app_or_the_user_or_nobody(self, service: WeftlineSessionService) -> None:
        first = await service.create_session(**APP, session_id="s", state={"app:a": 1, "user:u": 1, "own": 1})
        await service.append_event(first, event(first.last_update_time + 1, app__b=2, user__v=2, more=2))
        assert (await get(service)).state == {"own": 1, "more": 2, "app:a": 1, "app:b": 2, "user:u": 1, "user:v": 2}
        again = await service.create_session(**APP, session_id="again")
        assert again.state == {"app:a": 1, "app:b": 2, "user:u": 1, "user:v": 2}
        other = await service.create_session(app_name="desk", user_id="cy", session_id="s")
        assert other.state == {"app:a": 1, "app:b": 2}
        assert (await service.create_session(app_name="shop", user_id="bo")).state == {}
        assert (await get(service, user_id="cy")).events == []

    async def test_state_of_one_turn_is_seen_in_it_and_not_stored(self, service: WeftlineSessionService) -> None:
        session = await service.create_session(**APP, session_id="s")
        await service.append_event(session, event(session.last_update_time + 1, temp__k="v", own="w"))
        assert session.state["temp:k"] == "v"
        stored = await get(service)
        assert stored.state == {"own": "w"}
        assert stored.events[0].actions.state_delta == {"own": "w"}

    async def test_an_event_comes_back_with_everything_that_it_had(self, service: WeftlineSessionService) -> None:
        session = await service.create_session(**APP, session_id="s")
        image = types.Part.from_bytes(data=b"\x00\xffimage", mime_type="image/png")
        full = Event(
            invocation_id="i",
            author="user",
            content=types.Content(role="user", parts=[types.Part(text="1.0"), image]),
            turn_complete=True,
            actions=EventActions(artifact_delta={"file": 0}, transfer_to_agent="agent", escalate=True),
            long_running_tool_ids={"tool"},
            error_code="E",
            error_message="failed",
            interrupted=True,
            grounding_metadata=types.GroundingMetadata(web_search_queries=["query"]),
            usage_metadata=types.GenerateContentResponseUsageMetadata(prompt_token_count=1, total_token_count=2),
            custom_metadata={"key": "value"},
            input_transcription=types.Transcription(text="heard", finished=True),
        )
        await service.append_event(session, full)
        assert (await get(service)).events == [full]

    async def test_recent_events_are_read_alone(self, service: WeftlineSessionService) -> None:
        session = await service.create_session(**APP, session_id="s")
        for n in range(1, 6):
            await service.append_event(session, event(n))

        async def times(**config: Any) -> list[float]:
            read = await service.get_session(**APP, session_id="s", config=GetSessionConfig(**config))
            assert read is not None
            return [each.timestamp for each in read.events]

        assert await times() == [1, 2, 3, 4, 5]
        assert await times(num_recent_events=3) == [3, 4, 5]
        assert await times(num_recent_events=0) == []
        assert await times(after_timestamp=4) == [4, 5]
        assert await times(after_timestamp=50) == []
        assert await times(after_timestamp=4, num_recent_events=3) == [4, 5]

    async def test_a_partial_event_is_not_stored(self, service: WeftlineSessionService) -> None:
        session = await service.create_session(**APP, session_id="s")
        await service.append_event(session, Event(author="user", partial=True))
        assert session.events == (await get(service)).events == []

    async def test_the_time_of_a_session_is_that_of_its_last_event(self, service: WeftlineSessionService) -> None:
        session = await service.create_session(**APP, session_id="s")
        later = session.last_update_time + 10.25
        await service.append_event(session, event(later))
        assert session.last_update_time == (await get(service)).last_update_time == pytest.approx(later)

    async def test_an_id_is_used_once_and_read_without_the_spaces_around_it(
        self, service: WeftlineSessionService
    ) -> None:
        assert (await service.create_session(**APP, session_id="  padded/ü ")).id == "padded/ü"
        assert (await get(service, " padded/ü")).id == "padded/ü"
        with pytest.raises(AlreadyExistsError):
            await service.create_session(**APP, session_id="padded/ü")
        await service.delete_session(**APP, session_id="padded/ü  ")
        assert await service.get_session(**APP, session_id="padded/ü") is None

    async def test_bad_input_raises_what_adk_raises(self, service: WeftlineSessionService) -> None:
        with pytest.raises(SessionNotFoundError):
            await service.append_event(Session(**APP, id="nobody"), event())

    async def test_of_two_programs_that_append_at_once_one_reads_again(self, service: WeftlineSessionService) -> None:
        mine = await service.create_session(**APP, session_id="s")
        theirs = await get(service)
        appended = await asyncio.gather(
            service.append_event(mine, event(mine.last_update_time + 1, mark=1)),
            service.append_event(theirs, event(mine.last_update_time + 2, mark=2)),
            return_exceptions=True,
        )
        assert sorted(type(each).__name__ for each in appended) == ["Event", "StaleSessionError"]
        fresh = await get(service)
        await service.append_event(fresh, event(fresh.last_update_time + 3, mark=3))
        with pytest.raises(StaleSessionError):
            await service.append_event(mine if mine.events else theirs, event(fresh.last_update_time + 4))
        assert [each.timestamp for each in (await get(service)).events] == [each.timestamp for each in fresh.events]
        assert (await get(service)).state == {"mark": 3}


class TestMemory:
    """What ADK's tests ask of each memory service."""

    async def test_what_was_said_is_found_with_every_client(self, any_client: Any) -> None:
        service = WeftlineMemoryService(any_client, strict=True)
        image = types.Part.from_bytes(data=b"image", mime_type="image/png")
        picture = event(3, "The price cache lost its entries on Tuesday.")
        assert picture.content is not None
        picture.content.parts = [*(picture.content.parts or []), image]
        session = Session(**APP, id="s", events=[event(1, "I like to code in Python."), event(2), picture])
        await service.add_session_to_memory(session)
        again = WeftlineMemoryService(any_client, strict=True)
        (memory,) = (await again.search_memory(**APP, query="price cache")).memories
        assert memory == MemoryEntry(
            id=picture.id, content=picture.content, author="user", timestamp="1970-01-01T00:00:03+00:00"
        )
        assert (await again.search_memory(**APP, query=" ")).memories == []
        await service.delete_memory(**APP, memory_id=picture.id)
        await service.delete_memory(**APP, memory_id=session.events[0].id)

    async def test_memories_of_users_and_apps_are_apart(self, opened: Weftline) -> None:
        service = WeftlineMemoryService(opened, strict=True)
        assert (await service.search_memory(**APP, query="secret")).memories == []
        await service.add_session_to_memory(Session(**APP, id="s", events=[event(1, "This is a secret of the app.")]))
        await service.add_session_to_memory(
            Session(app_name="desk/bo", user_id="cy", id="s", events=[event(2, "This is a secret of another.")])
        )

        async def count(app_name: str, user_id: str) -> int:
            return len((await service.search_memory(app_name=app_name, user_id=user_id, query="secret")).memories)

        assert [await count("desk", "bo"), await count("desk", "cy"), await count("desk", "bo/cy")] == [1, 0, 0]

    async def test_events_are_added_to_what_is_there_and_only_once(self, opened: Weftline) -> None:
        service = WeftlineMemoryService(opened, strict=True)
        first, second = event(1, "The toolkit is great."), event(2, "The toolkit has plugins.")
        await service.add_session_to_memory(Session(**APP, id="s", events=[first]))
        await service.add_events_to_memory(**APP, events=[first, second], custom_metadata={"topic": "tools"})
        found = (await service.search_memory(**APP, query="toolkit")).memories
        assert {each.id: each.custom_metadata for each in found} == {first.id: {}, second.id: {"topic": "tools"}}

    async def test_a_memory_is_written_directly_and_a_deleted_one_stays_deleted(self, opened: Weftline) -> None:
        service = WeftlineMemoryService(opened, strict=True)
        await service.add_memory(**APP, memories=[MemoryEntry(content=text("Bo is allergic to nuts."))])
        (found,) = (await service.search_memory(**APP, query="allergic")).memories
        assert found.id
        session = Session(**APP, id="s", events=[event(1, "Bo lives in Oslo.")])
        await service.add_session_to_memory(session)
        await service.delete_memory(**APP, memory_id=session.events[0].id)
        await service.add_session_to_memory(session)
        assert (await service.search_memory(**APP, query="Oslo")).memories == []

    async def test_at_most_ten_memories_are_found(self, opened: Weftline) -> None:
        service = WeftlineMemoryService(opened, strict=True)
        await service.add_events_to_memory(**APP, events=[event(n, f"Note {n} about work.") for n in range(1, 15)])
        assert 0 < len((await service.search_memory(**APP, query="work")).memories) <= 10


def read_metric(name: str) -> dict[str, str]:
    """Read a metric."""
    return {"value": f"{name} is 0.61, key AKIAIOSFODNN7EXAMPLE"}


def runner_of(scripted: ScriptedModel, *plugins: WeftlinePlugin, sessions: Any = None, **app: Any) -> Runner:
    agent = LlmAgent(name="finder", model=scripted, instruction="You find causes.", tools=[read_metric])
    return Runner(
        app=App(name="desk", root_agent=agent, plugins=list(plugins), **app),
        session_service=sessions or InMemorySessionService(),
        auto_create_session=True,
    )


class TestRuns:
    """Agents with a scripted model."""

    async def test_each_request_has_the_assembled_prompt_with_every_client(self, any_client: Any) -> None:
        scripted = model(call("hit_ratio"), "The cache.")
        runner = runner_of(scripted, WeftlinePlugin(any_client, session_id="slow", strict=True))

        async def done(step: Any) -> Any:
            return step if isinstance(any_client, SyncOperations) else await step

        await done(any_client.session.create("Slow orders", session_id="slow", exist_ok=True))
        await done(any_client.board.write("slow", "scope", "Change nothing."))
        events = await say(runner, "Why are orders slow?")
        assert events[-1].content == text("The cache.", role="model")
        first, second = scripted.sent
        assert str(first.config.system_instruction).startswith("You find causes.")
        assert "weftline:layer" in str(first.config.system_instruction)
        assert "Change nothing." in str(first.contents)
        called, answered = second.contents[-2:]
        # The call is the part that the model made, and its answer follows it.
        assert [part.thought_signature for part in called.parts or []] == [b"signed"]
        assert ["0.61" in str(part.function_response) for part in answered.parts or []] == [True]
        assert str(second.contents).count("Why are orders slow?") == 1
        recorded = (await done(any_client.window.events("slow"))).events
        assert [each.role for each in recorded][:3] == ["user", "assistant", "tool"]
        assert (await done(any_client.usage.report())).total.input_tokens >= 620

    async def test_a_guardrail_prohibits_a_tool_and_masks_what_another_answers(self, opened: Weftline) -> None:
        rules = [
            {"name": "no-secret", "prohibited_action": ["read_metric"], "condition": "arguments.name == 'secret'"},
            {
                "name": "mask",
                "prohibited_action": ["read_metric"],
                "condition": "has(answer.content)",
                "violation_response": "redact",
            },
        ]
        await opened.layer.define("tenant", guardrails=rules)
        scripted = model(call("secret"), call("open"), "Done.")
        events = await say(runner_of(scripted, WeftlinePlugin(opened, strict=True)), "Read both")
        answers = [str(each.response) for event in events for each in event.get_function_responses()]
        assert "no-secret" in answers[0]
        assert "open is 0.61" in answers[1]
        assert "AKIA" not in answers[1]

    async def test_agents_with_clients_of_their_own_have_windows_of_their_own(self, opened: Weftline) -> None:
        await opened.agent.create("planner")
        await opened.agent.create("writer", parent_id="planner")
        await opened.session.create("Launch", session_id="launch", members=["planner", "writer"])
        transfer = types.FunctionCall(name="transfer_to_agent", args={"agent_name": "writer"})
        writer = LlmAgent(name="writer", model=model("Done."), description="Writes.")
        planner = LlmAgent(name="planner", model=model(types.Part(function_call=transfer)), sub_agents=[writer])
        plugin = WeftlinePlugin(
            opened.acting_as("planner"),
            session_id="launch",
            clients={"writer": opened.acting_as("writer")},
            strict=True,
        )
        app = App(name="desk", root_agent=planner, plugins=[plugin])
        runner = Runner(app=app, session_service=InMemorySessionService(), auto_create_session=True)
        assert (await say(runner, "Write it"))[-1].content == text("Done.", role="model")
        assert {each.agent_id for each in (await opened.window.list("launch")).windows} == {"planner", "writer"}

    async def test_a_run_goes_on_in_another_process(self, opened: Weftline) -> None:
        for said in ("I am Bo.", "Who am I?"):
            scripted = model("Hello.")
            await say(runner_of(scripted, sessions=WeftlineSessionService(opened, strict=True)), said)
        assert "I am Bo." in str(scripted.sent[0].contents)

    async def test_events_are_compacted_without_a_call_of_the_model(self, opened: Weftline) -> None:
        config = EventsCompactionConfig(
            summarizer=WeftlineSummarizer(opened, strict=True), compaction_interval=6, overlap_size=0
        )
        scripted = model(*["Noted, and Tomas owns it. " + "There is more to say about it. " * 20] * 7)
        sessions = InMemorySessionService()
        runner = runner_of(scripted, sessions=sessions, events_compaction_config=config)
        for n in range(7):
            await say(runner, f"We decided that release {n} ships on Friday. " + "It has some more changes. " * 20)
        sent = str(scripted.sent[-1].contents)
        assert all(f"release {n} ships on Friday" in sent for n in range(7))
        assert len(sent) < len(str(scripted.sent[-2].contents)) / 2
        assert len(scripted.sent) == 7
        assert [each.purpose for each in (await opened.session.list()).sessions] == []

    async def test_agents_go_on_without_weftline_and_their_user_is_warned_once(self) -> None:
        with SyncClient("http://127.0.0.1:9", "weftline.k.k", retries=0) as nobody:
            sessions, memory = WeftlineSessionService(nobody), WeftlineMemoryService(nobody)
            scripted = model(call("x"), "Done.", "Again.")
            runner = runner_of(scripted, WeftlinePlugin(nobody), sessions=sessions)
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always", AdapterWarning)
                events = [*await say(runner, "Go"), *await say(runner, "Go on")]
                session = await get(sessions)
                await memory.add_session_to_memory(session)
                found = (await memory.search_memory(**APP, query="again")).memories
                assert await WeftlineSummarizer(nobody).maybe_summarize_events(events=session.events) is None
            assert events[-1].content == found[0].content == text("Again.", role="model")
            assert [each.id for each in (await sessions.list_sessions(**APP)).sessions] == ["s"]
            # One of each: the plugin, the sessions, the memory and the summarizer.
            assert len([each for each in warned if each.category is AdapterWarning]) == 4
            with pytest.raises(SystemUnavailable):
                await WeftlineSessionService(nobody, strict=True).create_session(**APP)
