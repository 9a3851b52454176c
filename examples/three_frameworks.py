"""Three agents of three frameworks in one session: a planner, a researcher and a writer share a board and messages.

The planner is a LangGraph agent, the researcher uses the OpenAI Agents SDK, the writer Pydantic AI. Their models are
scripted, so that the example runs without keys: put your own in their place. The data is in a temporary folder:

    pip install 'weftline[langchain,openai-agents,pydantic-ai]'
    python examples/three_frameworks.py
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from typing import TYPE_CHECKING, Any

from agents import Agent as OpenAIAgent
from agents import Runner, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import StructuredTool
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage

from weftline import Weftline
from weftline.adapters.langchain import WeftlineMiddleware
from weftline.adapters.langgraph import WeftlineSaver
from weftline.adapters.openai_agents import WeftlineRun
from weftline.adapters.pydantic_ai import WeftlineCapability

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models.function import AgentInfo

SESSION = "launch"
GOAL = "Announce release 4 on Friday, for customers who run it themselves."
QUESTION = "Researcher: what is new in it?"
FINDING = "Release 4 starts in half the time, and needs Python 3.12."


async def main(folder: str) -> None:
    set_tracing_disabled(disabled=True)
    async with Weftline.open(folder) as weftline:
        await weftline.agent.create("planner")
        for agent in ("researcher", "writer"):
            await weftline.agent.create(agent, parent_id="planner")
        await weftline.session.create("Announce release 4", session_id=SESSION, members=["planner", "tree:planner"])
        print("planner:   ", await plan(weftline.acting_as("planner")))
        print("researcher:", await research(weftline.acting_as("researcher")))
        print("writer:    ", await write(weftline.acting_as("writer")))

        print("\nThe board, with the agent that wrote each key:")
        for entry in (await weftline.board.list_keys(SESSION, values=True)).keys:
            print(f"  {entry.key} ({entry.written_by}): {entry.value}")
        print("The windows:", sorted(window.agent_id for window in (await weftline.window.list(SESSION)).windows))
        prompts = (await weftline.receipt.list(session_id=SESSION)).receipts
        print("The prompts:", sorted({receipt.agent_id for receipt in prompts}))
        found = await weftline.acting_as("planner").search.query("Which Python does it need?", session_id=SESSION)
        print("The planner finds:", found.results[0].text.strip())


async def plan(weftline: Weftline) -> str:
    """Plan with LangGraph: a middleware, and a checkpointer for its thread."""
    model = GenericFakeChatModel(
        messages=iter(
            [
                AIMessage("", tool_calls=[{"id": "1", "name": "write_board", "args": {"key": "goal", "text": GOAL}}]),
                AIMessage(
                    "", tool_calls=[{"id": "2", "name": "say", "args": {"text": "Researcher: what is new in it?"}}]
                ),
                AIMessage("The goal is on the board."),
            ]
        )
    )
    model.__class__.bind_tools = lambda self, *_, **__: self  # type: ignore[method-assign]  # it has none
    agent = create_agent(
        model,
        [StructuredTool.from_function(coroutine=tool, name=tool.__name__) for tool in tools_of(weftline)],
        middleware=[WeftlineMiddleware(weftline, session_id=SESSION, token_budget=4_000)],
        checkpointer=WeftlineSaver(weftline),
    )
    config: Any = {"configurable": {"thread_id": "planning"}}
    state = await agent.ainvoke({"messages": [HumanMessage("Plan the announcement of release 4.")]}, config)
    return str(state["messages"][-1].text)


async def research(weftline: Weftline) -> str:
    """Research with the OpenAI Agents SDK."""
    model = ScriptedModel(
        [
            [function_call("write_board", {"key": "finding", "text": FINDING}, call_id="1")],
            [function_call("say", {"text": "Writer: the finding is on the board."}, call_id="2")],
            [assistant_message("I wrote down what is new.")],
        ]
    )
    run = WeftlineRun(weftline, SESSION, token_budget=4_000)
    agent = OpenAIAgent("researcher", model=model, tools=[function_tool(tool) for tool in tools_of(weftline)])
    question = "What does the planner ask the researcher? What is new in release 4?"
    result = await Runner.run(agent, question, run_config=run.config, hooks=run)
    sees(model.calls[0].input, "the researcher", GOAL, QUESTION)
    return str(result.final_output)


async def write(weftline: Weftline) -> str:
    """Write with Pydantic AI."""
    usage = RequestUsage(input_tokens=400, output_tokens=20)

    def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        if any(isinstance(part, ToolCallPart) for message in messages for part in message.parts):
            return ModelResponse(parts=[TextPart("The announcement is on the board.")], usage=usage)
        sees(messages, "the writer", GOAL, FINDING)
        call = ToolCallPart("write_board", {"key": "announcement", "text": f"Friday! {FINDING}"})
        return ModelResponse(parts=[call], usage=usage)

    agent = PydanticAgent(
        FunctionModel(answer),
        tools=tools_of(weftline),
        capabilities=[WeftlineCapability(weftline, session_id=SESSION, token_budget=4_000)],
    )
    return (await agent.run("Write the announcement.")).output


def tools_of(weftline: Weftline) -> list[Callable[..., Awaitable[str]]]:
    """Return the tools of an agent, which write as this agent."""

    async def write_board(key: str, text: str) -> str:
        """Write a conclusion that the others need to the board."""
        written = await weftline.board.write(SESSION, key, text)
        return f"{key} has version {written.version}."

    async def say(text: str) -> str:
        """Say something to all agents of the session."""
        await weftline.message.add(SESSION, text)
        return "Sent."

    return [write_board, say]


def sees(prompt: object, who: str, *texts: str) -> None:
    """End with an error if a prompt lacks what another agent has written."""
    if missing := [text for text in texts if text not in str(prompt)]:
        sys.exit(f"{who} does not see: {missing}")
    print(f"  {who} sees what the others wrote")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(main(temporary))
