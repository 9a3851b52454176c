"""Events of a window for tests: messages, calls, results and workflow events, numbered and timed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from msgspec import structs

from weftline.models.language_models.content import ConversationMessage, ToolCall
from weftline.windows.model import Category, WindowEvent, message_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

START = 1_772_445_600_000_000
_SECOND = 1_000_000


def event(message: ConversationMessage, **fields: Any) -> WindowEvent:
    """Return an event without number and time; ``numbered`` gives it both."""
    category = {"tool": Category.SYSTEM_OUTPUT, "system": Category.SYSTEM}.get(message.role, Category.DIALOG)
    defaults = {
        "event_id": "",
        "number": 0,
        "category": category,
        "kind": "tool_output" if message.role == "tool" else "message",
        "at": 0,
        "author": "human:anna",
        "agent_id": "agent",
        "tokens": message_tokens(message),
    }
    return WindowEvent(message=message, **(defaults | fields))


def from_user(text: str, **fields: Any) -> WindowEvent:
    return event(ConversationMessage(role="user", content=text), **fields)


def assistant(text: str, role: Any = "assistant", **fields: Any) -> WindowEvent:
    return event(ConversationMessage(role=role, content=text), **fields)


def called(*call_ids: str, name: str = "query", arguments: str = '{"table": "orders"}', **fields: Any) -> WindowEvent:
    calls = tuple(ToolCall(call_id, name, arguments) for call_id in call_ids)
    return event(ConversationMessage(role="assistant", tool_calls=calls), **fields)


def result(call_id: str, text: str, **fields: Any) -> WindowEvent:
    return event(ConversationMessage(role="tool", content=text, tool_call_id=call_id), **fields)


def workflow(text: str, **fields: Any) -> WindowEvent:
    message = ConversationMessage(role="assistant", content=text)
    return event(message, kind="workflow", category=Category.INTERNAL, **fields)


def numbered(events: Sequence[WindowEvent], seconds: int = 30) -> list[WindowEvent]:
    """Return events with ids, numbers, versions and times, so many seconds apart."""
    return [
        structs.replace(
            each,
            event_id=each.event_id or f"e{number}",
            number=number,
            at=START + number * seconds * _SECOND,
            item_id=f"window:s1:agent/e{number}/1.1",
        )
        for number, each in enumerate(events, start=1)
    ]


# Created once: a strategy created for a draw takes longer than the draw.
_LENGTHS, _NUMBERS = st.integers(0, 60), st.integers(1, 3)
_DRAWN_KINDS = st.sampled_from(["user", "assistant", "call", "call", "result", "result", "system", "pin", "task"])
_SIZES, _STATES = st.sampled_from([1, 4, 40]), st.sampled_from(["started", "finished"])
_CALL_IDS = st.sampled_from(["c{}", "c{}b", "reused"])


@st.composite
def windows(draw: st.DrawFn) -> list[WindowEvent]:
    """Windows with parallel, interleaved, reused and pending calls, pins, instructions, tasks and pauses."""
    drafts = []
    waiting: list[str] = []
    for at in range(draw(_LENGTHS)):
        kind = draw(_DRAWN_KINDS)
        size = draw(_SIZES)
        if kind == "call":
            ids = [draw(_CALL_IDS).format(at) for _ in range(draw(_NUMBERS))]
            waiting += ids
            drafts.append(called(*dict.fromkeys(ids)))
        elif kind == "result":
            call_id = waiting.pop(draw(st.integers(0, len(waiting) - 1))) if waiting else "unknown"
            drafts.append(result(call_id, "row 1, value 2\n" * size))
        elif kind == "task":
            state = draw(_STATES)
            drafts.append(workflow(f"Task T-{draw(_NUMBERS)} {state}."))
        elif kind == "system":
            drafts.append(assistant("Rules. " * size, category=Category.SYSTEM, role="system"))
        else:
            text = f"Message {at}: " + "something was said about the importer. " * size
            make = from_user if kind == "user" else assistant
            drafts.append(make(text, pinned=kind == "pin"))
    seconds = draw(st.sampled_from([1, 60, 3_600, 86_400]))
    return numbered(drafts, seconds=seconds)
