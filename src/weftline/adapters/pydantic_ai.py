"""Pydantic AI: prompts that Weftline assembles, guardrails before tools, reports of usage, and stored conversations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from weftline.adapters.bridge import Bridge, missing_framework
from weftline.adapters.conversation import Conversation, Refusal, identity, latest_question, text_of
from weftline.adapters.entries import Entries
from weftline.adapters.keys import escape
from weftline.errors import VersionConflict

try:
    from pydantic import TypeAdapter
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.conversation_store import (
        ConversationConflict,
        ConversationEntry,
        ConversationRecord,
        ConversationStore,
        InMemoryConversationStore,
    )
    from pydantic_ai.messages import (
        InstructionPart,
        ModelMessagesTypeAdapter,
        ModelRequest,
        ModelResponse,
        RetryPromptPart,
        SystemPromptPart,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )
except ImportError as error:
    raise missing_framework("pydantic-ai", error) from error

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from pydantic_ai.capabilities import ValidatedToolArgs, WrapModelRequestHandler, WrapToolExecuteHandler
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.tools import RunContext, ToolDefinition

    from weftline.adapters.conversation import Prompt
    from weftline.client._operations import Operations, SyncOperations

_RECORDS = TypeAdapter(ConversationRecord)
_RECORD, _ENTRY = "records/", "entries/"


class WeftlineCapability(AbstractCapability[Any]):
    """A capability over any client of Weftline: ``Agent(..., capabilities=[WeftlineCapability(weftline)])``.

    Each request to the model has the prompt that Weftline assembles of the conversation, which it records; the agent's
    own instructions and tools stay. Options: those of ``Conversation``.
    """

    def __init__(
        self,
        weftline: Operations | SyncOperations,
        *,
        session_id: str | None = None,
        strict: bool = False,
        **prompts: Any,  # noqa: ANN401 - of several types
    ) -> None:
        self.conversation = Conversation(weftline, session_id=session_id, strict=strict, **prompts)
        self.bridge = self.conversation.bridge

    async def wrap_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: WrapModelRequestHandler
    ) -> ModelResponse:
        told = [pair for each in request_context.messages for pair in _told(each)]
        messages = [message for message, _ in told]
        prompt = await self.bridge.arun(
            self.conversation.prompt(
                ctx.conversation_id, "openai_chat", messages, latest_question(messages), ctx.model.model_name
            )
        )
        if prompt is None:
            return await handler(request_context)
        response = await handler(_assembled(request_context, told, prompt))
        usage = {
            "prompt_tokens": response.usage.input_tokens,
            "completion_tokens": response.usage.output_tokens,
            "prompt_tokens_details": {"cached_tokens": response.usage.cache_read_tokens},
        }
        if response.usage.input_tokens:
            await self.bridge.arun(self.conversation.report(prompt, usage, _said(response)))
        return response

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,  # noqa: ARG002 - the framework passes it
        args: ValidatedToolArgs,
        handler: WrapToolExecuteHandler,
    ) -> Any:  # noqa: ANN401 - of any tool
        given = call.args_as_dict()
        checked = await self.bridge.arun(self.conversation.check(ctx.conversation_id, call.tool_name, given))
        if isinstance(checked, Refusal):
            return checked.text
        answer = await handler(args if checked == given else checked)
        if not isinstance(answer, str):
            return answer
        shown = await self.bridge.arun(self.conversation.check(ctx.conversation_id, call.tool_name, given, answer))
        return shown.text if isinstance(shown, Refusal) else shown


class WeftlineConversationStore(ConversationStore):
    """A store of conversations over any client of Weftline: in the private memory of the agent that it acts as.

    The entries of a deleted conversation stay, since others may have been forked from it.
    """

    def __init__(self, weftline: Operations | SyncOperations, *, strict: bool = False) -> None:
        self.bridge = Bridge(weftline, strict=strict, raised=(ConversationConflict,))
        self._entries = Entries(self.bridge, "pydantic-ai-conversations", "Conversations of Pydantic AI")
        self._local = InMemoryConversationStore()

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        found = await self.bridge.arun(self.bridge.guarded(self._stored(_RECORD, conversation_id), lambda: None))
        return (
            await self._local.read_record(conversation_id) if found is None else _RECORDS.validate_python(found.value)
        )

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        stored: Sequence[ConversationRecord]
        stored = await self.bridge.arun(self.bridge.guarded(self._all_records(), tuple))
        records = [*stored, *await self._local.read_records()]
        wanted = [each for each in records if scope is None or each.scope == scope]
        return sorted(wanted, key=lambda each: each.updated_at, reverse=True)[:limit]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        writing = self.bridge.guarded(self._write(record, new_entries, expected_revision), lambda: False)
        if not await self.bridge.arun(writing):
            await self._local.write_record(record, new_entries=new_entries, expected_revision=expected_revision)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        if not await self.bridge.arun(
            self.bridge.guarded(self._delete(conversation_id, expected_revision), lambda: False)
        ):
            await self._local.delete_record(conversation_id, expected_revision=expected_revision)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        found = await self.bridge.arun(self.bridge.guarded(self._stored(_ENTRY, entry_id), lambda: None))
        if found is None:
            return await self._local.read_entry(entry_id)
        (message,) = ModelMessagesTypeAdapter.validate_python([found.value["message"]])
        return ConversationEntry(id=entry_id, parent_id=found.value["parent_id"], message=message)

    def _stored(self, kind: str, name: str) -> Generator[Any, Any, Any]:
        return (yield from self._entries.get(f"{kind}{escape(name)}"))

    def _all_records(self) -> Generator[Any, Any, list[ConversationRecord]]:
        entries = yield from self._entries.list(_RECORD)
        return [_RECORDS.validate_python(entry.value) for entry in entries]

    def _write(
        self, record: ConversationRecord, new_entries: Sequence[ConversationEntry], expected_revision: str | None
    ) -> Generator[Any, Any, bool]:
        stored = yield from self._stored(_RECORD, record.conversation_id)
        if (stored and stored.value["revision"]) != expected_revision:
            raise ConversationConflict(record.conversation_id)
        is_known = record.head_id is None or record.head_id in {entry.id for entry in new_entries}
        if not is_known and (yield from self._stored(_ENTRY, str(record.head_id))) is None:
            raise ConversationConflict(record.conversation_id)
        for entry in new_entries:
            (message,) = ModelMessagesTypeAdapter.dump_python([entry.message], mode="json")
            value = {"parent_id": entry.parent_id, "message": message}
            yield from self._entries.set(f"{_ENTRY}{escape(entry.id)}", value)
        try:
            yield from self._entries.set(
                f"{_RECORD}{escape(record.conversation_id)}",
                _RECORDS.dump_python(record, mode="json"),
                if_version=stored.version if stored else 0,
            )
        except VersionConflict as conflict:
            raise ConversationConflict(record.conversation_id) from conflict
        return True

    def _delete(self, conversation_id: str, expected_revision: str) -> Generator[Any, Any, bool]:
        stored = yield from self._stored(_RECORD, conversation_id)
        if stored is None or stored.value["revision"] != expected_revision:
            raise ConversationConflict(conversation_id)
        try:
            key = f"{_RECORD}{escape(conversation_id)}"
            deleted = yield from self._entries.delete(key, if_version=stored.version)
        except VersionConflict as conflict:
            raise ConversationConflict(conversation_id) from conflict
        if not deleted:
            raise ConversationConflict(conversation_id)
        return True


def _told(message: ModelMessage) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield a message as OpenAI has it, with the message or part that says so; without system prompts."""
    if isinstance(message, ModelResponse):
        calls = [
            {
                "id": part.tool_call_id,
                "type": "function",
                "function": {"name": part.tool_name, "arguments": part.args_as_json_str()},
            }
            for part in message.parts
            if isinstance(part, ToolCallPart)
        ]
        yield {"role": "assistant", "content": _said(message), **({"tool_calls": calls} if calls else {})}, message
        return
    for part in message.parts:
        if isinstance(part, ToolReturnPart):
            yield {"role": "tool", "tool_call_id": part.tool_call_id, "content": part.model_response_str()}, part
        elif isinstance(part, RetryPromptPart) and part.tool_name:
            yield {"role": "tool", "tool_call_id": part.tool_call_id, "content": part.model_response()}, part
        elif isinstance(part, RetryPromptPart):
            yield {"role": "user", "content": part.model_response()}, part
        elif isinstance(part, UserPromptPart):
            content = part.content if isinstance(part.content, str) else [part.content]
            text = content if isinstance(content, str) else "\n".join(str(each) for each in part.content)
            yield {"role": "user", "content": text}, part


