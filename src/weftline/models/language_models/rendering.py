"""What rendering has in common in all wire forms: flattening, pairing of tool calls, order of tools, cache keys."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from weftline.kernel.errors import InvalidInput
from weftline.kernel.ports import TokenCounter, approximate_tokens
from weftline.models.language_models.catalog import CacheRules, ModelInfo
from weftline.models.language_models.content import (
    CACHE_MARKS,
    BlockKind,
    ConversationMessage,
    Media,
    Part,
    Prompt,
    Role,
    ToolCall,
    ToolDefinition,
    WireForm,
    list_at,
    object_at,
    text_at,
)

# Rules of prompt caches: which of the possible breakpoints a request marks.

# Blocks that stay the same for many sessions or tasks: worth a longer lifetime than the conversation.
_STABLE: frozenset[BlockKind] = frozenset({"layer", "pins"})


class CachePoint(NamedTuple):
    """A position of a request (tools, system and messages in hashed order) where a cache may end."""

    position: int
    prefix_tokens: int
    kind: BlockKind | None = None

    @property
    def stable(self) -> bool:
        return self.kind is None or self.kind in _STABLE


def choose_breakpoints(points: Sequence[CachePoint], rules: CacheRules, limit: int | None = None) -> list[CachePoint]:
    """Return the points to mark, in order: long enough to be cached, at most as many as the provider allows.

    If there are too many, the first is kept because most calls share it, and the last ones because they cover most.
    """
    allowed = rules.max_breakpoints if limit is None else min(limit, rules.max_breakpoints)
    if not rules.takes_marks or allowed == 0:
        return []
    long_enough = [point for point in points if point.prefix_tokens >= rules.min_tokens]
    if len(long_enough) <= allowed:
        return long_enough
    return [*long_enough[:1], *long_enough[len(long_enough) - allowed + 1 :]] if allowed > 1 else long_enough[-1:]


def bridge_gaps(chosen: Sequence[CachePoint], candidates: Sequence[CachePoint], rules: CacheRules) -> list[CachePoint]:
    """Use spare breakpoints where two are further apart than the provider looks back.

    An entry written at an earlier breakpoint is found only within ``lookback_blocks`` before a later one, so a
    call that appends more blocks than that would miss it.
    """
    marked = sorted(chosen)
    if not marked or not rules.lookback_blocks:
        return marked
    left = marked[-2].position if len(marked) > 1 else -1
    right = marked[-1].position
    # The breakpoint itself is the first position that the provider checks.
    reach = rules.lookback_blocks - 1
    while len(marked) < rules.max_breakpoints and right - left > reach:
        reachable = [point for point in candidates if max(left, right - reach - 1) < point.position < right]
        if not reachable:
            break
        marked.append(reachable[0])
        right = reachable[0].position
    return sorted(marked)


def check_ttl(rules: CacheRules, ttl: str | None) -> None:
    """Raise InvalidInput if the prompt cache of a model has no such lifetime."""
    if ttl is not None and ttl not in rules.ttl_seconds:
        allowed = ", ".join(rules.ttl_seconds) or "left out, this model has no prompt cache"
        raise InvalidInput(f"cache_ttl: must be one of {allowed}", field="cache_ttl")


def lifetimes(chosen: Sequence[CachePoint], rules: CacheRules, ttl: str | None) -> list[str | None]:
    """Return the lifetime of each breakpoint, None for the provider's default.

    A longer lifetime applies to the stable beginning only: the end of the conversation is superseded by the next call,
    and longer lifetimes must come first.
    """
    check_ttl(rules, ttl)
    named: list[str | None] = []
    longer = ttl if ttl != rules.default_ttl else None
    for point in chosen:
        if not point.stable:
            longer = None
        named.append(longer)
    return named


# In the namespace of the tags that no text of others can imitate.
SYSTEM_NOTE = "<weftline:system>\n{}\n</weftline:system>"
BREAKPOINT = {"mode": "explicit"}
OMITTED = "[Earlier messages are not included.]"
NO_RESULT = "[No result was recorded for this tool call.]"
_encode = msgspec.json.Encoder().encode


class RenderOptions(NamedTuple):
    """How a prompt is rendered: ``ttl`` of its cache, ``cache_key`` for routing, ``count`` for the minimum length."""

    ttl: str | None = None
    cache_key: str | None = None
    count: TokenCounter = approximate_tokens


DEFAULT_OPTIONS = RenderOptions()


class PlacedMessage(NamedTuple):
    """A message, the position of its block in the prompt, and its texts and media, whatever form it was given in."""

    block: int
    message: ConversationMessage
    parts: Sequence[Part]

    @property
    def text(self) -> str:
        """Return the text of the message, with notes for its media."""
        return text_of_parts(self.parts)

    @classmethod
    def of(cls, block: int, message: ConversationMessage) -> PlacedMessage:
        """Return a message that its fields express."""
        return cls(block, message, [message.content] if message.content else [])


class ParsedConversation(NamedTuple):
    """What a caller sent inline: messages, with its instructions first, and tools."""

    messages: list[ConversationMessage]
    tools: list[ToolDefinition]


class RequestSegment(NamedTuple):
    """A part of a request that a prompt cache hashes. ``marked``: what may have a cache mark.

    ``ends_turn``: it is the end of a message of the user or of a tool.
    """

    role: str
    content: dict[str, Any]
    marked: dict[str, Any]
    ends_turn: bool = False


class FormRules(NamedTuple):
    """All that is known of a wire form. Each has its own in its module, and the table has them by name.

    ``parse`` and ``render`` read and write requests; ``messages_field`` and ``system_field`` are where a request has
    its messages and its system text (empty if that is a message), ``outside_fields`` those that bring in content which
    is not in the request. ``parts`` returns texts and media of a native message, ``change_texts`` the native message
    with every text changed that the model reads: what is not changed there reaches the model unmarked. ``message_of``
    makes a native message of content parts and the fields of a message; ``read_native`` reads the native content that a
    message was given with. ``segments`` are the parts of system and messages in the order in which a cache hashes them.
    The names of ``fields`` cost no tokens, nor do short values of ``naming_fields``.
    """

    form: WireForm
    parse: Callable[..., ParsedConversation]
    render: Callable[[Prompt, Sequence[PlacedMessage], ModelInfo, RenderOptions], dict[str, Any]]
    messages_field: str
    system_field: str
    outside_fields: tuple[str, ...]
    parts: Callable[[dict[str, Any], Role], list[Part]]
    change_texts: Callable[[Any, Callable[[str], str]], Any]
    message_of: Callable[[ConversationMessage, list[dict[str, Any]]], dict[str, Any]]
    read_native: Callable[[Any, ConversationMessage], list[ConversationMessage]]
    segments: Callable[[dict[str, Any]], Iterator[RequestSegment]]
    fields: frozenset[str]
    naming_fields: frozenset[str]


def paired(flat: Sequence[PlacedMessage]) -> list[PlacedMessage]:
    """Return messages in an order that providers accept: results directly after the run of messages that called.

    A call without a result gets one that says so; a result without a call becomes text of the user.
    """
    if not any(placed.message.tool_calls or placed.message.role == "tool" for placed in flat):
        return list(flat)
    ordered: list[PlacedMessage] = []
    results = _places_of_results(flat)
    taken: set[int] = set()
    position = 0
    while position < len(flat):
        placed = flat[position]
        if placed.message.role == "assistant":
            end = _end_of_run(flat, position)
            ordered.extend(flat[position:end])
            ordered.extend(_results(flat, position, end, results, taken))
            position = end
            continue
        if placed.message.role != "tool":
            ordered.append(placed)
        elif position not in taken:
            ordered.append(PlacedMessage.of(placed.block, _orphan(placed.message)))
        position += 1
    return ordered


def _end_of_run(flat: Sequence[PlacedMessage], start: int) -> int:
    end = start
    while end < len(flat) and flat[end].message.role == "assistant":
        end += 1
    return end


def _places_of_results(flat: Sequence[PlacedMessage]) -> dict[str, list[int]]:
    """Return the positions of the results of each call, in order."""
    places: dict[str, list[int]] = {}
    for position, placed in enumerate(flat):
        if placed.message.role == "tool" and placed.message.tool_call_id is not None:
            places.setdefault(placed.message.tool_call_id, []).append(position)
    return places


def _results(
    flat: Sequence[PlacedMessage], start: int, end: int, results: dict[str, list[int]], taken: set[int]
) -> Iterable[PlacedMessage]:
    """Yield the results of the calls in a run, in their order; then a note for each call without one."""
    missing = {call.call_id: placed.block for placed in flat[start:end] for call in placed.message.tool_calls}
    found = {call_id: position for call_id in missing if (position := _take(results.get(call_id, []), end)) is not None}
    taken.update(found.values())
    yield from (flat[position] for position in sorted(found.values()))
    for call_id, block in missing.items():
        if call_id not in found:
            yield PlacedMessage.of(block, ConversationMessage(role="tool", content=NO_RESULT, tool_call_id=call_id))


def _take(places: list[int], start: int) -> int | None:
    """Remove and return the first position that is not before ``start``."""
    at = bisect_left(places, start)
    return places.pop(at) if at < len(places) else None


def _orphan(message: ConversationMessage) -> ConversationMessage:
    return ConversationMessage(role="user", content=f"[Result of an earlier tool call]\n{message.content}")


def own_native(message: ConversationMessage, form: WireForm) -> Any:  # noqa: ANN401 - JSON as the caller gave it
    """Return the message as given in this form, None if it was given in another or is expressed by its fields."""
    return message.native if message.form == form else None


def with_notes(found: Iterable[Part], carries: Callable[[Media], bool]) -> list[Part]:
    """Return parts in which media that cannot be sent are replaced by a note."""
    return [part if isinstance(part, str) or carries(part) else part.note for part in found]


def text_of_parts(found: Iterable[Part]) -> str:
    """Return texts, with notes for media."""
    return "\n".join(str(part) for part in with_notes(found, lambda _: False))


def accepts(info: ModelInfo, media: Media) -> bool:
    """Return whether a model takes this kind of medium and the medium can leave its provider."""
    return media.kind in info.input and (media.url is not None or media.data is not None)


def ordered_tools(prompt: Prompt, form: WireForm) -> list[ToolDefinition]:
    """Return the tools that can be expressed in a form, by name: their order must not change between calls."""
    return sorted((tool for tool in prompt.tools if _portable(tool, form)), key=lambda tool: tool.name)


def _portable(tool: ToolDefinition, form: WireForm) -> bool:
    """Return whether a tool is not one that only its provider can run."""
    return tool.native is None or tool.form == form or bool(tool.input_schema)


def input_schema(tool: ToolDefinition) -> dict[str, Any]:
    return tool.input_schema or {"type": "object", "properties": {}}


def check_tool_names(tools: Sequence[ToolDefinition]) -> list[ToolDefinition]:
    seen: set[str] = set()
    for position, tool in enumerate(tools):
        if tool.name in seen:
            raise InvalidInput(f"tools[{position}].name: '{tool.name}' is defined twice", field="tools")
        seen.add(tool.name)
    return list(tools)


def parsed_tools(tools: object, parse: Callable[[dict[str, Any], int], ToolDefinition]) -> list[ToolDefinition]:
    """Return the tools of a request; ``parse`` reads one, given its position."""
    given = [] if tools is None else list_at(tools, "tools")
    return check_tool_names([parse(object_at(tool, f"tools[{at}]"), at) for at, tool in enumerate(given)])


def function_tool(details: dict[str, Any], path: str) -> ToolDefinition:
    """Return a function as OpenAI's forms describe it."""
    schema = details.get("parameters")
    return ToolDefinition(
        name=text_at(details.get("name"), f"{path}.name"),
        description=text_at(details.get("description"), f"{path}.description", required=False),
        input_schema={"type": "object", "properties": {}}
        if schema is None
        else object_at(schema, f"{path}.parameters"),
    )


