"""Full runs (``make test-full``, ``WEFTLINE_TESTS=full``): both databases, more examples, every benchmark."""

from __future__ import annotations

import os

FULL = os.environ.get("WEFTLINE_TESTS") == "full"


def examples(count: int) -> int:
    """Return how many examples Hypothesis tries: ``count`` in a full run, an eighth of them otherwise."""
    return count if FULL else max(count // 8, 3)
