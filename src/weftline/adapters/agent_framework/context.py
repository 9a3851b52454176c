"""The context provider of Microsoft Agent Framework, and the two kinds of middleware that it gives a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weftline.adapters.agent_framework.messages import messages_of, new_messages
from weftline.adapters.bridge import missing_framework
from weftline.adapters.conversation import Conversation, Conversations, Refusal, latest_question

try:
    from agent_framework import ChatMiddleware, ChatResponse, Content, ContextProvider, FunctionMiddleware
except ImportError as error:
    raise missing_framework("agent-framework", error) from error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from agent_framework import AgentSession, ChatContext, FunctionInvocationContext, SessionContext, SupportsAgentRun

    from weftline.adapters.conversation import Prompt
    from weftline.client._operations import Operations, SyncOperations


class WeftlineContextProvider(ContextProvider):
    """A context provider over any client of Weftline: ``Agent(..., context_providers=[...])``.

    Each call of the model gets the prompt that Weftline assembles of the conversation, which it records, and guardrails
    check the calls of functions; the agent's own instructions and tools stay. Where a service keeps the conversation,
    prompts are its own: then only guardrails apply. Without ``session_id``, each session of the framework is a session
    of the same name. ``clients``: by the name of an agent, the client that acts as it. Other options are those of
    ``Conversation``.
    """

    DEFAULT_SOURCE_ID = "weftline"

    def __init__(
        self,
        weftline: Operations | SyncOperations,
        source_id: str = DEFAULT_SOURCE_ID,
        *,
        session_id: str | None = None,
        clients: Mapping[str, Operations | SyncOperations] | None = None,
        strict: bool = False,
        **prompts: Any,  # noqa: ANN401 - of several types
    ) -> None:
        super().__init__(source_id)
        self._conversations = Conversations(weftline, clients=clients, session_id=session_id, strict=strict, **prompts)

    async def before_run(
        self,
        *,
        agent: SupportsAgentRun,
        session: AgentSession,  # noqa: ARG002 - the framework passes it
        context: SessionContext,
        state: dict[str, Any],  # noqa: ARG002
    ) -> None:
        conversation = self._conversations.of(agent.name)
        context.extend_middleware(self.source_id, WeftlineFunctionMiddleware(conversation))
        if not context.service_session_id:
            context.extend_middleware(self.source_id, WeftlineChatMiddleware(conversation))


class WeftlineChatMiddleware(ChatMiddleware):
    """Sends the assembled prompt in place of the messages, and reports what the call has used."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._bridge = conversation.bridge

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        told = list(messages_of(context.messages))
        messages = [message for message, _ in told]
        options = dict(context.options or {})
        prompt = await self._bridge.arun(
            self._conversation.prompt(
                context.session.session_id if context.session else None,
                "openai_chat",
                messages,
                latest_question(messages),
                options.get("model"),
            )
        )
        if prompt is None:
            return await call_next()
        system = [message for message in context.messages if message.role == "system"]
        context.messages = [*system, *new_messages(prompt.messages, told)]
        if prompt.system:
            before = [options["instructions"]] if options.get("instructions") else []
            context.options = {**options, "instructions": "\n\n".join([*before, prompt.system])}

        async def report(response: ChatResponse[Any]) -> None:
            await self._report(prompt, response)

        if context.stream:
            context.stream_result_hooks.append(report)
            return await call_next()
        await call_next()
        if isinstance(context.result, ChatResponse):
            await report(context.result)
        return None

    async def _report(self, prompt: Prompt, response: ChatResponse[Any]) -> None:
        used: Mapping[str, Any] = response.usage_details or {}
        if used.get("input_token_count"):
            usage = {
                "prompt_tokens": used["input_token_count"],
                "completion_tokens": used.get("output_token_count") or 0,
                "prompt_tokens_details": {"cached_tokens": used.get("cache_read_input_token_count") or 0},
            }
            await self._bridge.arun(self._conversation.report(prompt, usage, response.text))


class WeftlineFunctionMiddleware(FunctionMiddleware):
    """Lets guardrails check each call of a function and its result: the model reads why a call was refused."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._bridge = conversation.bridge

    async def process(self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]) -> None:
        thread = context.session.session_id if context.session else None
        name, arguments = context.function.name, _plain(context.arguments)
        checked = await self._bridge.arun(self._conversation.check(thread, name, arguments))
        if isinstance(checked, Refusal):
            context.result = checked.text
            return
        if checked != arguments:
            context.arguments = checked
        await call_next()
        result = _text(context.result)
        shown = await self._bridge.arun(self._conversation.check(thread, name, checked, result))
        if isinstance(shown, Refusal):
            context.result = shown.text
        elif shown != result:
            context.result = str(shown)


def _plain(arguments: Any) -> dict[str, Any]:  # noqa: ANN401 - a mapping or a model of pydantic
    return dict(arguments) if not hasattr(arguments, "model_dump") else arguments.model_dump(mode="json")


def _text(result: Any) -> str:  # noqa: ANN401 - of any function
    if isinstance(result, list) and all(isinstance(each, Content) for each in result):
        return "\n".join(each.text for each in result if each.type == "text" and each.text)
    return str(result)
