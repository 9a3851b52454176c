"""What sentences state, read by the included classifier: kinds of statements, answers to questions, replacements.

Slow to load: numpy and the weights are imported with the first sentence.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from weftline.windows.compaction.model import FactKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weftline.encoder.classifier import TextClassifier

T = TypeVar("T")

# In the order of the classifier; the first is everything that states nothing.
_KINDS = (
    None,
    FactKind.DECISION,
    FactKind.COMMITMENT,
    FactKind.CONSTRAINT,
    FactKind.REQUIREMENT,
    FactKind.OPEN_QUESTION,
    FactKind.FACT,
)
# A sentence that states something with less than this probability is talk.
_LEAST = 0.04
# Maximum tokens of the neighbouring sentences that the classifier reads in one pass.
_WINDOW_TOKENS = 158
_START, _END = 101, 102
_REMEMBERED = 50_000
_ANSWERS, _REPLACES = 0.99, 0.95


class Statement(NamedTuple):
    """The kind of a sentence, and the probability that it states anything at all."""

    kind: FactKind
    probability: float


class _Memory(Generic[T]):
    """What was read, by the event and its text: a window is compacted again and again as it grows.

    A caller who wants to tell by the time that another one stored a text must know the session, the agent, the event
    and the text already.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: OrderedDict[bytes, T] = OrderedDict()

    def get(self, texts: Sequence[str], read: Callable[[], T]) -> T:
        """Return what was found in these texts, or else what ``read`` finds."""
        key = hashlib.sha256("\n".join(texts).encode("utf-8", "surrogatepass")).digest()
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
                return self._found[key]
        found = read()
        with self._lock:
            self._found[key] = found
            if len(self._found) > _REMEMBERED:
                self._found.popitem(last=False)
        return found


_read: _Memory[list[Statement | None]] = _Memory()
_compared: _Memory[tuple[float, float]] = _Memory()


def read_statements(item_id: str, sentences: Sequence[str]) -> list[Statement | None]:
    """Return what each sentence of an event states; None for those that state nothing."""
    if not sentences:
        return []
    return _read.get((item_id, *sentences), lambda: _statements(_classifier(), sentences))


def answers(item_id: str, question: str, reply: str) -> bool:
    """Tell whether a reply answers a question of an event; in doubt it does not."""
    return _pair(item_id, question, reply)[0] >= _ANSWERS


def replaces(item_id: str, later: str, earlier: str) -> bool:
    """Tell whether a statement of an event takes the place of an earlier one; in doubt both stand."""
    return _pair(item_id, earlier, later)[1] >= _REPLACES


def _pair(item_id: str, first: str, second: str) -> tuple[float, float]:
    return _compared.get((item_id, first, second), lambda: _classifier().pair(first, second))


def _classifier() -> TextClassifier:
    from weftline.encoder.classifier import CLASSIFIER  # noqa: PLC0415 - slow to import

    return CLASSIFIER.get()


def _statements(classifier: TextClassifier, sentences: Sequence[str]) -> list[Statement | None]:
    found: list[Statement | None] = []
    window: list[int] = [_START]
    spans: list[tuple[int, int]] = []
    for sentence in sentences:
        tokens = classifier.tokens(sentence)[:_WINDOW_TOKENS] or [_END]
        if len(window) + len(tokens) > _WINDOW_TOKENS and spans:
            found += _of_window(classifier, window, spans)
            window, spans = [_START], []
        spans.append((len(window), len(window) + len(tokens)))
        window += tokens
    return found + (_of_window(classifier, window, spans) if spans else [])


def _of_window(classifier: TextClassifier, window: list[int], spans: list[tuple[int, int]]) -> list[Statement | None]:
    found: list[Statement | None] = []
    for nothing, *shares in classifier.kinds([*window, _END], spans).tolist():
        kind = _KINDS[1 + shares.index(max(shares))]
        is_stated = kind is not None and 1 - nothing >= _LEAST
        found.append(Statement(kind, 1 - nothing) if is_stated and kind is not None else None)
    return found
