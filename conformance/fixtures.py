"""Fixtures of the MCP conformance suite: tools, resources and prompts that it calls by name.

Names, arguments and texts are the suite's (npm: @modelcontextprotocol/conformance). scripts/conformance.py starts a
server that lists them before Weftline's own.
"""

from __future__ import annotations

import asyncio
import re
import warnings
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import mcp_types as types
import msgspec
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.streamable_http import EventMessage, EventStore
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, PromptsListChanged, ToolsListChanged
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

if TYPE_CHECKING:
    from mcp.server.streamable_http import EventCallback
    from mcp.server.subscriptions import SubscriptionBus

    from weftline.transports.mcp.caller import Context
    from weftline.transports.mcp.server import WeftlineServer

Schema = dict[str, Any]
Reply = types.CallToolResult | types.InputRequiredResult
PromptReply = types.GetPromptResult | types.InputRequiredResult
Call = types.CallToolRequestParams
RunTool = Callable[["Context", Call], Awaitable[Reply]]
RunPrompt = Callable[["Context", types.GetPromptRequestParams], Awaitable[PromptReply]]

_STEP_SECONDS = 0.05
_RECONNECT_SECONDS = 0.2
_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
_WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
_IMAGE = types.ImageContent(data=_PNG, mime_type="image/png")
_OPTIONS = ["option1", "option2", "option3"]
_TITLED = [{"const": f"value{n}", "title": title} for n, title in enumerate(("First", "Second", "Third"), 1)]


class ToolFixture(NamedTuple):
    """A tool definition and its implementation."""

    tool: types.Tool
    run: RunTool


class PromptFixture(NamedTuple):
    """A prompt definition and its implementation."""

    prompt: types.Prompt
    run: RunPrompt


_TOOLS: dict[str, ToolFixture] = {}
_PROMPTS: dict[str, PromptFixture] = {}


def install(server: WeftlineServer) -> EventStore:
    """List the fixtures before Weftline's own tools, resources and prompts, and handle requests for them."""
    # Logging, sampling and roots are deprecated, but the suite still tests them.
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    bus = InMemorySubscriptionBus()
    tools = {**_TOOLS, **_list_changing_tools(bus)}
    _list_first(server, "tools/list", "tools", [fixture.tool for fixture in tools.values()])
    _list_first(server, "prompts/list", "prompts", [fixture.prompt for fixture in _PROMPTS.values()])
    _list_first(server, "resources/list", "resources", _RESOURCES)
    _list_first(server, "resources/templates/list", "resource_templates", _TEMPLATES)
    _handle_first(server, "tools/call", Call, lambda params: _runner(tools, params))
    _handle_first(server, "prompts/get", types.GetPromptRequestParams, lambda params: _runner(_PROMPTS, params))
    _handle_first(server, "resources/read", types.ReadResourceRequestParams, lambda params: _reader(params.uri))
    for method, kind in (
        ("resources/subscribe", types.SubscribeRequestParams),
        ("resources/unsubscribe", types.UnsubscribeRequestParams),
    ):
        _handle_first(server, method, kind, lambda params: _accept if _content(str(params.uri)) else None)
    server.announces_lists = True
    announced = ListenHandler(bus)
    _handle_first(
        server,
        "subscriptions/listen",
        types.SubscriptionsListenRequestParams,
        lambda params: announced if _wants_lists(params.notifications) else None,
    )
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, _accept)
    # The suite checks that arguments mirrored into headers agree with the body, which needs the schema.
    server.get_tool_input_schema = lambda name: tools[name].tool.input_schema if name in tools else None
    server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=server.name))
    return MemoryEvents()


