"""Operation context.status: the current version of a context, and the one a session has."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

from weft.capabilities.agent_context.model import ContextLine
from weft.capabilities.agent_context.permissions import check_own
from weft.capabilities.agent_context.push import Branch, OwnAgentId, is_known_context
from weft.capabilities.agent_context.service import Contexts
from weft.capabilities.history.model import MAIN, BranchNotFound
from weft.capabilities.sessions.model import SessionId, SessionNotFound, find_session
from weft.kernel.clock import optional_datetime
from weft.kernel.errors import PermissionDenied
from weft.kernel.operation import Effect, RateClass, Request, Response, operation


class GetContextStatus(Request):
    """The branch and the session to report on."""

    session_id: Annotated[SessionId | None, msgspec.Meta(description="Include the versions of this session.")] = None
    agent_id: OwnAgentId = None
    branch: Branch = None


class ContextStatus(Response, omit_defaults=False):
    """The version your context is at, the one a session pulled, and the one it knows: that, or what it pushed since."""

    agent_id: str
    context_id: str
    branch: str
    version: int
    snapshot: str
    used_bytes: int
    limit_bytes: int
    pulled_version: int | None
    known_version: int | None
    pulled_at: datetime | None


@operation(
    "context.status",
    tool="get_context_status",
    http="GET /v1/context/status",
    permission=None,
    rate=RateClass.MEMORY,
    effect=Effect.READ,
    errors=(SessionNotFound, BranchNotFound, PermissionDenied),
)
async def get_context_status(request: GetContextStatus, contexts: Contexts) -> ContextStatus:
    """Return the current version of your context, and the one that your session pulled."""
    check_own(contexts.actor, request.agent_id)
    owner = contexts.actor.principal_id
    line = ContextLine(owner, None, await contexts.own_branch(request.branch))
    held = None
    if request.session_id is not None:
        session = await find_session(request.session_id, contexts.actor, contexts.sessions)
        held = await contexts.snapshots.find(session.session_id, owner)
    root = await contexts.head(line)
    is_known = held is not None and await is_known_context(held, line.line_id, contexts.lines)
    return ContextStatus(
        agent_id=owner,
        context_id=line.line_id,
        branch=line.branch or MAIN,
        version=root.seq,
        snapshot=root.hash.hex(),
        used_bytes=root.weight,
        limit_bytes=contexts.limits.total_bytes,
        pulled_version=held.version if held else None,
        known_version=held.known if held and is_known else None,
        pulled_at=optional_datetime(held.pulled_at if held else None),
    )
