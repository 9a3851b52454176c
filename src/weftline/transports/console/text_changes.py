"""Diffs of texts that pages compare themselves: sides of a merge, blocks of two prompts. Bounded in work and size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weftline.history.text_diff import DiffBudget, TextDiff, text_diff
from weftline.kernel.thread_pools import TEXT_THREADS

if TYPE_CHECKING:
    from collections.abc import Sequence

# For all diffs of one page: a tenth of a second of work.
_STEPS, _CHARACTERS = 100_000, 60_000


async def compared(pairs: Sequence[tuple[str, str]]) -> list[TextDiff]:
    """Return the unified diff of each pair of texts; lines beyond the bounds of a page are left out and counted."""
    return await TEXT_THREADS.run(_compare, pairs)


def as_text(value: object) -> str:
    """Return a stored value as it is compared: a text as it is, anything else as indented JSON."""
    return value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _compare(pairs: Sequence[tuple[str, str]]) -> list[TextDiff]:
    budget = DiffBudget(_STEPS, _CHARACTERS)
    return [text_diff(before, after, budget) for before, after in pairs]
