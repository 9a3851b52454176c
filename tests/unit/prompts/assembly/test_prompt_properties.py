"""Properties of prompts made of real windows, compacted or not, layers, pins, tools and token counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from weftline.models.language_models.catalog import load_catalog
from weftline.models.language_models.content import ConversationMessage, Prompt, ToolCall, ToolDefinition
from weftline.models.language_models.token_counts import PromptCounter
from weftline.models.language_models.wire_forms import render
from weftline.prompts.assembly.conversation import EventPreparer, Prepared, PreparedSummary, WindowConversation
from weftline.prompts.assembly.gather import layer_blocks, task_block
from weftline.prompts.assembly.packers import PackedText, TextPacker
from weftline.prompts.assembly.plan import Materials, Packed, Previous, make_plan
from weftline.prompts.assembly.prompt import prompt_of
from weftline.prompts.assembly.prompt_trust import ItemTrust
from weftline.prompts.assembly.receipts import CacheCosts, ContextOverBudget, Plan
from weftline.providers.tokenizers import TokenizerRegistry
from weftline.safety.trust.model import Source, Trust
from weftline.state.layers.model import Layer
from weftline.windows.compaction.compacted_events import compacted_parts
from weftline.windows.compaction.model import CompactedView, FactKind, KeyFact, ShortenedEvent, Summary
from weftline.windows.model import Category, WindowEvent, event_version

OTHER = ItemTrust(Source.AGENT, Trust.UNTRUSTED)
COSTS = CacheCosts(write=1.25, read=0.1, warm=True, expected_calls=5)
INFO = load_catalog().find("claude-sonnet-5")
COUNTER = PromptCounter(INFO, TokenizerRegistry())
words = st.lists(st.sampled_from(["retry", "the", "königlich", "部署", "error", "x" * 30]), min_size=1, max_size=60)
text = words.map(" ".join)


def count(messages: tuple[ConversationMessage, ...]) -> int:
    return sum(map(COUNTER.message, messages))


def event(number: int, message: ConversationMessage, category: Category, *, pinned: bool = False) -> WindowEvent:
    return WindowEvent(
        event_id=f"e{number}",
        number=number,
        category=category,
        message=message,
        kind="message",
        at=number,
        author="subagent:a",
        agent_id="a",
        tokens=1,
        pinned=pinned,
        item_id=f"window:s:a/e{number}/1.1",
    )


@st.composite
def conversations(draw: st.DrawFn) -> list[WindowEvent]:
    """Return events of every role; each tool call is followed by its result, sometimes after other events."""
    events: list[WindowEvent] = []
    for turn in range(draw(st.integers(0, 8))):
        match draw(st.sampled_from(["user", "system", "tool", "error"])):
            case "user":
                pair = [("user", Category.DIALOG), ("assistant", Category.DIALOG)]
            case "system":
                pair = [("system", Category.SYSTEM)]
            case "error":
                pair = [("assistant", Category.ERROR)]
            case _:
                call = ToolCall(f"call{turn}", "find", '{"q": 1}')
                asked = ConversationMessage(role="assistant", tool_calls=(call,))
                answered = ConversationMessage(role="tool", content=draw(text) * 3, tool_call_id=call.call_id)
                events.append(event(len(events), asked, Category.DIALOG))
                events.append(event(len(events), answered, Category.SYSTEM_OUTPUT))
                continue
        for role, category in pair:
            message = ConversationMessage(role=role, content=draw(text))  # type: ignore[arg-type]
            events.append(event(len(events), message, category, pinned=draw(st.booleans()) and turn == 0))
    return events


@st.composite
def views(draw: st.DrawFn, events: list[WindowEvent]) -> CompactedView:
    """Return a view with summaries of consecutive events that are neither system messages nor pinned."""
    summaries: list[Summary] = []
    place = 0
    while place < len(events):
        size = draw(st.integers(1, 5))
        group = [each for each in events[place : place + size] if each.category is not Category.SYSTEM]
        sources = {each.event_id: event_version(each) for each in group if not each.pinned}
        if sources and draw(st.booleans()):
            summaries.append(
                Summary(
                    summary_id=str(place),
                    title="",
                    text=draw(text),
                    method="extractive_summary",
                    sources=sources,
                    first_number=place,
                    last_number=place + size,
                    first_at=0,
                    last_at=0,
                    tokens_before=1,
                    tokens=1,
                )
            )
        place += size
    cut = [each for each in events if each.message.role == "tool" and draw(st.booleans())]
    shortened = [
        ShortenedEvent(event_id=each.event_id, version=event_version(each), content="cut", tokens_before=1, tokens=1)
        for each in cut
    ]
    covered = [event_id for each in summaries for event_id in each.sources]
    facts = [
        KeyFact(fact_id=f"{event_id}#1", kind=FactKind.DECISION, text=draw(text), who="a", at=0, event_ids=(event_id,))
        for event_id in covered
        if draw(st.booleans())
    ]
    return CompactedView(summaries=tuple(summaries), shortened=tuple(shortened), facts=tuple(facts))


class Retrieved(TextPacker):
    """Texts in the place of passages; none is doubtful."""

    def pack(self, room: int, known: Mapping[str, str], *, in_doubt: bool = False) -> Packed:
        del in_doubt
        return super().pack(room, known)


@st.composite
def inputs(draw: st.DrawFn) -> tuple[Materials, tuple[ToolDefinition, ...], int]:
    limit = draw(st.integers(50, 3_000))
    layers = [Layer.of(1, "platform", draw(text), 1), Layer.of(4, "persona", draw(text), 2)]
    tools = tuple(ToolDefinition(f"t{n}", draw(text), {"type": "object"}) for n in range(draw(st.integers(0, 3))))
    texts = {
        kind: [PackedText(f"{kind}:{n}", "1", draw(text), OTHER) for n in range(draw(st.integers(0, 4)))]
        for kind in ("pins", "board", "missing", "retrieved")
    }
    packers: dict[str, Any] = {
        kind: TextPacker(kind, "board", kind, given, count)
        for kind, given in texts.items()  # type: ignore[arg-type]
    }
    preparer = EventPreparer("window:s:a", "s", limit, COUNTER)
    events = draw(conversations())
    prepared = preparer.prepare(compacted_parts(events, draw(views(events))))
    conversation = WindowConversation(prepared, preparer, None, frozenset(INFO.input))
    materials = Materials(
        layers=layer_blocks(layers, count),
        pins=packers["pins"],
        conversation=conversation,
        passages=Retrieved("retrieved", "board", "retrieved", texts["retrieved"], count),
        board=packers["board"],
        missing=packers["missing"],
        task=task_block(draw(text), count),
        tools_tokens=COUNTER.tools(tools),
        tools_digest=str(len(tools)),
    )
    return materials, tools, limit


def check(plan: Plan, prompt: Prompt, materials: Materials, limit: int) -> None:
    assert COUNTER.prompt(prompt).total <= limit + 3  # what the provider adds to every prompt
    included = plan.included
    assert {ref for block in materials.layers for ref in block.items} <= included.keys()
    assert {pin.ref for pin in materials.pins.candidates} <= included.keys()
    assert materials.task is not None
    assert materials.task.items.keys() <= included.keys()
    omitted = [each.ref for each in plan.omitted]
    assert sorted(omitted) == sorted(set(omitted))
    assert not included.keys() & set(omitted)
    candidates = {each.ref for part in (materials.conversation, *materials.packers) for each in part.candidates}
    assert not plan.covered.keys() & set(omitted)
    assert candidates <= included.keys() | plan.covered.keys() | set(omitted)
    # No text of a prompt stands for an event twice.
    conversation = [block for block in plan.blocks if block.kind in {"conversation", "summary"}]
    refs = [ref for block in conversation for ref in (*block.items, *block.covers)]
    assert len(refs) == len(set(refs))


def events_of(prepared: Prepared) -> list[WindowEvent]:
    return list(prepared.part.events) if isinstance(prepared, PreparedSummary) else [prepared.event]


def check_pairing(prompt: Prompt) -> None:
    """Check that a tool call is never parted from its result."""
    messages = [message for block in prompt.blocks for message in block.messages]
    calls = {call.call_id for message in messages for call in message.tool_calls}
    results = {message.tool_call_id for message in messages if message.role == "tool"}
    assert calls == results


@given(inputs())
def test_a_prompt_is_within_the_limit_and_complete_or_the_parts_that_do_not_fit_are_named(
    given: tuple[Materials, tuple[ToolDefinition, ...], int],
) -> None:
    materials, tools, limit = given
    try:
        plan = make_plan(materials, limit, COSTS)
    except ContextOverBudget as error:
        parts, needed = error.context["parts"], error.context["needed_tokens"]
    else:
        prompt, points = prompt_of(plan, frozenset(), tools, INFO.model, 100)
        check(plan, prompt, materials, limit)
        check_pairing(prompt)
        assert all(point < len(plan.blocks) for point in points)
        assert render("anthropic", prompt, INFO)["messages"]
        return
    assert sum(parts.values()) == needed > limit
    assert parts.keys() <= {"layers", "tools", "pins", "task", "conversation"}


@given(inputs(), st.integers(0, 20))
def test_the_beginning_of_a_prompt_stays_the_same_while_a_conversation_grows(
    given: tuple[Materials, tuple[ToolDefinition, ...], int], seen: int
) -> None:
    materials, tools, limit = given
    whole = materials.conversation
    assert isinstance(whole, WindowConversation)
    # A result arrives with or after its call, never before it. The window was not compacted then.
    events = [event for each in whole.prepared for event in events_of(each)]
    first = [each for each in events[:seen] if not each.message.tool_calls and each.message.role != "tool"]
    earlier = WindowConversation(whole.preparer.prepare(first), whole.preparer, None, frozenset(INFO.input))
    try:
        sent = make_plan(materials._replace(conversation=earlier), limit, COSTS)
        omitted = frozenset(each.ref for each in sent.omitted)
        plan = make_plan(materials, limit, COSTS, Previous(sent.blocks, materials.tools_digest, omitted))
    except ContextOverBudget:
        return
    prompt, _ = prompt_of(plan, frozenset(), tools, INFO.model, 100)
    assert COUNTER.prompt(prompt).total <= limit + 3
    if plan.mode == "extended":
        assert plan.blocks[: len(sent.blocks)] == sent.blocks
    check(plan, prompt, materials, limit)
    check_pairing(prompt)