def with_native(
    tool: ToolDefinition, given: dict[str, Any], expressed: dict[str, Any], form: WireForm
) -> ToolDefinition:
    """Return the tool with what the caller gave, if rendering it again would give something else."""
    if given == expressed:
        return tool
    return ToolDefinition(tool.name, tool.description, tool.input_schema, form, given)


def json_arguments(call: ToolCall) -> dict[str, Any]:
    """Return the arguments of a call as an object; arguments that are not one are wrapped, as providers refuse them."""
    try:
        decoded = msgspec.json.decode(call.arguments or "{}")
    except msgspec.DecodeError:
        return {"arguments": call.arguments}
    return decoded if isinstance(decoded, dict) else {"arguments": decoded}


def cumulative_tokens(units: Iterable[object], count: TokenCounter) -> list[int]:
    """Return the tokens up to and with each unit of a request."""
    total = 0
    reached = []
    for unit in units:
        total += count(_encode(unit).decode())
        reached.append(total)
    return reached


def block_ends(prompt: Prompt, blocks: Sequence[int], markable: Sequence[bool]) -> dict[int, int]:
    """Return the last markable position of each block with a cache point, by position; the value is the block."""
    last = {
        block: position
        for position, block in enumerate(blocks)
        if markable[position] and prompt.blocks[block].cache_point
    }
    return {position: block for block, position in last.items()}


