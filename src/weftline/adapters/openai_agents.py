"""OpenAI Agents SDK: sessions that last, and runs whose prompts Weftline assembles, with guardrails and reports.

``WeftlineSession`` keeps the items of runs as they were, in the agent's private memory of a session. ``WeftlineRun``
has the input filter and the hooks of a run; each agent of a handoff may have a client, and so a window, of its own.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from weftline.adapters.bridge import Bridge, missing_framework
from weftline.adapters.conversation import Conversations, Refusal, latest_question, text_of
from weftline.adapters.entries import Entries
from weftline.adapters.keys import session_name
from weftline.errors import SessionNotFound, WindowNotFound

try:
    from agents import RunConfig, RunHooks, SQLiteSession, ToolGuardrailFunctionOutput, ToolInputGuardrail, UserError
    from agents.memory.session import SessionABC
    from agents.run_config import ModelInputData
except ImportError as error:
    raise missing_framework("openai-agents", error) from error

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from agents import Agent, ModelResponse, RunContextWrapper, TResponseInputItem
    from agents.memory import SessionSettings
    from agents.run_config import CallModelData
    from agents.tool_guardrails import ToolInputGuardrailData

    from weftline.adapters.conversation import Conversation, Prompt
    from weftline.client._operations import Operations, SyncOperations

_ITEMS = "openai-agents/items/"


class WeftlineSession(SessionABC):
    """A session of the SDK over any client of Weftline: the items of runs, in order, as they were.

    If Weftline fails, items stay in this process, with a warning; with ``strict``, the call fails.
    ``run_compaction`` compacts the agent's window, from which ``WeftlineRun`` assembles; items stay whole.
    """

    def __init__(
        self,
        session_id: str,
        weftline: Operations | SyncOperations,
        *,
        session_settings: SessionSettings | None = None,
        strict: bool = False,
    ) -> None:
        if not session_id:
            raise UserError("A session needs an id.")
        self.session_id = session_id
        self.session_settings = session_settings
        self.bridge = Bridge(weftline, strict=strict)
        self._weftline = self.bridge.weftline
        place = session_name(session_id, prefix="items-")
        self._entries = Entries(self.bridge, place, "A session of the OpenAI Agents SDK")
        self._local = SQLiteSession(session_id)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        entries = await self.bridge.arun(self.bridge.guarded(self._entries.list(_ITEMS), lambda: None))
        items = [] if entries is None else [entry.value for entry in entries]
        items += await self._local.get_items()
        return items if limit is None else items[max(0, len(items) - limit) :] if limit > 0 else []

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        stored = await self.bridge.arun(self.bridge.guarded(self._add(items), lambda: 0))
        await self._local.add_items(items[stored:])

    async def pop_item(self) -> TResponseInputItem | None:
        if (local := await self._local.pop_item()) is not None:
            return local
        item: TResponseInputItem | None = await self.bridge.arun(self.bridge.guarded(self._pop(), lambda: None))
        return item

    async def clear_session(self) -> None:
        await self._local.clear_session()
        await self.bridge.arun(self.bridge.guarded(self._clear(), lambda: None))

    async def run_compaction(self, args: Mapping[str, Any] | None = None) -> None:
        """Compact the window of the session if it is due, or ``force`` is set."""

        def compact() -> Generator[Any, Any, None]:
            with suppress(SessionNotFound, WindowNotFound):
                window = yield self._weftline.window.show(self.session_id)
                if (args or {}).get("force") or window.threshold_reached:
                    yield self._weftline.context.compact(self.session_id)

        await self.bridge.arun(self.bridge.guarded(compact(), lambda: None))

    def _add(self, items: list[TResponseInputItem]) -> Generator[Any, Any, int]:
        for item in items:
            yield from self._entries.append(_ITEMS, item)
        return len(items)

    def _pop(self) -> Generator[Any, Any, TResponseInputItem | None]:
        while entries := (yield from self._entries.list(_ITEMS)):
            if (yield from self._entries.delete(entries[-1].key)):  # nobody else has taken it
                item: TResponseInputItem = entries[-1].value
                return item
        return None

    def _clear(self) -> Generator[Any, Any, None]:
        for entry in (yield from self._entries.list(_ITEMS, values=False)):
            yield from self._entries.delete(entry.key)


class WeftlineRun(RunHooks[Any]):
    """What a run of agents needs: ``Runner.run(agent, ..., run_config=run.config, hooks=run)``.

    ``clients``: by the name of an agent, the client that acts as it, so that agents of a handoff have windows of their
    own; the others use ``weftline``. Other options are those of ``Conversation``.
    """

    def __init__(
        self,
        weftline: Operations | SyncOperations,
        session_id: str,
        *,
        clients: Mapping[str, Operations | SyncOperations] | None = None,
        strict: bool = False,
        **prompts: Any,  # noqa: ANN401 - of several types
    ) -> None:
        self._conversations = Conversations(weftline, clients=clients, session_id=session_id, strict=strict, **prompts)
        self._open: dict[str, Prompt] = {}
        self.config = RunConfig(call_model_input_filter=self.filter)
        self.guardrail = ToolInputGuardrail[Any](guardrail_function=self._check, name="weftline")

    def conversation(self, agent: Agent[Any]) -> Conversation:
        """Return the conversation of an agent."""
        return self._conversations.of(agent.name)

    async def filter(self, data: CallModelData[Any]) -> ModelInputData:
        """Return the assembled prompt in place of the input; the agent's own instructions stay before its layers."""
        items = [dict(item) for item in data.model_data.input]
        model = data.agent.model if isinstance(data.agent.model, str) else None
        conversation = self.conversation(data.agent)
        prompt = await conversation.bridge.arun(
            conversation.prompt(None, "openai_responses", items, latest_question(items), model)
        )
        if prompt is None:
            return data.model_data
        self._open[data.agent.name] = prompt
        before = [data.model_data.instructions] if data.model_data.instructions else []
        instructions = "\n\n".join([*before, *([prompt.system] if prompt.system else [])])
        return ModelInputData(input=prompt.messages, instructions=instructions or None)  # type: ignore[arg-type]

    async def on_llm_end(
        self,
        context: RunContextWrapper[Any],  # noqa: ARG002 - the SDK passes it
        agent: Agent[Any],
        response: ModelResponse,
    ) -> None:
        prompt = self._open.pop(agent.name, None)
        if prompt is None:
            return
        if not response.usage.input_tokens:
            return
        usage = {
            "input_tokens": response.usage.input_tokens,
            "output_tokens": response.usage.output_tokens,
            "input_tokens_details": {"cached_tokens": response.usage.input_tokens_details.cached_tokens or 0},
        }
        said = "\n".join(text_of(getattr(item, "content", "")) for item in response.output).strip()
        conversation = self.conversation(agent)
        await conversation.bridge.arun(conversation.report(prompt, usage, said))

    async def _check(self, data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        """Let guardrails of Weftline check a call; tools name it: ``function_tool(tool_input_guardrails=[...])``."""
        try:
            arguments = json.loads(data.context.tool_arguments or "{}")
        except ValueError:
            arguments = {}
        conversation = self.conversation(data.agent)
        checked = await conversation.bridge.arun(conversation.check(None, data.context.tool_name, arguments))
        if isinstance(checked, Refusal):
            return ToolGuardrailFunctionOutput.reject_content(checked.text)
        return ToolGuardrailFunctionOutput.allow()
