"""Operations on conversations through the model proxy: what it may change, what it left out, what that saved."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec

from weftline.access.model import AgentId
from weftline.kernel.clock import from_micros
from weftline.kernel.errors import NotFound, PermissionDenied
from weftline.kernel.fields import Count
from weftline.kernel.identity import Permission
from weftline.kernel.operation import Effect, RateClass, Request, Response, SessionUse, operation
from weftline.models.metering import dollars
from weftline.models.proxied_calls import ProxiedCallStore
from weftline.sessions.model import SessionId, SessionNotFound, find_session
from weftline.state.agent_context.settings import ProxyMode
from weftline.windows.agent_settings import proxy_settings
from weftline.windows.compaction.tool_outputs import lines_of
from weftline.windows.conversations.handles import HANDLE_PATTERN, NamedLines
from weftline.windows.conversations.sql import EditStore
from weftline.windows.service import Windows

if TYPE_CHECKING:
    from weftline.models.proxied_calls import ProxiedCall

_LATEST = 2**62
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
    """None of the agent's shortened results has this handle, or its conversation was deleted or redacted."""

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


class ListProxiedCalls(Request):
    """Page of calls."""

    agent_id: _AgentField = None
    session_id: Annotated[SessionId | None, msgspec.Meta(description="Only of this session's conversation.")] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=200, description="Maximum calls.")] = 20
    cursor: Annotated[
        Annotated[str, msgspec.Meta(max_length=90, pattern=r"^[0-9]{1,16}\.[A-Za-z0-9_-]{1,64}\Z")] | None,
        msgspec.Meta(description="next_cursor of the previous page."),
    ] = None


class ProxiedCallInfo(Response, omit_defaults=False):
    """The receipt of a call. Tokens and cost are those that the provider reported, in US dollars.

    ``given_tokens`` and ``given_cost``: what it is modelled to have sent and cost without the proxy; ``net_savings`` is
    negative where the proxy made it dearer. Money is null for a model without a price.
    """

    call_id: str
    session_id: str
    model: str
    mode: str
    at: datetime
    given_tokens: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost: float | None
    given_cost: float | None
    net_savings: float | None


class ProxiedCallList(Response, omit_defaults=False):
    """Calls of an agent, the latest first; ``next_cursor`` is set while there are more."""

    agent_id: str
    calls: list[ProxiedCallInfo]
    next_cursor: str | None


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
    """Read the whole text of a result that the model proxy or the gateway shortened, or some lines of it."""
    agent_id = await opened_agent(request.agent_id, windows)
    text = (await edits.outputs(agent_id, [request.handle])).get(request.handle)
    if text is None:
        raise OutputNotFound(f"There is no result '{request.handle}'.", resource_id=request.handle)
    lines = len(lines_of(text))
    first, last = request.first_line, request.last_line
    if first is not None or last is not None:
        text = NamedLines(request.handle, ((first or 1, lines if last is None else last),)).select(text)
    return OutputOpened(handle=request.handle, text=text, lines=lines)


@_read(
    "conversation.calls", action="calls", http="GET /v1/conversations/calls", errors=(PermissionDenied, SessionNotFound)
)
async def list_calls(request: ListProxiedCalls, windows: Windows, calls: ProxiedCallStore) -> ProxiedCallList:
    """List the receipts of calls through the model proxy, the latest first: tokens, cost, and net savings."""
    agent_id = await opened_agent(request.agent_id, windows)
    if request.session_id is not None:
        await find_session(request.session_id, windows.actor, windows.sessions)
    before = (_LATEST, "")
    if request.cursor is not None:
        at, _, call_id = request.cursor.partition(".")
        before = (int(at), call_id)
    page = await calls.newest(agent_id, request.session_id or "", before, request.limit + 1)
    shown = page[: request.limit]
    more = len(page) > len(shown)
    return ProxiedCallList(
        agent_id=agent_id,
        calls=[_call_info(each) for each in shown],
        next_cursor=f"{shown[-1].created_at}.{shown[-1].call_id}" if more else None,
    )


def _call_info(call: ProxiedCall) -> ProxiedCallInfo:
    cost, given = call.cost_nanos, call.given_cost_nanos
    return ProxiedCallInfo(
        call_id=call.call_id,
        session_id=call.session_id,
        model=call.model,
        mode=call.mode,
        at=from_micros(call.created_at),
        given_tokens=call.given_tokens,
        input_tokens=call.input_tokens,
        output_tokens=call.output_tokens,
        cache_read_tokens=call.cache_read_tokens,
        cache_write_tokens=call.cache_write_tokens,
        cost=None if cost is None else dollars(cost),
        given_cost=None if given is None else dollars(given),
        net_savings=None if cost is None or given is None else dollars(given - cost),
    )


async def opened_agent(agent_id: str | None, windows: Windows) -> str:
    """Return the agent whose calls to show, by default the caller; raises PermissionDenied."""
    if agent_id in {None, windows.actor.principal_id}:
        return windows.actor.principal_id
    agent = None if agent_id is None else await windows.access.principal(agent_id)
    if agent is None or not await windows.may_open(agent):
        raise PermissionDenied("Calls are open to their agent, the agent's ancestors and admins only.")
    return agent.principal_id
