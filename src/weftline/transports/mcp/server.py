"""MCP server: tools, resources and prompts generated from the registry."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import mcp_types as types
import msgspec
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError

from weftline import __version__
from weftline.app.dispatch import may_use
from weftline.prompts.gateway.operations import ToolCalled
from weftline.transports.mcp.caller import ServerState, ToolCalls, answering, caller_of, caller_of_call, is_modern
from weftline.transports.mcp.elicitation import ResultElicitation, client_approver
from weftline.transports.mcp.relay import Relay, calls_server
from weftline.transports.resources import INBOX, METRICS, TEMPLATES, parse_uri, read_resource

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from weftline.app.app import App
    from weftline.app.tools.toolbox import ToolView
    from weftline.kernel.identity import Actor
    from weftline.transports.mcp.caller import Context, McpCaller
    from weftline.transports.mcp.subscriptions import Subscriptions


# Tools in the SDK's form.

_MAX_STRUCTURED_BYTES = 256 * 1024


def tool_model(view: ToolView) -> types.Tool:
    """Return a tool as tools/list describes it."""
    return types.Tool(
        name=view.name,
        description=view.description,
        input_schema=view.input_schema,
        annotations=types.ToolAnnotations(read_only_hint=view.read_only, open_world_hint=False),
    )


def shown_warning(warning: str) -> str:
    return f"Warning: {warning}"


def tool_result(content: msgspec.Struct, *, is_error: bool, warnings: Sequence[str] = ()) -> types.CallToolResult:
    """Return the answer of a tool call, as text and as structured content; warnings are further texts."""
    if isinstance(content, ToolCalled):
        return _forwarded_result(content, warnings)
    encoded = msgspec.json.encode(content)
    return types.CallToolResult(
        content=[types.TextContent(text=text) for text in (encoded.decode(), *map(shown_warning, warnings))],
        # The SDK goes through it value by value.
        structured_content=None if len(encoded) > _MAX_STRUCTURED_BYTES else msgspec.json.decode(encoded),
        is_error=is_error,
    )


def _forwarded_result(answer: ToolCalled, warnings: Sequence[str]) -> types.CallToolResult:
    """Return the answer of a server behind the gateway as that server gave it."""
    notes = [{"type": "text", "text": shown_warning(warning)} for warning in warnings]
    return types.CallToolResult.model_validate(
        {
            "content": [*answer.content, *notes],
            "structuredContent": answer.structured,
            "isError": answer.is_error,
        }
    )


_INSTRUCTIONS = (
    "Weftline stores the shared state, messages and memory of the agents of a session. On the board "
    "(shared_context), look "
    "at the keys first, read what your task needs, write conclusions rather than raw data. Send and read messages with "
    "add_message and get_messages. Find anything that is known with search. Keep private notes with set_memory; save "
    "what later sessions should know with push_context and load it with pull_context. Not every tool is listed: "
    "weftline_tools finds, describes and calls the others, such as context_history (who changed what, when and why). "
    "The prompt 'board_guide' explains the board."
)
_JSON = "application/json"
_GUIDANCE = "board.guidance"
_PROMPTS = {
    "board_guide": ("all", "How to use the board: key conventions, writing and reading."),
    "board_conventions": ("conventions", "Key conventions of this domain."),
    "board_writing": ("writing", "What belongs on the board and what does not."),
    "board_reading": ("reading", "How to find and assess entries of the board."),
}


class Handlers:
    """Handlers of MCP requests."""

    def __init__(self, app: App, subscriptions: Subscriptions) -> None:
        self._app = app
        self._subscriptions = subscriptions
        self._call = ToolCalls(app)
        self._relay = Relay()

    @answering
    async def list_tools(self, context: Context, params: object) -> types.ListToolsResult:
        del params
        caller = caller_of(context)
        actor = await self._app.identify(caller.call_context)
        views = await self._app.listed_tools(actor, caller.tools, in_session=caller.session_id is not None)
        if not is_modern(context):
            await self._subscriptions.watch_tools(context.session, caller, actor)
        return types.ListToolsResult(tools=[tool_model(view) for view in views])

    @answering
    async def call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        self._app.metrics.count_tool_call("sdk")
        client = client_approver(context, params)
        caller = caller_of_call(context).with_client(client)

        async def answer() -> types.CallToolResult | types.InputRequiredResult:
            answer = await self._call(caller, params.name, params.arguments or {})
            if isinstance(client, ResultElicitation) and client.requested is not None:
                return client.result(client.requested)
            return tool_result(answer.content, is_error=answer.is_error, warnings=answer.warnings)

        if not calls_server(params):
            return await answer()
        actor = await self._app.identify(caller.call_context)
        return await self._relay.run(context, params, (actor.tenant, actor.principal_id), answer)

    @answering
    async def list_resources(self, context: Context, params: object) -> types.ListResourcesResult:
        """List the resources of the caller's sessions, its own memory, and for admins the metrics."""
        del params
        caller = caller_of(context)
        actor = await self._app.identify(caller.call_context)
        named = [
            (f"{kind}://{session_id}", f"{kind} {session_id}")
            for session_id in await self._session_ids(caller)
            for kind in ("board", "session")
        ]
        named.append((f"agent://{actor.principal_id}/memory", "your memory"))
        named.append((INBOX.uri, INBOX.name))
        if actor.is_admin:
            named.append((METRICS.uri, METRICS.name))
        if actor.step is not None or actor.bound_session is not None:
            named = [each for each in named if self._may_read(each[0], actor)]
        return types.ListResourcesResult(
            resources=[types.Resource(uri=uri, name=name, mime_type=_JSON) for uri, name in named]
        )

    @answering
    async def list_templates(self, context: Context, params: object) -> types.ListResourceTemplatesResult:
        del params
        session_id = caller_of(context).session_id or "{session_id}"
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(
                    uri_template=template.uri.replace("{session_id}", session_id),
                    name=template.name,
                    description=template.description,
                    mime_type=_JSON,
                )
                for template in TEMPLATES
            ]
        )

    @answering
    async def read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        caller = caller_of(context)
        content = await read_resource(self._app, parse_uri(uri), caller.call_context)
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=uri, mime_type=_JSON, text=content.decode())]
        )

    @answering
    async def list_prompts(self, context: Context, params: object) -> types.ListPromptsResult:
        del params
        actor = await self._app.identify(caller_of(context).call_context)
        if not may_use(self._app.registry[_GUIDANCE], actor):
            return types.ListPromptsResult(prompts=[])
        session = types.PromptArgument(
            name="session_id", description="Session whose conventions to use.", required=False
        )
        arguments = [session] if caller_of(context).session_id is None else []
        return types.ListPromptsResult(
            prompts=[
                types.Prompt(name=name, description=description, arguments=arguments)
                for name, (_, description) in _PROMPTS.items()
            ]
        )

    @answering
    async def get_prompt(self, context: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        if params.name not in _PROMPTS:
            raise MCPError(types.INVALID_PARAMS, f"There is no prompt named '{params.name[:100]}'")
        part, description = _PROMPTS[params.name]
        caller = caller_of(context)
        raw = {"part": part, **(params.arguments or {})}
        guidance = await self._app.call(self._app.registry[_GUIDANCE], raw, caller.call_context)
        text = types.TextContent(text=msgspec.to_builtins(guidance)["text"])
        return types.GetPromptResult(description=description, messages=[types.PromptMessage(role="user", content=text)])

    @answering
    async def complete(self, context: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        """Complete session ids."""
        values: list[str] = []
        if params.argument.name == "session_id":
            names = await self._session_ids(caller_of(context), limit=1000)
            values = [name for name in names if name.startswith(params.argument.value)]
        return types.CompleteResult(
            completion=types.Completion(values=values[:100], total=len(values), has_more=len(values) > 100)  # noqa: PLR2004 - the protocol's limit
        )

    async def _session_ids(self, caller: McpCaller, **query: int) -> list[str]:
        """Return the session the caller is bound to, or those it may list."""
        actor = await self._app.identify(caller.call_context)
        if caller.session_id is not None:
            return [caller.session_id]
        operation = self._app.registry["session.list"]
        if actor.is_subagent or not may_use(operation, actor):
            return []
        listed = await self._app.call(operation, query, caller.call_context)
        return [session["id"] for session in msgspec.to_builtins(listed)["sessions"]]

    def _may_read(self, uri: str, actor: Actor) -> bool:
        return may_use(self._app.registry[parse_uri(uri).operation], actor)


class WeftlineServer(Server[ServerState]):
    """The SDK's server with the capability listChanged of tools only, unless it ``announces_lists`` of all kinds."""

    announces_lists = False

    def get_capabilities(self, *args: Any, **kwargs: Any) -> types.ServerCapabilities:  # noqa: ANN401 - as inherited
        capabilities = super().get_capabilities(*args, **kwargs)
        for part in (capabilities.resources, capabilities.prompts):
            if part is not None and not self.announces_lists:
                part.list_changed = False
        if capabilities.tools is not None:
            capabilities.tools.list_changed = True
        return capabilities


def build_server(app: App, subscriptions: Subscriptions, local: McpCaller | None = None) -> WeftlineServer:
    """Return a server for any transport; over stdio, ``local`` is its caller."""
    handlers = Handlers(app, subscriptions)

    @asynccontextmanager
    async def lifespan(_: Server[ServerState]) -> AsyncIterator[ServerState]:
        yield ServerState(local)

    server = WeftlineServer(
        "weftline",
        version=__version__,
        instructions=_INSTRUCTIONS,
        lifespan=lifespan,
        # Otherwise the SDK requests the whole tool list before every call of the stateless era.
        get_tool_input_schema=lambda _: None,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_templates,
        on_read_resource=handlers.read_resource,
        on_subscribe_resource=subscriptions.subscribe,
        on_unsubscribe_resource=subscriptions.unsubscribe,
        on_subscriptions_listen=subscriptions.listen,
        on_list_prompts=handlers.list_prompts,
        on_get_prompt=handlers.get_prompt,
        on_completion=handlers.complete,
    )
    # The dispatcher traces every call already.
    server.middleware.clear()
    return server
