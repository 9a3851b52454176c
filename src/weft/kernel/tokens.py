"""Counting tokens: how large a text is to a model."""

from __future__ import annotations

from typing import Protocol

_ASCII_CHARS_PER_TOKEN = 4
_OTHER_BYTES_PER_TOKEN = 3


class TokenCounter(Protocol):
    """How many tokens a text takes."""

    def __call__(self, text: str) -> int: ...


def approximate_tokens(text: str) -> int:
    """Estimate tokens: four ASCII characters, or three UTF-8 bytes of any other script, to the token.

    Characters divided by four alone would undercount CJK by about two thirds, and a limit that can be
    passed by writing in another script is no limit.
    """
    if text.isascii():
        return -(-len(text) // _ASCII_CHARS_PER_TOKEN)
    ascii_chars = len(text.encode("ascii", "ignore"))
    other_bytes = len(text.encode()) - ascii_chars
    weighted = ascii_chars * _OTHER_BYTES_PER_TOKEN + other_bytes * _ASCII_CHARS_PER_TOKEN
    return -(-weighted // (_ASCII_CHARS_PER_TOKEN * _OTHER_BYTES_PER_TOKEN))
