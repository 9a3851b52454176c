"""Index terms and query terms of text analysis."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from weftline.indexing.text_analysis import MAX_WORD_LENGTH, _stem, index_terms, query_terms, terms

SYLLABLES = ("con", "dis", "file", "lan", "mo", "plan", "re", "sta", "tra", "vi")
ENDINGS = ("ations", "edly", "fulness", "ing", "ional", "ities", "ness", "ously", "s", "tion")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("planning the plans", "plan planned"),
        ("getCurrentWeather", "get_current_weather"),
        ("Café naïve", "cafe naive"),
        ("the dog's bone", "dogs bones"),
        ("Ann\u2019s", "ANNS"),
    ],
)
def test_forms_of_one_word_are_one_term(one: str, other: str) -> None:
    assert terms(one) == terms(other)


def test_stop_words_are_dropped_unless_nothing_else_remains() -> None:
    assert terms("what is it of") == []
    assert query_terms("to be or not to be") == terms("not")
    assert query_terms("what is it") == ["what", "is", "it"]


def test_scripts_without_spaces_are_indexed_as_bigrams() -> None:
    assert terms("搜索关键词") == ["搜索", "索关", "关键", "键词"]
    assert terms("词") == ["词"]


def test_encoded_data_is_one_term() -> None:
    assert terms("a1" * 40) == [("a1" * 40)[:MAX_WORD_LENGTH]]


@pytest.mark.parametrize(("joined", "apart"), [("IL6", "IL-6"), ("20mg", "20 mg"), ("section4b", "Section 4 B")])
def test_an_alphanumeric_name_matches_its_parts(joined: str, apart: str) -> None:
    assert set(terms(joined)) == {joined.lower(), *terms(apart)}


def test_a_long_alphanumeric_code_is_one_term() -> None:
    assert terms("a3f9b2c1") == ["a3f9b2c1"]


def test_heading_terms_count_twice() -> None:
    assert index_terms("red", "Apples") == "appl appl red"


@pytest.mark.parametrize("text", ["", " ", "\x00", "\ud83d", "🍎", "\u202e", "%_'\"\\;--"])
def test_any_text_has_terms_without_spaces_in_them(text: str) -> None:
    assert all(term and not term.isspace() for term in terms(text))


def test_the_stemmer_is_thread_safe() -> None:
    words = [f"{start}{middle}{end}" for start in SYLLABLES for middle in SYLLABLES for end in ENDINGS]
    alone = {word: _stem(word) for word in words}
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda turn: {w: _stem(w) for w in words[turn:] + words[:turn]}, range(8)))
    assert all(stems == alone for stems in together)
