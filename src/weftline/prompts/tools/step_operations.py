"""Operations on steps: define, list, remove."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Annotated

import msgspec

from weftline.access.sql import AccessStore
from weftline.access.steps import StepName, StepNotFound
from weftline.kernel.clock import Clock, from_micros, to_micros
from weftline.kernel.errors import PermissionDenied, QuotaExceeded, close_names
from weftline.kernel.fields import ShortText
from weftline.kernel.identity import Actor, Permission
from weftline.kernel.operation import Audience, Effect, RateClass, Request, Response, SessionUse, Success, operation
from weftline.prompts.tools.catalogue import ToolCatalogue
from weftline.prompts.tools.model import (
    MAX_STEP_TOOLS,
    MAX_STEPS,
    Sharing,
    StepDefinition,
    ToolName,
    UnknownTool,
)
from weftline.prompts.tools.registry import owner_for, visible_owners
from weftline.prompts.tools.sql import StepStore, ToolStore
from weftline.safety.trust.gate import GATE_ERRORS, ContentGate, IncomingContent


def _check_in_no_step(actor: Actor) -> None:
    """Refuse callers in a step: nobody widens its own."""
    if actor.step is not None:
        raise PermissionDenied(
            f"You are in the step '{actor.step}'; steps are changed by callers that are in none.",
            hint="Leave this to the one who gave you the step.",
        )


_operation = partial(operation, tool="steps", rate=RateClass.ADMIN, session=SessionUse.NONE)
_write = partial(
    _operation,
    permission=Permission.WRITE,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    requires=_check_in_no_step,
    audited=True,
)


class DefineStep(Request):
    """A step of a task and its tools."""

    name: StepName
    tools: Annotated[
        list[ToolName],
        msgspec.Meta(
            max_length=MAX_STEP_TOOLS,
            description="Tools of Weftline, whole or as TOOL.ACTION, and registered tools.",
        ),
    ]
    description: Annotated[ShortText, msgspec.Meta(description="What is done in this step, in one line.")] = ""
    shared_with: Sharing = None


class ListSteps(Request):
    """No parameters."""


class RemoveStep(Request):
    """The step to remove."""

    name: StepName
    shared_with: Sharing = None


class StepInfo(Response, kw_only=True, omit_defaults=False):
    """A step. ``owner``: whose tree it is for; empty: the whole tenant. ``endpoint``: where clients enter it."""

    name: str
    description: str
    tools: list[str]
    owner: str
    endpoint: str
    defined_by: str
    defined_at: datetime


class StepList(Response, kw_only=True):
    """Steps by name."""

    steps: list[StepInfo]


@_write(
    "step.define",
    action="define",
    http="PUT /v1/steps/{name}",
    errors=(UnknownTool, QuotaExceeded, PermissionDenied, *GATE_ERRORS),
)
async def define_step(
    request: DefineStep,
    actor: Actor,
    steps: StepStore,
    tools: ToolStore,
    access: AccessStore,
    catalogue: ToolCatalogue,
    clock: Clock,
    gate: ContentGate,
) -> StepInfo:
    """Define a step of a task: the tools that callers in it see and may call, and no others.

    Callers enter it by the endpoint /mcp/step/NAME, or by a token or key that is bound to it. It takes effect on their
    next call. It grants nothing: they need the same rights as without it.
    """
    owner = owner_for(actor, request.shared_with)
    await tools.lock()
    await _check_tools(request.tools, actor, tools, catalogue)
    step = StepDefinition(
        owner=owner,
        name=request.name,
        description=(await gate.admit(IncomingContent("step", request.name, request.description))).text,
        tools=tuple(sorted(set(request.tools))),
        defined_by=actor.principal_id,
        defined_at=to_micros(clock.now()),
    )
    await steps.put(step)
    if await steps.count() > MAX_STEPS:
        raise QuotaExceeded(
            f"A tenant can have {MAX_STEPS:,} steps.",
            hint="Remove steps that are no longer used with `step.remove`.",
            limit_steps=MAX_STEPS,
        )
    await access.advance_epoch()
    return _info(step)


@_operation("step.list", action="list", http="GET /v1/steps", permission=Permission.READ, effect=Effect.READ)
async def list_steps(request: ListSteps, actor: Actor, steps: StepStore) -> StepList:
    """List the steps that you can enter: of the tenant, of your tree and of the principals above you."""
    del request
    return StepList(steps=[_info(step) for step in await steps.visible(visible_owners(actor))])


@_write(
    "step.remove",
    action="remove",
    http="DELETE /v1/steps/{name}",
    destructive=False,
    errors=(StepNotFound, PermissionDenied),
)
async def remove_step(request: RemoveStep, actor: Actor, steps: StepStore, access: AccessStore) -> Success:
    """Remove a step. Credentials that are bound to it may call nothing until it is defined again."""
    if not await steps.remove(owner_for(actor, request.shared_with), request.name):
        raise StepNotFound(
            f"You have defined no step '{request.name}'.", resource_type="step", resource_id=request.name
        )
    await access.advance_epoch()
    return Success()


async def _check_tools(names: list[str], actor: Actor, tools: ToolStore, catalogue: ToolCatalogue) -> None:
    """Raise UnknownTool for names that are neither a tool of Weftline nor registered."""
    own = catalogue.own_names()
    others = [name for name in names if name not in own]
    known = {tool.name for tool in await tools.find(visible_owners(actor), others)} if others else set[str]()
    unknown = next((name for name in others if name not in known), None)
    if unknown is not None:
        near = close_names(unknown, sorted(own))
        hint = f"Did you mean {' or '.join(near)}? {UnknownTool.hint}" if near else None
        raise UnknownTool(f"There is no tool named '{unknown}'.", hint=hint, name=unknown)


def _info(step: StepDefinition) -> StepInfo:
    return StepInfo(
        name=step.name,
        description=step.description,
        tools=list(step.tools),
        owner=step.owner,
        endpoint=f"/mcp/step/{step.name}",
        defined_by=step.defined_by,
        defined_at=from_micros(step.defined_at),
    )
