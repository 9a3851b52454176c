"""Operations on an agent's definition: role, system prompt, guardrails and configuration. Never by the agent itself."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec

from weftline.access.grants import check_clearance
from weftline.access.model import AgentId, AgentNotFound
from weftline.history.composite_lines import PartVersion
from weftline.history.line_kinds import CommitMeta, EditProof
from weftline.history.model import EMPTY, VersionConflict, VersionNotFound, VersionPruned
from weftline.history.revisions import VersionName, changed_by
from weftline.kernel.clock import from_micros
from weftline.kernel.errors import ContentTooLarge, PermissionDenied, QuotaExceeded, SelfModification
from weftline.kernel.fields import Count, Reason, Step
from weftline.kernel.identity import Actor, Permission, PrincipalKind
from weftline.kernel.json_input import encode_json_field
from weftline.kernel.operation import Effect, RateClass, Request, SessionUse, Success, operation
from weftline.safety.guardrails.model import MAX_GUARDRAILS, PERSONA, Guardrail, InvalidGuardrail, KnownActions
from weftline.safety.guardrails.rules import GuardrailDefinitions, compile_guardrails
from weftline.safety.trust.gate import GATE_ERRORS
from weftline.state.agent_context.model import DEFINITION, ContextLine, NewValue, inline
from weftline.state.agent_context.permissions import (
    EDITOR_CLEARANCE,
    check_editor,
    check_may_define,
    find_agent,
    find_readable,
    forbid_self_definition,
)
from weftline.state.agent_context.service import Contexts, OpenPart
from weftline.state.agent_context.settings import check_config
from weftline.state.agent_context.sql import CriticalEdit, CriticalEditStore
from weftline.state.agent_context.views import AgentDefinition, count_changes, definition_at

_MAX_BYTES = 262_144

DefinitionText = Annotated[str, msgspec.Meta(max_length=_MAX_BYTES)]


class DefineAgent(Request):
    """Fields of the definition to set; omitted ones stay."""

    agent_id: AgentId
    role: Annotated[DefinitionText | None, msgspec.Meta(description="The purpose of the agent.")] = None
    system_prompt: Annotated[DefinitionText | None, msgspec.Meta(description="Its system prompt.")] = None
    guardrails: Annotated[
        Annotated[list[Guardrail], msgspec.Meta(max_length=MAX_GUARDRAILS)] | None,
        msgspec.Meta(description="Rules for the agent and those below it; replaces the whole list."),
    ] = None
    config: Annotated[
        dict[str, Any] | None,
        msgspec.Meta(
            description="Your settings, as a JSON object; compaction: how its windows are compacted; "
            "alerts: when its calls become an alert; proxy: what the model proxy may change in its calls."
        ),
    ] = None
    if_version: Annotated[
        Count | None,
        msgspec.Meta(description="Expected version of the definition (0: none yet); VERSION_CONFLICT if it differs."),
    ] = None
    critical: Annotated[
        bool, msgspec.Meta(description="Tell the agent in running sessions to pull this version at once.")
    ] = False
    reason: Reason = None
    step: Step = None


class AgentDefined(Success, kw_only=True):
    """The new definition. Running sessions get it with their next pull; guardrails hold at once."""

    on_record = ("version", "changed")

    agent_id: str
    context_id: str
    previous_version: int
    version: int
    hash: str
    context_version: int
    changed: list[str]
    defined_at: datetime


class ReadDefinition(Request):
    """The agent and the version of its definition."""

    agent_id: AgentId
    version: VersionName = "head"


class DefinitionRead(AgentDefinition, kw_only=True):
    """A version of an agent's definition. Version 0: the agent has no definition."""

    agent_id: str
    context_id: str
    version: int
    hash: str


async def _compile(request: DefineAgent, actions: KnownActions, actor: Actor) -> None:
    await compile_guardrails(request.guardrails or (), actions, actor)


