"""Operations on registered tools: register, list, remove, and the choice of tools for a task."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from weftline.access.sql import AccessStore
from weftline.access.steps import StepName, StepNotFound
from weftline.kernel.clock import Clock, from_micros, to_micros
from weftline.kernel.errors import ContentTooLarge, InvalidInput, PermissionDenied, QuotaExceeded, close_names
from weftline.kernel.fields import ShortText
from weftline.kernel.identity import Actor, Permission
from weftline.kernel.operation import (
    Audience,
    Effect,
    RateClass,
    Request,
    Response,
    SessionUse,
    SubmittedText,
    Success,
    operation,
)
from weftline.prompts.tools.catalogue import ToolCatalogue
from weftline.prompts.tools.model import (
    LOADED,
    MAX_EXAMPLES,
    MAX_STEP_TOOLS,
    MAX_STEPS,
    MAX_TOOLS_PER_CALL,
    Sharing,
    StepDefinition,
    ToolName,
    ToolNameTaken,
    ToolNotRegistered,
    ToolToRegister,
    UnknownTool,
    cleaned,
    shown_text,
)
from weftline.prompts.tools.registry import (
    SelectionRequest,
    ToolRegistry,
    ToolSelector,
    check_unique,
    owner_for,
    visible_owners,
)
from weftline.prompts.tools.sql import StepStore, ToolStore
from weftline.safety.trust.gate import GATE_ERRORS, ContentBlocked, ContentGate, ContentQuarantined, IncomingContent
from weftline.sessions.model import SessionId, SessionNotFound

if TYPE_CHECKING:
    from collections.abc import Iterator


_MAX_TASK = 200_000
_operation = partial(operation, tool="tool_registry")


class ToolDraft(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool of a runtime, as models see it."""

    name: ToolName
    description: Annotated[str, msgspec.Meta(max_length=10_000, description="What it does and when to use it.")] = ""
    input_schema: Annotated[dict[str, Any], msgspec.Meta(description="JSON Schema of its arguments.")] = msgspec.field(
        default_factory=dict
    )
    examples: Annotated[
        list[Annotated[str, msgspec.Meta(max_length=500)]],
        msgspec.Meta(
            max_length=MAX_EXAMPLES, description="Tasks that it serves, as users put them; it is found by them."
        ),
    ] = msgspec.field(default_factory=list)


class RegisterTools(Request):
    """Tools of a runtime."""

    tools: Annotated[list[ToolDraft], msgspec.Meta(max_length=MAX_TOOLS_PER_CALL, description="Up to 100 tools.")]
    server: Annotated[ShortText, msgspec.Meta(description="MCP server or program that they come from.")] = ""
    complete: Annotated[
        bool, msgspec.Meta(description="These are all tools of the server: remove its others that you registered.")
    ] = False
    shared_with: Sharing = None


class ToolsRegistered(Success, kw_only=True, omit_defaults=False):
    """Names of tools by what happened to them; ``unchanged`` are as they were."""

    on_record = ("added", "changed", "removed")

    added: list[str]
    changed: list[str]
    removed: list[str]
    unchanged: int


class ListRegisteredTools(Request):
    """A page of registered tools."""

    after: Annotated[ToolName | None, msgspec.Meta(description="Return tools after this name; for paging.")] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000, description="At most this many.")] = 100


class RegisteredToolInfo(Response, kw_only=True, omit_defaults=False):
    """A registered tool without its schema. ``owner``: the principal whose tree it is for; empty: the tenant."""

    name: str
    description: str
    server: str
    owner: str
    tokens: int
    registered_by: str
    registered_at: datetime


class RegisteredToolList(Response, kw_only=True, omit_defaults=False):
    """Registered tools by name, and the number and tokens of all of them."""

    tools: list[RegisteredToolInfo]
    has_more: bool
    total: int
    tokens: int


class RemoveTool(Request):
    """The registered tool to remove."""

    name: ToolName
    shared_with: Sharing = None


class SelectTools(Request):
    """The task to choose tools for."""

    task_description: Annotated[
        str, msgspec.Meta(min_length=1, max_length=_MAX_TASK, description="What the model is to do next.")
    ]
    session_id: Annotated[SessionId | None, msgspec.Meta(description="Session that the task belongs to.")] = None
    include: Annotated[
        list[ToolName],
        msgspec.Meta(max_length=LOADED, description="Tools to load in any case, such as one of those named before."),
    ] = msgspec.field(default_factory=list)
    own_tools: Annotated[bool, msgspec.Meta(description="Choose among the tools of Weftline as well.")] = False


class SelectedTool(Response, kw_only=True, omit_defaults=False):
    """A tool to load, as a model gets it.

    ``registered_as``: its name where it was registered, if providers do not take that.
    """

    name: str
    description: str
    input_schema: dict[str, Any]
    registered_as: str | msgspec.UnsetType = msgspec.UNSET


class ToolsSelected(Response, kw_only=True, omit_defaults=False):
    """The tools that fit a task: at most ten, by name, the same until the task changes.

    ``named``: further tools that may fit, by name only; load one with ``include``. ``kept``: the list of the previous
    call. ``available_tokens``: of all tools that could have been loaded; ``saved_tokens``: of those that were not.
    """

    tools: list[SelectedTool]
    named: list[str]
    kept: bool
    available: int
    available_tokens: int
    loaded_tokens: int
    saved_tokens: int


