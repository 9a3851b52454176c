"""Microsoft Agent Framework with Weftline: context, guardrails, history and compaction, with a scripted chat client."""

from __future__ import annotations

import runpy
import warnings
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from weftline import SyncClient, Weftline
from weftline.adapters.bridge import AdapterWarning
from weftline.client._operations import SyncOperations
from weftline.errors import SystemUnavailable

pytest.importorskip("agent_framework", reason="make adapters installs Microsoft Agent Framework")

from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
    apply_compaction,
)

from weftline.adapters.agent_framework import (
    WeftlineCompactionStrategy,
    WeftlineContextProvider,
    WeftlineHistoryProvider,
)

EXAMPLE = Path(__file__).parents[2] / "examples" / "three_frameworks.py"
USAGE: Any = {"input_token_count": 310, "output_token_count": 12, "total_token_count": 322}


class ScriptedClient(FunctionInvocationLayer[Any], ChatMiddlewareLayer[Any], BaseChatClient[Any]):
    """Answers as its script says, and keeps what it was sent."""

    def __init__(self, *answers: str | Content) -> None:
        super().__init__()
        self.sent: list[tuple[list[Message], Mapping[str, Any]]] = []
        self._answers = answers

    def _inner_get_response(
        self,
        *,
        messages: Sequence[Message],
        stream: bool,
        options: Mapping[str, Any],
        **kwargs: Any,  # noqa: ARG002 - the framework's signature
    ) -> Awaitable[ChatResponse] | ResponseStream[ChatResponseUpdate, ChatResponse]:
        self.sent.append((list(messages), options))
        scripted = self._answers[len(self.sent) - 1]
        answer = Content.from_text(scripted) if isinstance(scripted, str) else scripted

        async def respond() -> ChatResponse:
            return ChatResponse(messages=[Message("assistant", [answer])], usage_details=USAGE)

        async def updates() -> AsyncIterator[ChatResponseUpdate]:
            yield ChatResponseUpdate(role="assistant", contents=[answer, Content.from_usage(USAGE)])

        if stream:
            return ResponseStream(updates(), finalizer=ChatResponse.from_updates)
        return respond()


def call(name: str, call_id: str = "c1") -> Content:
    return Content.from_function_call(
        call_id, "read_metric", arguments={"name": name}, additional_properties={"signature": "signed"}
    )


def read_metric(name: str) -> str:
    """Read a metric."""
    return f"{name} is 0.61, key AKIAIOSFODNN7EXAMPLE"


def text(messages: Sequence[Message]) -> str:
    return "\n".join(f"{each.role}: {[content.to_dict() for content in each.contents]}" for each in messages)


async def test_each_call_has_the_assembled_prompt_with_every_client(any_client: Any) -> None:
    async def done(step: Any) -> Any:
        return step if isinstance(any_client, SyncOperations) else await step

    await done(any_client.session.create("Slow orders", session_id="slow", exist_ok=True))
    await done(any_client.board.write("slow", "scope", "Change nothing."))
    client = ScriptedClient(call("hit_ratio"), "The cache.")
    provider = WeftlineContextProvider(any_client, session_id="slow", strict=True)
    agent = Agent(client, "You find causes.", tools=[read_metric], context_providers=[provider])
    assert (await agent.run("Why are orders slow?", session=agent.create_session())).text == "The cache."
    (first, options), (second, _) = client.sent
    assert str(options["instructions"]).startswith("You find causes.")
    assert "weftline:layer" in str(options["instructions"])
    assert "Change nothing." in text(first)
    assert text(second).count("Why are orders slow?") == 1
    # The call is the content that the model made, and its result follows it.
    called, answered = second[-2:]
    assert [each.additional_properties for each in called.contents] == [{"signature": "signed"}]
    assert [(each.call_id, "0.61" in str(each.result)) for each in answered.contents] == [("c1", True)]
    recorded = (await done(any_client.window.events("slow"))).events
    assert [each.role for each in recorded][:3] == ["user", "assistant", "tool"]
    assert (await done(any_client.usage.report())).total.input_tokens >= 620


async def test_a_stream_reports_its_usage_when_it_ends(opened: Weftline) -> None:
    provider = WeftlineContextProvider(opened, session_id="s", strict=True)
    agent = Agent(ScriptedClient("The cache."), context_providers=[provider])
    stream = agent.run("Why?", stream=True)
    assert "".join([each.text async for each in stream]) == "The cache."
    await stream.get_final_response()
    assert (await opened.usage.report()).total.input_tokens == 310


async def test_a_guardrail_prohibits_a_function_and_masks_what_another_answers(opened: Weftline) -> None:
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
    client = ScriptedClient(call("secret", "c1"), call("open", "c2"), "Done.")
    provider = WeftlineContextProvider(opened, strict=True)
    answer = await Agent(client, tools=[read_metric], context_providers=[provider]).run("Read both")
    results = [str(each.result) for message in answer.messages for each in message.contents if each.result]
    assert "no-secret" in results[0]
    assert "open is 0.61" in results[1]
    assert "AKIA" not in results[1]


async def test_agents_with_clients_of_their_own_have_windows_of_their_own(opened: Weftline) -> None:
    await opened.agent.create("planner")
    await opened.agent.create("writer", parent_id="planner")
    await opened.session.create("Launch", session_id="launch", members=["planner", "writer"])
    provider = WeftlineContextProvider(
        opened.acting_as("planner"), session_id="launch", clients={"writer": opened.acting_as("writer")}, strict=True
    )
    for name in ("planner", "writer"):
        await Agent(ScriptedClient("Done."), name=name, context_providers=[provider]).run("Begin")
    assert {each.agent_id for each in (await opened.window.list("launch")).windows} == {"planner", "writer"}


