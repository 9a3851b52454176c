"""The evaluation of survival, in a small form: statements are found where they are, and only there."""

from __future__ import annotations

import pytest
from evals import survival
from evals.survival import OPEN, measure, newest_messages, random_sentences, stated_conversations, target_rows

from weftline.validation.compaction import Passages, as_events


def test_statements_are_counted_in_the_prompt_after_a_compaction() -> None:
    conversations = stated_conversations(OPEN, conversations=1, statements=12, messages=60)[:2]
    measured = measure(conversations, 0.4)
    assert len(measured.statements) == 24
    assert 0.3 < measured.tokens < 0.8
    rows = {row.name: row for row in target_rows("survival.40", measured, 0.98)}
    everything = rows["survival.40.all"]
    assert everything.baseline == rows["survival.40.newest"].value
    assert everything.met is (everything.value >= 0.98)
    assert everything.interval is not None
    assert rows["survival.40.chance"].value == 0


def test_conversations_are_as_large_as_said_and_always_the_same() -> None:
    conversations = stated_conversations(OPEN)
    assert conversations == stated_conversations(OPEN)
    assert {len(each.said) for each in conversations} == {384}
    assert {len(each.statements) for each in conversations} == {64}
    messages = [each.message for each in conversations[0].said]
    assert len(set(messages)) == len(messages)


@pytest.mark.parametrize("target", survival.TARGETS)
def test_baselines_fill_their_part_and_whole_conversations_have_everything(target: float) -> None:
    conversation = stated_conversations(OPEN, conversations=1)[0]
    for shorten in (newest_messages, random_sentences):
        tokens = sum(survival._count(text) for text in shorten(conversation, target))
        assert 0.97 * target <= tokens / conversation.tokens <= target
        assert all(map(Passages(shorten(conversation, 2.0)).have, [each.statement for each in conversation.statements]))


def test_words_must_stand_within_one_passage_of_one_message() -> None:
    near = Passages(["Old talk.", f"The KEY for 7b lies in the drawer. {'x ' * 400} Nobody knows."])
    assert near.have("key 7B drawer")
    assert not near.have("drawer nobody knows")
    assert not near.have("talk drawer")


def test_the_result_of_a_tool_follows_its_call() -> None:
    said = [each for conversation in stated_conversations(OPEN, conversations=1)[:1] for each in conversation.said]
    events = list(as_events(said))
    tools = [place for place, event in enumerate(events) if event["role"] == "tool"]
    assert tools
    assert all(events[at - 1]["tool_calls"][0]["call_id"] == events[at]["tool_call_id"] for at in tools)
