"""Use of the items of a prompt by its answer, by words and citations."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.full_run import FULL, examples
from weftline.indexing.text_analysis import terms
from weftline.models.language_models.answers import MAX_ANSWER, CalledTool, ModelAnswer
from weftline.prompts import efficiency
from weftline.prompts.efficiency import (
    PART_CHARACTERS,
    USED,
    ItemUse,
    PromptItem,
    ScoredPrompt,
    _efficiency,
    answer_parts,
    compare,
    efficiency_of,
    estimated,
    in_doubt,
    item_uses,
    shares,
    text_parts,
    useful_tokens,
)

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


def _uses(answer: ModelAnswer, *items: PromptItem) -> list[ItemUse]:
    return item_uses(prompt(*items), answer, compare(prompt(*items), answer))


def item(ref: str, text: str, tokens: int = 20, name: str = "", *, is_required: bool = False) -> PromptItem:
    return PromptItem(ref, "retrieved", tokens, text, name, is_required)


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
    assert low.ranked_tokens == high.ranked_tokens == 40


def test_an_estimate_without_scores_says_so() -> None:
    found = estimated([LAYERS, CACHE, *TOOLS], {"tool:restart": 0.9}, sent=253, capacity=1_000)
    assert (found.basis, found.is_estimate, found.ranked_tokens) == ("usual_share", True, 0)


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(st.text(max_size=40), max_size=6), st.text(max_size=60), st.text(max_size=30))
def test_any_text_is_scored_once_per_item(texts: list[str], answer: str, task: str) -> None:
    items = [PromptItem(f"i{place}", "retrieved", 5, text, text[:9]) for place, text in enumerate(texts)]
    found = prompt(*items, task=task)
    said = ModelAnswer(answer)
    compared = compare(found, said)
    assert all(0 <= each.likelihood <= 1 for each in compared)
    assert [use.ref for use in item_uses(found, said, compared)] == [item.ref for item in items]


# Words that are no stop words, have other stems, and are not in TASK.
WORDS = ["harbour", "lantern", "copper", "violet", "engine", "meadow", "pepper", "saddle", "tunnel", "walnut", "zephyr"]
MARKS = ["", "**", "_", "`", "~~", "***", "__", '"', "\u201c"]
GAPS = [" ", "  ", "\n", "\t", "\u00a0", "\n- ", "\n> ", " | ", ", "]


@settings(deadline=None)
@given(st.permutations(WORDS), st.integers(5, 11), st.data())
def test_a_quotation_is_found_whatever_its_case_blanks_and_markdown(
    words: list[str], length: int, data: st.DataObject
) -> None:
    passage = " ".join(words)
    quoted = ""
    for word in words[:length]:
        mark, gap = data.draw(st.sampled_from(MARKS)), data.draw(st.sampled_from(GAPS))
        changed = data.draw(st.sampled_from([str.lower, str.upper, str.title]))(word)
        quoted += f"{mark}{changed}{mark}{gap}"
    found = uses(ModelAnswer(f"As I read it: {quoted} and so on."), CACHE, *OTHERS, item("i1", passage))
    assert found["i1"] == "quoted"
    assert not USED & {found[other.ref] for other in (CACHE, *OTHERS)}


def test_a_short_item_is_quoted_as_a_whole() -> None:
    found = uses(ModelAnswer("My notes: lantern copper violet."), item("i1", "Lantern, copper, violet!"), *OTHERS)
    assert found["i1"] == "quoted"


def test_repeating_the_task_quotes_nothing() -> None:
    task = "Where does the violet engine leave the copper tunnel today?"
    asked = item("i1", "They asked where the violet engine leaves the copper tunnel today.")
    answer = ModelAnswer("The violet engine leaves the copper tunnel today in Norwich.")
    found = uses(answer, asked, item("i2", "Timetable: Norwich, platform two."), *OTHERS, task=task)
    assert found["i1"] != "quoted"
    assert found["i2"] in USED


@pytest.mark.parametrize(
    ("written", "said"),
    [("1,250", "1250"), ("1250", "1,250"), ("12\u202f500", "12,500"), ("seven", "7"), ("3", "Three")],
)
def test_numbers_are_the_same_in_other_forms(written: str, said: str) -> None:
    found = uses(ModelAnswer(f"It was {said}."), item("i1", f"The total came to {written} in spring."), CACHE, *OTHERS)
    assert found["i1"] in USED
    assert not USED & {found[other.ref] for other in (CACHE, *OTHERS)}


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(st.text(max_size=40), min_size=1, max_size=6), st.text(max_size=60), st.data())
def test_the_same_content_counts_once(texts: list[str], answer: str, data: st.DataObject) -> None:
    items = [item(f"i{place}", text) for place, text in enumerate([*texts, CACHE.text])]
    answer = f"{answer} {data.draw(st.sampled_from(texts))} {CACHE.text[:45]}"
    again = [each._replace(ref=f"again/{each.ref}") for each in data.draw(st.permutations(items))]
    once, twice = (_uses(ModelAnswer(answer), *found) for found in (items, [*items, *again]))
    assert twice[: len(items)] == once
    assert useful_tokens(once) == useful_tokens(twice) > 0
    assert {use.use for use in twice[len(items) :]} <= {"repeated", "unused"}


def test_an_item_is_repeated_whatever_its_punctuation() -> None:
    again = CACHE._replace(ref="doc/9", text=CACHE.text.upper().replace(".", "!\n"))
    found = uses(ModelAnswer("The price cache keeps prices for 300 seconds."), CACHE, again, *OTHERS)
    assert (found["doc/1"], found["doc/9"]) == ("quoted", "repeated")


def test_of_a_long_item_only_the_parts_that_were_used_are_useful() -> None:
    filler = "\n".join(f"Line {number}: nothing of note happened at station {number}." for number in range(400))
    half = len(filler) // 2
    long = item("i1", f"{filler[:half]}\n{CACHE.text}\n{filler[half:]}", tokens=5_000)
    (use,) = _uses(ModelAnswer("The price cache keeps prices for 300 seconds."), long)
    assert use.use == "quoted"
    assert 0 < use.useful_tokens < 500


@given(st.text(st.sampled_from("ab .\n\u6f22"), max_size=40), st.integers(1, 300), st.integers(0, 10_000))
def test_parts_are_together_the_text_and_its_tokens(text: str, times: int, tokens: int) -> None:
    parts = text_parts(text * times)
    assert "".join(parts) == text * times
    assert all(len(part) <= PART_CHARACTERS for part in parts)
    divided = list(shares(tokens, map(len, parts)))
    assert len(divided) == len(parts)
    assert sum(divided) == tokens
    assert all(share >= 0 for share in divided)


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(st.tuples(st.text(max_size=40), st.booleans(), st.integers(0, 50)), max_size=6), st.text(max_size=60))
def test_scores_are_shares(texts: list[tuple[str, bool, int]], answer: str) -> None:
    items = [
        item(f"i{place}", text, tokens, is_required=required) for place, (text, required, tokens) in enumerate(texts)
    ]
    found = _efficiency(prompt(*items), ModelAnswer(answer), compare(prompt(*items), ModelAnswer(answer)), {})
    assert found.overhead_tokens == 3 + sum(each.tokens for each in items if each.is_required)
    assert 0 <= found.useful_tokens <= found.sent_tokens - found.overhead_tokens
    assert found.score is None or 0 <= found.score <= 1


@pytest.mark.parametrize(
    "answer",
    [
        "x" * MAX_ANSWER,
        " ".join(f"w{number}" for number in range(MAX_ANSWER // 7))[:MAX_ANSWER],
        "a.b-c/" * (MAX_ANSWER // 6),
        "\u6f22" * MAX_ANSWER,
        "_" * MAX_ANSWER,
        "1," * (MAX_ANSWER // 2),
        "the price cache keeps " * (MAX_ANSWER // 22),
    ],
    ids=["one word", "other words", "names", "no spaces", "marks", "numbers", "repetition"],
)
def test_the_largest_answers_and_prompts_are_read_once(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Counter[str]()

    def counted(text: str) -> list[str]:
        read[text] += 1
        return terms(text)

    monkeypatch.setattr(efficiency, "terms", counted)
    different = 5_000 if FULL else 1_000
    items = [
        item(f"i{place}", f"{CACHE.text} {place % different}", name=f"n-{place}") for place in range(2 * different)
    ]
    found, said = prompt(*items), ModelAnswer(answer)
    compared = compare(found, said)
    assert len(item_uses(found, said, compared)) == len(items)
    characters = sum(len(text) * times for text, times in read.items())
    assert characters <= len(said.written) + len(TASK) + sum(len(each.text) for each in items[:different])
    assert len(answer_parts(TASK, said)) <= 4
    assert all(len(part) <= 2 * PART_CHARACTERS for part in answer_parts(TASK, said))
    assert len(in_doubt(compared)) <= 16
