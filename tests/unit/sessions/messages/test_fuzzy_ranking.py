"""Fuzzy ranking of messages: matches, scores, limits and pauses."""

from __future__ import annotations

import gc
import random
import sys
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weftline.indexing.text_analysis import stem
from weftline.sessions.messages import fuzzy_ranking as indexing
from weftline.sessions.messages.fuzzy_ranking import (
    CHARACTERS_PER_STEP,
    MAX_WORDS,
    POSITIONS_PER_STEP,
    SCORED_PER_STEP,
    MessageHit,
    MessageIndex,
    Steps,
    search,
    search_in_steps,
)

pytestmark = pytest.mark.req("MS-05")

MESSAGES = (
    "I have finished the database schema design. Ready for review.",
    "The payment worker keeps failing with ConnectionResetError after the last deploy.",
    "Lunch is at noon in the small room.",
    "We rotate the signing key of the staging cluster every thirty days.",
    "call set_memory before the agent restarts, see src/agents/restart_loop.py",
    "データベース設計が完了しました",
    "Shipped it 🚀",
    "Marketing wants the newsletter on Tuesday.",
)


def indexed(*texts: str, first_id: int = 1, metadata: str = "") -> MessageIndex:
    index = MessageIndex()
    for message_id, text in enumerate(texts, first_id):
        index.add(message_id, text, metadata)
    return index


def find(
    query: str, *indexes: MessageIndex, threshold: float = 60, limit: int = 10, with_metadata: bool = True
) -> list[MessageHit]:
    return search(indexes, query, threshold=threshold, limit=limit, with_metadata=with_metadata)


def found(query: str, *indexes: MessageIndex, threshold: float = 60, with_metadata: bool = True) -> list[int]:
    return [hit.message_id for hit in find(query, *indexes, threshold=threshold, with_metadata=with_metadata)]


@pytest.mark.parametrize(
    ("query", "message_id"),
    [
        ("database schema design", 1),
        ("design of the schema for databases", 1),
        ("databse shcema", 1),
        ("databaseschema", 1),
        ("sche", 1),
        ("restarting agents", 5),
        ("paymentprocessor", 2),
        ("why is the payments worker failing?", 2),
        ("connection reset", 2),
        ("ConnectionResetError", 2),
        ("how often do we rotate the signing key?", 4),
        ("setMemory", 5),
        ("restart loop", 5),
        ("設計", 6),
        ("計", 6),
        ("🚀", 7),
        ("newsleter tuesady", 8),
    ],
)
def test_a_query_finds_its_message_first(query: str, message_id: int) -> None:
    assert found(query, indexed(*MESSAGES))[:1] == [message_id]


@pytest.mark.parametrize("query", ["", "   ", "quantum chromodynamics", "🍕", "~~~~"])
def test_an_unrelated_query_finds_nothing(query: str) -> None:
    assert found(query, indexed(*MESSAGES)) == []


def test_a_query_of_punctuation_matches_literally() -> None:
    assert found("->", indexed("a -> b", "a to b")) == [1]


def test_a_message_with_every_query_word_in_any_order_scores_100() -> None:
    hits = find("design schema", indexed(*MESSAGES), threshold=100)
    assert hits == [MessageHit(1, 100.0, "words")]


@pytest.mark.parametrize(
    ("query", "matched_by"),
    [("payment worker", "words"), ("paymnet wroker", "fuzzy"), ("payment wroker", "both"), ("databaseschema", "fuzzy")],
)
def test_a_hit_reports_whether_words_or_fuzzy_terms_matched(query: str, matched_by: str) -> None:
    assert find(query, indexed(*MESSAGES))[0].matched_by == matched_by


def test_a_longer_word_with_the_same_prefix_is_no_misspelling() -> None:
    assert find("shipment", indexed("shipments are late", "shipmentx arrived"))[0].matched_by == "words"


def test_a_misspelt_word_scores_less_than_the_word_itself() -> None:
    index = indexed(*MESSAGES)
    assert find("newsleter", index)[0].score < find("newsletter", index)[0].score


