"""What a caller may do: its operations with examples, and advice."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal, NotRequired, Protocol, TypedDict

import msgspec
from msgspec import structs

from weftline.access.plan_warnings import Plans
from weftline.access.plans import LIMITS
from weftline.access.sql import PlanStore
from weftline.indexing.embeddings import Embeddings
from weftline.kernel.data_files import JsonFile
from weftline.kernel.identity import HIGHEST_CLEARANCE, Actor, Permission, PrincipalKind
from weftline.kernel.operation import (
    Effect,
    Operation,
    RateClass,
    Request,
    Response,
    SessionUse,
    admin_operation,
    operation,
)
from weftline.knowledge.sql import DomainStore

# Valid example arguments for every operation.

_ABOUT_CALLER = frozenset({"memory.overview"})


class _Examples(TypedDict):
    """Values of fields, and arguments that an operation requires although no single field is required."""

    fields: dict[str, Any]
    operations: dict[str, dict[str, Any]]


_examples = JsonFile("insight/guidance_examples.json", _Examples)


def example_request(operation: Operation, actor: Actor) -> dict[str, Any]:
    """Return the required arguments of the operation's tool with example values."""
    required = [field.name for field in msgspec.structs.fields(operation.request) if field.required]
    arguments = {name: _examples()["fields"][name] for name in required}
    arguments |= _examples()["operations"].get(operation.name, {})
    if operation.name in _ABOUT_CALLER:
        arguments["agent_id"] = actor.principal_id
    return {"action": operation.action, **arguments} if operation.action else arguments


# Topics of usage guidance: the operations of each, and advice on using them.

GuidanceType = Literal[
    "operations",
    "coordination",
    "security",
    "troubleshooting",
    "sessions",
    "board",
    "messages",
    "memory",
    "search",
    "assembly",
    "windows",
    "compaction",
    "knowledge",
    "indexing",
    "history",
    "branches",
    "retention",
    "records",
    "missing",
    "agents",
    "approvals",
    "guardrails",
    "trust",
    "insight",
    "admin",
]


class Topic(TypedDict):
    """Advice, and the operations it is about: names, or groups of names such as ``board``."""

    advice: list[str]
    operations: NotRequired[list[str]]


topics = JsonFile("insight/guidance_topics.json", dict[str, Topic])


@cache
def _topics_by_name() -> dict[str, str]:
    return {name: topic for topic, described in topics().items() for name in described.get("operations", ())}


def topic_of(operation: str) -> str:
    """Return the topic of an operation: that of its name, or else that of its group."""
    group = operation.partition(".")[0]
    return _topics_by_name().get(operation) or _topics_by_name()[group]


# The caller's capabilities: its role, the operations it may use by topic, and advice on each topic.

_TOPICS_OF_SEARCH = ("search", "knowledge")
AccessLevel = Literal["READ_ONLY", "AGENT", "ADMIN"]


class AllowedOperations(Protocol):
    """The operations and rate limits that apply to a caller."""

    async def to(self, actor: Actor) -> list[Operation]:
        """Return the operations a caller may use."""
        ...

    def limit(self, rate: RateClass) -> str:
        """Return the rate limit of a class of calls; empty if there is none."""
        ...


# A caller with a credential is not anonymous.
_CALLERS_RATES = [rate for rate in RateClass if rate is not RateClass.ANONYMOUS]


class GetUsageGuidance(Request):
    """The topic of guidance."""

    guidance_type: Annotated[
        GuidanceType,
        msgspec.Meta(description="A topic. operations: your role, what to do first, and the tools of every topic."),
    ] = "operations"


class UsageGuidance(Response, kw_only=True, omit_defaults=False):
    """Who you are, and advice: an overview with all topics, or one topic with its operations."""

    success: Literal[True] = True
    guidance_type: str
    agent_id: str
    agent_type: str
    access_level: AccessLevel
    permissions: list[str]
    not_granted: list[str]
    advice: Annotated[list[str], msgspec.Meta(description="What to do first, or how to use the topic.")]
    topics: Annotated[
        dict[str, list[str]], msgspec.Meta(description="The tools that you may call, by topic. In the overview.")
    ] = msgspec.field(default_factory=dict)
    operations: Annotated[
        dict[str, str],
        msgspec.Meta(description="The tools, and actions of tools, that you may call. In a topic."),
    ] = msgspec.field(default_factory=dict)
    example: Annotated[
        dict[str, Any], msgspec.Meta(description="Arguments of the topic's first operation. In a topic.")
    ] = msgspec.field(default_factory=dict)
    rate_limits: Annotated[
        dict[str, str], msgspec.Meta(description="Your rate limits, by class of calls. In troubleshooting.")
    ] = msgspec.field(default_factory=dict)