async def _prepare(request: RegisterTools, catalogue: ToolCatalogue) -> None:
    del request
    catalogue.registering()


def _texts(request: RegisterTools) -> Iterator[SubmittedText]:
    return (SubmittedText(shown_text(tool), data=True) for tool in _cleaned(request).values())


@_operation(
    "tools.register",
    action="register",
    http="POST /v1/registered-tools",
    permission=Permission.WRITE,
    rate=RateClass.KNOWLEDGE,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    off_record=("tools",),
    content=_texts,
    prepare=_prepare,
    errors=(
        ToolNameTaken,
        InvalidInput,
        ContentTooLarge,
        QuotaExceeded,
        PermissionDenied,
        ContentQuarantined,
        ContentBlocked,
    ),
    session=SessionUse.NONE,
)
async def register_tools(request: RegisterTools, actor: Actor, registry: ToolRegistry) -> ToolsRegistered:
    """Register the tools of your runtime, so that each task gets the few it needs. All of them or none.

    Weftline does not call them: it chooses, describes and meters them. A name that is registered already gets the new
    definition; names of Weftline's own tools and of tools registered above you are refused.
    """
    owner = owner_for(actor, request.shared_with)
    server = await registry.gate.admit_note("tool_server", request.server) or ""
    done = await registry.register(_cleaned(request), owner, server, complete=request.complete)
    return ToolsRegistered(added=done.added, changed=done.changed, removed=done.removed, unchanged=done.unchanged)


@_operation(
    "tools.list",
    action="list",
    http="GET /v1/registered-tools",
    permission=Permission.READ,
    rate=RateClass.SESSION,
    effect=Effect.READ,
    session=SessionUse.NONE,
)
async def list_registered_tools(request: ListRegisteredTools, actor: Actor, tools: ToolStore) -> RegisteredToolList:
    """List the registered tools that you have: of the tenant, of your tree and of the principals above you."""
    owners = visible_owners(actor)
    found = await tools.page(owners, request.after or "", request.limit + 1)
    shown = [tool for tool in found[: request.limit] if actor.may_call(tool.name)]
    size = await tools.size(owners, None if actor.step is None else actor.step_tools)
    return RegisteredToolList(
        tools=[
            RegisteredToolInfo(
                name=tool.name,
                description=tool.description,
                server=tool.server,
                owner=tool.owner,
                tokens=tool.tokens,
                registered_by=tool.registered_by,
                registered_at=from_micros(tool.registered_at),
            )
            for tool in shown
        ],
        has_more=len(found) > request.limit,
        total=size.tools,
        tokens=size.tokens,
    )


@_operation(
    "tools.remove",
    action="remove",
    http="POST /v1/registered-tools/remove",
    permission=Permission.WRITE,
    rate=RateClass.KNOWLEDGE,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    destructive=False,
    errors=(ToolNotRegistered, PermissionDenied),
    session=SessionUse.NONE,
)
async def remove_tool(request: RemoveTool, actor: Actor, registry: ToolRegistry) -> Success:
    """Remove a tool that you registered; registering it again brings it back."""
    await registry.remove(request.name, owner_for(actor, request.shared_with))
    return Success()


@_operation(
    "tools.select",
    heavy=True,
    action="select",
    http="POST /v1/tool-selections",
    permission=Permission.READ,
    rate=RateClass.SEARCH,
    effect=Effect.OWN_TRANSACTIONS,
    session=SessionUse.WORKS_IN,
    errors=(SessionNotFound, InvalidInput),
)
async def select_tools(request: SelectTools, actor: Actor, selector: ToolSelector) -> ToolsSelected:
    """Choose the tools for a task among the registered ones: those that fit it, at most ten.

    The list stays the same, byte for byte, while it has what the task needs, so that provider caches survive; another
    task or step changes it.
    """
    if not request.task_description.strip():
        raise InvalidInput("task_description: is empty", field="task_description")
    chosen = await selector.select(
        actor,
        SelectionRequest(
            request.task_description,
            actor.principal_id,
            request.session_id,
            own=request.own_tools,
            include=tuple(request.include),
        ),
    )
    return ToolsSelected(
        tools=[
            SelectedTool(
                name=tool.name,
                description=tool.description,
                input_schema=tool.input_schema,
                registered_as=chosen.registered.get(tool.name, msgspec.UNSET),
            )
            for tool in chosen.tools
        ],
        named=list(chosen.named),
        kept=chosen.kept,
        available=chosen.available,
        available_tokens=chosen.available_tokens,
        loaded_tokens=chosen.loaded_tokens,
        saved_tokens=chosen.saved_tokens,
    )


def _cleaned(request: RegisterTools) -> dict[str, ToolToRegister]:
    check_unique([tool.name for tool in request.tools])
    return {tool.name: cleaned(tool.name, tool.description, tool.input_schema, tool.examples) for tool in request.tools}


# Operations on steps: define, list, remove.


def _check_in_no_step(actor: Actor) -> None:
    """Refuse callers in a step: nobody widens its own."""
    if actor.step is not None:
        raise PermissionDenied(
            f"You are in the step '{actor.step}'; steps are changed by callers that are in none.",
            hint="Leave this to the one who gave you the step.",
        )


_step_operation = partial(operation, tool="steps", rate=RateClass.ADMIN, session=SessionUse.NONE)
_write = partial(
    _step_operation,
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


@_step_operation("step.list", action="list", http="GET /v1/steps", permission=Permission.READ, effect=Effect.READ)
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