def test_a_misspelt_word_in_a_message_matches_the_correct_query() -> None:
    assert found("database", indexed("the database is up", "nothing", "the databse is down")) == [1, 3]


def test_stop_words_alone_do_not_match() -> None:
    assert found("what is the airspeed of an unladen swallow", indexed(*MESSAGES)) == []


def test_rare_words_score_more_than_common_ones() -> None:
    index = indexed(*["deploy again"] * 20, "deploy", "the canary")
    assert found("deploy the canary now", index, threshold=30)[0] == 22


def test_equal_messages_are_separate_results_newest_first() -> None:
    assert found("hello world", indexed("hello world", "hello world", "hello world")) == [3, 2, 1]


def test_an_old_message_is_found_among_many_newer_ones() -> None:
    index = indexed("the vault code is in the blue folder", *(f"status report number {n}" for n in range(5_000)))
    assert found("where is the code of the vault?", index) == [1]


def test_an_answer_scores_more_after_a_matching_question() -> None:
    alone = find("budget of the harbour project", indexed("The project gets two million."), threshold=0)
    after_question = find(
        "budget of the harbour project",
        indexed("What is the budget for the harbour?", "The project gets two million."),
        threshold=0,
    )
    assert {hit.message_id for hit in after_question} == {1, 2}
    assert after_question[-1].score > alone[0].score


def test_the_limit_keeps_the_best_hits() -> None:
    index = indexed("alpha", "alpha beta", "alpha beta gamma")
    assert [hit.message_id for hit in find("alpha beta gamma", index, threshold=0, limit=1)] == [3]


def test_metadata_is_searched_only_if_requested() -> None:
    index = MessageIndex()
    index.add(1, "done", "component database")
    assert found("database", index) == [1]
    assert found("database", index, with_metadata=False) == []
    assert found("componentdatabase", index) == [1]
    assert found("componentdatabase", index, with_metadata=False) == []


def test_a_very_long_message_is_found_by_a_word_at_its_end() -> None:
    assert found("zebra", indexed("filler words go on " * 526 + "zebra", "short")) == [1]


def test_messages_of_several_audiences_are_ranked_together() -> None:
    public = indexed("the release is on friday", first_id=1)
    private = indexed("my note: release friday", first_id=2)
    assert found("release friday", public, private) == found("release friday", private, public) == [2, 1]


def test_an_index_that_is_not_searched_does_not_change_scores() -> None:
    def result() -> list[MessageHit]:
        return find("schema review of payments", indexed(*MESSAGES), threshold=0)

    alone = result()
    hidden = indexed(*["schema review of payments"] * 50, first_id=100)
    assert result() == alone
    assert find("schema review of payments", indexed(*MESSAGES), hidden, threshold=0) != alone


def test_idf_counts_the_searched_indexes_only() -> None:
    visible, hidden = indexed("alpha beta", "gamma"), indexed(*["beta"] * 30, first_id=10)
    before = find("beta delta", visible, threshold=0)
    together = find("beta delta", visible, hidden, threshold=0)
    assert before != [hit for hit in together if hit.message_id == 1]
    assert find("beta delta", visible, threshold=0) == before


def test_no_index_and_an_empty_one_find_nothing() -> None:
    assert found("anything") == found("anything", MessageIndex()) == []


def test_a_session_too_large_for_whole_texts_is_still_searched_by_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "MAX_WHOLE_TEXTS", 4)
    index = indexed(*MESSAGES)
    assert index.texts == []
    assert found("databse schema", index) == [1]


def test_many_candidates_are_narrowed_to_the_best_and_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weftline.sessions.messages.fuzzy_ranking._MAX_POSITIONS", 50)
    monkeypatch.setattr("weftline.sessions.messages.fuzzy_ranking._MAX_SCORED", 10)
    index = indexed("common rare", *["common word"] * 200)
    assert found("common", index) == list(range(201, 191, -1))
    assert found("common rare", index)[0] == 1


def test_comparing_whole_texts_pauses_between_slices() -> None:
    index = indexed(*["some words of filler text here"] * 10_000)
    pauses = list(search_in_steps([index], "xylophonequartet", threshold=60, limit=10, with_metadata=True))
    assert len(pauses) > 3


