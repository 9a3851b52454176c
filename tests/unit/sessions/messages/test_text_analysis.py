"""Text analysis: tokens, words, stems, stop words and metadata."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weftline.indexing import text_analysis
from weftline.indexing.text_analysis import query_words, stem, tokens, words
from weftline.sessions.messages.fuzzy_ranking import METADATA_CHARACTERS, metadata_text

pytestmark = pytest.mark.req("MS-05")


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ("Plan", ("plan",)),
        ("ÉCOLE", ("ecole",)),
        ("get_memory", ("getmemory", "get", "memory")),
        ("getMemory", ("getmemory", "get", "memory")),
        ("HTTPServer2", ("httpserver2", "http", "server", "2")),
        ("__init__", ("init",)),
        ("404", ("404",)),
        ("設計書", ("設計", "計書")),
        ("設", ("設",)),
        ("API設計", ("api", "設計")),
        ("데이터", ("데이", "이터")),
        ("\uff46\uff55\uff4c\uff4c", ("full",)),
        ("🚀", ("🚀",)),
        ("___", ()),
    ],
)
def test_tokens_are_words_identifier_parts_or_bigrams(token: str, expected: tuple[str, ...]) -> None:
    assert words(token) == expected


def test_a_word_with_combining_marks_is_not_split() -> None:
    assert tokens("कनेक्शन पूल।") == ["कनेक्शन", "पूल"]
    assert tokens("cafe\u0301 déjà") == ["cafe\u0301", "déjà"]


def test_each_emoji_is_a_token_and_punctuation_is_none() -> None:
    assert tokens("🚀🎉 -> ok?!") == ["🚀", "🎉", "ok"]


@pytest.mark.parametrize(
    "forms",
    [
        ("plan", "plans", "planned", "planning"),
        ("query", "queries", "queried"),
        ("schedule", "schedules", "scheduled", "scheduling"),
        ("box", "boxes", "boxed"),
        ("pass", "passes", "passed"),
    ],
)
def test_the_forms_of_a_word_have_one_stem(forms: tuple[str, ...]) -> None:
    assert len(set(map(stem, forms))) == 1


@pytest.mark.parametrize(("one", "other"), [("status", "stat"), ("string", "str"), ("bus", "bu"), ("need", "ne")])
def test_unrelated_words_have_different_stems(one: str, other: str) -> None:
    assert stem(one) != stem(other)


@given(st.from_regex(r"[a-z0-9]{2,12}[0-9]", fullmatch=True))
def test_a_word_that_ends_with_a_digit_is_its_own_stem(word: str) -> None:
    assert stem(word) == text_analysis._stem(word) == word


def test_stop_words_of_a_query_are_dropped() -> None:
    assert query_words("When did we deploy the API?") == ["deploy", "api"]


def test_a_query_of_stop_words_keeps_them() -> None:
    assert query_words("to be or not") == ["to", "be", "or", "not"]


def test_metadata_text_holds_keys_and_plain_values_at_any_depth() -> None:
    metadata = {"type": "status", "build": {"number": 42, "ok": True, "tags": ["nightly", None, 1.5]}}
    assert metadata_text(metadata) == "type status build number 42 ok True tags nightly 1.5"


def test_deeply_nested_metadata_is_read() -> None:
    metadata = nested(500)
    assert metadata_text(metadata).endswith("innermost found")


def nested(depth: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {"innermost": "found"}
    for _ in range(depth):
        metadata = {"in": [metadata]}
    return metadata


@pytest.mark.parametrize(
    "metadata",
    [
        {"k": ["abcdef"] * 7_000},
        {"k": "x" * 60_000},
        {f"key{number}": number for number in range(5_000)},
        {"first": 1, "k": [[]] * 21_000, "last": 2},
        nested(5_000),
    ],
    ids=["many", "long", "keys", "empty", "deep"],
)
def test_metadata_text_is_truncated(metadata: dict[str, Any]) -> None:
    text = metadata_text(metadata)
    assert len(text) <= METADATA_CHARACTERS
    assert text.startswith(str(next(iter(metadata))))
    assert "last" not in text


def test_empty_metadata_has_no_text() -> None:
    assert metadata_text({}) == ""


def test_encoded_data_is_indexed_by_its_prefix() -> None:
    assert words("aB9" * 30_000) == words("aB9" * 30_000 + "tail")
    assert len(words("aB9" * 30_000)) < 64


@pytest.mark.parametrize("token", ["設計" * 30, "é" * 5, "a1B2" * 8, "f" * 17])
def test_only_short_ascii_words_are_cached(token: str) -> None:
    def cache_sizes() -> tuple[int, int]:
        caches = (text_analysis._cached_words, text_analysis._cached_stem)
        return caches[0].cache_info().currsize, caches[1].cache_info().currsize

    text_analysis._cached_words.cache_clear()
    text_analysis._cached_stem.cache_clear()
    assert {stem(word) for word in words(token) if len(word) > 16} <= set(words(token))
    assert cache_sizes() == (0, 0)
    assert stem(words("Plans")[0]) == "plan"
    assert cache_sizes() == (1, 1)
