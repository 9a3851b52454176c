"""Middleware of LangChain agents: prompts that Weftline assembles, guardrails before tools, and reports of usage."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from weftline.adapters.bridge import missing_framework
from weftline.adapters.conversation import Conversation, Refusal

try:
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.messages import SystemMessage, ToolMessage, convert_to_messages, convert_to_openai_messages
    from langgraph.config import get_config
except ImportError as error:
    raise missing_framework("langchain", error) from error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence

    from langchain.agents.middleware import ModelRequest, ModelResponse
    from langchain.agents.middleware.types import ToolCallRequest
    from langchain_core.messages import BaseMessage
    from langgraph.types import Command

    from weftline.adapters.conversation import Prompt
    from weftline.client._operations import Operations, SyncOperations


class WeftlineMiddleware(AgentMiddleware[Any, Any, Any]):
    """Middleware over any client of Weftline, for agents with and without ``await``.

    Each model call gets the prompt that Weftline assembles of the conversation, which it records: within
    ``token_budget``, with what is relevant of the session's board, messages, memory and documents. The agent's own
    system prompt and tools stay as they are. Options: those of ``Conversation``.
    """

    def __init__(
        self,
        weftline: Operations | SyncOperations,
        *,
        session_id: str | None = None,
        strict: bool = False,
        **prompts: Any,  # noqa: ANN401 - of several types
    ) -> None:
        super().__init__()
        self.conversation = Conversation(weftline, session_id=session_id, strict=strict, **prompts)
        self.bridge = self.conversation.bridge

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        prompt = self.bridge.run(self._prompt(request))
        response = handler(request if prompt is None else _assembled(request, prompt))
        self.bridge.run(self._report(prompt, response.result))
        return response

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        prompt = await self.bridge.arun(self._prompt(request))
        response = await handler(request if prompt is None else _assembled(request, prompt))
        await self.bridge.arun(self._report(prompt, response.result))
        return response

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
    ) -> ToolMessage | Command[Any]:
        call = request.tool_call
        arguments = self.bridge.run(self.conversation.check(_thread_id(), call["name"], call["args"]))
        if isinstance(arguments, Refusal):
            return _refused(request, arguments)
        answer = handler(request.override(tool_call={**call, "args": arguments}))
        if not isinstance(answer, ToolMessage):
            return answer
        shown = self.bridge.run(self.conversation.check(_thread_id(), call["name"], arguments, answer.content))
        return _shown(request, answer, shown)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
    ) -> ToolMessage | Command[Any]:
        call = request.tool_call
        arguments = await self.bridge.arun(self.conversation.check(_thread_id(), call["name"], call["args"]))
        if isinstance(arguments, Refusal):
            return _refused(request, arguments)
        answer = await handler(request.override(tool_call={**call, "args": arguments}))
        if not isinstance(answer, ToolMessage):
            return answer
        shown = await self.bridge.arun(self.conversation.check(_thread_id(), call["name"], arguments, answer.content))
        return _shown(request, answer, shown)

    def _prompt(self, request: ModelRequest[Any]) -> Generator[Any, Any, Prompt | None]:
        messages = _as_openai(request.messages)
        asked = next((each for each in reversed(request.messages) if each.type == "human"), None)
        model = getattr(request.model, "model_name", None) or getattr(request.model, "model", None)
        return (
            yield from self.conversation.prompt(
                _thread_id(), "openai_chat", messages, str(asked.text) if asked else "", str(model) if model else None
            )
        )

    def _report(self, prompt: Prompt | None, result: Sequence[BaseMessage]) -> Generator[Any, Any, None]:
        said = result[-1] if result else None
        usage = getattr(said, "usage_metadata", None)
        if prompt is not None and said is not None and usage:
            yield from self.conversation.report(prompt, _usage(usage), str(said.text))


def _assembled(request: ModelRequest[Any], prompt: Prompt) -> ModelRequest[Any]:
    """Return a request with the assembled prompt; messages that are in it unchanged stay the objects they were."""
    own = {_name(told): each for told, each in zip(_as_openai(request.messages), request.messages, strict=True)}
    messages: list[Any] = []
    for message in prompt.messages:
        messages += [own[_name(message)]] if _name(message) in own else convert_to_messages([message])
    before = [request.system_message.text] if request.system_message else []
    return request.override(messages=messages, system_message=SystemMessage("\n\n".join([*before, prompt.system])))


def _as_openai(messages: Sequence[BaseMessage]) -> list[dict[str, Any]]:
    return [convert_to_openai_messages([each])[0] for each in messages]


def _name(message: Mapping[str, Any]) -> str:
    """Return what two messages have in common that say the same."""
    return json.dumps({name: value for name, value in message.items() if value}, sort_keys=True, default=str)


def _usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Return LangChain's usage, whose input counts what was cached, as OpenAI has it."""
    details = usage.get("input_token_details") or {}
    return {
        "prompt_tokens": usage["input_tokens"],
        "completion_tokens": usage["output_tokens"],
        "total_tokens": usage["total_tokens"],
        "prompt_tokens_details": {"cached_tokens": details.get("cache_read") or 0},
    }


def _thread_id() -> str | None:
    try:
        thread_id = get_config()["configurable"].get("thread_id")
    except RuntimeError:  # outside a graph
        return None
    return str(thread_id) if thread_id is not None else None


def _refused(request: ToolCallRequest, refusal: Refusal) -> ToolMessage:
    call = request.tool_call
    return ToolMessage(refusal.text, tool_call_id=call["id"], name=call["name"], status="error")


def _shown(request: ToolCallRequest, answer: ToolMessage, shown: Any) -> ToolMessage:  # noqa: ANN401 - of any tool
    return _refused(request, shown) if isinstance(shown, Refusal) else answer.model_copy(update={"content": shown})