def test_messages_may_be_added_between_steps() -> None:
    index = indexed(*["wordsof filler"] * 9_000, "the blue folder")
    steps = search_in_steps([index], "lue fol", threshold=60, limit=10, with_metadata=True)
    next(steps)
    for message_id in range(10_000, 10_010):
        index.add(message_id, "late", "")
    assert [hit.message_id for hit in run_steps(steps)] == [9_001]


def run_steps(steps: Steps) -> list[MessageHit]:
    """Run all steps and return the hits."""
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            return finished.value


def count_pauses(index: MessageIndex, query: str, threshold: float = 0) -> int:
    steps = search_in_steps([index], query, threshold=threshold, limit=100, with_metadata=True)
    return sum(1 for _ in steps)


def alphabetic(number: int) -> str:
    """Return a distinct word of five letters for every number."""
    return "".join(chr(ord("a") + number // 26**place % 26) for place in range(5))


def test_a_very_long_query_is_searched_by_the_rarest_of_its_words() -> None:
    common = [f"common{alphabetic(number)}" for number in range(60)]
    index = indexed(*[" ".join(common)] * 50, "needle", "nothing")
    query = " ".join([*common, "needle", *(f"unknown{number}" for number in range(30))])
    assert found(query, index, threshold=20)[0] == 51


def test_a_search_yields_after_every_few_candidates() -> None:
    query_words = [alphabetic(number * 97) for number in range(40)]
    texts = [" ".join(query_words[number % 7 :: 1 + number % 5]) for number in range(6_000)]
    index = indexed(*texts)
    posting_count = sum(len(index.content.posting_list(stem(word))) for word in query_words[:MAX_WORDS])
    assert (
        count_pauses(index, " ".join(query_words[:MAX_WORDS]))
        >= posting_count // POSITIONS_PER_STEP + 2_000 // SCORED_PER_STEP
    )


@pytest.mark.parametrize("query", ["abcdxxxxx", "abcdaaaab"], ids=["unknown", "known"])
def test_the_number_of_compared_words_is_bounded(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "MAX_COMPARED", 100)
    index = indexed(" ".join(f"abcd{alphabetic(number)}" for number in range(1_000)))
    compare = index.content.with_same_start if index.content.posting_list(query) else index.content.spelled_similarly
    assert 0 < max(compared.words for compared in compare(query)) <= 100
    assert found(f"abcd{alphabetic(999)}", index) == [1]


def test_comparing_very_many_words_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    index = indexed(" ".join(f"abcd{alphabetic(number)}" for number in range(1_000)))
    assert count_pauses(index, "abcdxxxxx abcdyyyyy") == 0
    monkeypatch.setattr("weftline.sessions.messages.fuzzy_ranking.WORDS_PER_STEP", 500)
    assert count_pauses(index, "abcdxxxxx abcdyyyyy") >= 4


def test_the_best_candidates_are_chosen_by_all_their_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weftline.sessions.messages.fuzzy_ranking._MAX_SCORED", 2)
    monkeypatch.setattr("weftline.sessions.messages.fuzzy_ranking.POSITIONS_PER_STEP", 3)
    index = indexed("alpha beta gamma", *["alpha filler", "beta filler"] * 10, "beta gamma", *["gamma filler"] * 5)
    assert found("alpha beta gamma", index, threshold=0) == [1, 22]


@pytest.mark.parametrize(
    "texts", [[("x", "m" * 4_000)] * 100, [("\ufdfa" * 9_990, "")] * 30], ids=["metadata", "expanding-characters"]
)
def test_pauses_count_normalised_text_and_metadata(texts: list[tuple[str, str]]) -> None:
    index = MessageIndex()
    for number, (text, metadata) in enumerate(texts, 1):
        index.add(number, text, metadata)
    characters = sum(min(20_000, len(unicodedata.normalize("NFKD", text))) + len(metadata) for text, metadata in texts)
    assert count_pauses(index, "zzqq zzqq kkjj", 99) >= characters // (CHARACTERS_PER_STEP + 20_000)


def test_an_index_drops_texts_above_its_size_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "MAX_TEXT_BYTES", 10_000)
    index = indexed(*["q" * 990] * 20)
    assert (index.texts, index.keeps_texts) == ([], False)
    assert index.weight < 10_000


def test_a_full_vocabulary_still_matches_known_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "MAX_VOCABULARY", 100)
    index = indexed("harbour budget", *(f"word{alphabetic(number)}" for number in range(1_000)), "budget zebra quokka")
    assert found("budget", index) == [1002, 1]
    assert found("harbor budgets", index)[0] == 1
    assert found("zebra quokka", index) == [1002], "by its whole text"
    assert len(index.content) < 101


