"""Compares the prompt that a runtime is about to send with the one that was assembled for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from weftline.kernel.errors import Forbidden, InvalidInput
from weftline.models.language_models.wire import parse
from weftline.prompts.assembly.validation import validate_message
from weftline.state.layers.data_elements import is_data
from weftline.state.layers.model import LayerViolation
from weftline.state.layers.prefix import check_prefix
from weftline.state.layers.tags import imitates, texts_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.models.language_models.model import ConversationMessage, ToolDefinition
    from weftline.models.language_models.rendering import ParsedConversation
    from weftline.models.language_models.wire import PromptForm
    from weftline.state.layers.model import Layer

# Fields of a request that bring content which is not in it: what was assembled would not be the whole prompt.
_OUTSIDE = ("prompt", "previous_response_id", "conversation", "functions", "mcp_servers")
_SYSTEM_FIELDS = ("system", "instructions")
# Fields that are compared with the assembled ones; others, such as the schema of an answer, are parameters. Their texts
# are scanned: some of them reach the model.
_PARSED = frozenset({"messages", "input", "tools", *_SYSTEM_FIELDS})


class AddedParts(NamedTuple):
    """What was not assembled: messages at the end of a prompt, the place of the first of them, and other fields."""

    first: int
    added: Sequence[ConversationMessage]
    fields: Mapping[str, Any]


class PromptAltered(Forbidden):
    """The prompt is not the one that was assembled."""

    code = "PROMPT_ALTERED"
    hint = (
        "Send the body of the assembled prompt as it is. Add new messages and tool results with `context.ingest` and "
        "assemble again."
    )
    severity = "critical"
    violation = "tampering"
    related = ("assemble_context", "ingest_event")


def check_sent(
    form: PromptForm, given: dict[str, Any], assembled: dict[str, Any], layers: Sequence[Layer]
) -> AddedParts:
    """Raise LayerViolation or PromptAltered unless a body is the assembled one; return what was added to it.

    The runtime may add turns of user and assistant at the end, leave out tools, and set parameters and cache marks.
    """
    outside = next((name for name in _OUTSIDE if given.get(name)), None)
    if outside is not None:
        raise PromptAltered(f"The field {outside} adds content that was not assembled.", problem="outside")
    fields = {name: value for name, value in given.items() if name not in _PARSED and assembled.get(name) != value}
    if any(map(imitates, texts_of(fields))):
        raise LayerViolation("A parameter of the prompt has a tag of Weftline.", problem="imitated")
    expected, found = _parsed(form, assembled), _parsed(form, given)
    _check_system(expected.messages, found.messages, layers)
    position = _first_difference(expected.messages, found.messages)
    if position is not None:
        raise _altered(position, found.messages)
    added = found.messages[len(expected.messages) :]
    for message in added:
        if message.role == "tool" and not is_data(message.content):
            raise PromptAltered("A tool result was added that is not marked as data.", problem="unmarked")
        validate_message(message, must_be_data=message.role == "tool")
    _check_tools(expected.tools, found.tools)
    return AddedParts(len(expected.messages), added, fields)


def _parsed(form: PromptForm, body: dict[str, Any]) -> ParsedConversation:
    name = "input" if form == "openai_responses" else "messages"
    system = [body[field] for field in _SYSTEM_FIELDS if body.get(field)]
    if len(system) > 1:
        raise InvalidInput("body: has both system and instructions", field="body")
    return parse(form, body.get(name), system=system[0] if system else None, tools=body.get("tools"))


def _check_system(
    expected: Sequence[ConversationMessage], found: Sequence[ConversationMessage], layers: Sequence[Layer]
) -> None:
    """Raise LayerViolation unless the system prompt is the assembled one."""
    ours, theirs = ([message for message in each if message.role == "system"] for each in (expected, found))
    if theirs == ours:
        return
    if theirs[: len(ours)] != ours:
        check_prefix("\n".join(message.content for message in theirs), layers)
    raise LayerViolation("The system prompt is not the assembled one.", problem="added")


def _first_difference(expected: Sequence[ConversationMessage], found: Sequence[ConversationMessage]) -> int | None:
    places = range(len(expected))
    return next((place for place in places if found[place : place + 1] != [expected[place]]), None)


def _altered(position: int, found: Sequence[ConversationMessage]) -> PromptAltered:
    problem = "altered" if position < len(found) else "missing"
    return PromptAltered(
        f"Message {position} of the prompt is {'not as it was assembled' if problem == 'altered' else problem}.",
        problem=problem,
        position=position,
    )


def _check_tools(expected: Sequence[ToolDefinition], found: Sequence[ToolDefinition]) -> None:
    """Raise unless the tools are among those of the prompt: no gate has seen the definition of any other."""
    known = {tool.name: tool for tool in expected}
    for tool in found:
        if known.get(tool.name) != tool:
            raise PromptAltered(
                f"The tool '{tool.name[:100]}' is not as it was assembled.",
                hint="Give all tools to `context.assemble` in `tools`, and send those of the assembled body.",
                problem="tools",
            )
