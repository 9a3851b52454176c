"""Ranking: order, score components, pins, bounds of answers and prompts, neighbours and deduplication."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.full_run import examples
from support.small_collections import (
    NOW,
    document_chunks,
    document_collection,
    message_collection,
    numbers,
    ranked,
    scored,
    text_row,
    view_of,
)
from weftline.indexing.collections import WINDOWS
from weftline.indexing.entities import Entity, pack_entities
from weftline.kernel.clock import DAY_MICROS
from weftline.search.calibration import RELIABLE_SCORE
from weftline.search.model import MIN_PROBABILITY, Query, RankingWeights
from weftline.search.selection import UNSURE_RESULTS, select_results
from weftline.search_index.snapshot import IndexSnapshot
from weftline.search_index.view import CollectionView

FRUIT = (
    "apples grow on trees in the orchard",
    "the invoice of march was paid late",
    "pears are harvested in early autumn",
    "a train to the coast leaves at noon",
    "plums can be dried and kept all winter",
)
HOSTILE = (
    "",
    " \n\t ",
    "the of and",
    "?!.,;:",
    "x" * 2_000,
    "apple " * 400,
    "".join(f"Sentence {number} is about an apple. " for number in range(60)),
    "'; DROP TABLE chunks; --",
    '"apple" AND NOT (pear* OR NEAR(plum, 2)) ^ title:fig',
    "🍎🍐 🍏",
    "りんごは木になります",
    "яблоки растут на деревьях",
    "\x00\u202e apple",
    "%s %(name)s {0} $1",
)


@pytest.mark.req("CE-F11", part="ranking by meaning, words and recency")
def test_the_best_match_comes_first() -> None:
    ranking = ranked("when are pears harvested", document_collection(*FRUIT))
    assert numbers(ranking)[0] == 3
    assert ranking.ranked[0].score >= 0.7
    assert ranking.by_meaning


def test_without_vectors_ranking_is_lexical() -> None:
    ranking = ranked("harvested pears", document_collection(*FRUIT), by_meaning=False)
    assert numbers(ranking)[0] == 3
    assert not ranking.by_meaning
    assert "semantic" not in ranking.ranked[0].signals


def test_the_same_chunks_rank_alike_in_any_layout_of_the_index() -> None:
    rows = [
        ("apples in the orchard", "pears are harvested", "apples in the orchard")[number % 3] for number in range(600)
    ]
    chunks = document_chunks(*rows)
    whole = view_of(IndexSnapshot().advanced_to(600, chunks, []))
    pieces = IndexSnapshot()
    for start in (400, 0, 200):
        pieces = pieces.advanced_to(600, chunks[start : start + 200], [])
    # Replacing a chunk moves its row to the end.
    pieces = pieces.advanced_to(601, chunks[:50], [])
    for query in ("apples in the orchard", "pears", "quux"):
        for options in ({}, {"complete": True}):
            assert ranked(query, whole, **options) == ranked(query, view_of(pieces), **options)


@pytest.mark.req("CE-F12", part="scores from similarity, recency and importance")
def test_score_components_sum_to_the_score() -> None:
    view = message_collection(
        ("ann", "I bought apples yesterday"), ("bob", "which apples?"), ("ann", "red ones from the orchard")
    )
    for each in ranked("which apples did Ann buy", view).ranked:
        assert sum(each.signals.values()) == pytest.approx(each.evidence, abs=1e-3)
        assert {"lexical", "lexical_around", "semantic", "semantic_around", "recency", "importance"} <= set(
            each.signals
        )


@pytest.mark.parametrize("query", HOSTILE)
def test_any_text_is_a_valid_query(query: str) -> None:
    view = document_collection(*FRUIT)
    first, second = ranked(query, view), ranked(query, view)
    assert first == second
    assert all(0 <= each.score <= 1 for each in first.ranked)
    assert 0 <= first.confidence <= 1
    assert set(numbers(first)) <= set(range(1, len(FRUIT) + 1))


@settings(max_examples=examples(60), deadline=None)
@given(st.text(max_size=300))
def test_any_text_can_be_indexed_and_ranked(query: str) -> None:
    ranking = ranked(query, document_collection(*FRUIT), message_collection(("ann", query or "-"), ("bob", "apples")))
    assert len({(each.collection, each.number) for each in ranking.ranked}) == len(ranking.ranked)


@pytest.mark.parametrize("views", [(), (document_collection(),)], ids=["no collection", "an empty one"])
def test_an_empty_collection_has_no_results(views: tuple[()]) -> None:
    for purpose in ("answer", "prompt"):
        ranking = ranked("apples", *views, purpose=purpose)
        assert (ranking.ranked, ranking.pinned, ranking.confidence) == ([], [], 0.0)
        assert (ranking.unsure, ranking.relevant) == (True, False)


@pytest.mark.req("CE-F12", part="pinned chunks come with every result")
@pytest.mark.parametrize("purpose", ["answer", "prompt"])
def test_pinned_items_come_separately_with_every_result(purpose: str) -> None:
    view = document_collection(*FRUIT, text_row("never send figures by mail", pinned=True))
    for query in ("when are pears harvested", "never send figures", "zzz"):
        ranking = ranked(query, view, top_k=1, max_results=1, purpose=purpose)
        assert [(each.number, each.pinned) for each in ranking.pinned] == [(6, True)]
        assert 6 not in numbers(ranking)


WORDS = st.sampled_from(["apple", "pear", "plum", "tree", "orchard", "harvest", "invoice", "train", "noon", "winter"])
TEXTS = st.lists(WORDS, min_size=1, max_size=8).map(" ".join)


@pytest.mark.req("WX-06")
@pytest.mark.req("CE-O", part="tunable similarity threshold")
@settings(max_examples=examples(150), deadline=None)
@given(
    texts=st.lists(st.tuples(TEXTS, st.booleans()), max_size=20),
    query=TEXTS,
    top_k=st.integers(1, 8),
    max_results=st.none() | st.integers(1, 8),
    min_score=st.floats(0, 1),
    by_meaning=st.booleans(),
)
def test_an_answer_is_bounded(
    texts: list[tuple[str, bool]],
    query: str,
    top_k: int,
    max_results: int | None,
    min_score: float,
    *,
    by_meaning: bool,
) -> None:
    view = document_collection(*(text_row(text, pinned=pinned) for text, pinned in texts))
    options = {"top_k": top_k, "max_results": max_results, "weights": RankingWeights(min_score=min_score)}
    answer = ranked(query, view, by_meaning=by_meaning, **options)
    assert len(answer.ranked) <= min(top_k, max_results or top_k)
    assert all(each.score >= min_score for each in answer.ranked)
    assert not any(each.doubtful for each in answer.ranked)
    assert not answer.unsure or all(each.score >= RELIABLE_SCORE for each in answer.ranked[UNSURE_RESULTS:])
    assert answer.unsure or answer.relevant
    weaker = ranked(query, view, by_meaning=by_meaning, low_confidence=True, **options)
    assert len(weaker.ranked) <= min(top_k, max_results or top_k)
    assert numbers(weaker)[: len(answer.ranked)] == numbers(answer)
    assert (weaker.confidence, weaker.pinned) == (answer.confidence, answer.pinned)


@pytest.mark.req("WX-06")
def test_an_answer_that_does_not_know_is_short() -> None:
    view = document_collection(*(f"note {number} about fruit and trees" for number in range(30)))
    query, low = "fruit among other entirely unknown matters written elsewhere", RankingWeights(min_score=0.5)
    unsure = ranked(query, view, weights=low)
    assert unsure.unsure
    assert len(unsure.ranked) == UNSURE_RESULTS
    assert len(ranked(query, view, low_confidence=True).ranked) == 10
    assert numbers(ranked("banana smoothie recipe", view, by_meaning=False)) == []
    sure = ranked("when are pears harvested in early autumn", document_collection(*FRUIT))
    assert not sure.unsure
    assert numbers(sure)[0] == 3


EVERY_SCORE = RankingWeights(min_score=0.0)


@pytest.mark.req("CE-F11", part="in doubt a prompt gets more, marked as doubtful")
@pytest.mark.req("CE-L6", part="nothing from collections without evidence")
def test_a_prompt_gets_evidence_and_in_doubt_what_is_marked_so() -> None:
    sure = ranked(
        "when are pears harvested in early autumn", document_collection(*FRUIT), purpose="prompt", weights=EVERY_SCORE
    )
    assert sure.relevant
    assert not any(each.doubtful for each in sure.ranked)
    assert sure.ranked[0].probability == max(each.probability for each in sure.ranked) > MIN_PROBABILITY
    rows = [f"note {number} about fruit and trees" for number in range(30)]
    query = "fruit among other entirely unknown matters written elsewhere"
    doubted = ranked(query, document_collection(*rows), purpose="prompt", weights=EVERY_SCORE)
    assert doubted.unsure
    assert not doubted.relevant
    assert all(each.doubtful for each in doubted.ranked)
    assert ranked(query, document_collection(*rows), purpose="prompt", in_doubt=False).ranked == []


@pytest.mark.req("CE-E", part="a search without results")
@pytest.mark.req("CE-L6", part="nothing from collections without evidence")
@pytest.mark.parametrize("query", ["quux", "Write a limerick about the moon landing", "weiter so"])
def test_a_prompt_gets_no_evidence_where_there_is_none(query: str) -> None:
    ranking = ranked(query, document_collection(*FRUIT), top_k=200, purpose="prompt", weights=EVERY_SCORE)
    assert all(each.doubtful for each in ranking.ranked)
    assert not ranking.relevant
    assert ranked("quux", document_collection(*FRUIT), by_meaning=False, purpose="prompt").ranked == []


@pytest.mark.req("CE-L6", part="nothing from collections without evidence")
def test_a_match_in_one_collection_admits_nothing_of_another() -> None:
    said = message_collection(
        ("ann", "We harvest the pears in early autumn, before the first frost."), ("bob", "Fine.")
    )
    other = document_collection(*(f"The boiler of house {number} is serviced by the plumber." for number in range(30)))
    ranking = ranked("When do we harvest the pears?", said, other, top_k=200, purpose="prompt", weights=EVERY_SCORE)
    assert ranking.relevant
    assert {each.collection for each in ranking.ranked if not each.doubtful} == {said.collection}


FRUIT_NOTES = [f"note {number} about fruit and trees, and the orchard of house {number}" for number in range(30)]
SAY_AGAIN = "say the part about fruit and trees again"


@pytest.mark.req("CE-L6", part="documents about the subject of a conversation add nothing to what it says itself")
def test_what_a_conversation_says_itself_documents_have_to_say_better() -> None:
    documents = document_collection(*FRUIT_NOTES)
    turns = ("Here is the part about fruit and trees.", "Fruit and trees belong together.")
    said = document_collection(*turns, collection=WINDOWS)
    other = document_collection("The train leaves at noon.", collection=WINDOWS)

    def probability(*views: CollectionView, is_task: bool) -> float:
        found = ranked(SAY_AGAIN, *views, is_task=is_task, top_k=200, purpose="prompt", weights=EVERY_SCORE).ranked
        return max(each.probability for each in found if each.collection == documents.collection)

    alone = probability(documents, is_task=True)
    assert probability(documents, other, is_task=True) > 0.8 * alone
    assert probability(documents, said, is_task=True) < 0.6 * alone
    # What was written to search with does not ask what the conversation says.
    assert probability(documents, said, is_task=False) > 0.8 * alone


@pytest.mark.req("CE-L6", part="raising min_score never adds a passage")
def test_the_minimum_score_does_not_decide_whether_there_is_evidence() -> None:
    """Else a task that finds some by itself would be searched with the turns before it, and find something else."""
    strict = RankingWeights(min_score=1.0)
    ranking = ranked(SAY_AGAIN, document_collection(*FRUIT_NOTES), is_task=True, purpose="prompt", weights=strict)
    assert (ranking.ranked, ranking.relevant, ranking.has_evidence) == ([], False, True)


@pytest.mark.req("CE-L6", part="raising min_score never adds a passage")
@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.sampled_from([*FRUIT, "note about trees", "the boiler is old", "pears"]), min_size=1, max_size=12),
    st.sampled_from(["when are pears harvested", "pears", "trees and boilers of the house", "continue"]),
    st.lists(st.floats(0, 1), min_size=2, max_size=2),
    st.sampled_from(["answer", "prompt"]),
    st.integers(1, 12),
)
def test_raising_the_minimum_score_never_adds_a_result(
    texts: list[str], query: str, scores: list[float], purpose: str, top_k: int
) -> None:
    view = document_collection(*texts)
    low, high = (
        ranked(query, view, purpose=purpose, top_k=top_k, weights=RankingWeights(min_score=score))
        for score in sorted(scores)
    )
    assert set(numbers(high)) <= set(numbers(low))


@pytest.mark.req("CE-F11", part="ranking by meaning, words and recency")
def test_equal_scores_prefer_the_newer_item() -> None:
    view = document_collection(
        text_row("apples in the north", timestamp=NOW - 90 * DAY_MICROS),
        text_row("apples in the south", timestamp=NOW - DAY_MICROS),
    )
    assert numbers(ranked("apples", view, by_meaning=False))[0] == 2
    assert numbers(ranked("apples", view, by_meaning=False, weights=RankingWeights(recency_weight=0.0)))[0] == 1


@pytest.mark.req("CE-F14")
def test_equal_scores_prefer_the_more_important_item() -> None:
    view = message_collection(
        text_row("the apples are red", speaker="ann", item="1", place="s", importance=0.2),
        text_row("the apples are ripe", speaker="ann", item="90", place="t", importance=0.9),
    )
    assert numbers(ranked("apples", view, by_meaning=False))[0] == 2
    assert numbers(ranked("apples", view, by_meaning=False, weights=RankingWeights(importance_weight=0.0)))[0] == 1


@pytest.mark.req("CE-F14")
def test_a_named_sender_is_preferred() -> None:
    view = message_collection(
        ("ann", "my dog is called Rex"), ("bob", "my dog is called Max"), ("ann", "nice"), ("bob", "thanks")
    )
    assert numbers(ranked("What is Bob's dog called?", view))[0] == 2
    assert numbers(ranked("What is ANN's dog called?", view))[0] == 1


@pytest.mark.req("CE-F14")
def test_an_answer_is_found_by_the_preceding_question() -> None:
    filler = [("ann", f"something about matter {number}") for number in range(12)]
    view = message_collection(
        *filler, ("bob", "where do you keep the spare key"), ("ann", "under the blue flowerpot"), *filler
    )
    best = numbers(ranked("where is the spare key", view, weights=RankingWeights(min_score=0.0)))
    assert best[0] == 13
    assert 14 in best[:3]


def test_neighbours_stay_within_their_session() -> None:
    view = message_collection(
        text_row("where is the spare key", speaker="bob", item="1", place="s"),
        text_row("under the blue flowerpot", speaker="ann", item="2", place="t"),
    )
    found = {each.number: each.signals for each in ranked("where is the spare key", view).ranked}
    assert 2 not in found or found[2]["lexical_around"] == 0


def test_near_duplicates_of_a_better_result_are_penalised() -> None:
    rows = ["get the weather of a city", "get the weather of a city", "get the wind of a place", *FRUIT]
    ranking = ranked("weather of a city", document_collection(*rows), weights=RankingWeights(min_score=0.0))
    repetition = {each.number: each.signals["repetition"] for each in ranking.ranked}
    assert repetition[1] == 0
    assert repetition[2] < 0
    assert repetition[3] == 0


def test_chunks_of_one_short_document_do_not_fill_the_results() -> None:
    parts = [text_row(f"apples and pears, part {part}", item="a", ordinal=part) for part in range(3)]
    ranking = ranked(
        "apples and pears", document_collection(*parts, "apples and plums"), weights=RankingWeights(min_score=0.0)
    )
    repetition = {each.number: each.signals["repetition"] for each in ranking.ranked}
    assert sorted(value < 0 for value in repetition.values()) == [False, False, True, True]
    assert repetition[4] == 0


@pytest.mark.req("CE-F42")
def test_another_collection_does_not_change_the_order_inside_one() -> None:
    fruit = document_collection(*FRUIT, *(f"apples of kind {number}" for number in range(4)))
    other = document_collection("trains leave at noon", "ships leave at dawn", collection="domain:z")
    no_min_score = RankingWeights(min_score=0.0)
    alone = [each.number for each in ranked("apples in the orchard", fruit, top_k=50, weights=no_min_score).ranked]
    both = ranked("apples in the orchard", fruit, other, top_k=50, weights=no_min_score).ranked
    assert [each.number for each in both if each.collection == "domain:d"] == alone


@pytest.mark.parametrize("swapped", [False, True])
def test_the_order_of_collections_does_not_matter(*, swapped: bool) -> None:
    one, other = (
        document_collection("red apples", collection="domain:a"),
        document_collection("red apples", collection="domain:b"),
    )
    views = (other, one) if swapped else (one, other)
    assert [each.collection for each in ranked("red apples", *views).ranked] == ["domain:a", "domain:b"]


def test_each_part_of_a_long_query_is_searched() -> None:
    padding = " ".join(f"word{number}" for number in range(55))
    question = f"First find out how pears are harvested. Then tell when the train to the coast leaves. {padding}"
    best = numbers(ranked(question, document_collection(*FRUIT), weights=RankingWeights(min_score=0.0)))
    assert set(best[:2]) == {3, 4}


def test_more_results_can_be_selected_from_one_ranking() -> None:
    view = document_collection(*FRUIT)
    found = scored("apples and pears and plums", view)
    few, many = (
        select_results(Query(text="", asked_at=NOW, top_k=top_k, weights=RankingWeights(min_score=0.0)), [view], found)
        for top_k in (1, 5)
    )
    assert numbers(many)[: len(few.ranked)] == numbers(few)


@pytest.mark.req("CE-F14")
def test_a_chunk_that_mentions_the_entity_of_a_query_gets_a_bonus() -> None:
    view = document_collection(
        text_row("the app starts here", entities=pack_entities([Entity("file", "src/app.py")])),
        text_row("the app starts here"),
        text_row("soup of the day", entities=pack_entities([Entity("file", "src/soup.py")])),
    )
    scores = scored("where does src/app.py start", view).by_view[0]
    bonus = dict(zip(scores.columns.number.tolist(), scores.signals["entities"].tolist(), strict=True))
    assert bonus[1] > 0
    assert bonus[2] == 0
    assert bonus.get(3, 0) == 0
    assert "entities" not in scored("where does the app start", view).by_view[0].signals