TEXT_KINDS: dict[str, Callable[[random.Random], str]] = {
    "english": lambda chance: " ".join(alphabetic(int(chance.expovariate(1 / 3_000))) for _ in range(300)),
    "new words": lambda chance: " ".join(alphabetic(chance.randrange(26**5)) for _ in range(1_000)),
    "unspaced": lambda chance: "".join(chr(chance.randint(0x4E00, 0x9FFF)) for _ in range(5_000)),
    "hexadecimal": lambda chance: " ".join(f"{chance.getrandbits(256):064x}" for _ in range(100)),
    "identifiers": lambda chance: " ".join(
        f"get_{alphabetic(chance.randrange(9_999))}By{chance.randrange(99)}" for _ in range(300)
    ),
}


def memory_of(root: object) -> int:
    """Return the bytes of an object and of everything it refers to, shared or not."""
    found: dict[int, object] = {}
    pending = [root]
    while pending:
        each = pending.pop()
        if id(each) not in found and not isinstance(each, type):
            found[id(each)] = each
            # Strings that are keys of a dictionary are not among its referents.
            pending += [*gc.get_referents(each), *(each if isinstance(each, dict) else ())]
    return sum(map(sys.getsizeof, found.values()))


@pytest.mark.parametrize("kind", TEXT_KINDS)
def test_the_reported_size_of_an_index_matches_its_memory(kind: str) -> None:
    chance = random.Random(3)
    index = indexed(*(TEXT_KINDS[kind](chance) for _ in range(4)))
    assert index.weight == pytest.approx(memory_of(index), rel=0.25)


def test_bigrams_of_unspaced_scripts_are_not_matched_fuzzily() -> None:
    index = indexed("".join(chr(0x4E00 + number) for number in range(5_000)))
    assert sum(compared.words for compared in index.content.spelled_similarly("設計完了")) <= len("設計完了")


def test_an_index_reports_its_size_newest_message_and_weight() -> None:
    index = MessageIndex()
    assert (index.size, index.last_id) == (0, 0)
    empty = index.weight
    index.add(7, "some words", "and metadata")
    assert (index.size, index.last_id) == (1, 7)
    assert index.weight > empty


TEXTS = st.lists(
    st.one_of(
        st.text(max_size=40),
        st.lists(st.sampled_from(["alpha", "Beta", "get_memory", "設計", "🚀", "the", "databse", "database"])).map(
            " ".join
        ),
    ),
    max_size=12,
)


@given(
    TEXTS, TEXTS, st.text(max_size=30) | st.sampled_from(["alpha database", "getmemory 設計", "the"]), st.floats(0, 100)
)
def test_hits_are_unique_sorted_and_above_the_threshold(
    public: list[str], private: list[str], query: str, threshold: float
) -> None:
    indexes = [indexed(*public), indexed(*private, first_id=100)]
    hits = find(query, *indexes, threshold=threshold)
    ids = [hit.message_id for hit in hits]
    assert len(ids) == len(set(ids)) <= 10
    assert set(ids) <= {*indexes[0].ids, *indexes[1].ids}
    assert all(max(threshold, 0.1) <= hit.score <= 100 for hit in hits)
    assert hits == sorted(hits, key=lambda hit: (hit.score, hit.message_id), reverse=True)
    assert hits == find(query, *indexes, threshold=threshold)
