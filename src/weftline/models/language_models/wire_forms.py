"""The table of the wire forms: reading what a caller sends, and rendering a prompt as the body of a request.

A further form is a module with its rules, its entry here, and its name in ``WireForm`` and ``PromptForm``.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import structs

from weftline.kernel.errors import InvalidInput
from weftline.kernel.json_input import encode_json_field
from weftline.models.language_models import anthropic, gemini, openai_chat, openai_responses
from weftline.models.language_models.catalog import ModelInfo
from weftline.models.language_models.content import (
    ConversationMessage,
    Media,
    Part,
    Prompt,
    PromptForm,
    ToolDefinition,
    WireForm,
    list_at,
    text_at,
)
from weftline.models.language_models.rendering import (
    DEFAULT_OPTIONS,
    FormRules,
    ParsedConversation,
    PlacedMessage,
    RenderOptions,
    check_tool_names,
    paired,
    text_of_parts,
)

FORMS: dict[WireForm, FormRules] = {
    rules.form: rules for rules in (openai_chat.RULES, openai_responses.RULES, anthropic.RULES, gemini.RULES)
}
# The form of content parts for which the caller names none.
_DEFAULT: WireForm = "openai_chat"
SYSTEM_FIELDS = tuple(dict.fromkeys(rules.system_field for rules in FORMS.values() if rules.system_field))
MESSAGES_FIELDS = tuple(dict.fromkeys(rules.messages_field for rules in FORMS.values()))
OUTSIDE_FIELDS = tuple(name for rules in FORMS.values() for name in rules.outside_fields)
_encode_json = msgspec.json.Encoder().encode


def rules_of(message: ConversationMessage) -> FormRules:
    """Return the rules of the form that the native content of a message is in."""
    return FORMS[message.form or _DEFAULT]


def parse(form: PromptForm, messages: object, *, system: object = None, tools: object = None) -> ParsedConversation:
    """Read a conversation as sent in a form; raises InvalidInput that names the field.

    ``messages`` and ``system`` are what a request has in the fields that the form names for them.
    """
    if form == "neutral":
        return _with_checked_natives(_parse_neutral(messages, system=system, tools=tools))
    return FORMS[form].parse(messages, system=system, tools=tools)


def parse_body(form: PromptForm, body: dict[str, Any]) -> ParsedConversation:
    """Read the conversation in the body of a request; the system text may be in the field of any form."""
    system = [name for name in SYSTEM_FIELDS if body.get(name)]
    if len(system) > 1:
        raise InvalidInput(f"body: has both {system[0]} and {system[1]}", field="body")
    messages = body.get("messages" if form == "neutral" else FORMS[form].messages_field)
    return parse(form, messages, system=body[system[0]] if system else None, tools=body.get("tools"))


def message_parts(message: ConversationMessage) -> list[Part]:
    """Return texts and media of a message, whatever form it was given in."""
    if isinstance(message.native, dict):
        parts = rules_of(message).parts(message.native, message.role)
        if any(isinstance(part, Media) for part in parts):
            return parts
    return [message.content] if message.content else []


def plain_text(message: ConversationMessage) -> str:
    """Return the text of a message, with notes for its media."""
    return text_of_parts(message_parts(message))


def placed_messages(prompt: Prompt) -> list[PlacedMessage]:
    """Return the messages of a prompt in order, each tool call followed by its result."""
    messages = ((at, message) for at, block in enumerate(prompt.blocks) for message in block.messages)
    return paired([PlacedMessage(at, message, message_parts(message)) for at, message in messages])


def check_native(message: ConversationMessage, path: str) -> ConversationMessage:
    """Return a message with the fields that its native content has; InvalidInput unless that is one message like it.

    The fields are what is searched, counted and shown to other providers, so they must say what the native content
    says.
    """
    if message.native is None:
        return message
    if message.form is None:
        raise InvalidInput(f"{path}: needs form, the wire form that it is in", field=path)
    found = _native_message(message, message.native, path)
    return structs.replace(found, content=found.content or message.content, name=found.name or message.name)


def with_parts(message: ConversationMessage, parts: list[dict[str, Any]]) -> ConversationMessage:
    """Return a message with content parts in its wire form, by default openai_chat."""
    if message.tool_calls:
        raise InvalidInput("content: a message with tool_calls takes text; give native for parts", field="content")
    found = _native_message(message, rules_of(message).message_of(message, parts), "content")
    return structs.replace(found, name=message.name, tool_call_id=found.tool_call_id or message.tool_call_id)


def _native_message(message: ConversationMessage, native: object, path: str) -> ConversationMessage:
    rules = rules_of(message)
    try:
        found = rules.read_native(native, message)
    except InvalidInput as error:
        reason = error.message.removeprefix(f"{rules.messages_field}[0]").lstrip(".: ")
        raise InvalidInput(f"{path}: {reason}", field=path) from error
    if len(found) != 1 or found[0].role != message.role:
        raise InvalidInput(f"{path}: must be one message of the role {message.role}", field=path)
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
    found = parse(tool.form, [], tools=[tool.native]).tools
    if [each.name for each in found] != [tool.name]:
        raise InvalidInput(f"{path}.native: must have the name {tool.name}", field=path)
    return found[0]


def render(
    form: PromptForm, prompt: Prompt, info: ModelInfo, options: RenderOptions = DEFAULT_OPTIONS
) -> dict[str, Any]:
    """Return the body of a request. The same prompt gives the same bytes when encoded by ``encode_body``."""
    if form == "neutral":
        return _render_neutral(prompt)
    return FORMS[form].render(prompt, placed_messages(prompt), info, options)


def encode_body(body: dict[str, Any]) -> bytes:
    """Return the JSON of a body; fields are in the order in which rendering writes them."""
    return _encode_json(body)


# The neutral form: messages and tools as Weftline itself represents them.


def _parse_neutral(messages: object, *, system: object = None, tools: object = None) -> ParsedConversation:
    """Read messages and tools in neutral form."""
    for name, value in (("messages", messages), ("system", system), ("tools", tools)):
        encode_json_field(name, value)
    found = [
        _converted(given, ConversationMessage, f"messages[{at}]")
        for at, given in enumerate(list_at(messages, "messages"))
    ]
    if system is not None:
        found.insert(0, ConversationMessage(role="system", content=text_at(system, "system", required=False)))
    given_tools = [] if tools is None else list_at(tools, "tools")
    defined = [_converted(given, ToolDefinition, f"tools[{at}]") for at, given in enumerate(given_tools)]
    return ParsedConversation(found, check_tool_names(defined))


def _render_neutral(prompt: Prompt) -> dict[str, Any]:
    """Return a prompt as plain JSON: messages in order, nothing merged, dropped or marked."""
    messages = [msgspec.to_builtins(message) for block in prompt.blocks for message in block.messages]
    return {
        "model": prompt.model,
        "messages": messages,
        "tools": [msgspec.to_builtins(tool) for tool in sorted(prompt.tools, key=lambda tool: tool.name)],
        "max_output_tokens": prompt.max_output_tokens,
    }


def _converted(given: object, kind: Any, path: str) -> Any:  # noqa: ANN401 - a struct and its type
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        field = path + place.rstrip("`")
        raise InvalidInput(f"{field}: {message}", field=field) from error
