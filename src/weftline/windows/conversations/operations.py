"""Operations on conversations through the model proxy: what the proxy may change, and what it left out."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import msgspec

from weftline.access.model import AgentId
from weftline.kernel.errors import NotFound, PermissionDenied
from weftline.kernel.fields import Count
from weftline.kernel.identity import Permission
from weftline.kernel.operation import Effect, RateClass, Request, Response, SessionUse, operation
from weftline.state.agent_context.proxy_settings import ProxyMode
from weftline.windows.agent_settings import proxy_settings
from weftline.windows.conversations.handles import HANDLE_PATTERN, NamedLines
from weftline.windows.conversations.sql import EditStore
from weftline.windows.service import Windows

_read = partial(
    operation,
    tool="proxied_conversations",
    permission=Permission.READ,
    rate=RateClass.SESSION,
    effect=Effect.READ,
    session=SessionUse.OUTSIDE,
)
_AgentField = Annotated[AgentId | None, msgspec.Meta(description="The agent; by default yourself.")]


class ShowProxySettings(Request):
    """Agent whose settings to show."""

    agent_id: _AgentField = None


class ProxySettingsShown(Response, omit_defaults=False):
    """What the model proxy may change in the calls of an agent.

    ``mode`` observe: nothing; trim: results of tools of at least ``trim_tokens`` are shortened; full: also layers and
    what the task needs are added, and the window is compacted.
    """

    agent_id: str
    mode: ProxyMode
    trim_tokens: int


class OutputNotFound(NotFound):
    """None of the agent's shortened results has this handle, or its conversation was deleted."""

    code = "OUTPUT_NOT_FOUND"
    hint = "Use a handle such as wl-7f3a9c2e41d0b865 from the end of a shortened result, in the name of its agent."
    related = ("proxied_conversations",)


class OpenOutput(Request):
    """Handle of the result to open, and which lines of it."""

    handle: Annotated[
        str,
        msgspec.Meta(pattern=HANDLE_PATTERN, description="Handle from the end of a shortened result."),
    ]
    agent_id: _AgentField = None
    first_line: Annotated[Count | None, msgspec.Meta(description="First line to read, from 1; by default all.")] = None
    last_line: Annotated[Count | None, msgspec.Meta(description="Last line to read; by default the last one.")] = None


class OutputOpened(Response, omit_defaults=False):
    """The text of a result of a tool as the tool returned it, or the lines asked for; ``lines`` are all it has."""

    handle: str
    text: str
    lines: int


@_read("conversation.settings", action="settings", http="GET /v1/conversations/settings", errors=(PermissionDenied,))
async def show_settings(request: ShowProxySettings, windows: Windows) -> ProxySettingsShown:
    """Show what the model proxy may change in calls of an agent: of its definition, its teams and the tenant.

    Set it with the configuration `proxy` of an agent, or the field `proxy` of a layer.
    """
    agent_id = await opened_agent(request.agent_id, windows)
    found = await proxy_settings(agent_id, windows.lines, windows.access)
    return ProxySettingsShown(agent_id=agent_id, mode=found.mode, trim_tokens=found.trim_tokens)


@_read(
    "conversation.open",
    action="open",
    http="GET /v1/conversations/outputs/{handle}",
    errors=(OutputNotFound, PermissionDenied),
)
async def open_output(request: OpenOutput, windows: Windows, edits: EditStore) -> OutputOpened:
    """Read the whole text of a result of a tool that the model proxy shortened, or some lines of it."""
    agent_id = await opened_agent(request.agent_id, windows)
    text = (await edits.outputs(agent_id, [request.handle])).get(request.handle)
    if text is None:
        raise OutputNotFound(f"There is no result '{request.handle}'.", resource_id=request.handle)
    lines = text.count("\n") + 1
    first, last = request.first_line, request.last_line
    if first is not None or last is not None:
        text = NamedLines(request.handle, first or 1, lines if last is None else last).select(text)
    return OutputOpened(handle=request.handle, text=text, lines=lines)


async def opened_agent(agent_id: str | None, windows: Windows) -> str:
    """Return the agent whose calls to show, by default the caller; raises PermissionDenied."""
    if agent_id in {None, windows.actor.principal_id}:
        return windows.actor.principal_id
    agent = None if agent_id is None else await windows.access.principal(agent_id)
    if agent is None or not await windows.may_open(agent):
        raise PermissionDenied("Calls are open to their agent, the agent's ancestors and admins only.")
    return agent.principal_id
