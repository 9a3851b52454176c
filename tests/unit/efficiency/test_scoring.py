"""Use of the items of a prompt by its answer, by words and citations."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.capabilities.efficiency.estimate import estimated
from weft.capabilities.efficiency.model import USED, PromptItem, ScoredPrompt, efficiency_of
from weft.capabilities.efficiency.scoring import answer_parts, compare, in_doubt, item_uses
from weft.capabilities.language_models.answers import MAX_ANSWER, CalledTool, ModelAnswer

pytestmark = pytest.mark.req("CE-F45")
CACHE = PromptItem(
    "doc/1", "retrieved", 40, "The price cache keeps prices for 300 seconds. Tomas owns the price cache.", "cache.md"
)
OTHERS = [
    PromptItem("doc/2", "retrieved", 30, "Invoices are sent on the first Monday by the finance team.", "a.md"),
    PromptItem("doc/3", "retrieved", 30, "New colleagues get a laptop and a badge at once.", "onboarding.md"),
    PromptItem("board:s/status", "board", 10, "- status (by ann): the deployment waits for a review", "status"),
    PromptItem("window:s:a/e1", "conversation", 12, "Please be quick, the customer is waiting.", "e1"),
]
TOOLS = [PromptItem("tool:read_metric", "tool", 50), PromptItem("tool:restart", "tool", 60)]
LAYERS = PromptItem("layer:platform", "layer", 100, is_required=True)
TASK = "Who is responsible for it?"


def prompt(*items: PromptItem, task: str = TASK) -> ScoredPrompt:
    return ScoredPrompt(items, task, sum(item.tokens for item in items) + 3, 1_000)


def uses(answer: ModelAnswer, *items: PromptItem, task: str = TASK) -> dict[str, str]:
    found = prompt(*items, task=task)
    return {use.ref: use.use for use in item_uses(found, answer, compare(found, answer))}


def test_a_quoted_passage_is_used_and_others_are_not() -> None:
    found = uses(ModelAnswer("It says: the price cache keeps prices for 300 seconds."), LAYERS, CACHE, *OTHERS)
    assert found == {"layer:platform": "required", "doc/1": "quoted", **{item.ref: "unused" for item in OTHERS}}


def test_a_paraphrase_is_recognised_by_the_terms_that_only_one_item_has() -> None:
    found = uses(ModelAnswer("Tomas is the owner."), CACHE, *OTHERS)
    assert found == {"doc/1": "paraphrased", **{item.ref: "unused" for item in OTHERS}}


def test_an_item_is_cited_by_a_name_that_is_no_common_word() -> None:
    found = uses(ModelAnswer("See onboarding.md. The status is fine."), CACHE, *OTHERS)
    assert found["doc/3"] == "cited"
    assert found["doc/1"] == found["doc/2"] == "unused"


def test_of_the_passages_of_a_cited_document_the_likeliest_is_used() -> None:
    again = OTHERS[0]._replace(ref="doc/9", name=CACHE.name)
    found = uses(ModelAnswer("According to cache.md, 300."), CACHE, again)
    assert found["doc/1"] in USED
    assert found["doc/9"] == "unused"


def test_tools_are_used_if_they_are_called_and_their_arguments_count_as_written() -> None:
    call = CalledTool("read_metric", '{"service": "invoices", "team": "finance", "day": "Monday"}')
    found = uses(ModelAnswer("", (call,)), *TOOLS, *OTHERS)
    assert found["tool:read_metric"] == "called"
    assert found["tool:restart"] == "unused"
    assert found["doc/2"] == "paraphrased"


def test_an_answer_that_has_nothing_of_the_prompt_used_nothing() -> None:
    found = uses(ModelAnswer("Certainly!"), CACHE, *OTHERS)
    assert not USED & set(found.values())


def test_overhead_is_counted_apart() -> None:
    found = efficiency_of("answer", sent=1_000, useful=200, overhead=600, capacity=4_000)
    assert (found.score, found.window_fill) == (0.5, 0.25)
    assert efficiency_of("answer", sent=600, useful=0, overhead=600, capacity=0).score is None


def test_an_estimate_follows_the_scores_of_retrieval() -> None:
    items = [LAYERS, CACHE, *TOOLS]
    low, high = (estimated(items, {"doc/1": score}, sent=253, capacity=1_000) for score in (0.1, 0.9))
    assert low.overhead_tokens == high.overhead_tokens == 103
    assert low.useful_tokens < high.useful_tokens < 40 + 110
    assert (low.basis, low.is_estimate, low.items) == ("retrieval_scores", True, ())


@settings(deadline=None, max_examples=60)
@given(st.lists(st.text(max_size=40), max_size=6), st.text(max_size=60), st.text(max_size=30))
def test_any_text_is_scored_once_per_item(texts: list[str], answer: str, task: str) -> None:
    items = [PromptItem(f"i{place}", "retrieved", 5, text, text[:9]) for place, text in enumerate(texts)]
    found = prompt(*items, task=task)
    said = ModelAnswer(answer)
    compared = compare(found, said)
    assert all(0 <= each.likelihood <= 1 for each in compared)
    assert [use.ref for use in item_uses(found, said, compared)] == [item.ref for item in items]


@pytest.mark.parametrize(
    "answer",
    [
        "x" * MAX_ANSWER,
        " ".join(f"w{number}" for number in range(MAX_ANSWER // 7))[:MAX_ANSWER],
        "a.b-c/" * (MAX_ANSWER // 6),
        "漢" * MAX_ANSWER,
        "the price cache keeps " * (MAX_ANSWER // 22),
    ],
    ids=["one word", "other words", "names", "no spaces", "repetition"],
)
def test_the_largest_answers_take_bounded_time(answer: str) -> None:
    items = [CACHE._replace(ref=f"i{place}", name=f"n-{place}") for place in range(2_000)]
    found, said = prompt(*items), ModelAnswer(answer)
    started = time.process_time()
    compared = compare(found, said)
    item_uses(found, said, compared)
    assert time.process_time() - started < 10
    assert len(answer_parts(TASK, said)) <= 4
    assert len(in_doubt(compared)) <= 16