def _assembled(
    request: ModelRequestContext, told: Sequence[tuple[dict[str, Any], Any]], prompt: Prompt
) -> ModelRequestContext:
    """Return a request with the assembled prompt; what is in it unchanged stays the message or part it was."""
    own = {identity(message): each for message, each in told}
    first = request.messages[0] if request.messages else None
    system = (
        [part for part in first.parts if isinstance(part, SystemPromptPart)] if isinstance(first, ModelRequest) else []
    )
    messages: list[ModelMessage] = [ModelRequest(parts=system)] if system else []
    for message in prompt.messages:
        known = own.get(identity(message))
        if message["role"] == "assistant":
            messages.append(known or ModelResponse(parts=[TextPart(text_of(message.get("content")))]))
            continue
        part = UserPromptPart(text_of(message.get("content"))) if known is None else known
        if known is not None and message["role"] == "tool" and isinstance(known, ToolReturnPart):
            part = replace(known, content=text_of(message.get("content")))
        if messages and isinstance(messages[-1], ModelRequest):
            messages[-1] = replace(messages[-1], parts=[*messages[-1].parts, part])
        else:
            messages.append(ModelRequest(parts=[part]))
    parameters = request.model_request_parameters
    instructions = [*(parameters.instruction_parts or []), InstructionPart(prompt.system, dynamic=True)]
    return replace(
        request,
        messages=messages,
        model_request_parameters=replace(parameters, instruction_parts=instructions) if prompt.system else parameters,
    )


def _said(message: ModelResponse) -> str:
    return "".join(part.content for part in message.parts if isinstance(part, TextPart))
