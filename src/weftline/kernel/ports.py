"""Ports that several slices share: transactions, jobs, caches and counters of background work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Awaitable, Callable

    from weftline.kernel.identity import Actor


T = TypeVar("T")
N_co = TypeVar("N_co", covariant=True)
# The tenant, then everything else that a cached value depends on.
CacheKey = tuple[Any, ...]

# A process that does not renew a lease for this long is taken for dead, and another takes the work over.
LEASE_MICROS = 60_000_000
# Memory of Python objects relative to the size of their JSON, measured with many small values.
_OBJECT_OVERHEAD = 8
_encode = msgspec.json.Encoder().encode


class Transactions(Protocol[N_co]):
    """Opens transactions on behalf of a caller and hands ``N``, built for each of them, to the work.

    Declare ``Transactions[N]`` as a parameter of an operation whose effect is ``OWN_TRANSACTIONS``.
    """

    async def read(self, actor: Actor, work: Callable[[N_co], Awaitable[T]], *, heavy: bool = False) -> T:
        """Run ``work`` on one snapshot; ``heavy`` work on a connection that short reads do not wait for."""
        ...

    async def write(self, actor: Actor, work: Callable[[N_co], Awaitable[T]]) -> T:
        """Run ``work`` and commit. It may run again after a serialization failure."""
        ...


class Cooperative(Protocol):
    """Lets long work inside a transaction yield to other work of the same thread."""

    async def yield_to_loop(self) -> None: ...


class ValueCache(Protocol):
    """A cache. A key begins with the tenant and contains everything its value depends on, so values are never stale."""

    def get(self, key: CacheKey) -> Any | None: ...  # noqa: ANN401 - values of any type

    def put(self, key: CacheKey, value: Any, weight: int) -> None: ...  # noqa: ANN401 - likewise


def memory_size(answer: object) -> int:
    """Estimate the bytes that an answer occupies in memory."""
    return len(_encode(answer)) * _OBJECT_OVERHEAD


class JobMetrics(Protocol):
    """Counters and gauges of background work, of all tenants together."""

    def count_delivery(self, outcome: str, times: int = 1) -> None:
        """Count webhook requests by outcome; ``dead`` counts events that were given up."""
        ...

    def count_indexed_items(self, items: int) -> None:
        """Count messages, keys and memories whose index entries were updated."""
        ...

    def count_skipped_items(self, items: int) -> None:
        """Count messages, keys and memories that cannot be chunked, or embedded and so not found by meaning."""
        ...

    def set_index_lag(self, events: int) -> None:
        """Set the index lag in events, of the tenant with the largest."""
        ...

    def count_document(self, outcome: str) -> None:
        """Count a document by how indexing it ended."""
        ...

    def count_chunks(self, chunks: int) -> None:
        """Count document chunks that were added."""
        ...

    def set_pending_documents(self, documents: int) -> None:
        """Set the number of documents waiting to be indexed."""
        ...


# Counters that keep only what they count.

K = TypeVar("K")


def decrement(counts: Counter[K], *names: K) -> None:
    """Subtract one of each name, and forget those that count nothing any more."""
    for name in names:
        counts[name] -= 1
        if counts[name] <= 0:
            del counts[name]


# Token counts: how large a text is to a model.

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
