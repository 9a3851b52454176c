"""Loss notes name what was left out, by kind and source, in few tokens."""

from __future__ import annotations

from collections import Counter

import pytest

from support.conversations import Conversation
from weftline.kernel.ports import approximate_tokens
from weftline.windows.compaction.facts.extraction import extract_facts
from weftline.windows.compaction.model import EventGroup
from weftline.windows.compaction.summariser import (
    SummaryRequest,
    event_losses,
    loss_list,
    result_losses,
    summarise_group,
)

MAX_NOTE_TOKENS = 40
SMALL_TALK = "Well, you know, it was sort of like that back then. Oh dear, was it really so? "


def renovation() -> Conversation:
    conversation = Conversation()
    for number in range(12):
        conversation.user(SMALL_TALK * 3, name="Ada" if number % 2 else None)
        conversation.agent("Yes, of course, I see what you mean by that, more or less. " * 3)
    rows = "\n".join(f"| 2027-01-{day:02} | plaster | {day * 3} bags |" for day in range(1, 29))
    conversation.call("query", '{"table": "material"}', f"| day | what | amount |\n|---|---|---|\n{rows}\n")
    conversation.user("We decided to order the plaster in February.")
    return conversation


@pytest.mark.req("CE-F5")
@pytest.mark.parametrize("facts_only", [False, True])
def test_a_summary_says_what_it_leaves_out_by_kind_and_source(*, facts_only: bool) -> None:
    conversation = renovation()
    tokens = sum(event.tokens for event in conversation.events)
    group = EventGroup("", conversation.events, tokens // 4)
    request = SummaryRequest(group, extract_facts(conversation.events), approximate_tokens, facts_only)
    notes = summarise_group(request).loss_notes
    listed = next(note for note in notes if note.startswith("Left out"))
    named = ["user", "Ada", "query", *(["assistant"] if facts_only else [])]
    assert all(f" of {name}" in listed or f" of result of {name}" in listed for name in named), notes
    kinds = ["messages", "result"] if facts_only else ["sentences", "questions", "rows"]
    assert all(f" {kind}" in listed for kind in kinds), notes
    assert not any("words" in note for note in notes)
    assert sum(map(approximate_tokens, notes)) <= 2 * MAX_NOTE_TOKENS


def test_a_note_is_short_however_many_sources_there_are() -> None:
    losses = Counter(
        {(f"speaker{number}", kind): 1_000 + number for number in range(50) for kind in ("sentences", "questions")}
    )
    note = loss_list(losses)
    assert note.startswith("1,049 sentences, 1,049 questions of speaker49; ")
    assert note.endswith("47,035 sentences, 47,035 questions of others")
    assert approximate_tokens(note) <= 2 * MAX_NOTE_TOKENS


def test_cuts_of_results_are_added_up_by_tool() -> None:
    losses = result_losses([("query", "1 row"), ("query", "1,213 rows"), ("shell", "3 items and 80 characters")])
    assert loss_list(losses) == "1,214 rows of result of query; 80 characters, 3 items of result of shell"


def test_one_of_a_kind_is_singular() -> None:
    conversation = Conversation()
    conversation.user("Hello.")
    assert loss_list(event_losses(conversation.events)) == "1 message of user"
