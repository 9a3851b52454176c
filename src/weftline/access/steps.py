"""Steps: named stages of a task with the tools they need. A caller in a step may call no other tool.

A step only takes away: who may do what is decided by permissions, place in the tree and clearance as without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple, TypedDict

import msgspec

from weftline.kernel.data_files import JsonFile
from weftline.kernel.errors import NotFound, PermissionDenied, Rejected
from weftline.kernel.fields import Name

if TYPE_CHECKING:
    from weftline.kernel.identity import Actor
    from weftline.kernel.operation import Operation


# In every step a caller keeps its credential alive, with the same step, its runtime asks what it may call, and it reads
# the whole of its shortened results. Of the tools of servers behind the gateway, the call checks which the step has.
_IN_EVERY_STEP = frozenset({"token.refresh", "guardrail.check", "gateway.call", "conversation.open"})
StepName = Annotated[Name, msgspec.Meta(description="Name of the step.")]


class StepNotFound(NotFound):
    """No step of this name is defined for you."""

    code = "STEP_NOT_FOUND"
    hint = "List the steps with `step.list`."
    related = ("steps",)


class ToolNotInStep(PermissionDenied):
    """The tool does not belong to the step that you are in."""

    code = "TOOL_NOT_IN_STEP"
    hint = "Do this step with the tools that are listed; leave the rest to the steps that follow."
    related: tuple[str, ...] = ()


class BoundToStep(PermissionDenied):
    """The credential is bound to another step."""

    code = "BOUND_TO_STEP"
    hint = "Use the endpoint of your step, or /mcp. Only a credential that is bound to no step can enter another one."
    related: tuple[str, ...] = ()


def no_step(name: str) -> StepNotFound:
    return StepNotFound(f"There is no step '{name[:100]}' for you.", resource_type="step", resource_id=name[:100])


def is_in_step(operation: Operation, actor: Actor) -> bool:
    """Return whether the step of a caller has an operation: its tool, or just this action of the tool."""
    return actor.may_call(operation.tool, f"{operation.tool}.{operation.action}")


def check_operation_in_step(operation: Operation, actor: Actor) -> None:
    """Refuse operations that the step of a caller does not have."""
    if not is_in_step(operation, actor) and operation.name not in _IN_EVERY_STEP:
        raise not_in_step(f"`{operation.name}`", actor)


def check_in_step(actor: Actor, *names: str) -> None:
    """Refuse a tool, under any of its names, that the step of a caller does not have."""
    if not actor.may_call(*names):
        raise not_in_step(f"'{names[0][:100]}'", actor)


def not_in_step(what: str, actor: Actor) -> ToolNotInStep:
    return ToolNotInStep(f"{what} is not among the tools of the step '{actor.step}'.", step=actor.step)


def step_within(bound: str | None, wanted: str | None) -> str | None:
    """Return the step of a credential that is used or made; raises BoundToStep if it would leave the one it has."""
    if bound is not None and wanted not in (None, bound):
        raise BoundToStep(f"This credential is bound to the step '{bound}'.", step=bound)
    return bound or wanted


# Tool profiles: which tools an MCP client sees listed. A tool that is not listed still answers when it is called.
#
# Steps (``steps``) are the access rule: what is not in a step is refused.

DEFAULT, FULL = "default", "full"


class _Profiles(TypedDict):
    """The default list, and groups of tools by name."""

    default: list[str]
    groups: dict[str, list[str]]


_profiles = JsonFile("access/tool_profiles.json", _Profiles)
# The tools most agents need, in the order of the list; shown with a short description and their main fields.
DEFAULT_TOOLS = _profiles()["default"]
# Groups of tools, by name; every tool is in at least one.
GROUPS = _profiles()["groups"]
PROFILES = (DEFAULT, FULL, *GROUPS)

ToolsField = Annotated[
    Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None,
    msgspec.Meta(
        description="Tool profile: the tools that MCP clients with this key see listed, such as full or "
        "board,messages. Default: the server's setting.",
    ),
]


class UnknownToolProfile(Rejected):
    """No tool profile has this name."""

    code = "UNKNOWN_TOOL_PROFILE"
    hint = f"Use one of these names, or several separated by commas: {', '.join(PROFILES)}."


class ToolProfile(NamedTuple):
    """Tools to list: ``lean`` ones in a short form, ``whole`` ones with all fields; ``everything`` lists every tool."""

    everything: bool
    lean: frozenset[str]
    whole: frozenset[str]


def parse_tool_profile(names: str) -> ToolProfile:
    """Return the profile of a name, or of several separated by commas."""
    given = [name.strip() for name in names.split(",")]
    unknown = next((name for name in given if name not in PROFILES), None)
    if unknown is not None:
        raise UnknownToolProfile(f"There is no tool profile named '{unknown[:100]}'.", profiles=list(PROFILES))
    return ToolProfile(
        everything=FULL in given,
        lean=frozenset(DEFAULT_TOOLS if DEFAULT in given else ()),
        whole=frozenset(tool for name in given for tool in GROUPS.get(name, ())),
    )
