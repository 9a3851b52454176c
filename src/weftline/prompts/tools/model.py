"""Registered tools, steps and selections."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import msgspec

from weftline.indexing.collections import ChunkOwner, NewChunk, embedded_text
from weftline.indexing.text_analysis import index_terms
from weftline.kernel.errors import Conflict, ContentTooLarge, InvalidInput, NotFound, Rejected
from weftline.kernel.fields import TOOL_NAME_PATTERN
from weftline.kernel.json_input import encode_json_field
from weftline.kernel.ports import approximate_tokens
from weftline.models.language_models.content import ToolDefinition
from weftline.state.layers.prefix import sanitise, sanitise_json

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


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


# Definitions of registered tools: texts from outside, cleaned before they are stored or reach a prompt.

# Control, format, private-use and surrogate characters: a model reads them, a human reviewer does not see them.
_INVISIBLE = frozenset({"Cc", "Cf", "Co", "Cs"})
_KEPT = frozenset("\n\t")
# What a provider adds for each tool.
_TOOL_TOKENS = 12
# More than an embedder reads; words beyond it say little about what the tool is for.
_MAX_SEARCHED_CHARACTERS = 6_000
_MAX_NAME = 64
_PORTABLE = re.compile(rf"[A-Za-z_][A-Za-z0-9_-]{{0,{_MAX_NAME - 1}}}")
_PORTABLE_START = re.compile(r"[A-Za-z_]")
_NOT_PORTABLE = re.compile(r"[^A-Za-z0-9_-]")
_encode = msgspec.json.Encoder(order="sorted").encode


class ToolToRegister(msgspec.Struct, frozen=True, kw_only=True):
    """What a model sees of a tool besides its name, and tasks that it serves."""

    description: str
    input_schema: dict[str, Any]
    examples: tuple[str, ...] = ()


def cleaned(name: str, description: str, input_schema: dict[str, Any], examples: Sequence[str] = ()) -> ToolToRegister:
    """Return a definition without invisible characters and imitations of layers; raises if it is not usable."""
    field = f"tools.{name}.input_schema"
    encode_json_field(field, input_schema)
    schema = _without_invisible(input_schema) or {"type": "object", "properties": {}}
    if schema.get("type", "object") != "object":
        raise InvalidInput(f"{field}: the arguments of a tool are an object", field="tools")
    tool = ToolToRegister(
        description=sanitise(_visible(description)).strip(),
        input_schema=sanitise_json({"type": "object", **schema}),
        examples=tuple(dict.fromkeys(text for each in examples if (text := sanitise(_visible(each)).strip()))),
    )
    size = len(_encode(tool))
    if size > MAX_TOOL_BYTES:
        raise ContentTooLarge(
            f"The definition of '{name}' has {size} bytes; at most {MAX_TOOL_BYTES} are allowed.",
            hint="Shorten its descriptions; a model reads all of it with every call.",
            limit_bytes=MAX_TOOL_BYTES,
        )
    return tool


def shown_text(tool: ToolToRegister) -> str:
    """Return what a model sees of a tool as JSON text; examples are only searched."""
    return _encode({"description": tool.description, "input_schema": tool.input_schema}).decode()


def with_shown_text(tool: ToolToRegister, text: str) -> ToolToRegister:
    """Return a tool that shows a model this text."""
    return msgspec.structs.replace(msgspec.json.decode(text, type=ToolToRegister), examples=tool.examples)


def registered(
    tool: ToolToRegister, *, owner: str, name: str, server: str, registered_by: str, now: int
) -> RegisteredTool:
    """Return a definition with its size."""
    size = len(_encode(tool)) + len(name)
    return RegisteredTool(
        owner=owner,
        name=name,
        description=tool.description,
        input_schema=tool.input_schema,
        examples=tool.examples,
        server=server,
        tokens=definition_tokens(name, tool.description, tool.input_schema),
        bytes=size,
        registered_by=registered_by,
        registered_at=now,
    )


def definition_tokens(name: str, description: str, input_schema: dict[str, Any]) -> int:
    """Estimate the tokens of a definition in a prompt."""
    return _TOOL_TOKENS + approximate_tokens(_encode([name, description, input_schema]).decode())


def portable_names(names: Collection[str]) -> dict[str, str]:
    """Return for each name of a tool one that every provider accepts; a valid name stays as it is.

    Providers take letters, digits, '_' and '-', at most 64, and the first must not be a digit or '-'.
    """
    found = {name: name for name in names if _PORTABLE.fullmatch(name)}
    taken = set(found)
    for name in sorted({*names} - taken):
        portable = _NOT_PORTABLE.sub("_", name)
        portable = portable if _PORTABLE_START.match(portable) else f"_{portable}"
        if len(portable) > _MAX_NAME or portable in taken:
            portable = f"{portable[: _MAX_NAME - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"
        found[name] = portable
        taken.add(portable)
    return found


def definition(tool: RegisteredTool) -> ToolDefinition:
    """Return a tool as prompts define it."""
    return ToolDefinition(name=tool.name, description=tool.description, input_schema=tool.input_schema)


def summary(tool: RegisteredTool) -> str:
    """Return the first line of a description."""
    return tool.description.partition("\n")[0][:200]


def searched_chunks(tool: RegisteredTool) -> list[NewChunk]:
    """Return a tool as it is searched: description, parameters and server under its name, and each example."""
    lines = [tool.description, *_parameters(tool.input_schema)]
    if tool.server:
        lines.append(f"Server: {tool.server}.")
    text = "\n".join(lines)[:_MAX_SEARCHED_CHARACTERS]
    return [
        _chunk(tool, 0, text),
        *(_chunk(tool, ordinal, example) for ordinal, example in enumerate(tool.examples, start=1)),
    ]


def _chunk(tool: RegisteredTool, ordinal: int, text: str) -> NewChunk:
    return NewChunk(
        source="document",
        place=tool.owner,
        item=tool.name,
        ordinal=ordinal,
        start=0,
        end=len(text),
        terms=index_terms(text, tool.name),
        digest=ChunkOwner("document", tool.owner, tool.name).digest_of(embedded_text(tool.name, text)),
        tokens=tool.tokens,
        timestamp=tool.registered_at,
        heading=tool.name,
        text=text,
    )


def _parameters(schema: dict[str, Any]) -> list[str]:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return []
    return [
        f"- {name}: {each.get('description') or '' if isinstance(each, dict) else ''}"
        for name, each in properties.items()
    ]


def _visible(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    return "".join(each for each in text if each in _KEPT or unicodedata.category(each) not in _INVISIBLE)


def _without_invisible(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, str):
        return _visible(value)
    if isinstance(value, dict):
        return {_visible(name): _without_invisible(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_invisible(each) for each in value]
    return value