def cache_points(
    prompt: Prompt, blocks: Sequence[int], markable: Sequence[bool], reached: Sequence[int]
) -> list[CachePoint]:
    """Return where a cache may end, in order."""
    ends = block_ends(prompt, blocks, markable)
    return [CachePoint(at, reached[at], prompt.blocks[block].kind) for at, block in sorted(ends.items())]


class OpenAiBreakpoints(NamedTuple):
    """Positions of the messages or items to mark, and the fields that go with them."""

    positions: list[int]
    options: dict[str, Any]


def openai_breakpoints(
    prompt: Prompt,
    rendered: Sequence[tuple[int, dict[str, Any]]],
    tools: Sequence[object],
    markable: Callable[[dict[str, Any]], bool],
    info: ModelInfo,
    options: RenderOptions,
) -> OpenAiBreakpoints:
    """Place OpenAI's breakpoints.

    If the prompt ends with a cache point, the provider's implicit breakpoint at the last message covers it and takes
    one of the places. Otherwise the implicit one is switched off, as it would write an end that is not sent again.
    """
    if not info.cache.takes_marks or not any(block.cache_point for block in prompt.blocks):
        return OpenAiBreakpoints([], {})
    before = sum(cumulative_tokens(tools, options.count)[-1:])
    reached = [before + tokens for tokens in cumulative_tokens((wire for _, wire in rendered), options.count)]
    blocks = [block for block, _ in rendered]
    points = cache_points(prompt, blocks, [markable(wire) for _, wire in rendered], reached)
    implicit = prompt.blocks[-1].cache_point
    if implicit:
        points = [point for point in points if blocks[point.position] < len(prompt.blocks) - 1]
    chosen = choose_breakpoints(points, info.cache, info.cache.max_breakpoints - implicit)
    fields = {"mode": "implicit" if implicit else "explicit"} | ({} if options.ttl is None else {"ttl": options.ttl})
    return OpenAiBreakpoints([point.position for point in chosen], {"prompt_cache_options": fields})