@operation(
    "agent.capabilities",
    tool="get_usage_guidance",
    http="GET /v1/usage-guidance",
    permission=None,
    rate=RateClass.SESSION,
    effect=Effect.OWN_TRANSACTIONS,
    session=SessionUse.NONE,
)
async def get_usage_guidance(
    request: GetUsageGuidance, actor: Actor, allowed: AllowedOperations, embeddings: Embeddings
) -> UsageGuidance:
    """Get your role, what to do first and the topics of guidance, or one topic: its operations and advice."""
    operations = await allowed.to(actor)
    topic = request.guidance_type
    guidance = UsageGuidance(
        guidance_type=topic,
        agent_id=actor.principal_id,
        agent_type=actor.agent_type,
        access_level=_access_level(actor),
        permissions=sorted(actor.permissions),
        not_granted=sorted(set(Permission) - {Permission.AUDIT} - actor.permissions),
        advice=[*_first_steps(actor, operations), *_words_only(embeddings)],
    )
    if topic == "operations":
        return structs.replace(guidance, topics=_tools_by_topic(operations))
    covered = [each for each in operations if topic_of(each.name) == topic]
    if topics()[topic].get("operations") and not covered:
        return structs.replace(guidance, advice=["Your credential permits none of the operations of this topic."])
    return structs.replace(
        guidance,
        advice=[*topics()[topic]["advice"], *(_words_only(embeddings) if topic in _TOPICS_OF_SEARCH else ())],
        operations={_call_name(each): each.summary for each in covered},
        example={_call_name(each): example_request(each, actor) for each in covered[:1]},
        rate_limits={rate: allowed.limit(rate) for rate in _CALLERS_RATES} if topic == "troubleshooting" else {},
    )


def _words_only(embeddings: Embeddings) -> list[str]:
    """Return how to search where nothing is embedded."""
    off = embeddings.off_reason()
    return [f"Semantic search is off: {off}. search finds words: use those of the text."] if off else []


def _first_steps(actor: Actor, operations: list[Operation]) -> list[str]:
    """Return what to do first, for the role of the caller."""
    names = {operation.name for operation in operations}
    steps = {
        "session.create": "Create a session for a task with create_session, and tell the other agents its id.",
        "board.list_keys": "Join a task: list_keys of shared_context, then get_messages.",
        "search.query": "Look for what is known with search before you ask or repeat work.",
        "board.write": "Write conclusions to the board with shared_context, news to the others with add_message.",
        "context.push": "Keep what should outlast the session with push_context, private notes with set_memory.",
        "context.assemble": "Let assemble_context build the prompt of your next model call within its budget.",
        "tools.search": "Find, describe and call tools that are not in your list with weftline_tools.",
        "agent.create": "Create agents with create_agent, and retire them with update_agent and disabled.",
        "audit.list": "See what was denied or changed with get_audit_log.",
    }
    more = "For the operations of a topic, call get_usage_guidance with guidance_type set to it."
    return [_role(actor), *(step for name, step in steps.items() if name in names), more]


def _role(actor: Actor) -> str:
    if actor.is_admin:
        return "You are an admin: you manage the agents and settings of your tenant."
    if actor.is_subagent:
        return "You are a sub-agent: work in the session you were given."
    if actor.kind is PrincipalKind.HUMAN:
        return "You are a human: you decide what agents may not, such as conflicting merges."
    return "You are an orchestrator: you create sessions and give work to other agents."


def _tools_by_topic(operations: list[Operation]) -> dict[str, list[str]]:
    by_topic: dict[str, list[str]] = {name: [] for name in topics()}
    for each in operations:
        tools = by_topic[topic_of(each.name)]
        if each.tool not in tools:
            tools.append(each.tool)
    return {name: tools for name, tools in by_topic.items() if tools or not topics()[name].get("operations")}


def _call_name(each: Operation) -> str:
    return f"{each.tool} {each.action}" if each.action else each.tool


def _access_level(actor: Actor) -> AccessLevel:
    if actor.is_admin:
        return "ADMIN"
    return "AGENT" if Permission.WRITE in actor.permissions else "READ_ONLY"


# The operation `plan.show`: the tenant's plan, its limits, and what is used of them.


class ShowPlan(Request):
    """No parameters."""


class QuotaInfo(Response, kw_only=True, omit_defaults=False):
    """What is used of a limit; ``allowed`` is null if it is unlimited."""

    used: int
    allowed: int | None


class PlanShown(Response, kw_only=True, omit_defaults=False):
    """The tenant's plan. ``limits``: all of them by name, null: unlimited; ``custom``: those set for this tenant alone.

    ``quotas``: what is used, for callers with the highest clearance, who may see every domain.
    """

    plan: str
    limits: dict[str, Any]
    custom: list[str]
    quotas: dict[str, QuotaInfo]


@admin_operation(
    "plan.show", tool="budgets", action="show_plan", http="GET /v1/plan", effect=Effect.READ, session=SessionUse.NONE
)
async def show_plan(request: ShowPlan, actor: Actor, plans: Plans, store: PlanStore, domains: DomainStore) -> PlanShown:
    """Show the tenant's plan: its limits, and how much of them is used. For admins."""
    del request
    allowance, assigned = await plans.allowance(), await store.plan()
    quotas: dict[str, QuotaInfo] = {}
    if actor.clearance >= HIGHEST_CLEARANCE:
        found = await domains.all()
        quotas = {
            "domains": QuotaInfo(used=len(found), allowed=allowance.domains),
            "bytes": QuotaInfo(used=sum(each.bytes for each in found), allowed=allowance.bytes),
        }
    limits = msgspec.to_builtins(allowance)
    return PlanShown(
        plan=allowance.plan,
        limits={name: limits[name] for name in LIMITS},
        custom=[] if assigned is None else sorted(assigned.limits),
        quotas=quotas,
    )