class MemoryEvents(EventStore):
    """Messages sent on each stream, for clients that reconnect."""

    def __init__(self) -> None:
        self._sent: list[tuple[str, types.JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        self._sent.append((stream_id, message))
        return str(len(self._sent))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        if not last_event_id.isdigit() or not 0 < int(last_event_id) <= len(self._sent):
            return None
        last = int(last_event_id)
        stream_id = self._sent[last - 1][0]
        for number, (stream, message) in enumerate(self._sent[last:], last + 1):
            if stream == stream_id and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream_id


def _list_first(server: WeftlineServer, method: str, field: str, fixtures: list[Any]) -> None:
    own = _handler(server, method)

    async def listing(context: Context, params: types.PaginatedRequestParams) -> Any:  # noqa: ANN401 - of any list
        result = await own(context, params)
        return result.model_copy(update={field: [*fixtures, *getattr(result, field)]})

    server.add_request_handler(method, types.PaginatedRequestParams, listing)


def _handle_first(server: WeftlineServer, method: str, kind: type[Any], choose: Callable[[Any], Any]) -> None:
    """Handle a request with the fixture that ``choose`` returns, or with Weftline's handler if it returns None."""
    own = _handler(server, method)

    async def answering(context: Context, params: Any) -> Any:  # noqa: ANN401 - of any request
        return await (choose(params) or own)(context, params)

    server.add_request_handler(method, kind, answering)


def _handler(server: WeftlineServer, method: str) -> Callable[..., Awaitable[Any]]:
    entry = server.get_request_handler(method)
    assert entry is not None  # noqa: S101 - Weftline answers all of these
    return entry.handler


def _runner(fixtures: Mapping[str, ToolFixture | PromptFixture], params: Any) -> Any:  # noqa: ANN401
    fixture = fixtures.get(params.name)
    return None if fixture is None else fixture.run


def _reader(uri: object) -> Callable[..., Awaitable[types.ReadResourceResult]] | None:
    content = _content(str(uri))
    if content is None:
        return None

    async def read(*_: object) -> types.ReadResourceResult:
        return types.ReadResourceResult(contents=[content])

    return read


async def _accept(*_: object) -> types.EmptyResult:
    return types.EmptyResult()


def _wants_lists(wanted: types.SubscriptionFilter) -> bool:
    return bool(wanted.tools_list_changed or wanted.prompts_list_changed)


def _object(required: bool = True, **properties: Any) -> Schema:  # noqa: ANN401, FBT001, FBT002 - a schema's parts
    return {"type": "object", "properties": properties, **({"required": list(properties)} if required else {})}


def _tool(name: str, description: str, schema: Schema | None = None) -> Callable[[RunTool], RunTool]:
    def register(run: RunTool) -> RunTool:
        tool = types.Tool(name=name, description=description, input_schema=schema or _object(required=False))
        _TOOLS[name] = ToolFixture(tool, run)
        return run

    return register


def _prompt(name: str, description: str, *arguments: str) -> Callable[[RunPrompt], RunPrompt]:
    def register(run: RunPrompt) -> RunPrompt:
        named = [types.PromptArgument(name=argument, description=argument, required=True) for argument in arguments]
        _PROMPTS[name] = PromptFixture(types.Prompt(name=name, description=description, arguments=named or None), run)
        return run

    return register


def _fixed(name: str, description: str, result: types.CallToolResult, schema: Schema | None = None) -> None:
    @_tool(name, description, schema)
    async def run(context: Context, params: Call) -> Reply:
        del context, params
        return result


def _result(*content: Any, failed: bool = False) -> types.CallToolResult:  # noqa: ANN401 - text, or a content block
    blocks = [types.TextContent(text=block) if isinstance(block, str) else block for block in content]
    return types.CallToolResult(content=blocks, is_error=failed)


def _embedded(uri: str, mime_type: str, text: str) -> types.EmbeddedResource:
    return types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, mime_type=mime_type, text=text))


def _question(message: str, **properties: Any) -> types.ElicitRequest:  # noqa: ANN401 - a schema's parts
    return types.ElicitRequest(
        params=types.ElicitRequestFormParams(message=message, requested_schema=_object(**properties))
    )


def _ask_name(message: str = "What is your name?") -> types.ElicitRequest:
    return _question(message, name={"type": "string"})


def _sample(prompt: str) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=types.TextContent(text=prompt))
    return types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[message], max_tokens=100))


def _input_required(state: str | None = None, **requests: Any) -> types.InputRequiredResult:  # noqa: ANN401 - of any kind
    return types.InputRequiredResult(input_requests=requests, request_state=state)


def _input_of(params: Call | types.GetPromptRequestParams, name: str) -> Any:  # noqa: ANN401 - an answer of any kind
    return (params.input_responses or {}).get(name)


def _field(answer: object, name: str) -> Any:  # noqa: ANN401 - what the user typed
    return answer.content.get(name) if isinstance(answer, types.ElicitResult) and answer.content else None


