"""Search among the MCP tools a caller may use, and their full descriptions.

Together with ``call``, which runs the operation it names, these are the actions of the tool weftline_tools.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Protocol

import msgspec

from weftline.kernel.errors import InvalidInput, PermissionDenied, UnknownOperation
from weftline.kernel.fields import Name
from weftline.kernel.identity import Actor
from weftline.kernel.operation import Effect, RateClass, Request, Response, SessionUse, operation

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from weftline.models.language_models.content import ToolDefinition

DEFAULT_LIMIT = 5


class SearchTools(Request):
    """What to find tools for."""

    query: Annotated[
        str, msgspec.Meta(min_length=1, max_length=2_000, description="What you want to do, in your own words.")
    ]
    limit: Annotated[int, msgspec.Meta(ge=1, le=50, description="Maximum number of tools.")] = DEFAULT_LIMIT


class FoundTool(Response, kw_only=True, omit_defaults=False):
    """A tool, or an action of a grouped tool as TOOL.ACTION, and what it does.

    ``runtime``: a tool of your runtime, registered with `tools.register`; call it there.
    """

    name: str
    summary: str
    runtime: bool | msgspec.UnsetType = msgspec.UNSET


class ToolsFound(Response, kw_only=True, omit_defaults=False):
    """Tools that you may call, best first."""

    tools: list[FoundTool]


class DescribeTool(Request):
    """The tool to describe."""

    name: Annotated[
        str,
        msgspec.Meta(
            min_length=1, max_length=200, description="Name of a tool, or TOOL.ACTION for one of its actions."
        ),
    ]
    session_id: Annotated[
        Name | None,
        msgspec.Meta(description="As for a connection that is bound to a session: without session_id."),
    ] = None
    output_schema: Annotated[bool, msgspec.Meta(description="Return the schema of the answer as well.")] = False


class ToolDescription(Response, kw_only=True):
    """A tool with all its fields. Each action of a tool with several has its own output schema, see TOOL.ACTION."""

    name: str
    description: str
    read_only: bool
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    runtime: Annotated[
        str | None, msgspec.Meta(description="Of a tool of your runtime: where it comes from. Call it there.")
    ] = None


class RankedTool(NamedTuple):
    """A tool ranked for a task. ``fits``: it is nearly as relevant as the best one; others are only named."""

    name: str
    fits: bool


class ToolCatalogue(Protocol):
    """The tools that a caller may use: those of Weftline, and those that its runtime registered."""

    def own_names(self) -> Collection[str]:
        """Return the names of all tools of Weftline, and of their actions as TOOL.ACTION."""
        ...

    def own_tools(self, actor: Actor) -> Sequence[ToolDefinition]:
        """Return the tools and actions of Weftline that a caller may use."""
        ...

    def registering(self) -> None:
        """Note that tools are about to be registered: they are found by words at once, by meaning soon."""
        ...

    async def rank(self, actor: Actor, query: str, limit: int, *, own: Collection[str] = ()) -> list[RankedTool]:
        """Return the registered tools, and these tools of Weftline, best first for a task."""
        ...

    async def hidden(self, actor: Actor) -> Collection[str]:
        """Return the names of tools of servers behind the gateway that are not for a caller."""
        ...

    async def search(self, actor: Actor, query: str, limit: int) -> list[FoundTool]:
        """Return the tools that fit a task, best first."""
        ...

    async def describe(self, actor: Actor, request: DescribeTool) -> ToolDescription:
        """Return a tool with all its fields; in a session it needs no session_id."""
        ...


_operation = partial(operation, tool="weftline_tools", permission=None, effect=Effect.OWN_TRANSACTIONS)


@_operation(
    "tools.search",
    action="search",
    http="GET /v1/tools",
    rate=RateClass.SEARCH,
    session=SessionUse.NONE,
    heavy=True,
)
async def search_tools(request: SearchTools, actor: Actor, catalogue: ToolCatalogue) -> ToolsFound:
    """Find the MCP tools for a task among those you may use, each with one line on what it does."""
    return ToolsFound(tools=await catalogue.search(actor, request.query, request.limit))


@_operation(
    "tools.describe",
    action="describe",
    http="GET /v1/tools/{name}",
    rate=RateClass.SESSION,
    errors=(UnknownOperation, PermissionDenied, InvalidInput),
)
async def describe_tool(request: DescribeTool, actor: Actor, catalogue: ToolCatalogue) -> ToolDescription:
    """Describe an MCP tool or one of its actions in full: description, input schema, output schema on request."""
    return await catalogue.describe(actor, request)
