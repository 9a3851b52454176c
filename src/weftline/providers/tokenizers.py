"""Token counters: an estimate by default, exact tokenizers if installed."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from weftline.kernel.errors import Unavailable
from weftline.kernel.ports import approximate_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weftline.kernel.ports import TokenCounter

_MAX_CHARS = 50_000


class TokenizerMissing(Unavailable):
    """The tokenizer of this session is not installed."""

    code = "TOKENIZER_MISSING"
    hint = "Install weftline[tokenizers] where Weftline runs, or create the session with tokenizer 'approximate'."
    related = ("create_session",)


class TokenizerRegistry:
    """Token counters by name. A vocabulary takes 75 MB and is loaded on first use."""

    def named(self, tokenizer: str) -> TokenCounter:
        return approximate_tokens if tokenizer == "approximate" else _exact(tokenizer)


@cache
def _exact(tokenizer: str) -> TokenCounter:
    try:
        library = import_module("bpe_openai")
    except ImportError as error:
        raise TokenizerMissing from error
    encode = library.get_encoding(tokenizer).encode_ordinary
    return lambda text: sum(len(encode(piece)) for piece in _pieces(text))


def _pieces(text: str) -> Iterator[str]:
    """Split a text that the library refuses as too long, at white space where tokens end anyway."""
    start = 0
    while len(text) - start > _MAX_CHARS:
        end = max(text.rfind(space, start + _MAX_CHARS // 2, start + _MAX_CHARS) for space in " \n")
        end = end if end > start else start + _MAX_CHARS
        yield text[start:end]
        start = end
    yield text[start:]