_JSON_SCHEMA_2020_12: Schema = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}

# Must be the first tool: the suite calls the first listed one without arguments.
_fixed("test_simple_text", "Says a sentence", _result("This is a simple text response for testing."))
_fixed("test_image_content", "Shows an image", _result(_IMAGE))
_fixed("test_audio_content", "Plays a sound", _result(types.AudioContent(data=_WAV, mime_type="audio/wav")))
_fixed(
    "test_embedded_resource",
    "Embeds a resource",
    _result(_embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")),
)
_fixed(
    "test_multiple_content_types",
    "Text, an image and a resource",
    _result(
        "Multiple content types test:",
        _IMAGE,
        _embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ),
)
_fixed(
    "test_error_handling",
    "Always fails",
    _result("This tool intentionally returns an error for testing", failed=True),
)
_fixed("json_schema_2020_12_tool", "Keywords of JSON Schema 2020-12", _result("ok"), _JSON_SCHEMA_2020_12)


@_tool("test_tool_with_logging", "Logs three messages")
async def _log_thrice(context: Context, params: Call) -> Reply:
    del params
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await _log(context, line)
        await asyncio.sleep(_STEP_SECONDS)
    return _result("Tool with logging executed successfully")


@_tool("test_tool_with_progress", "Reports progress at 0, 50 and 100")
async def _progress(context: Context, params: Call) -> Reply:
    del params
    for done in (0, 50, 100):
        await context.session.report_progress(done, 100, f"Completed step {done} of 100")
        await asyncio.sleep(_STEP_SECONDS)
    return _result("Progress reported")


@_tool("test_reconnection", "Closes its stream and answers once the client is back")
async def _reconnection(context: Context, params: Call) -> Reply:
    del params
    await _log(context, "Before disconnect")
    if context.close_sse_stream is not None:
        await context.close_sse_stream()
    await asyncio.sleep(_RECONNECT_SECONDS)
    return _result("Reconnection test completed")


@_tool("test_logging_tool", "Logs once, for clients that asked for logs")
async def _log_once(context: Context, params: Call) -> Reply:
    del params
    await _log(context, "test_logging_tool ran")
    return _result("logged")


async def _log(context: Context, line: str) -> None:
    # On the stream of the call: the stream of the connection may not be open yet.
    await context.session.send_log_message("info", line, related_request_id=context.request_id)


@_tool("test_sampling", "Asks the client's model", _object(prompt={"type": "string"}))
async def _sampling(context: Context, params: Call) -> Reply:
    if not context.session.can_send_request:
        return _cannot_ask()
    prompt = str((params.arguments or {}).get("prompt", ""))
    answer = await context.session.create_message(
        [types.SamplingMessage(role="user", content=types.TextContent(text=prompt))],
        max_tokens=100,
        related_request_id=context.request_id,
    )
    return _result(f"LLM response: {_text_of(answer)}")


@_tool("test_elicitation", "Asks the user", _object(message={"type": "string"}))
async def _elicitation(context: Context, params: Call) -> Reply:
    message = str((params.arguments or {}).get("message", ""))
    return await _elicit(context, message, _object(username={"type": "string"}, email={"type": "string"}))


@_tool("test_elicitation_sep1034_defaults", "Asks the user, with defaults")
async def _elicitation_defaults(context: Context, params: Call) -> Reply:
    del params
    schema = _object(
        required=False,
        name={"type": "string", "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        verified={"type": "boolean", "default": True},
    )
    return await _elicit(context, "Please provide user information", schema)


@_tool("test_elicitation_sep1330_enums", "Asks the user to choose")
async def _elicitation_enums(context: Context, params: Call) -> Reply:
    del params
    names = ["Option One", "Option Two", "Option Three"]
    schema = _object(
        required=False,
        untitledSingle={"type": "string", "enum": _OPTIONS},
        titledSingle={"type": "string", "oneOf": _TITLED},
        legacyEnum={"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": names},
        untitledMulti={"type": "array", "items": {"type": "string", "enum": _OPTIONS}},
        titledMulti={"type": "array", "items": {"anyOf": _TITLED}},
    )
    return await _elicit(context, "Please select values", schema)


async def _elicit(context: Context, message: str, schema: Schema) -> Reply:
    if not context.session.can_send_request:
        return _cannot_ask()
    answer = await context.session.elicit_form(message, schema, related_request_id=context.request_id)
    content = msgspec.json.encode(answer.content or {}).decode()
    return _result(f"Elicitation completed: action={answer.action}, content={content}")


def _cannot_ask() -> Reply:
    return _result("The client cannot be asked on this connection", failed=True)


def _text_of(answer: types.CreateMessageResult) -> str:
    return answer.content.text if answer.content.type == "text" else "no text"


@_tool("test_missing_capability", "Needs the client to offer sampling")
async def _missing_capability(context: Context, params: Call) -> Reply:
    del params
    capabilities = context.session.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        raise MCPError(
            types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            "This tool requires the client 'sampling' capability",
            {"requiredCapabilities": {"sampling": {}}},
        )
    return _result("Client declared sampling")


@_tool("test_streaming_elicitation", "Asks by its answer, never by a request on its stream")
async def _streaming_elicitation(context: Context, params: Call) -> Reply:
    del context
    if _input_of(params, "word") is not None:
        return _result("elicitation answered")
    return _input_required(word=_question("Give a word", word={"type": "string"}))


@_tool(
    "test_x_mcp_header",
    "Takes an argument that is mirrored into a header",
    _object(required=False, region={"type": "string", "x-mcp-header": "Region"}),
)
async def _header(context: Context, params: Call) -> Reply:
    del context
    return _result(f"region={(params.arguments or {}).get('region', '<none>')}")


@_tool("test_input_required_result_elicitation", "Needs a name")
async def _needs_name(context: Context, params: Call) -> Reply:
    del context
    name = _field(_input_of(params, "user_name"), "name")
    return _input_required(user_name=_ask_name()) if name is None else _result(f"Hello, {name}!")


@_tool("test_input_required_result_sampling", "Needs the client's model")
async def _needs_sampling(context: Context, params: Call) -> Reply:
    del context
    answer = _input_of(params, "capital_question")
    if not isinstance(answer, types.CreateMessageResult):
        return _input_required(capital_question=_sample("What is the capital of France?"))
    return _result(f"Model said: {_text_of(answer)}")


@_tool("test_input_required_result_list_roots", "Needs the client's roots")
async def _needs_roots(context: Context, params: Call) -> Reply:
    del context
    answer = _input_of(params, "client_roots")
    if not isinstance(answer, types.ListRootsResult):
        return _input_required(client_roots=types.ListRootsRequest())
    return _result(f"Client exposed roots: {', '.join(str(root.uri) for root in answer.roots)}")


@_tool("test_input_required_result_request_state", "Has its state handed back")
async def _needs_state(context: Context, params: Call) -> Reply:
    del context
    if _input_of(params, "confirm") and params.request_state == "nonce":
        return _result("state-ok: confirmation received")
    return _input_required("nonce", confirm=_confirmation())


@_tool("test_input_required_result_tampered_state", "Refuses a state it did not make")
async def _tampered_state(context: Context, params: Call) -> Reply:
    del context
    return _input_required("round-1", confirm=_confirmation()) if params.request_state is None else _result("state-ok")


def _confirmation() -> types.ElicitRequest:
    return _question("Please confirm", ok={"type": "boolean"})


@_tool("test_input_required_result_multiple_inputs", "Needs three things at once")
async def _needs_three(context: Context, params: Call) -> Reply:
    del context
    wanted = {
        "user_name": _ask_name(),
        "greeting": _sample("Generate a greeting"),
        "client_roots": types.ListRootsRequest(),
    }
    if wanted.keys() <= (params.input_responses or {}).keys():
        return _result("All inputs received.")
    return _input_required("multiple", **wanted)


@_tool("test_input_required_result_multi_round", "Asks twice")
async def _two_rounds(context: Context, params: Call) -> Reply:
    del context
    asked, _, name = (params.request_state or "").partition(":")
    if asked == "name" and _input_of(params, "step1") is not None:
        color = _question("Step 2: What is your favorite color?", color={"type": "string"})
        return _input_required(f"color:{_field(_input_of(params, 'step1'), 'name')}", step2=color)
    if asked == "color" and _input_of(params, "step2") is not None:
        return _result(f"{name} likes {_field(_input_of(params, 'step2'), 'color')}.")
    return _input_required("name:", step1=_ask_name("Step 1: What is your name?"))


@_tool("test_input_required_result_capabilities", "Asks only for what the client offers")
async def _asks_what_is_offered(context: Context, params: Call) -> Reply:
    del params
    offered = context.session.client_capabilities
    requests: dict[str, Any] = {}
    if offered is not None and offered.sampling is not None:
        requests["sample"] = _sample("Say hello")
    if offered is not None and offered.elicitation is not None:
        requests["ask"] = _ask_name()
    return _input_required("capability-gated", **requests)


def _list_changing_tools(bus: SubscriptionBus) -> dict[str, ToolFixture]:
    """Return the tools that publish list-changed notifications on ``bus``."""

    def fixture(name: str, what: ToolsListChanged | PromptsListChanged) -> ToolFixture:
        async def announce(context: Context, params: Call) -> Reply:
            del context, params
            await bus.publish(what)
            return _result("announced")

        tool = types.Tool(name=name, description="Announces a change", input_schema=_object(required=False))
        return ToolFixture(tool, announce)

    changes: dict[str, ToolsListChanged | PromptsListChanged] = {
        "test_trigger_tool_change": ToolsListChanged(),
        "test_trigger_prompt_change": PromptsListChanged(),
    }
    return {name: fixture(name, what) for name, what in changes.items()}


def _messages(*content: Any) -> types.GetPromptResult:  # noqa: ANN401 - text, or a content block
    blocks = [types.TextContent(text=block) if isinstance(block, str) else block for block in content]
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=block) for block in blocks])