@operation(
    "agent.define",
    tool="define_agent",
    http="PUT /v1/agents/{agent_id}/definition",
    permission=Permission.WRITE,
    rate=RateClass.ADMIN,
    effect=Effect.WRITE,
    requires=check_editor,
    forbids=forbid_self_definition,
    prepare=_compile,
    audited=True,
    off_record=("role", "system_prompt", "guardrails", "config"),
    errors=(
        *(AgentNotFound, PermissionDenied, SelfModification, VersionConflict, ContentTooLarge),
        *(InvalidGuardrail, QuotaExceeded),
        *GATE_ERRORS,
    ),
    session=SessionUse.NONE,
)
async def define_agent(
    request: DefineAgent, contexts: Contexts, critical: CriticalEditStore, definitions: GuardrailDefinitions
) -> AgentDefined:
    """Set the definition of an agent: role, system prompt, guardrails and configuration.

    For its parent agents, and for humans with clearance 3 or higher and at least that of the agent; never for itself.
    A running session keeps the definition it pulled until it pulls again; guardrails hold from the next call.
    """
    await definitions.checked(PERSONA, request.guardrails or ())
    fields = _encoded(request)
    agent = await find_agent(request.agent_id, contexts.access)
    proof = await check_may_define(contexts.actor, agent, contexts.access)
    context = await contexts.open(agent.principal_id)
    part = await context.part(DEFINITION)
    previous = part.at.seq if part.at else 0
    if request.if_version not in {None, previous}:
        raise await _version_conflict(part, request.if_version)
    changed = [key for key, text in fields.items() if await part.write(key, inline(NewValue(text)))]
    reason = await contexts.gate.admit_note("reason", request.reason)
    await context.commit([part], CommitMeta(reason or "define", request.step), proof=proof)
    at = part.at or PartVersion(part.line.line_id, 0, EMPTY.hex())
    if request.critical and at.seq > 0:
        await critical.mark(CriticalEdit(at.line, at.seq, contexts.actor.participant, context.now))
    if request.guardrails is not None:
        await definitions.forget_others(part.line.line_id, request.guardrails)
    if changed:
        await _publish(part, changed, critical=request.critical)
    return AgentDefined(
        agent_id=context.owner,
        context_id=at.line,
        previous_version=previous,
        version=at.seq,
        hash=at.hash,
        context_version=context.root.seq,
        changed=changed,
        defined_at=from_micros(context.now),
    )


@operation(
    "agent.read_definition",
    tool="read_definition",
    http="GET /v1/agents/{agent_id}/definition",
    permission=Permission.READ,
    rate=RateClass.MEMORY,
    effect=Effect.READ,
    errors=(AgentNotFound, VersionNotFound, VersionPruned),
    session=SessionUse.NONE,
)
async def read_definition(request: ReadDefinition, contexts: Contexts) -> DefinitionRead:
    """Read a version of the definition of an agent: your own, or that of an agent you may edit."""
    agent = await find_readable(request.agent_id, contexts.actor, contexts.access)
    line = ContextLine(agent.principal_id, DEFINITION, None)
    point = await contexts.resolve(line, request.version)
    definition = await definition_at(contexts.lines, PartVersion.of(point))
    return DefinitionRead(
        **msgspec.structs.asdict(definition),
        agent_id=agent.principal_id,
        context_id=line.line_id,
        version=point.seq,
        hash=point.hash.hex(),
    )


class InitialDefinition(msgspec.Struct, frozen=True):
    """Implements AgentInstructions."""

    contexts: Contexts

    async def define(self, agent_id: str, text: str) -> None:
        contexts = self.contexts
        if contexts.actor.kind is PrincipalKind.HUMAN:
            check_clearance(contexts.actor, EDITOR_CLEARANCE, "Giving an agent instructions")
        # Only an ancestor or an admin may create an agent. The store checks the proof against the new agent tree.
        proof = EditProof(ContextLine(agent_id, DEFINITION, None).line_id, contexts.actor.principal_id)
        context = await contexts.open(agent_id)
        part = await context.part(DEFINITION)
        await part.write("system_prompt", inline(NewValue(encode_json_field("instructions", text))))
        await context.commit([part], CommitMeta("create"), proof=proof)
        await _publish(part, ["system_prompt"], critical=False)


async def _publish(part: OpenPart, changed: list[str], *, critical: bool) -> None:
    context = part.context
    data = {
        "version": part.at.seq if part.at else 0,
        "context_version": context.root.seq,
        "changed": changed,
        **count_changes(part.changes[key] for key in changed),
        "critical": critical,
    }
    await context.service.outbox.publish(context.service.event("agent.defined", context.owner, data))


def _encoded(request: DefineAgent) -> dict[str, bytes]:
    """Return the JSON of the given fields, by name."""
    check_config(request.config or {})
    given = {name: msgspec.to_builtins(getattr(request, name)) for name in AgentDefinition.__struct_fields__}
    fields = {name: encode_json_field(name, value) for name, value in given.items() if value is not None}
    for name, text in fields.items():
        if len(text) > _MAX_BYTES:
            raise ContentTooLarge(f"{name}: at most {_MAX_BYTES} bytes of JSON", field=name, limit_bytes=_MAX_BYTES)
    return fields


async def _version_conflict(part: OpenPart, expected: int | None) -> VersionConflict:
    """Return the error for a definition that is not at the expected version: who changed it, when, and which fields."""
    current = part.at.seq if part.at else 0
    latest = await part.context.service.lines.commit_at(part.line.line_id, current) if current else None
    changes: dict[str, Any] = {}
    if latest is not None:
        changes = changed_by(latest.commit.author, latest.commit.committed_at)
        changes["changed"] = sorted(change.key for change in latest.commit.changes)
    return VersionConflict(
        f"The definition is at version {current}, not {expected}.",
        hint="Read it with `agent.read_definition`, merge your change, and retry with if_version at its version.",
        related=("read_definition", "define_agent"),
        current_version=current,
        expected_version=expected,
        **changes,
    )
