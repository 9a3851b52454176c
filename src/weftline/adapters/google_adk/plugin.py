"""The plugin of Google ADK: assembled prompts, guardrails before and after tools, and reports of usage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weftline.adapters.bridge import missing_framework
from weftline.adapters.conversation import Conversations, Refusal, latest_question
from weftline.adapters.google_adk.contents import contents_of, messages_of, text_of_parts

try:
    from google.adk.plugins.base_plugin import BasePlugin
except ImportError as error:
    raise missing_framework("google-adk", error) from error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.adk.agents.callback_context import CallbackContext
    from google.adk.models.llm_request import LlmRequest
    from google.adk.models.llm_response import LlmResponse
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.tool_context import ToolContext

    from weftline.adapters.conversation import Prompt
    from weftline.client._operations import Operations, SyncOperations


class WeftlinePlugin(BasePlugin):
    """A plugin over any client of Weftline: ``App(..., plugins=[WeftlinePlugin(weftline)])``.

    Each request to the model has the prompt that Weftline assembles of the conversation, which it records; the agent's
    own instruction and tools stay. Without ``session_id``, each session of ADK is a session of the same name.
    ``clients``: by the name of an agent, the client that acts as it. Other options are those of ``Conversation``.
    """

    def __init__(
        self,
        weftline: Operations | SyncOperations,
        *,
        session_id: str | None = None,
        clients: Mapping[str, Operations | SyncOperations] | None = None,
        strict: bool = False,
        **prompts: Any,  # noqa: ANN401 - of several types
    ) -> None:
        super().__init__("weftline")
        self._conversations = Conversations(weftline, clients=clients, session_id=session_id, strict=strict, **prompts)
        # By invocation and agent, the prompt of the call that has no answer yet.
        self._open: dict[tuple[str, str], Prompt] = {}

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        conversation = self._conversations.of(callback_context.agent_name)
        told = list(messages_of(llm_request.contents))
        messages = [message for message, _ in told]
        prompt = await conversation.bridge.arun(
            conversation.prompt(
                callback_context.session.id, "openai_chat", messages, latest_question(messages), llm_request.model
            )
        )
        if prompt is None:
            return
        llm_request.contents = contents_of(prompt.messages, told)
        if prompt.system:
            llm_request.append_instructions([prompt.system])
        self._open[_call(callback_context)] = prompt

    async def after_model_callback(self, *, callback_context: CallbackContext, llm_response: LlmResponse) -> None:
        used = llm_response.usage_metadata
        if llm_response.partial:
            return
        prompt = self._open.pop(_call(callback_context), None)
        if prompt is None or used is None or not used.prompt_token_count:
            return
        usage = {
            "prompt_tokens": used.prompt_token_count,
            "completion_tokens": (used.candidates_token_count or 0) + (used.thoughts_token_count or 0),
            "prompt_tokens_details": {"cached_tokens": used.cached_content_token_count or 0},
        }
        content = llm_response.content
        said = text_of_parts((content and content.parts) or [])
        conversation = self._conversations.of(callback_context.agent_name)
        await conversation.bridge.arun(conversation.report(prompt, usage, said))

    async def on_model_error_callback(
        self,
        *,
        callback_context: CallbackContext,
        llm_request: LlmRequest,  # noqa: ARG002 - ADK passes it
        error: Exception,  # noqa: ARG002
    ) -> None:
        self._open.pop(_call(callback_context), None)

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        """Let guardrails check a call: its arguments may be masked, or the model reads why it is not made."""
        conversation = self._conversations.of(tool_context.agent_name)
        checked = await conversation.bridge.arun(conversation.check(tool_context.session.id, tool.name, tool_args))
        if isinstance(checked, Refusal):
            return {"error": checked.text}
        if checked != tool_args:
            # ADK calls the tool with this object.
            tool_args.clear()
            tool_args.update(checked)
        return None

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, result: object
    ) -> dict[str, Any] | None:
        """Let guardrails check what a tool answers, which may be masked or kept back."""
        conversation = self._conversations.of(tool_context.agent_name)
        shown = await conversation.bridge.arun(
            conversation.check(tool_context.session.id, tool.name, tool_args, result)
        )
        if isinstance(shown, Refusal):
            return {"error": shown.text}
        if shown == result:
            return None
        return shown if isinstance(shown, dict) else {"result": shown}


def _call(context: CallbackContext) -> tuple[str, str]:
    return context.invocation_id, context.agent_name