def routing_key(prompt: Prompt, options: RenderOptions) -> str:
    """Return the key that routes calls with the same prefix to the same cache."""
    if options.cache_key is not None:
        return hashlib.sha256(options.cache_key.encode()).hexdigest()[:32]
    first = next((message for block in prompt.blocks for message in block.messages), None)
    beginning = [sorted(tool.name for tool in prompt.tools), first]
    return hashlib.sha256(_encode(beginning)).hexdigest()[:32]


def openai_segments(item: dict[str, Any]) -> Iterator[RequestSegment]:
    """Yield the blocks of a message or item; the rest of it belongs to its last block."""
    role = str(item.get("role") or item.get("type"))
    ends_turn = role in {"user", "tool"} or role.endswith("_output")
    rest = {name: value for name, value in item.items() if name not in {"content", "type", *CACHE_MARKS}}
    blocks = text_blocks(item.get("content") or ())
    for block in blocks[:-1]:
        yield RequestSegment(role, block, block)
    last = blocks[-1] if blocks else {}
    yield RequestSegment(role, {**rest, "content": last}, last, ends_turn)


def text_blocks(content: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - JSON
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


# Fields of the forms of OpenAI and Anthropic.
TYPED_FIELDS = frozenset(
    {
        *("role", "type", "id", "status", "name", "content", "text", "refusal", "annotations", "index", "is_error"),
        *("tool_calls", "function", "arguments", "input", "output", "call_id", "tool_call_id", "tool_use_id"),
        *("image_url", "url", "detail", "source", "media_type", "data", "file", "file_data", "filename"),
        *("input_audio", "format"),
    }
)
TYPED_NAMING_FIELDS = frozenset(
    {"role", "type", "id", "status", "call_id", "tool_call_id", "tool_use_id", "media_type", "detail", "format"}
)


def keep_native(message: ConversationMessage, form: WireForm, given: Any, rendered: Any) -> ConversationMessage:  # noqa: ANN401 - JSON
    """Return the message with what the caller gave, if rendering it again would give something else."""
    return message if given == rendered else structs.replace(message, form=form, native=given)
