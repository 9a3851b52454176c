"""Registered tools, steps and selections."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from weftline.kernel.errors import Conflict, NotFound, Rejected
from weftline.kernel.fields import TOOL_NAME_PATTERN

# The collection of the search index that holds registered tools; the owner of a tool is the place of its chunk.
TOOLS = "tools"
# The owner of what belongs to the whole tenant.
TENANT = ""
# Of each tenant.
MAX_TOOLS, MAX_BYTES, MAX_STEPS = 5_000, 16 * 2**20, 1_000
MAX_TOOL_BYTES = 32_768
MAX_TOOLS_PER_CALL = 100
MAX_STEP_TOOLS = 200
MAX_EXAMPLES = 20
# A model gets the definitions of at most this many tools for a task, and the names of some more.
LOADED, NAMED = 10, 50
ToolName = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=128,
        pattern=TOOL_NAME_PATTERN,
        description="Letters, digits, '_', '-', '.' and '/', as models call it.",
    ),
]
Sharing = Annotated[
    Literal["tree", "tenant"] | None,
    msgspec.Meta(
        description="tree: for you and the agents below you. tenant: for everyone; only humans with clearance 3, whose "
        "default it is."
    ),
]


class ToolNotRegistered(NotFound):
    """No tool of this name is registered for you."""

    code = "TOOL_NOT_REGISTERED"
    hint = "List the registered tools with `tools.list`."
    related = ("tool_registry",)


class ToolNameTaken(Conflict):
    """Another tool has this name."""

    code = "TOOL_NAME_TAKEN"
    hint = "Register the tool under another name, such as SERVER.NAME."
    related = ("tool_registry",)


class UnknownTool(Rejected):
    """There is no such tool, neither in Weftline nor registered."""

    code = "UNKNOWN_TOOL"
    hint = "Find tools with `tools.search`; register those of your runtime with `tools.register` first."
    related = ("weftline_tools", "tool_registry")


class RuntimeTool(Conflict):
    """The tool belongs to your runtime; Weftline does not forward calls."""

    code = "TOOL_OF_RUNTIME"
    hint = "Call it by its name through your runtime, with arguments that match context.input_schema."
    related = ("weftline_tools",)


class RegisteredTool(msgspec.Struct, frozen=True):
    """A tool of a runtime. ``owner`` is the principal for whose tree it is registered, ``tokens`` an estimate.

    ``examples``: tasks that it serves, in the words of those who have them; it is searched by them.
    """

    owner: str
    name: str
    description: str
    input_schema: dict[str, Any]
    examples: tuple[str, ...]
    server: str
    tokens: int
    bytes: int
    registered_by: str
    registered_at: int


class StepDefinition(msgspec.Struct, frozen=True):
    """A step of a task with the names of its tools, for the tree of ``owner``."""

    owner: str
    name: str
    description: str
    tools: tuple[str, ...]
    defined_by: str
    defined_at: int


class RegistrySize(NamedTuple):
    """Number, tokens and bytes of registered tools."""

    tools: int = 0
    tokens: int = 0
    bytes: int = 0


class RecordedSelection(msgspec.Struct, frozen=True):
    """The tools that were last chosen for an agent: those loaded and those named only, and for which task."""

    task_digest: str
    step: str
    loaded: tuple[str, ...]
    named: tuple[str, ...]
