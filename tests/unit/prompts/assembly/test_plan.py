"""Plans of prompts: always within the limit, nothing required left out, every candidate accounted for once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from weftline.models.language_models.content import ConversationMessage
from weftline.prompts.assembly.packers import PackedText, TextPacker
from weftline.prompts.assembly.plan import FittedConversation, Materials, Packed, Previous, make_plan
from weftline.prompts.assembly.prompt_trust import ItemTrust
from weftline.prompts.assembly.receipts import (
    CacheCosts,
    Candidate,
    ContextOverBudget,
    OmittedCandidate,
    Plan,
    PlannedBlock,
    items_of,
)
from weftline.safety.trust.model import Source, Trust

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from weftline.models.language_models.content import BlockKind
    from weftline.prompts.assembly.receipts import Shortening

OTHER = ItemTrust(Source.AGENT, Trust.UNTRUSTED)
COSTS = CacheCosts(write=1.25, read=0.1, warm=True, expected_calls=5)


def words(messages: Sequence[ConversationMessage]) -> int:
    return sum(len(message.content.split()) for message in messages)


def block(block_id: str, kind: BlockKind, tokens: int, role: str = "user", version: str = "1") -> PlannedBlock:
    message = ConversationMessage(role=role, content=" ".join([block_id] * tokens))  # type: ignore[arg-type]
    return PlannedBlock(block_id=block_id, kind=kind, messages=(message,), tokens=tokens, items={block_id: version})


@dataclass(frozen=True)
class Events:
    """A conversation that is trimmed from its beginning; the last event is required."""

    blocks: Sequence[PlannedBlock]
    shortened: Sequence[Shortening] = ()
    omissions: Sequence[OmittedCandidate] = ()

    @property
    def candidates(self) -> list[Candidate]:
        return [Candidate(ref=each.block_id, kind="event", tokens=each.tokens) for each in self.blocks]

    @property
    def required_tokens(self) -> int:
        return self.blocks[-1].tokens if self.blocks else 0

    def fit(self, room: int, events_room: int | None = None) -> FittedConversation:
        room = room if events_room is None else min(room, events_room)
        kept: list[PlannedBlock] = []
        for each in reversed(self.blocks):
            if sum(one.tokens for one in kept) + each.tokens > room:
                break
            kept.insert(0, each)
        gone = [OmittedCandidate(each.block_id, "budget") for each in self.blocks if each not in kept]
        return FittedConversation(kept, gone)

    def is_live(self, event: PlannedBlock) -> bool:
        live = items_of(self.blocks)
        return all(live.get(ref) == version for ref, version in event.items.items())

    def unseen(self, seen: AbstractSet[str]) -> list[PlannedBlock]:
        return [each for each in self.blocks if not each.items.keys() <= seen]

    def is_question(self, event: PlannedBlock) -> bool:
        return event.messages[0].role == "user"


@dataclass(frozen=True)
class Passages:
    """Passages, each its own candidate; some of them quote an event, and some are doubtful."""

    texts: Mapping[str, int]
    doubtful: frozenset[str] = frozenset()

    @property
    def candidates(self) -> list[Candidate]:
        return [Candidate(ref=ref, kind="passage", tokens=tokens) for ref, tokens in self.texts.items()]

    @property
    def tokens(self) -> int:
        return sum(self.texts.values())

    def wanted_tokens(self, known: Mapping[str, str]) -> int:
        return sum(tokens for ref, tokens in self.texts.items() if ref not in known and ref not in self.doubtful)

    def pack(self, room: int, known: Mapping[str, str], *, in_doubt: bool = False) -> Packed:
        taken: dict[str, int] = {}
        for ref, tokens in self.texts.items():
            if ref in self.doubtful and not in_doubt:
                continue
            if ref not in known and sum(taken.values()) + tokens <= room:
                taken[ref] = tokens
        left = [OmittedCandidate(ref, "budget") for ref in self.texts if ref not in taken and ref not in known]
        if not taken:
            return Packed(None, left)
        content = " ".join(f"{ref} " * tokens for ref, tokens in taken.items())
        packed = PlannedBlock(
            block_id=f"retrieved:{'+'.join(taken)}",
            kind="retrieved",
            messages=(ConversationMessage(role="user", content=content),),
            tokens=sum(taken.values()),
            items=dict.fromkeys(taken, "1"),
        )
        return Packed(packed, left)


def texts(kind: BlockKind, sizes: Sequence[int]) -> TextPacker:
    named = [PackedText(f"{kind}{n}", "1", " ".join(["word"] * size), OTHER) for n, size in enumerate(sizes)]
    return TextPacker(kind, "board", kind, named, words)


def materials(
    *,
    layers: Sequence[int] = (10,),
    pins: Sequence[int] = (),
    events: Sequence[int] = (),
    passages: Sequence[int] = (),
    board: Sequence[int] = (),
    missing: Sequence[int] = (),
    task: int | None = 5,
    tools: int = 0,
) -> Materials:
    roles = ("user", "assistant")
    return Materials(
        layers=[block(f"layer{n}", "layer", tokens, "system") for n, tokens in enumerate(layers)],
        pins=texts("pins", pins),
        conversation=Events([block(f"event{n}", "conversation", t, roles[n % 2]) for n, t in enumerate(events)]),
        passages=Passages({f"passage{n}": tokens for n, tokens in enumerate(passages)}),
        board=texts("board", board),
        missing=texts("missing", missing),
        task=None if task is None else block("task", "task", task),
        tools_tokens=tools,
        tools_digest=str(tools),
    )


def next_call(plan: Plan, given: Materials) -> Previous:
    return Previous(plan.blocks, given.tools_digest, frozenset(each.ref for each in plan.omitted))


sizes = st.lists(st.integers(1, 400), max_size=6)
any_materials = st.builds(
    materials,
    layers=sizes,
    pins=sizes,
    events=st.lists(st.integers(1, 400), max_size=12),
    passages=sizes,
    board=sizes,
    missing=sizes,
    task=st.none() | st.integers(1, 200),
    tools=st.integers(0, 300),
)


def check(plan: Plan, given: Materials, limit: int) -> None:
    assert plan.tokens <= limit
    assert plan.tokens == sum(each.tokens for each in plan.blocks) + given.tools_tokens
    included, omitted = set(plan.included), [each.ref for each in plan.omitted]
    assert len(omitted) == len(set(omitted))
    assert included.isdisjoint(omitted)
    candidates = {each.ref for packer in given.packers for each in packer.candidates}
    candidates |= {each.ref for each in given.conversation.candidates}
    assert candidates <= included | set(omitted)
    required = [each.block_id for each in given.layers] + ([given.task.block_id] if given.task else [])
    assert set(required) <= included
    assert {pin.ref for pin in given.pins.candidates} <= included
    if given.conversation.blocks:
        assert given.conversation.blocks[-1].block_id in included


@given(any_materials, st.integers(1, 4_000))
def test_a_plan_is_within_the_limit_or_refused_with_what_does_not_fit(given: Materials, limit: int) -> None:
    try:
        plan = make_plan(given, limit, COSTS)
    except ContextOverBudget as error:
        needed, parts = error.context["needed_tokens"], error.context["parts"]
    else:
        check(plan, given, limit)
        return
    assert needed > limit
    assert sum(parts.values()) == needed


@given(any_materials, any_materials, st.integers(1, 4_000))
def test_a_plan_after_another_one_keeps_the_same_promises(first: Materials, then: Materials, limit: int) -> None:
    try:
        sent = make_plan(first, limit, COSTS)
        plan = make_plan(then, limit, COSTS, next_call(sent, first))
    except ContextOverBudget:
        return
    assert plan.tokens <= limit
    if plan.mode == "rebuilt":
        check(plan, then, limit)
    assert plan.blocks[: plan.reused] == sent.blocks[: plan.reused]


@given(any_materials, st.integers(100, 4_000))
def test_the_same_state_and_request_give_the_same_plan(given: Materials, limit: int) -> None:
    try:
        first = make_plan(given, limit, COSTS)
    except ContextOverBudget:
        return
    assert make_plan(given, limit, COSTS) == first
    again = make_plan(given, limit, COSTS, next_call(first, given))
    assert again.blocks == first.blocks or again.mode == "rebuilt"


def test_new_events_are_appended_after_the_bytes_already_sent() -> None:
    first = materials(events=[20, 30], passages=[40], board=[10])
    sent = make_plan(first, 1_000, COSTS)
    then = materials(events=[20, 30, 25, 15], passages=[40], board=[10])
    plan = make_plan(then, 1_000, COSTS, next_call(sent, first))
    assert plan.mode == "extended"
    assert plan.blocks[: len(sent.blocks)] == sent.blocks
    assert [each.block_id for each in plan.blocks[len(sent.blocks) :]] == ["event2", "event3"]
    assert plan.reused == len(sent.blocks)


@pytest.mark.req("CE-L6", part="the conversation is not displaced by doubtful passages")
def test_doubtful_passages_get_only_what_a_whole_conversation_leaves() -> None:
    doubtful = Passages({"passage0": 400}, frozenset({"passage0"}))
    short, long = (materials(events=[20] * number)._replace(passages=doubtful) for number in (5, 60))
    assert "passage0" in make_plan(short, 1_000, COSTS).included
    plan = make_plan(long, 1_000, COSTS)
    assert "passage0" not in plan.included
    evident = make_plan(long._replace(passages=Passages({"passage0": 400})), 1_000, COSTS)
    assert "passage0" in evident.included
    kept = [block for block in plan.blocks if block.kind == "conversation"]
    assert len(kept) > len([block for block in evident.blocks if block.kind == "conversation"])


def test_passages_already_sent_are_not_sent_again() -> None:
    first = materials(passages=[40])
    sent = make_plan(first, 1_000, COSTS)
    then = materials(passages=[40, 50])
    plan = make_plan(then, 1_000, COSTS, next_call(sent, first))
    assert plan.mode == "extended"
    assert plan.blocks[-1].items == {"passage1": "1"}


def test_a_board_entry_that_changed_is_sent_in_its_new_version() -> None:
    first = materials(layers=[500], board=[10, 10])
    sent = make_plan(first, 1_000, COSTS)
    then = first._replace(board=TextPacker("board", "board", "board", [PackedText("board0", "2", "new", OTHER)], words))
    plan = make_plan(then, 1_000, COSTS, next_call(sent, first))
    assert plan.mode == "extended"
    assert items_of(plan.blocks)["board0"] == "2"


def test_a_prompt_that_would_exceed_the_limit_is_rebuilt_with_room_to_grow() -> None:
    first = materials(events=[30] * 10, task=None)
    sent = make_plan(first, 330, COSTS)
    then = materials(events=[30] * 12, task=None)
    plan = make_plan(then, 330, COSTS, next_call(sent, first))
    assert plan.mode == "rebuilt"
    assert "event11" in plan.included
    assert plan.tokens <= 0.8 * 330


def test_a_rebuilt_prompt_leaves_room_also_if_the_conversation_would_just_fit() -> None:
    first = materials(events=[30] * 5, passages=[150], task=None)
    sent = make_plan(first, 330, COSTS)
    assert "passage0" in sent.included
    then = materials(events=[30] * 10, task=None)
    plan = make_plan(then, 330, COSTS, next_call(sent, first))
    assert plan.mode == "rebuilt"
    assert plan.tokens <= 0.8 * 330


def test_passages_that_are_no_strong_evidence_leave_a_rebuilt_prompt_room_to_grow() -> None:
    first = materials(events=[30] * 5, passages=[150], task=None)
    sent = make_plan(first, 330, COSTS)
    then = materials(events=[30] * 7, passages=[60], task=None)
    for doubtful, fills in ((frozenset({"passage0"}), 0.75), (frozenset[str](), 1.0)):
        given = then._replace(passages=Passages({"passage0": 60}, doubtful))
        plan = make_plan(given, 330, COSTS, next_call(sent, first)._replace(invalid=frozenset({"passage0"})))
        assert plan.mode == "rebuilt"
        assert ("passage0" in plan.included) is not doubtful
        assert plan.tokens <= fills * 330


def test_passages_for_another_question_leave_half_of_the_room_to_events() -> None:
    first = materials(events=[10, 10, 10], passages=[20], task=None)
    sent = make_plan(first, 200, COSTS)
    then = materials(events=[10, 10, 10, 10, 10], passages=[20, 40, 40, 40], task=None)
    plan = make_plan(then, 200, COSTS, next_call(sent, first))
    assert plan.mode == "extended"
    assert [each.tokens for each in plan.blocks if each.kind == "retrieved"] == [20, 40]


def test_events_trimmed_earlier_do_not_come_back_in_the_middle() -> None:
    first = materials(events=[30] * 12, task=None)
    sent = make_plan(first, 200, COSTS, Previous((), ""))
    assert sent.omitted
    then = materials(events=[30] * 13, task=None)
    plan = make_plan(then, 200, COSTS, next_call(sent, first))
    numbers = [int(each.block_id[5:]) for each in plan.blocks if each.kind == "conversation"]
    assert plan.mode == "extended"
    assert numbers == sorted(numbers)
    assert numbers[-1] == 12


def test_a_limit_that_has_grown_brings_back_what_had_no_room() -> None:
    given = materials(events=[30] * 12, task=None)
    sent = make_plan(given, 200, COSTS)
    assert sent.omitted
    previous = next_call(sent, given)._replace(limit=200)
    assert make_plan(given, 240, COSTS, previous).mode == "extended"
    plan = make_plan(given, 2_000, COSTS, previous)
    assert plan.mode == "rebuilt"
    assert not plan.omitted


def test_the_error_of_a_small_limit_names_the_limit_of_the_call() -> None:
    given = materials(layers=[40])._replace(framing_tokens=3)
    with pytest.raises(ContextOverBudget) as caught:
        make_plan(given, 30, COSTS)
    assert caught.value.context["limit_tokens"] == 30
    assert caught.value.context["parts"]["framing"] == 3


def test_changed_layers_or_removed_content_rebuild_the_prompt() -> None:
    first = materials(events=[20, 20])
    sent = make_plan(first, 1_000, COSTS)
    other = materials(layers=[11], events=[20, 20])
    assert make_plan(other, 1_000, COSTS, next_call(sent, first)).mode == "rebuilt"
    removed = next_call(sent, first)._replace(invalid=frozenset({"event0"}))
    assert make_plan(first, 1_000, COSTS, removed).mode == "rebuilt"


def test_sent_bytes_are_rewritten_only_when_that_costs_less() -> None:
    first = materials(events=[20], passages=[100])
    sent = make_plan(first, 8_000, COSTS)
    longer = materials(events=[20, *[100] * 20], passages=[100])
    sent_again = make_plan(longer, 8_000, COSTS, next_call(sent, first))
    then = materials(events=[20, *[100] * 20], passages=[], task=6)
    kept = make_plan(then, 8_000, COSTS, next_call(sent_again, longer))
    assert kept.mode == "extended"
    cold = make_plan(then, 8_000, COSTS._replace(warm=False, expected_calls=100), next_call(sent_again, longer))
    assert cold.modelled is not None
    assert cold.modelled.rebuilt < (cold.modelled.extended or 0)
    huge = materials(events=[20], passages=[3_000])
    replaced = make_plan(first, 8_000, COSTS, next_call(make_plan(huge, 8_000, COSTS), huge))
    assert replaced.mode == "rebuilt"


def test_reference_material_goes_before_the_question() -> None:
    given = materials(events=[20, 20, 20], passages=[10], task=None)
    plan = make_plan(given, 1_000, COSTS)
    assert [each.kind for each in plan.blocks] == ["layer", "conversation", "conversation", "retrieved", "conversation"]


def test_the_summaries_of_a_first_prompt_are_not_displaced_by_passages() -> None:
    summary = structs.replace(block("summary", "summary", 40), items={}, covers={"passage0": "1"})
    events = Events([summary, block("e1", "conversation", 30, "assistant"), block("e2", "conversation", 30)])
    given = materials(passages=[20, 90], task=None)._replace(conversation=events)
    plan = make_plan(given, 150, COSTS)
    assert [each.block_id for each in plan.blocks if each.kind in {"summary", "conversation"}] == [
        "summary",
        "e1",
        "e2",
    ]
    assert "passage0" in items_of(plan.blocks)
