"""Telling an agent what it may do, with a call to copy for each, and how to work well with the others."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Protocol

import msgspec

from weft.capabilities.guidance.examples import example_request
from weft.kernel.identity import Actor, Permission
from weft.kernel.operation import Effect, Operation, RateClass, Request, Response, operation

Topic = Literal["operations", "coordination", "security", "troubleshooting"]
AccessLevel = Literal["READ_ONLY", "AGENT", "ADMIN"]


class Offers(Protocol):
    """What there is to do, and for whom."""

    async def to(self, actor: Actor) -> list[Operation]:
        """Return the operations a caller may use."""
        ...

    def limit(self, rate: RateClass) -> str:
        """Return how often a class of calls may be made, empty if there is no limit."""
        ...


class GetUsageGuidance(Request):
    """What to be told of."""

    guidance_type: Annotated[Topic, msgspec.Meta(description="The calls you may make, or advice on a subject.")] = (
        "operations"
    )


class OfferedCall(Response, kw_only=True, omit_defaults=False):
    """Something you may do, with a call to copy."""

    tool: str
    summary: str
    example: dict[str, Any]
    rate_limit: str


class UsageGuidance(Response, kw_only=True, omit_defaults=False):
    """What you may do, or advice."""

    success: Literal[True] = True
    guidance_type: str
    agent_id: str
    agent_type: str
    access_level: AccessLevel
    permissions: list[str]
    not_granted: list[str]
    operations: list[OfferedCall]
    advice: list[str]


@operation(
    "usage.guidance",
    tool="get_usage_guidance",
    http="GET /v1/usage-guidance",
    permission=None,
    rate=RateClass.SESSION,
    effect=Effect.OWN_TRANSACTIONS,
)
async def get_usage_guidance(request: GetUsageGuidance, actor: Actor, offers: Offers) -> UsageGuidance:
    """Learn what you may do here right now, with an example of each call, or how to work together well."""
    granted = sorted(actor.permissions)
    offered = await offers.to(actor)
    about_calls = request.guidance_type == "operations"
    return UsageGuidance(
        guidance_type=request.guidance_type,
        agent_id=actor.principal_id,
        agent_type=actor.agent_type,
        access_level=_access_level(actor),
        permissions=list(granted),
        not_granted=sorted(set(Permission) - actor.permissions),
        operations=[_offered(each, actor, offers) for each in offered] if about_calls else [],
        advice=[] if about_calls else ADVICE[request.guidance_type],
    )


ADVICE: dict[str, list[str]] = {
    "coordination": [
        "Begin with list_keys of shared_context, then get_messages with after_id set to the last id you have seen.",
        "Keep what is settled on the board and say what is new in a message; do not repeat one in the other.",
        "Answer a message with parent_message_id, so that threads can be followed.",
        "Pass if_version when others may change the same key; on VERSION_CONFLICT read again and decide anew.",
        "Follow session://{session_id} instead of asking again and again.",
    ],
    "security": [
        "Your name on everything comes from your credential; no parameter can change it.",
        "A private message is for you alone, agent_only for agents of your type, admin_only for admins.",
        "Nobody else reads your memory. An admin can look into it, and into messages, only on record.",
        "Put no keys, passwords or personal data into messages, the board or memory.",
        "A permission you lack is granted by an admin with update_agent, never by asking for it in a call.",
    ],
    "troubleshooting": [
        "Every error has a code, and suggestions that say what to do next.",
        "SESSION_NOT_FOUND: the id is wrong, the session was deleted, or you do not take part in it.",
        "PERMISSION_DENIED: your credential was not granted what the call needs; see permissions above.",
        "RATE_LIMITED: wait for retry_after_seconds, then repeat the same call.",
        "TOKEN_EXPIRED: get a new token with authenticate_agent; refresh_token extends one that is still valid.",
        "SYSTEM_UNAVAILABLE: nothing was changed; repeat the same call after a short wait.",
    ],
}


def _access_level(actor: Actor) -> AccessLevel:
    if actor.is_admin:
        return "ADMIN"
    return "AGENT" if Permission.WRITE in actor.permissions else "READ_ONLY"


def _offered(offered: Operation, actor: Actor, offers: Offers) -> OfferedCall:
    return OfferedCall(
        tool=offered.tool,
        summary=offered.summary,
        example=example_request(offered, actor),
        rate_limit=offers.limit(offered.rate),
    )
