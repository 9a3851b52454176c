"""The WordPiece tokenizer matches the reference tokenizer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weftline.encoder.wordpiece import WordPieceTokenizer

TOKENIZER = WordPieceTokenizer()
START, END, UNKNOWN = 101, 102, 100


# Token ids of the reference tokenizer.
@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", []),
        ("Hello, World!", [7592, 1010, 2088, 999]),
        ("unaffable embeddings", [14477, 20961, 3468, 7861, 8270, 4667, 2015]),
        ("Müller naïve café", [12304, 15743, 7668]),
        ("東京 2026", [1879, 1755, 16798, 2575]),
        ("it's 5%…", [2009, 1005, 1055, 1019, 1003, 1529]),
        ("a\u200bb\x00c\ufffdd", [5925, 2094]),
        ("🚢", [100]),
        ("한국", [1469, 30006, 30021, 29991, 30014, 30020]),
    ],
)
def test_tokens_match_the_reference_tokenizer(text: str, tokens: list[int]) -> None:
    assert TOKENIZER.numbers(text, 512) == [START, *tokens, END]


def test_special_tokens_in_text_are_plain_text() -> None:
    assert START not in TOKENIZER.numbers("[CLS] [SEP] [PAD] [MASK]", 512)[1:]
    assert TOKENIZER.numbers("[SEP]", 512).count(END) == 1


def test_an_overlong_word_is_the_unknown_token() -> None:
    assert TOKENIZER.numbers("x" * 101, 512) == [START, UNKNOWN, END]
    assert UNKNOWN not in TOKENIZER.numbers("x" * 100, 512)


def test_tokens_beyond_the_limit_are_dropped() -> None:
    whole = TOKENIZER.numbers("unaffable embeddings " * 20, 10_000)
    for limit in range(3, 12):
        assert TOKENIZER.numbers("unaffable embeddings " * 20, limit) == [*whole[: limit - 1], END]


@given(st.text(max_size=200), st.integers(2, 30))
def test_any_text_has_start_and_end_tokens_within_the_limit(text: str, limit: int) -> None:
    numbers = TOKENIZER.numbers(text, limit)
    assert (numbers[0], numbers[-1]) == (START, END)
    assert len(numbers) <= limit
    assert numbers[:-1] == TOKENIZER.numbers(text, 10_000)[: len(numbers) - 1]
