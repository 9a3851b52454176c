"""Simple ways to shorten a conversation: the newest messages, every nth message, and TextRank.

Each fills the target with whole messages in their order, and the last one as far as it fits: as good as it gets by its
own rule.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from weftline.indexing.text_analysis import terms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evals.compaction.corpora import Conversation, Message
    from weftline.kernel.ports import TokenCounter

    Array = np.ndarray[Any, Any]

_DAMPING = 0.85
_ITERATIONS = 30
# Messages of fewer terms tell nothing about their likeness to others.
_MIN_TERMS = 2


def newest_part(conversation: Conversation, target: int, count: TokenCounter) -> str:
    """Return the end of a conversation."""
    text = conversation.text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high) // 2
        if count(text[middle:]) <= target:
            high = middle
        else:
            low = middle + 1
    return text[low:]


def every_nth(conversation: Conversation, target: int, count: TokenCounter) -> str:
    """Return messages at equal distances."""
    number = len(conversation.messages)
    # Each bit-reversed index halves the largest gap that is left: every prefix of this order is evenly spread.
    bits = max(1, (number - 1).bit_length())
    order = [int(f"{at:0{bits}b}"[::-1], 2) for at in range(1 << bits)]
    return _filled(conversation, [at for at in order if at < number], target, count)


def text_rank(conversation: Conversation, target: int, count: TokenCounter) -> str:
    """Return the messages that are most like all others: PageRank over the words that they share (TextRank)."""
    scores = _page_rank(_similarities([terms(message.text) for message in conversation.messages]))
    return _filled(conversation, np.argsort(-scores, kind="stable").tolist(), target, count)


def _similarities(texts: Sequence[Sequence[str]]) -> Array:
    """Return the shared terms of each two messages, relative to the logarithms of their lengths."""
    numbers = {term: number for number, term in enumerate({term: None for text in texts for term in text})}
    occurrences = np.zeros((len(texts), len(numbers)), np.float32)
    for row, text in enumerate(texts):
        for term, times in Counter(text).items():
            occurrences[row, numbers[term]] = times > 0
    lengths = np.array([np.log(len(text)) if len(text) >= _MIN_TERMS else np.inf for text in texts], np.float32)
    similarities = occurrences @ occurrences.T / (lengths[:, None] + lengths[None, :])
    np.fill_diagonal(similarities, 0)
    return similarities


def _page_rank(similarities: Array) -> Array:
    size = len(similarities)
    totals = similarities.sum(axis=1, keepdims=True)
    transitions = np.divide(similarities, totals, out=np.zeros_like(similarities), where=totals > 0)
    scores = np.full(size, 1 / size)
    for _ in range(_ITERATIONS):
        scores = (1 - _DAMPING) / size + _DAMPING * (scores @ transitions)
    return scores


def _filled(conversation: Conversation, order: Sequence[int], target: int, count: TokenCounter) -> str:
    """Return the messages that come first in an order and fit together, in their own order."""
    lines = [_line(message) for message in conversation.messages]
    costs = [count(f"{line}\n") for line in lines]
    chosen: list[int] = []
    room = target
    for at in order:
        if costs[at] <= room:
            chosen.append(at)
            room -= costs[at]
    return "\n".join(lines[at] for at in sorted(chosen))


def _line(message: Message) -> str:
    return f"{message.speaker}: {message.text}"
