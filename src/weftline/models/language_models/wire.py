"""The wire forms by name: reading what a caller sends, and rendering a prompt as the body of a request."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import structs

from weftline.kernel.errors import InvalidInput
from weftline.models.language_models import anthropic, neutral, openai_chat, openai_responses
from weftline.models.language_models.catalog import ModelInfo
from weftline.models.language_models.model import ConversationMessage, Prompt, Role, ToolDefinition, WireForm
from weftline.models.language_models.rendering import DEFAULT_OPTIONS, ParsedConversation, RenderOptions

PromptForm = Literal["neutral", "openai_chat", "openai_responses", "anthropic"]

_MODULES = {"openai_chat": openai_chat, "openai_responses": openai_responses, "anthropic": anthropic}
_encode = msgspec.json.Encoder().encode


def parse(form: PromptForm, messages: object, *, system: object = None, tools: object = None) -> ParsedConversation:
    """Read a conversation as sent in a form; raises InvalidInput that names the field.

    ``messages`` is the ``input`` of Responses, ``system`` its ``instructions``.
    """
    if form == "neutral":
        return _with_checked_natives(neutral.parse(messages, system=system, tools=tools))
    conversation: ParsedConversation = _MODULES[form].parse(messages, system=system, tools=tools)
    return conversation


def check_native(message: ConversationMessage, path: str) -> ConversationMessage:
    """Return a message with the fields that its native content has; InvalidInput unless that is one message like it.

    The fields are what is searched, counted and shown to other providers, so they must say what the native content
    says.
    """
    if message.native is None:
        return message
    if message.form is None:
        raise InvalidInput(f"{path}: needs form, the wire form that it is in", field=path)
    found = _native_message(message.form, message.native, message.role, path)
    return structs.replace(found, content=found.content or message.content, name=found.name or message.name)


def with_parts(message: ConversationMessage, parts: list[dict[str, Any]]) -> ConversationMessage:
    """Return a message with content parts in its wire form, by default openai_chat."""
    if message.tool_calls:
        raise InvalidInput("content: a message with tool_calls takes text; give native for parts", field="content")
    form = message.form or "openai_chat"
    given: dict[str, Any] = {"role": message.role, "content": parts}
    if form == "openai_chat":
        about = {"name": message.name, "tool_call_id": message.tool_call_id}
        given |= {name: value for name, value in about.items() if value is not None}
    found = _native_message(form, given, message.role, "content")
    return structs.replace(found, name=message.name, tool_call_id=found.tool_call_id or message.tool_call_id)


def _native_message(form: WireForm, native: object, role: Role, path: str) -> ConversationMessage:
    given = native
    if form == "anthropic" and isinstance(native, dict) and native.get("role") == role == "tool":
        given = {**native, "role": "user"}
    try:
        found = parse(form, [given]).messages
    except InvalidInput as error:
        reason = error.message.removeprefix("messages[0]").removeprefix("input[0]").lstrip(".: ")
        raise InvalidInput(f"{path}: {reason}", field=path) from error
    if len(found) != 1 or found[0].role != role:
        raise InvalidInput(f"{path}: must be one message of the role {role}", field=path)
    return found[0]


def _with_checked_natives(conversation: ParsedConversation) -> ParsedConversation:
    messages = [check_native(each, f"messages[{at}].native") for at, each in enumerate(conversation.messages)]
    return ParsedConversation(
        messages, [_check_tool(each, f"tools[{at}]") for at, each in enumerate(conversation.tools)]
    )


def _check_tool(tool: ToolDefinition, path: str) -> ToolDefinition:
    """Return a tool whose native definition is one of the same name."""
    if tool.native is None:
        return tool
    if tool.form is None:
        raise InvalidInput(f"{path}.form: is missing, native is in a wire form", field=path)
    (found,) = parse(tool.form, [], tools=[tool.native]).tools
    if found.name != tool.name:
        raise InvalidInput(f"{path}.native: must have the name {tool.name}", field=path)
    return found


def render(
    form: PromptForm, prompt: Prompt, info: ModelInfo, options: RenderOptions = DEFAULT_OPTIONS
) -> dict[str, Any]:
    """Return the body of a request. The same prompt gives the same bytes when encoded by ``encode_body``."""
    return neutral.render(prompt) if form == "neutral" else _MODULES[form].render(prompt, info, options)


def encode_body(body: dict[str, Any]) -> bytes:
    """Return the JSON of a body; fields are in the order in which rendering writes them."""
    return _encode(body)
