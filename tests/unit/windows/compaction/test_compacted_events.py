"""Compacted views on the events of a window: what replaces what, and when a summary no longer holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from weftline.models.language_models.content import ConversationMessage, ToolCall
from weftline.safety.trust.model import Source, Trust, TrustLabel
from weftline.windows.compaction.compacted_events import (
    EventInPart,
    SummaryOfEvents,
    compacted,
    compacted_parts,
    compacted_tokens,
)
from weftline.windows.compaction.model import CompactedView, FactKind, KeyFact, ShortenedEvent, Summary
from weftline.windows.model import Category, WindowEvent, event_version

if TYPE_CHECKING:
    from collections.abc import Sequence


def event(number: int, role: str = "assistant", **message: Any) -> WindowEvent:
    category = {"system": Category.SYSTEM, "tool": Category.SYSTEM_OUTPUT}.get(role, Category.DIALOG)
    return WindowEvent(
        event_id=f"e{number}",
        number=number,
        category=category,
        message=ConversationMessage(role=role, **{"content": f"text {number}", **message}),  # type: ignore[arg-type]
        kind="message",
        at=number,
        author="subagent:a",
        agent_id="a",
        tokens=10,
        item_id=f"window:s:a/e{number}/1.1",
    )


def summary(events: Sequence[WindowEvent], text: str = "short") -> Summary:
    return Summary(
        summary_id="s",
        title="",
        text=text,
        method="extractive_summary",
        sources={each.event_id: event_version(each) for each in events},
        first_number=events[0].number,
        last_number=events[-1].number,
        first_at=0,
        last_at=0,
        tokens_before=10 * len(events),
        tokens=3,
    )


def names(parts: Sequence[WindowEvent | SummaryOfEvents]) -> list[str]:
    return [part.summary.text if isinstance(part, SummaryOfEvents) else part.event_id for part in parts]


EVENTS = [event(number, "user" if number % 2 == 0 else "assistant") for number in range(8)]
VIEW = CompactedView(summaries=(summary(EVENTS[:3], "first"), summary(EVENTS[3:5], "second")))


def test_summaries_are_in_the_place_of_their_events() -> None:
    assert names(compacted(EVENTS, VIEW)) == ["first", "second", "e5", "e6", "e7"]
    assert compacted_tokens(EVENTS, VIEW) == 3 + 3 + 30
    assert compacted_tokens(EVENTS, None) == 80
    found = compacted(EVENTS, VIEW)[0]
    assert isinstance(found, SummaryOfEvents)
    assert list(found.events) == EVENTS[:3]


def test_events_added_later_and_those_not_mentioned_stay() -> None:
    view = CompactedView(summaries=(summary([EVENTS[0], EVENTS[2]], "first"),))
    assert names(compacted([*EVENTS, event(8)], view)) == ["first", "e1", *(f"e{n}" for n in range(3, 9))]


def test_events_that_others_route_here_keep_their_place() -> None:
    routed = structs.replace(event(1), routed=True, agent_id="b")
    assert names(compacted([EVENTS[0], routed, *EVENTS[1:]], VIEW))[:3] == ["first", "e1", "second"]


@pytest.mark.req("CE-O", part="summaries next to originals")
@pytest.mark.parametrize(
    "change",
    [
        lambda each: structs.replace(each, redacted=True),
        lambda each: structs.replace(each, item_id="window:s:a/e1/2.1"),
        lambda each: structs.replace(each, trust=TrustLabel(Source.AGENT, Trust.SUSPICIOUS)),
        lambda each: structs.replace(each, event_id="other"),
    ],
    ids=["redacted", "changed", "suspicious", "removed"],
)
def test_a_summary_falls_with_any_of_its_sources(change: Any) -> None:
    events = [EVENTS[0], change(EVENTS[1]), *EVENTS[2:]]
    assert names(compacted(events, VIEW)) == [*(each.event_id for each in events[:3]), "second", "e5", "e6", "e7"]


def test_a_conversation_without_some_of_the_events_has_their_originals() -> None:
    assert names(compacted(EVENTS[2:], VIEW)) == ["e2", "second", "e5", "e6", "e7"]


def test_the_newest_request_is_shown_in_full_after_a_rollback() -> None:
    assert names(compacted(EVENTS[:3], VIEW)) == ["e0", "e1", "e2"]
    assert names(compacted(EVENTS[:5], VIEW)) == ["first", "e3", "e4"]


def test_a_call_is_never_parted_from_its_result() -> None:
    call = event(0, tool_calls=(ToolCall("c", "find", "{}"),))
    result, request = event(1, "tool", tool_call_id="c"), event(2, "user")
    apart = CompactedView(summaries=(summary([call]),))
    assert names(compacted([call, result, request], apart)) == ["e0", "e1", "e2"]
    together = CompactedView(summaries=(summary([call, result]),))
    assert names(compacted([call, result, request], together)) == ["short", "e2"]
    # Some providers number the calls of each turn from zero.
    again = [event(3, tool_calls=(ToolCall("c", "find", "{}"),)), event(4, "tool", tool_call_id="c")]
    assert names(compacted([call, result, request, *again], together)) == ["short", "e2", "e3", "e4"]


def test_shorter_contents_are_shown_in_place() -> None:
    cut = ShortenedEvent(event_id="e5", version="1.1", content="cut", tokens_before=10, tokens=1)
    view = structs.replace(VIEW, shortened=(cut, structs.replace(cut, event_id="e6", version="2.1")))
    found = compacted(EVENTS, view)
    assert [each.message.content for each in found if isinstance(each, WindowEvent)] == ["cut", "text 6", "text 7"]
    assert isinstance(compacted_parts(EVENTS, view)[2], EventInPart)
    assert compacted_tokens(EVENTS, view) == 3 + 3 + 1 + 20


def test_key_facts_are_with_their_summary_and_fall_with_their_sources() -> None:
    fact = KeyFact(
        fact_id="e1#0", kind=FactKind.DECISION, text="Ship it.", who="a", at=0, event_ids=("e1", "e5"), carried=True
    )
    view = structs.replace(VIEW, facts=(fact, structs.replace(fact, fact_id="e1#1", carried=False)))
    found = compacted(EVENTS, view)[0]
    assert isinstance(found, SummaryOfEvents)
    assert found.facts == (fact,)
    redacted = [*EVENTS[:5], structs.replace(EVENTS[5], redacted=True), *EVENTS[6:]]
    assert names(compacted(redacted, view)) == ["e0", "e1", "e2", "second", "e5", "e6", "e7"]
