"""Servers of the gateway, their tools, and how they are reached."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from weftline.kernel.errors import Conflict, Forbidden, InvalidInput, NotFound, Rejected, Unavailable
from weftline.kernel.identity import ANYONE, Actor
from weftline.state.agent_context.settings import DEFAULT_TRIM_TOKENS

MAX_SERVERS = 100
MAX_CACHE_SECONDS = 86_400
MAX_TOOLS_OF_SERVER = 500
# A reference to the environment of the process, alone or after a scheme such as Bearer.
_REFERENCE = re.compile(r"(?:[A-Za-z]+ )?\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
# In every name of a tool of a server, and in none of Weftline's own.
SEPARATOR = "__"
_encode = msgspec.json.Encoder(order="sorted").encode

ServerKind = Literal["command", "url"]
ToolState = Literal["approved", "held", "quarantined"]
Sharing = Literal["agent", "tenant"]
ServerName = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[a-z][a-z0-9-]{0,30}\Z",
        description="Name of the server: lower-case letters, digits and '-'. Its tools are called NAME__TOOL.",
    ),
]
CalledName = Annotated[
    str, msgspec.Meta(min_length=1, max_length=128, description="Name of the tool, as in github__search.")
]


class GatewayServerNotFound(NotFound):
    """The gateway has no server of this name."""

    code = "GATEWAY_SERVER_NOT_FOUND"
    hint = "List the servers with `gateway.list`."
    related = ("mcp_gateway",)


class GatewayServerExists(Conflict):
    """The gateway has a server of this name already."""

    code = "GATEWAY_SERVER_EXISTS"
    hint = "Use another name, or remove the server first with `gateway.remove`."
    related = ("mcp_gateway",)


class GatewayToolNotFound(NotFound):
    """No server of the gateway has this tool for you."""

    code = "GATEWAY_TOOL_NOT_FOUND"
    hint = "Find tools with `tools.search`."
    related = ("weftline_tools",)


class GatewayToolHeld(Forbidden):
    """The description of the tool is not approved: it changed, or it looks like an attack."""

    code = "GATEWAY_TOOL_HELD"
    hint = "Go on without it. An admin compares it with `gateway.get` and approves it with `gateway.approve`."
    related: tuple[str, ...] = ()


class CommandsNotAllowed(Forbidden):
    """The operator does not let the gateway start commands, or read this variable of the environment."""

    code = "GATEWAY_COMMANDS_OFF"
    hint = "Set what the message names where Weftline runs, or use a server with a URL."
    related = ("mcp_gateway",)


class SecretNotSealed(Rejected):
    """A value cannot be stored: there is no key to encrypt it with."""

    code = "GATEWAY_SECRET_REFUSED"
    hint = (
        "Refer to the environment of Weftline with ${NAME}, or have the operator set WEFTLINE_SIGNING_SECRET, from "
        "which the key is derived."
    )
    related = ("mcp_gateway",)


class GatewayServerFailed(Unavailable):
    """The server cannot be reached, or does not answer as an MCP server does."""

    code = "GATEWAY_SERVER_FAILED"
    hint = (
        "Other servers are not affected. A command runs in the folder of the process that calls it: name files with "
        "whole paths. `gateway.get` shows the server."
    )
    related = ("mcp_gateway",)


class ResultWithheld(Forbidden):
    """The answer of the tool looks like an attempt to give agents instructions. The call itself was made."""

    code = "GATEWAY_RESULT_WITHHELD"
    hint = "Do not repeat the call: it was made. Go on without its answer, or ask a human to look at it."
    related: tuple[str, ...] = ()
    violation = "quarantine"


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a server is used. ``connection``: whether each agent of a tenant has its own, or all share one."""

    answer_tokens: int = DEFAULT_TRIM_TOKENS
    connection: Sharing = "agent"
    cache_seconds: int = 0


class McpServer(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP server. ``variables``: the environment of a command, or the headers of a URL, as they are stored."""

    name: str
    kind: ServerKind
    target: str
    variables: dict[str, str]
    agents: tuple[str, ...] = ANYONE
    settings: ServerSettings = ServerSettings()
    added_by: str
    added_at: int

    def __repr__(self) -> str:
        return f"McpServer({self.name!r})"


class ToolText(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a server says about a tool."""

    name: str
    description: str = ""
    input_schema: dict[str, Any] = msgspec.field(default_factory=dict)
    read_only: bool = False

    @property
    def digest(self) -> str:
        """Return what an approval is of: a server that changes anything a model sees needs another one."""
        return hashlib.sha256(_encode(self)).hexdigest()


class GatewayTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of a server under the name that agents call, and whether they may."""

    name: str
    server: str
    text: ToolText
    approved: str
    state: ToolState
    reason: str = ""


class ToolAnswer(NamedTuple):
    """The answer of a tool: its content as MCP has it, its structured content, and whether it is an error."""

    content: list[dict[str, Any]]
    structured: dict[str, Any] | None
    is_error: bool


class CallingClient(NamedTuple):
    """The client of a call, which a server may tell of its progress and ask for something, in the forms of MCP.

    ``ask`` takes the name of a method and its parameters; it raises if the client cannot be asked or does not answer.
    """

    progress: Callable[[float, float | None, str | None], Coroutine[Any, Any, None]]
    ask: Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


# That of the call that is being made; None where nobody can be asked, as over REST.
calling_client: ContextVar[CallingClient | None] = ContextVar("calling_client", default=None)


class GatewayAccess(msgspec.Struct, frozen=True):
    """How operations reach servers, which the process keeps connections to; none of it may run in a transaction."""

    # Refuses a command, a variable or an address that the operator does not allow.
    check: Callable[[McpServer], Awaitable[None]]
    # Encrypts what is no reference; raises SecretNotSealed.
    seal: Callable[[str, str, Mapping[str, str]], dict[str, str]]
    list_tools: Callable[[str, McpServer], Awaitable[Sequence[ToolText]]]
    call: Callable[[Actor, str, Mapping[str, Any]], Awaitable[ToolAnswer]]
    # The last failure of a server, empty if its last connection worked.
    problem: Callable[[str, str], str]


def tool_name(server: str, tool: str) -> str:
    """Return the name that agents call a tool by, before it is made portable."""
    return f"{server}{SEPARATOR}{tool}"


def reference(value: str) -> str | None:
    """Return the variable of the environment that a value refers to; None if it is a value itself."""
    match = _REFERENCE.fullmatch(value)
    return None if match is None else match[1]


def split_command(command: str) -> list[str]:
    """Return the program and the arguments of a command line; it is not run by a shell."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InvalidInput(f"command: {error}", field="command") from None
    if not words:
        raise InvalidInput("command: is empty", field="command")
    return words
