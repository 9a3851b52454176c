"""Token counts: how large a text is to a model."""

from __future__ import annotations

from typing import Protocol

_ASCII_CHARS_PER_TOKEN = 4
_OTHER_BYTES_PER_TOKEN = 3


class TokenCounter(Protocol):
    """Returns the number of tokens in a text."""

    def __call__(self, text: str) -> int: ...


class TokenCounters(Protocol):
    """Token counters by name, as in the configuration of a session."""

    def named(self, tokenizer: str) -> TokenCounter: ...


def approximate_tokens(text: str) -> int:
    """Estimate tokens: four ASCII characters, or three UTF-8 bytes of any other script, per token.

    Characters divided by four would undercount CJK by about two thirds, and let a caller pass a limit by writing in
    another script.
    """
    if text.isascii():
        return -(-len(text) // _ASCII_CHARS_PER_TOKEN)
    ascii_chars = len(text.encode("ascii", "ignore"))
    other_bytes = len(text.encode()) - ascii_chars
    weighted = ascii_chars * _OTHER_BYTES_PER_TOKEN + other_bytes * _ASCII_CHARS_PER_TOKEN
    return -(-weighted // (_ASCII_CHARS_PER_TOKEN * _OTHER_BYTES_PER_TOKEN))