async def test_where_a_service_keeps_the_conversation_its_prompts_stay(opened: Weftline) -> None:
    client = ScriptedClient("Hello.")
    agent = Agent(client, context_providers=[WeftlineContextProvider(opened, session_id="s", strict=True)])
    await agent.run("Hi", session=AgentSession(service_session_id="theirs"))
    assert [each.text for each in client.sent[0][0]] == ["Hi"]
    assert (await opened.session.list()).sessions == []


async def test_a_conversation_goes_on_in_another_process_with_every_client(any_client: Any) -> None:
    await WeftlineHistoryProvider(any_client, strict=True).delete_messages("talk/1")
    for said in ("I am Bo.", "Who am I?"):
        client = ScriptedClient("Hello.")
        history = WeftlineHistoryProvider(any_client, strict=True)
        await Agent(client, context_providers=[history]).run(said, session=AgentSession(session_id="talk/1"))
    assert [each.text for each in client.sent[0][0]] == ["I am Bo.", "Hello.", "Who am I?"]
    assert await history.get_messages("talk/2") == []


async def test_messages_come_back_as_they_were_and_a_repeated_turn_once(opened: Weftline) -> None:
    history = WeftlineHistoryProvider(opened, strict=True)
    image = Content.from_data(b"\x00\xffimage", "image/png")
    messages = [
        Message("user", ["1.0", image], message_id="m1", additional_properties={"zero": 0.0, "none": None}),
        Message("assistant", [call("x")], author_name="finder"),
        Message("tool", [Content.from_function_result("c1", result="0.61")]),
    ]
    await history.save_messages("s", messages[:2])
    await history.save_messages("s", messages)
    assert [each.to_dict() for each in await history.get_messages("s")] == [each.to_dict() for each in messages]
    state: dict[str, Any] = {}
    await history.save_messages(None, messages[:1], state=state)
    assert await history.get_messages(None, state=state) == messages[:1]


async def test_older_messages_are_compacted_and_calls_stay_with_their_results(opened: Weftline) -> None:
    messages = [Message("system", ["You find causes."])]
    for n in range(10):
        messages += [
            Message("user", [f"We decided that release {n} ships on Friday. " + "It has some more changes. " * 20]),
            Message("assistant", [call("load", f"c{n}")]),
            Message("tool", [Content.from_function_result(f"c{n}", result=f"load is {n}.5 " + "and so on. " * 20)]),
        ]
    before = len(text(messages))
    strategy = WeftlineCompactionStrategy(opened, target_count=3, threshold=1, strict=True)
    projected = await apply_compaction(messages, strategy=strategy)
    assert [each.role for each in projected] == ["system", "assistant", "user", "assistant", "tool"]
    assert all(f"release {n} ships on Friday" in text(projected) for n in range(10))
    assert len(text(projected)) < before / 2
    summary = projected[1]
    summarized = [each for each in messages if each.additional_properties.get("_excluded")]
    assert len(summarized) == 27
    assert {each.additional_properties["_group"]["_summarized_by_summary_id"] for each in summarized} == {
        summary.message_id
    }
    assert await strategy(messages) is False
    assert (await opened.session.list()).sessions == []


async def test_an_agent_goes_on_without_weftline_and_its_user_is_warned_once() -> None:
    with SyncClient("http://127.0.0.1:9", "weftline.k.k", retries=0) as nobody:
        provider, history = WeftlineContextProvider(nobody), WeftlineHistoryProvider(nobody)
        client = ScriptedClient(call("x"), "Done.", "Again.")
        compaction = WeftlineCompactionStrategy(nobody, target_count=1, threshold=0)
        agent = Agent(
            client, tools=[read_metric], context_providers=[history, provider], compaction_strategy=compaction
        )
        session = agent.create_session()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", AdapterWarning)
            await agent.run("Go", session=session)
            assert (await agent.run("Go on", session=session)).text == "Again."
        assert [each.text for each in client.sent[-1][0] if each.role == "user"] == ["Go", "Go on"]
        # One of each: the provider, the history and the compaction.
        assert len([each for each in warned if each.category is AdapterWarning]) == 3
        with pytest.raises(SystemUnavailable):
            await WeftlineHistoryProvider(nobody, strict=True).get_messages("s")


@pytest.mark.parametrize("options", [{"target_count": 0}, {"threshold": -1}])
def test_bad_input_raises_what_the_framework_raises(opened: Weftline, options: Any) -> None:
    with pytest.raises(ValueError, match="must be greater than"):
        WeftlineCompactionStrategy(opened, **options)


async def test_an_agent_joins_the_session_of_three_other_frameworks(tmp_path: Path) -> None:
    await runpy.run_path(str(EXAMPLE))["main"](str(tmp_path))
    async with Weftline.open(tmp_path) as weftline:
        await weftline.agent.create("editor", parent_id="planner")
        editor = weftline.acting_as("editor")
        provider = WeftlineContextProvider(editor, session_id="launch", strict=True)
        client = ScriptedClient("Good.")
        await Agent(client, name="editor", context_providers=[provider]).run("Check the announcement of release 4.")
        (sent, _) = client.sent[0]
        # What the planner in LangGraph, the researcher in OpenAI's SDK and the writer in Pydantic AI wrote.
        for text_of_another in (
            "Announce release 4 on Friday",
            "Release 4 starts in half the time",
            "Friday! Release 4",
        ):
            assert text_of_another in text(sent)
        windows = {each.agent_id for each in (await weftline.window.list("launch")).windows}
        assert windows == {"planner", "researcher", "writer", "editor"}
