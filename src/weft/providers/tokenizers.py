"""Token counters: the estimate by default, exact ones for those who installed them."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from weft.kernel.errors import Unavailable
from weft.kernel.tokens import approximate_tokens

if TYPE_CHECKING:
    from weft.kernel.tokens import TokenCounter


class TokenizerMissing(Unavailable):
    """The exact tokenizer this session asks for is not installed."""

    code = "TOKENIZER_MISSING"
    hint = "Install weft[tokenizers] where Weft runs, or create the session with tokenizer 'approximate'."
    related = ("create_session",)


class TokenizerRegistry:
    """Finds token counters by name; loads a vocabulary (75 MB in memory) only when one is first asked for."""

    def named(self, tokenizer: str) -> TokenCounter:
        return approximate_tokens if tokenizer == "approximate" else _exact(tokenizer)


@cache
def _exact(tokenizer: str) -> TokenCounter:
    try:
        library = import_module("bpe_openai")
    except ImportError as error:
        raise TokenizerMissing from error
    encode = library.get_encoding(tokenizer).encode_ordinary
    return lambda text: len(encode(text))
