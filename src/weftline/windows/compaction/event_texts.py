"""Events as texts to be summarised: who spoke, what was said, and which tools were called with what result."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from weftline.models.language_models.rendering import plain_text
from weftline.windows.compaction.model import RESULT_OF
from weftline.windows.compaction.reduction.model import Utterance
from weftline.windows.compaction.tool_outputs import references, slim_output

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from weftline.kernel.tokens import TokenCounter
    from weftline.models.language_models.model import ToolCall
    from weftline.windows.compaction.model import EventGroup
    from weftline.windows.model import WindowEvent

# Results of tools shrink more than what was said: most of their rows resemble each other.
_RESULT_SHARE = 0.6
_MIN_RESULT_TOKENS = 32
_MAX_ARGUMENT_TOKENS = 48
_QUOTATION = "> "
_SPEAKER = re.compile(r"\s{0,40}([^\s:=][^:=\n]{0,80})[:=]")
_ROLES = frozenset({"user", "human", "assistant", "system", "developer", "tool", "workflow"})


class GroupTexts(NamedTuple):
    """The utterances of a group, and what was left out of its tool results, with the tool."""

    utterances: Sequence[Utterance]
    left_out: Sequence[tuple[str, str]]


def group_texts(group: EventGroup, count: TokenCounter) -> GroupTexts:
    """Return the events of a group as utterances, results of tools already shortened."""
    share = _result_share(group)
    names = call_names(group.events)
    has_results = any(event.message.role == "tool" for event in group.events)
    wanted = references_to(group) if has_results else frozenset()
    speakers = frozenset(speaker(event).casefold() for event in group.events)
    utterances: list[Utterance] = []
    left_out: list[tuple[str, str]] = []
    for event in group.events:
        text = plain_text(event.message)
        if event.message.role == "tool":
            most = max(int(event.tokens * share), _MIN_RESULT_TOKENS)
            slim = slim_output(text, most, count, wanted)
            name = names.get(event.event_id, "a tool")
            utterances.append(Utterance(f"{RESULT_OF}{name}", _quoted(slim.text, speakers), is_verbatim=True))
            if slim.left_out:
                left_out.append((name, slim.left_out))
            continue
        if text:
            utterances.append(Utterance(speaker(event), text))
        utterances += (_call(event, call, count) for call in event.message.tool_calls)
    return GroupTexts(utterances, left_out)


def _quoted(text: str, speakers: frozenset[str]) -> str:
    """Return a result in which lines that look like the words of a speaker are marked as quotations."""
    lines = (f"{_QUOTATION}{line}" if _imitates(line, speakers) else line for line in text.splitlines())
    return "\n".join(lines)


def _imitates(line: str, speakers: frozenset[str]) -> bool:
    """Tell whether a line begins like a line of a summary: with a speaker, a letter for one, or the legend of those."""
    match = _SPEAKER.match(line)
    if match is None:
        return False
    name = match[1].strip().casefold()
    return len(name) == 1 or name in speakers or name in _ROLES or name.startswith(RESULT_OF)


def _result_share(group: EventGroup) -> float:
    """Return the part of its tokens that a result may take: more where little was said."""
    results = sum(event.tokens for event in group.events if event.message.role == "tool")
    said = sum(event.tokens for event in group.events) - results
    even = group.target_tokens / max(results + said, 1)
    return min(max(even * _RESULT_SHARE, (group.target_tokens - said) / max(results, 1)), 1.0)


def speaker(event: WindowEvent) -> str:
    """Return who an event is from, as a summary names them."""
    if event.kind == "workflow":
        return "workflow"
    return event.message.name or event.message.role


def call_names(events: Sequence[WindowEvent]) -> Mapping[str, str]:
    """Return the name of the tool behind each result, by event id."""
    called: dict[str, str] = {}
    names: dict[str, str] = {}
    for event in events:
        called |= {call.call_id: call.name for call in event.message.tool_calls}
        if event.message.role == "tool":
            name = event.message.name or called.get(event.message.tool_call_id or "")
            if name:
                names[event.event_id] = name
    return names


def _call(event: WindowEvent, call: ToolCall, count: TokenCounter) -> Utterance:
    arguments = slim_output(call.arguments, _MAX_ARGUMENT_TOKENS, count).text
    return Utterance(f"{speaker(event)} called", f"{call.name}({arguments})", is_verbatim=True, is_call=True)


def references_to(group: EventGroup) -> frozenset[str]:
    """Return what the messages of a group and the next ones refer to: results keep it.

    Not only what follows a result: a message that asks for something says what matters in the result, too.
    """
    return frozenset(_references([*group.events, *group.following]))


def _references(events: Sequence[WindowEvent]) -> Iterator[str]:
    for event in events:
        if event.message.role != "tool":
            yield from references(event.message.content)
        yield from event.references
