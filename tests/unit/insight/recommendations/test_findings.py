"""What the last calls of an agent suggest: the finding, its evidence, and the settings that it proposes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from weftline.insight.recommendations.advisor import duplicate_findings, stale_findings
from weftline.insight.recommendations.findings import ObservedCalls, findings
from weftline.insight.recommendations.model import MIN_CALLS, ProposedSettings
from weftline.insight.recommendations.recorded_calls import RecordedCall, RecordedWindow
from weftline.insight.recommendations.trials import risks_of
from weftline.models.language_models.content import ConversationMessage, ToolCall, ToolDefinition
from weftline.prompts.assembly.receipts import Candidate, OmittedCandidate, PlannedBlock, RepeatedCandidate
from weftline.state.layers.model import Layer
from weftline.testing.receipts import receipt
from weftline.windows.model import Category, WindowEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weftline.insight.recommendations.findings import RecommendationDraft

EVENT = "window:s1:worker/"


def block(kind: Any, *refs: str, tokens: int = 100) -> PlannedBlock:
    message = ConversationMessage(role="user", content=" ".join(refs))
    return PlannedBlock(
        block_id=f"{kind}:{refs[0]}", kind=kind, messages=(message,), tokens=tokens, items=dict.fromkeys(refs, "1")
    )


def call(
    *blocks: PlannedBlock, useful: Iterable[str] | None = (), likelihoods: dict[str, float] | None = None, **fields: Any
) -> RecordedCall:
    """Return a call with these blocks, whose answer used some items."""
    made = structs.replace(receipt("r", 1), tokens=sum(each.tokens for each in blocks), **fields)
    return RecordedCall(made, None, blocks, (), None if useful is None else frozenset(useful), likelihoods or {})


def event(name: str, category: Category = Category.DIALOG, *tools: str) -> WindowEvent:
    calls = tuple(ToolCall(call_id="c", name=tool, arguments="{}") for tool in tools)
    return WindowEvent(
        event_id=name,
        number=1,
        category=category,
        message=ConversationMessage(role="assistant", content=name, tool_calls=calls),
        kind="message",
        at=0,
        author="worker",
        agent_id="worker",
        tokens=10,
    )


def observed(calls: Sequence[RecordedCall], *events: WindowEvent) -> ObservedCalls:
    window = RecordedWindow("window:s1:worker", "s1", calls, None, events, {}, None, None)  # type: ignore[arg-type]
    return ObservedCalls("worker", [window], {})


def found(seen: ObservedCalls) -> dict[str, RecommendationDraft]:
    return {each.kind: each for each in findings(seen)}


@pytest.mark.req("CE-F47", part="model, compaction, shares, tools, documents, pins and minimum score")
def test_pins_that_no_answer_uses_are_unpinned_by_what_they_are() -> None:
    pins = block("pins", "message:s1/3", "memory:worker/style", "memory:worker:s1/plan", "board:s1/goal", "docs/7")
    learned = block("pins", "context:worker:learned_knowledge/tone")
    advice = found(observed([call(pins, learned)] * MIN_CALLS))["pins"]
    assert set(advice.subjects) == {
        "message:s1/3",
        "memory:worker/style",
        "memory:worker:s1/plan",
        "context:worker:learned_knowledge/tone",
    }
    assert {(each.count, each.of) for each in advice.evidence} == {(MIN_CALLS, MIN_CALLS)}
    assert set(advice.command.splitlines()) == {
        "weftline pin remove --session s1 --message-id 3",
        "weftline --as worker pin remove --memory-key style",
        "weftline --as worker pin remove --session s1 --memory-key plan",
        "weftline --as worker pin remove --memory-key tone --memory-type learned_knowledge",
    }


@pytest.mark.req("CE-F47", part="what a session's memory has and other sessions need")
def test_what_answers_use_of_a_session_s_memory_is_pushed() -> None:
    refs = ("memory:worker:s1/tone/short", "memory:worker:s1/once", "memory:worker/global", "memory:other:s1/x")
    often, once = block("retrieved", *refs), [each for each in refs if each != "memory:worker:s1/once"]
    used = [call(often, useful=once)] * 3 + [call(often, useful=refs)]
    advice = found(observed([call(often)] * MIN_CALLS + used))["session_memory"]
    assert advice.subjects == ("memory:worker:s1/tone/short",)
    assert [(each.count, each.of) for each in advice.evidence] == [(4, MIN_CALLS + 4)]
    assert advice.command.splitlines() == [
        "weftline --as worker memory get tone/short --session s1",
        "weftline --as worker push tone/short VALUE",
    ]
    assert "session_memory" not in found(observed([call(often)] * MIN_CALLS + used[:2])), "too few answers"


@pytest.mark.req("CE-F47", part="what was learned and is not used")
def test_what_an_agent_has_learned_and_never_uses_is_forgotten() -> None:
    mine = ("context:worker:learned_knowledge/tone", "context:worker:conversation_context:w1/plan/b")
    passages = block(
        "retrieved", *mine, "context:other:learned_knowledge/tone", "context:worker:learned_knowledge/used"
    )
    used = call(passages, useful=["context:worker:learned_knowledge/used"])
    advice = found(observed([call(passages)] * MIN_CALLS + [used]))["learned_memory"]
    assert set(advice.subjects) == set(mine)
    assert advice.proposals == (ProposedSettings(without_items=advice.subjects),)
    assert set(advice.command.splitlines()) == {
        "weftline --as worker push --remove tone --type learned_knowledge",
        "weftline --as worker push --remove plan/b --type conversation_context --workflow w1",
    }
    assert "learned_memory" not in found(observed([call(passages)] * (MIN_CALLS - 1))), "too few calls"


@pytest.mark.req("CE-F47", part="model, compaction, shares, tools, documents, pins and minimum score")
def test_a_long_conversation_is_compacted_earlier() -> None:
    talk = block("conversation", f"{EVENT}e1", tokens=400)
    advice = found(observed([call(talk, block("system", "role", tokens=100))] * MIN_CALLS))["compaction"]
    tried = {(each.compaction.strategy, each.compaction.threshold) for each in advice.proposals if each.compaction}
    assert len(tried) == len(advice.proposals)
    assert ("sliding_window", 0.5) in tried
    assert {threshold for _, threshold in tried} == {0.2, 0.35, 0.5}
    assert [(each.count, each.of) for each in advice.evidence] == [(400 * MIN_CALLS, 500 * MIN_CALLS)]
    short = [call(block("conversation", f"{EVENT}e1", tokens=100), block("system", "role", tokens=400))] * MIN_CALLS
    assert "compaction" not in found(observed(short))


def test_a_pin_that_one_answer_used_stays() -> None:
    pins = block("pins", "message:s1/3")
    calls = [*[call(pins)] * MIN_CALLS, call(pins, useful=["message:s1/3"])]
    assert "pins" not in found(observed(calls))
    assert "pins" not in found(observed([call(pins)] * (MIN_CALLS - 1))), "too few calls"
    assert "pins" not in found(observed([call(pins, useful=None)] * MIN_CALLS)), "no answer is known"


@pytest.mark.req("CE-F47", part="model, compaction, shares, tools, documents, pins and minimum score")
def test_a_minimum_score_below_all_passages_that_answers_used_is_proposed() -> None:
    passages = block("retrieved", "docs/1", "docs/2", f"{EVENT}e1")
    candidates = (
        Candidate(ref="docs/1", kind="passage", tokens=9, score=0.9),
        Candidate(ref="docs/2", kind="passage", tokens=9, score=0.71),
        Candidate(ref=f"{EVENT}e1", kind="event", tokens=9),
    )
    # The event was found as a passage too, with a score of its own: it counts like every passage.
    repeated = (RepeatedCandidate(ref=f"{EVENT}e1", kind="passage", tokens=9, score=0.82, place=1),)
    used = call(passages, useful=["docs/1", f"{EVENT}e1"], candidates=candidates, repeated=repeated)
    advice = found(observed([used] * MIN_CALLS))["min_score"]
    assert advice.proposals == (ProposedSettings(min_score=0.8),)
    assert advice.command == "weftline agent update worker --min-score 0.8"
    assert (advice.evidence[0].count, advice.evidence[0].of) == (MIN_CALLS, 3 * MIN_CALLS)


def test_no_minimum_score_is_proposed_by_scores_of_events_in_the_conversation() -> None:
    """Such an event is sent whatever its score as a passage is."""
    candidates = (Candidate(ref=f"{EVENT}e1", kind="event", tokens=9),)
    repeated = (RepeatedCandidate(ref=f"{EVENT}e1", kind="passage", tokens=9, score=0.9),)
    talk = call(block("conversation", f"{EVENT}e1"), useful=[f"{EVENT}e1"], candidates=candidates, repeated=repeated)
    assert "min_score" not in found(observed([talk] * MIN_CALLS))


@pytest.mark.req("CE-F47", part="model, compaction, shares, tools, documents, pins and minimum score")
def test_the_window_is_divided_by_what_answers_use_if_events_had_no_room() -> None:
    candidates = tuple(Candidate(ref=f"{EVENT}{name}", kind="event", tokens=9) for name in ("e1", "e2", "e3"))
    blocks = (block("conversation", f"{EVENT}e1", tokens=300), block("conversation", f"{EVENT}e2", tokens=100))
    full = call(
        *blocks,
        useful=[f"{EVENT}e1"],
        candidates=candidates,
        omitted=(OmittedCandidate(f"{EVENT}e3", "budget"),),
    )
    events = (event("e1"), event("e2", Category.SYSTEM_OUTPUT), event("e3"))
    advice = found(observed([full] * MIN_CALLS, *events))["window_shares"]
    shares = advice.proposals[0].shares or {}
    assert max(shares, key=lambda each: shares[each]) is Category.DIALOG
    assert sum(shares.values()) <= 1
    assert advice.command.startswith("weftline window update --session s1 --agent-id worker --budgets ")
    assert advice.evidence[0].count == MIN_CALLS
    roomy = structs.replace(full.receipt, omitted=())
    assert "window_shares" not in found(observed([full._replace(receipt=roomy)] * MIN_CALLS, *events))


@pytest.mark.req("CE-F47", part="model, compaction, shares, tools, documents, pins and minimum score")
def test_sessions_with_outdated_layers_are_pulled_again() -> None:
    layer = Layer.of(1, "tenant", "Be brief.", 3, "layer:tenant")
    old = call(block("task", "task:1"), versions={"layer:tenant": "2"})
    (advice,) = stale_findings(observed([old] * 2), [layer])
    assert (advice.kind, advice.subjects, advice.proposals) == ("stale_context", ("s1",), ())
    assert advice.command == "weftline --as worker pull --session s1"
    assert (advice.evidence[0].count, advice.evidence[0].of) == (2, 2)
    current = call(block("task", "task:1"), versions={"layer:tenant": "3"})
    assert not list(stale_findings(observed([old, current]), [layer])), "the newest call has them"


@pytest.mark.req("CE-F47", part="model, compaction, shares, tools, documents, pins and minimum score")
def test_copies_of_documents_are_deleted_and_originals_stay() -> None:
    (advice,) = duplicate_findings([("knowledge://a/first.md", "knowledge://a/second copy.md")], 30)
    assert advice.proposals == (ProposedSettings(copies={"knowledge://a/second copy.md": "knowledge://a/first.md"}),)
    assert advice.command == "weftline knowledge delete-document a 'second copy.md' --yes"
    assert "has the content of knowledge://a/first.md" in advice.evidence[0].statement


def test_what_was_never_used_is_no_safe_guess_while_others_are_used_for_the_first_time() -> None:
    keys = block("board", "board:s1/a", "board:s1/b", "board:s1/c")
    steady = observed([call(keys, useful=["board:s1/a"])] * MIN_CALLS)
    proposal = ProposedSettings(without_items=("board:s1/c",))
    assert not [each for each in risks_of((), proposal, steady.windows) if "only once" in each]
    varied = observed([*[call(keys, useful=["board:s1/a"])] * MIN_CALLS, call(keys, useful=["board:s1/b"])])
    assert "1 board keys were used only once" in " ".join(risks_of((), proposal, varied.windows))


def test_a_tool_that_was_called_is_missed_and_one_that_was_called_once_warns() -> None:
    told = call(block("task", "task:1"), useful=["tool:send"])
    unused, needed = ProposedSettings(without_tools=("draw",)), ProposedSettings(without_tools=("send", "look_up"))
    steady = observed([told] * 3, event("e1", Category.DIALOG, "look_up"), event("e2", Category.DIALOG, "look_up"))
    assert not [each for each in risks_of((), unused, steady.windows) if "called" in each]
    assert "the agent called look_up, send" in risks_of((), needed, steady.windows)
    once = observed([told] * 3, event("e1", Category.DIALOG, "look_up"))
    assert "1 tools were called only once" in " ".join(risks_of((), unused, once.windows))


@pytest.mark.req("CE-F47", part="model, compaction, shares, tools, documents, pins and minimum score")
def test_tools_are_not_called_unused_where_nobody_knows_the_answers() -> None:
    """Neither were answers reported, nor do they enter the conversation: the tool may be called each time."""
    tool = ToolDefinition(name="send", description="Sends.", input_schema={})
    silent = [
        call(block("task", "task:1"), useful=None, created_at=number)._replace(tools=(tool,))
        for number in range(100, 2 * MIN_CALLS + 102, 2)
    ]
    proposal = ProposedSettings(without_tools=("send",))
    unknown = observed(silent, structs.replace(event("before"), at=5))
    assert "tools" not in found(unknown)
    assert "send was in 0 prompts that say something" in " ".join(risks_of((), proposal, unknown.windows))
    # An answer after every call but the last one.
    after = range(101, 2 * MIN_CALLS + 101, 2)
    known = observed(silent, *(structs.replace(event("e"), at=number) for number in after))
    assert found(known)["tools"].subjects == ("send",)
    assert (len(silent), found(known)["tools"].evidence[0].of) == (MIN_CALLS + 1, MIN_CALLS)
    assert not [each for each in risks_of((), proposal, known.windows) if "say something" in each]
    told = observed([each._replace(useful=frozenset()) for each in silent])
    assert found(told)["tools"].evidence[0].count == len(silent)


def test_an_item_that_may_have_been_used_is_in_doubt() -> None:
    seen = call(block("board", "board:s1/a"), likelihoods={"board:s1/a": 0.2, "board:s1/b": 0.0})
    assert seen.may_have_used("board:s1/a")
    assert not seen.may_have_used("board:s1/b")
    assert call(block("board", "board:s1/a"), useful=None).may_have_used("board:s1/b"), "nobody reported the answer"


def test_subjects_that_were_never_in_doubt_are_named_alone() -> None:
    keys = block("board", "board:s1/a", "board:s1/b")
    doubted = call(keys, likelihoods={"board:s1/a": 0.2})
    assert found(observed([doubted] * MIN_CALLS))["board_keys"].subjects == ("board:s1/b",)
    both = call(keys, likelihoods={"board:s1/a": 0.2, "board:s1/b": 0.2})
    assert set(found(observed([both] * MIN_CALLS))["board_keys"].subjects) == {"board:s1/a", "board:s1/b"}


def test_what_was_in_few_prompts_is_no_evidence() -> None:
    calls = [*[call(block("board", "board:s1/a"))] * MIN_CALLS, call(block("board", "board:s1/rare"))]
    risks = risks_of((), ProposedSettings(without_items=("board:s1/a", "board:s1/rare")), observed(calls).windows)
    assert "board:s1/rare was in 1 prompts" in " ".join(risks)
    often = risks_of((), ProposedSettings(without_items=("board:s1/a",)), observed(calls).windows)
    assert not [each for each in often if "prompts that say something" in each]


def test_a_change_is_not_safe_where_the_rebuilt_prompt_may_leave_out_other_items() -> None:
    full = call(block("board", "board:s1/a", tokens=76))
    assert "1 prompts are nearly full" in " ".join(risks_of((), ProposedSettings(), observed([full]).windows))
    roomy = call(block("board", "board:s1/a", tokens=75))
    assert "nearly full" not in " ".join(risks_of((), ProposedSettings(), observed([roomy]).windows))
