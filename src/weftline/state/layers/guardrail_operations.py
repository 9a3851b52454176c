"""Operations on guardrails: list those that hold, test rules with a sample call, check a call of another tool."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from weftline.access.model import AgentId, AgentNotFound, actor_for
from weftline.access.sql import AccessStore
from weftline.access.steps import ToolNotInStep, check_in_step
from weftline.history.signed_lists import LayerViolation
from weftline.kernel.clock import from_micros
from weftline.kernel.errors import PermissionDenied
from weftline.kernel.fields import Count, Name
from weftline.kernel.identity import Actor
from weftline.kernel.json_input import encode_json_field
from weftline.kernel.operation import Audience, Effect, RateClass, Request, Response, SessionUse, operation
from weftline.kernel.ports import Transactions
from weftline.safety.guardrails.model import (
    MAX_GUARDRAILS,
    PERSONA,
    CallerGuardrails,
    Guardrail,
    GuardrailApproval,
    GuardrailViolation,
    HitCount,
    HitStore,
    InvalidGuardrail,
    KnownActions,
    Label,
    RuleKey,
    ViolationResponse,
)
from weftline.safety.guardrails.rules import (
    PLATFORM_RULES,
    Candidates,
    CompiledRule,
    Counts,
    check_guardrails,
    compile_guardrails,
    owner_of,
    warn_of_misspelling,
)
from weftline.safety.guardrails.service import CheckedCall, Guardrails, mask_value
from weftline.sessions.model import SessionId, SessionNotFound, find_session
from weftline.sessions.sql import SessionStore
from weftline.state.agent_context.permissions import find_readable
from weftline.state.layers.history_backend import may_read_layer, may_read_layers
from weftline.state.layers.model import LayerName, line_of, team_layer, team_of
from weftline.state.layers.operations import check_reader
from weftline.state.layers.rules import RuleLoader
from weftline.state.layers.service import readable_teams
from weftline.state.layers.sql import LayerStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weftline.safety.guardrails.rules import Evaluation, RuleBatch

_operation = partial(operation, tool="guardrails")
_LAYERS_PER_PAGE = 50
_GIVEN = "given"

Decision = Literal["allow", "block", "redact", "warn", "terminate", "ask"]
ToolName = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=200,
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:/-]*\Z",
        description="Name of an operation or tool, such as board.delete or github.create_issue.",
    ),
]
Arguments = Annotated[dict[str, Any], msgspec.Meta(description="The arguments of the call.")]
Answer = Annotated[Any, msgspec.Meta(description="What the call answered, to check rules about answers.")]


class ListGuardrails(Request):
    """Whose rules to list: those of an agent, or a page of all layers."""

    agent_id: Annotated[
        AgentId | None,
        msgspec.Meta(description="Rules that hold for this agent; those who may not read layers: yours."),
    ] = None
    cursor: Annotated[LayerName | None, msgspec.Meta(description="next_cursor of the previous page.")] = None


class ListedGuardrail(Response, kw_only=True):
    """A rule of a layer. ``hits`` since its first hit; ``errors``: those because its condition failed.

    Condition, scope and counts are for those who may read layers.
    """

    level: int
    layer: str
    name: str
    prohibited_action: list[str]
    violation_response: ViolationResponse
    message: str | None = None
    scope: list[str] | UnsetType = UNSET
    condition: str | UnsetType | None = UNSET
    on_error: str | UnsetType = UNSET
    dry_run: bool = False
    hits: int | UnsetType = UNSET
    errors: int = 0
    since: datetime | None = None
    last_hit_at: datetime | None = None


class GuardrailList(Response, omit_defaults=False):
    """Rules by level; ``next_cursor`` is set while there are more layers."""

    guardrails: list[ListedGuardrail]
    next_cursor: str | None


class SampleCounts(Request):
    """Recent calls of the agent, for rules that name ``calls``."""

    minute: Annotated[Count, msgspec.Meta(description="Calls of the last minute.")] = 0
    hour: Annotated[Count, msgspec.Meta(description="Calls of the last hour.")] = 0


class TestGuardrails(Request):
    """A sample call, and the rules to test: by default those that hold for the agent."""

    tool: ToolName
    arguments: Arguments = msgspec.field(default_factory=dict)
    agent_id: Annotated[AgentId | None, msgspec.Meta(description="Who makes the call; by default you.")] = None
    session_id: SessionId | None = None
    step: Annotated[Name | None, msgspec.Meta(description="The workflow step of the call.")] = None
    answer: Answer = None
    calls: SampleCounts | None = None
    labels: Annotated[
        Annotated[list[Label], msgspec.Meta(max_length=10)] | None,
        msgspec.Meta(description="By default those that are found in the values."),
    ] = None
    guardrails: Annotated[
        Annotated[list[Guardrail], msgspec.Meta(max_length=MAX_GUARDRAILS)] | None,
        msgspec.Meta(description="Rules that are not defined yet."),
    ] = None


class RuleResult(Response, kw_only=True, omit_defaults=False):
    """The result of a rule about the action; ``error``: why its condition has no result."""

    name: str
    layer: str
    level: int
    response: ViolationResponse
    dry_run: bool
    violated: bool
    error: str | None


class GuardrailsTested(Response, kw_only=True):
    """The decision on the call and the rule that makes it, and the result of each rule about the action.

    ``arguments`` or ``answer``: as rules with the response redact would leave them.
    """

    decision: Decision
    guardrail: str | None
    rules: list[RuleResult]
    labels: list[str] = msgspec.field(default_factory=list)
    arguments: dict[str, Any] | UnsetType = UNSET
    answer: Any = UNSET


class CheckGuardrails(Request):
    """A call that the runtime is about to make, or has made, with a tool of others."""

    tool: ToolName
    arguments: Arguments = msgspec.field(default_factory=dict)
    session_id: SessionId | None = None
    step: Annotated[Name | None, msgspec.Meta(description="The workflow step of the call.")] = None
    answer: Answer = None


class GuardrailsChecked(Response, kw_only=True, omit_defaults=False):
    """The call is allowed. Use ``arguments`` or ``answer`` in place of yours if they are given."""

    allowed: Literal[True] = True
    warnings: list[str]
    arguments: dict[str, Any] | UnsetType = UNSET
    answer: Any = UNSET


class LayerGuardrails(msgspec.Struct, frozen=True):
    """The rules of layers and agents, for readers."""

    actor: Actor
    access: AccessStore
    sessions: SessionStore
    layers: LayerStore
    loader: RuleLoader
    hits: HitStore

    async def check_session(self, session_id: str) -> None:
        """Raise SessionNotFound unless the caller is a member of the session."""
        await find_session(session_id, self.actor, self.sessions)

    async def agent(self, agent_id: str | None) -> Actor:
        """Return an agent as a caller; AgentNotFound unless the caller may read its definition."""
        if agent_id in {None, self.actor.principal_id}:
            return self.actor
        principal = await find_readable(str(agent_id), self.actor, self.access)
        memberships = await self.access.memberships(principal)
        return actor_for(self.actor.tenant, principal, memberships, permissions=principal.permissions, epoch=0)

    async def of_agent(self, agent: Actor) -> Sequence[CompiledRule]:
        """Return the rules that hold for an agent, without those of teams whose guidelines the caller may not read."""
        loader = RuleLoader(agent, self.loader.lines, self.loader.cache)
        hidden = agent.teams - await readable_teams(agent.principal_id, agent.teams, self.actor, self.access)
        layers = {team_layer(team) for team in hidden}
        return [rule for rule in (await loader.read()).guardrails.rules if rule.layer not in layers]

    async def of_layers(self, after: str | None) -> tuple[list[CompiledRule], str | None]:
        """Return the rules of the platform and of the next layers that the caller may read, and the next cursor."""
        page = await self.layers.page(after or "", _LAYERS_PER_PAGE + 1)
        rules = [*PLATFORM_RULES] if after is None else []
        for layer in page[:_LAYERS_PER_PAGE]:
            if may_read_layer(self.actor, team_of(line_of(layer.name))):
                rules += (await self.loader.line(line_of(layer.name))).rules
        return rules, page[_LAYERS_PER_PAGE - 1].name if len(page) > _LAYERS_PER_PAGE else None

    async def counted(self, rules: Iterable[CompiledRule]) -> dict[RuleKey, HitCount]:
        layers = dict.fromkeys(rule.layer for rule in rules)
        return {count.key: count for count in await self.hits.counts([*layers])}


@_operation(
    "guardrail.list",
    action="list",
    http="GET /v1/guardrails",
    permission=None,
    rate=RateClass.MEMORY,
    effect=Effect.READ,
    errors=(AgentNotFound, LayerViolation),
    session=SessionUse.NONE,
)
async def list_guardrails(request: ListGuardrails, guardrails: LayerGuardrails) -> GuardrailList:
    """List the guardrails that hold for you or an agent you may edit; those who read layers: of all layers.

    Those of agents are listed with agent_id. Hits are counted within seconds.
    """
    actor = guardrails.actor
    is_reader, cursor = may_read_layers(actor), None
    if request.agent_id is None and is_reader:
        rules, cursor = await guardrails.of_layers(request.cursor)
    else:
        found = await guardrails.of_agent(await guardrails.agent(request.agent_id))
        rules = [rule for rule in found if is_reader or not rule.guardrail.dry_run]
    counts = await guardrails.counted(rules) if is_reader else {}
    return GuardrailList(guardrails=[_listed(rule, counts, is_reader=is_reader) for rule in rules], next_cursor=cursor)


@_operation(
    "guardrail.test",
    action="test",
    http="POST /v1/guardrails/test",
    permission=None,
    rate=RateClass.ADMIN,
    effect=Effect.OWN_TRANSACTIONS,
    audience=Audience.NOT_SUBAGENTS,
    requires=check_reader,
    errors=(AgentNotFound, SessionNotFound, PermissionDenied, InvalidGuardrail, LayerViolation),
)
async def test_rules(
    request: TestGuardrails,
    actor: Actor,
    reads: Transactions[LayerGuardrails],
    checks: Guardrails,
    actions: KnownActions,
) -> GuardrailsTested:
    """Test guardrails against a sample call: which of them it violates, and what would happen. Nothing is changed.

    For clearance 3 and for admins. Give guardrails to test rules before you define them.
    """
    await compile_guardrails(request.guardrails or (), actions, actor)
    agent, rules = await reads.read(actor, lambda guardrails: _rules_to_test(request, guardrails, actions))
    warn_of_misspelling(request.tool, actions.names)
    call = _checked_call(request, agent, actions)
    batch = _about(request, rules, actions)
    labels: Sequence[str] = request.labels or ()
    if request.labels is None and "labels" in batch.variables:
        labels = await checks.labels(call)
    calls = request.calls or SampleCounts()
    counts = {rule.action.pattern: Counts(calls.minute, calls.hour) for rule in batch.rated}
    await batch.prepare()
    results = [*batch.results(await checks.values(call, batch.variables, counts, labels))]
    return _tested(request, results, [*labels])


async def _rules_to_test(
    request: TestGuardrails, guardrails: LayerGuardrails, actions: KnownActions
) -> tuple[Actor, Sequence[CompiledRule]]:
    """Return the agent of the sample call, and the given rules, or those that hold for it."""
    if request.session_id is not None:
        await guardrails.check_session(request.session_id)
    agent = await guardrails.agent(request.agent_id)
    if request.guardrails is None:
        return agent, await guardrails.of_agent(agent)
    check_guardrails(request.guardrails, actions.names, guardrails.actor)
    owner = owner_of(guardrails.actor)
    given = [CompiledRule(guardrail, PERSONA, _GIVEN, owner) for guardrail in request.guardrails]
    return agent, [rule for rule in given if agent.matches(rule.guardrail.scope)]


@_operation(
    "guardrail.check",
    action="check",
    http="POST /v1/guardrails/check",
    permission=None,
    rate=RateClass.BOARD,
    effect=Effect.OWN_TRANSACTIONS,
    errors=(SessionNotFound, GuardrailViolation, GuardrailApproval, LayerViolation, ToolNotInStep),
)
async def check_call(
    request: CheckGuardrails,
    actor: Actor,
    reads: Transactions[LayerGuardrails],
    rules: CallerGuardrails,
    checks: Guardrails,
    actions: KnownActions,
) -> GuardrailsChecked:
    """Check a call of a tool that is not Weftline's before you make it, or with its answer; an error prohibits it.

    For runtimes: the rules of your layers, and the step you are in, hold for your other tools too, such as github.*.
    """
    check_in_step(actor, request.tool)
    session_id = request.session_id
    if session_id is not None:
        await reads.read(actor, lambda guardrails: guardrails.check_session(session_id))
    batch = _about(request, (await rules.load(actor)).rules, actions)
    if not batch:
        return GuardrailsChecked(warnings=[])
    outcome = await checks.check(_checked_call(request, actor, actions), batch)
    return GuardrailsChecked(warnings=[*outcome.warnings], **_masked(request, outcome.masks))


def _listed(rule: CompiledRule, counts: Mapping[RuleKey, HitCount], *, is_reader: bool) -> ListedGuardrail:
    guardrail = rule.guardrail
    shown: dict[str, Any] = {}
    if is_reader:
        count = counts.get(RuleKey(rule.layer, guardrail.name, rule.digest))
        shown = {"scope": [*guardrail.scope], "condition": guardrail.condition, "on_error": guardrail.on_error}
        shown |= {"hits": count.hits if count else 0, "errors": count.errors if count else 0}
        shown |= {"since": from_micros(count.since), "last_hit_at": from_micros(count.last_at)} if count else {}
    return ListedGuardrail(
        level=rule.level,
        layer=rule.layer,
        name=guardrail.name,
        prohibited_action=[*guardrail.prohibited_action],
        violation_response=guardrail.violation_response,
        message=guardrail.message,
        dry_run=guardrail.dry_run,
        **shown,
    )


def _checked_call(request: TestGuardrails | CheckGuardrails, actor: Actor, actions: KnownActions) -> CheckedCall:
    encode_json_field("arguments", request.arguments)
    encode_json_field("answer", request.answer)
    known = actions.find(request.tool)
    answer = request.answer
    return CheckedCall(
        actor=actor,
        action=request.tool,
        operation=known.name if known else request.tool,
        tool=known.tool if known else request.tool,
        arguments=request.arguments,
        session_id=request.session_id,
        step=actor.step or request.step,
        answer=answer if answer is None or isinstance(answer, dict) else {"content": answer},
    )


def _about(
    request: TestGuardrails | CheckGuardrails, rules: Sequence[CompiledRule], actions: KnownActions
) -> RuleBatch:
    names = actions.names_for(request.tool)
    candidates = Candidates([rule for rule in rules if any(map(rule.action.match, names))])
    return candidates.before if request.answer is None else candidates.after


def _tested(request: TestGuardrails, results: Sequence[Evaluation], labels: list[str]) -> GuardrailsTested:
    violated = [each.rule.guardrail for each in results if each.is_violated and not each.rule.guardrail.dry_run]
    # The first rule that refuses decides; otherwise masking is more than a warning.
    by_weight = sorted(violated, key=lambda rule: (not rule.refuses, rule.violation_response == "warn"))
    decisive = by_weight[0] if by_weight else None
    masks: list[str] = []
    if decisive is not None and not decisive.refuses:
        masks = [mask for rule in violated if rule.violation_response == "redact" for mask in rule.mask]
    return GuardrailsTested(
        decision=decisive.violation_response if decisive else "allow",
        guardrail=decisive.name if decisive else None,
        rules=[_rule_result(each) for each in results],
        labels=labels,
        **_masked(request, masks),
    )


def _rule_result(evaluation: Evaluation) -> RuleResult:
    rule = evaluation.rule
    return RuleResult(
        name=rule.guardrail.name,
        layer=rule.layer,
        level=rule.level,
        response=rule.guardrail.violation_response,
        dry_run=rule.guardrail.dry_run,
        violated=evaluation.is_violated,
        error=evaluation.error,
    )


def _masked(request: TestGuardrails | CheckGuardrails, masks: Sequence[str]) -> dict[str, Any]:
    """Return the arguments, or after the call the answer, as rules leave them."""
    if not masks:
        return {}
    if request.answer is None:
        return {"arguments": mask_value(request.arguments, masks)}
    return {"answer": mask_value(request.answer, masks)}