@_prompt("test_simple_prompt", "One sentence")
async def _simple_prompt(context: Context, params: types.GetPromptRequestParams) -> PromptReply:
    del context, params
    return _messages("This is a simple prompt for testing.")


@_prompt("test_prompt_with_arguments", "Repeats its arguments", "arg1", "arg2")
async def _prompt_with_arguments(context: Context, params: types.GetPromptRequestParams) -> PromptReply:
    del context
    given = params.arguments or {}
    return _messages(f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'")


@_prompt("test_prompt_with_embedded_resource", "Carries a resource", "resourceUri")
async def _prompt_with_resource(context: Context, params: types.GetPromptRequestParams) -> PromptReply:
    del context
    uri = (params.arguments or {}).get("resourceUri", "test://example-resource")
    resource = _embedded(uri, "text/plain", "Embedded resource content for testing.")
    return _messages(resource, "Please process the embedded resource above.")


@_prompt("test_prompt_with_image", "Carries an image")
async def _prompt_with_image(context: Context, params: types.GetPromptRequestParams) -> PromptReply:
    del context, params
    return _messages(_IMAGE, "Please analyze the image above.")


@_prompt("test_input_required_result_prompt", "Needs to know what it is about")
async def _prompt_needs_context(context: Context, params: types.GetPromptRequestParams) -> PromptReply:
    del context
    subject = _field(_input_of(params, "user_context"), "context")
    if subject is None:
        return _input_required(
            user_context=_question("What context should the prompt use?", context={"type": "string"})
        )
    return _messages(f"Use the following context: {subject}")


_RESOURCES = [
    types.Resource(uri="test://static-text", name="static-text", mime_type="text/plain"),
    types.Resource(uri="test://static-binary", name="static-binary", mime_type="image/png"),
    types.Resource(uri="test://watched-resource", name="watched-resource", mime_type="text/plain"),
]
_TEMPLATES = [
    types.ResourceTemplate(uri_template="test://template/{id}/data", name="template", mime_type="application/json")
]
_TEXTS = {
    "test://static-text": "This is the content of the static text resource.",
    "test://watched-resource": "Watched resource content",
}


def _content(uri: str) -> types.TextResourceContents | types.BlobResourceContents | None:
    if uri == "test://static-binary":
        return types.BlobResourceContents(uri=uri, mime_type="image/png", blob=_PNG)
    match = re.fullmatch(r"test://template/([^/]+)/data", uri)
    if match is not None:
        body = {"id": match[1], "templateTest": True, "data": f"Data for ID: {match[1]}"}
        text = msgspec.json.encode(body).decode()
        return types.TextResourceContents(uri=uri, mime_type="application/json", text=text)
    if uri in _TEXTS:
        return types.TextResourceContents(uri=uri, mime_type="text/plain", text=_TEXTS[uri])
    return None
