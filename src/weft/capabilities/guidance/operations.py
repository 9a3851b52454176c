"""The caller's capabilities: the operations it may use, with example calls, and advice on working with others."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Protocol

import msgspec

from weft.capabilities.guidance.examples import example_request
from weft.kernel.identity import Actor, Permission
from weft.kernel.operation import Effect, Operation, RateClass, Request, Response, operation

Topic = Literal["operations", "coordination", "security", "troubleshooting"]
AccessLevel = Literal["READ_ONLY", "AGENT", "ADMIN"]


class AllowedOperations(Protocol):
    """The operations and rate limits that apply to a caller."""

    async def to(self, actor: Actor) -> list[Operation]:
        """Return the operations a caller may use."""
        ...

    def limit(self, rate: RateClass) -> str:
        """Return the rate limit of a class of calls; empty if there is none."""
        ...


class GetUsageGuidance(Request):
    """The topic of guidance."""

    guidance_type: Annotated[
        Topic, msgspec.Meta(description="Your operations with examples, or advice on a topic.")
    ] = "operations"


class AllowedCall(Response, kw_only=True, omit_defaults=False):
    """An operation that you may call, with an example."""

    tool: str
    summary: str
    example: dict[str, Any]
    rate_limit: str


class UsageGuidance(Response, kw_only=True, omit_defaults=False):
    """Your operations, or advice."""

    success: Literal[True] = True
    guidance_type: str
    agent_id: str
    agent_type: str
    access_level: AccessLevel
    permissions: list[str]
    not_granted: list[str]
    operations: list[AllowedCall]
    advice: list[str]


@operation(
    "agent.capabilities",
    tool="get_usage_guidance",
    http="GET /v1/usage-guidance",
    permission=None,
    rate=RateClass.SESSION,
    effect=Effect.OWN_TRANSACTIONS,
)
async def get_usage_guidance(request: GetUsageGuidance, actor: Actor, allowed: AllowedOperations) -> UsageGuidance:
    """List the operations you may call now, each with an example, or get advice on working with others."""
    granted = sorted(actor.permissions)
    operations = await allowed.to(actor)
    about_calls = request.guidance_type == "operations"
    return UsageGuidance(
        guidance_type=request.guidance_type,
        agent_id=actor.principal_id,
        agent_type=actor.agent_type,
        access_level=_access_level(actor),
        permissions=list(granted),
        not_granted=sorted(set(Permission) - actor.permissions),
        operations=[_allowed_call(each, actor, allowed) for each in operations] if about_calls else [],
        advice=[] if about_calls else ADVICE[request.guidance_type],
    )


ADVICE: dict[str, list[str]] = {
    "coordination": [
        "Start with list_keys of shared_context, then get_messages with after_id set to the last id you have seen.",
        "Write settled facts to the board and announce news in a message; do not repeat one in the other.",
        "Reply with parent_message_id, so that threads can be followed.",
        "Pass if_version when others may change the same key; on VERSION_CONFLICT read the key again and decide.",
        "Subscribe to session://{session_id} instead of polling.",
    ],
    "security": [
        "Your identity comes from your credential; no parameter can change it.",
        "A private message is visible to you only, agent_only to agents of your type, admin_only to admins.",
        "Your memory is private. An admin can inspect it, and messages, and every inspection is audited.",
        "Do not put keys, passwords or personal data into messages, the board or memory.",
        "An admin grants missing permissions with update_agent; a call cannot request them.",
    ],
    "troubleshooting": [
        "Every error has a code and suggests what to do next.",
        "SESSION_NOT_FOUND: the id is wrong, the session was deleted, or you are not a participant.",
        "PERMISSION_DENIED: your credential lacks a permission that the call needs; see permissions above.",
        "RATE_LIMITED: wait for retry_after_seconds, then repeat the same call.",
        "TOKEN_EXPIRED: get a new token with authenticate_agent; refresh_token extends one that is still valid.",
        "SYSTEM_UNAVAILABLE: nothing was changed; repeat the same call after a short wait.",
    ],
}


def _access_level(actor: Actor) -> AccessLevel:
    if actor.is_admin:
        return "ADMIN"
    return "AGENT" if Permission.WRITE in actor.permissions else "READ_ONLY"


def _allowed_call(each: Operation, actor: Actor, allowed: AllowedOperations) -> AllowedCall:
    return AllowedCall(
        tool=each.tool, summary=each.summary, example=example_request(each, actor), rate_limit=allowed.limit(each.rate)
    )
