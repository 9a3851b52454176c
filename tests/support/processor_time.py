"""Limits on processor time that hold on a slow machine too.

The clock of a virtual machine that shares its processors counts some of what its neighbours take. So a fixed loop is
timed before and after the work, and the slower of the two stretches the limit.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# What the loop takes on one quiet core of a laptop.
_LOOP_SECONDS = 0.02
_MOST = 10.0


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Fail when the body takes more processor time than a quiet laptop would need in so many seconds."""
    before = _loop()
    started = time.process_time()
    yield
    taken = time.process_time() - started
    slowness = min(_MOST, max(1.0, before / _LOOP_SECONDS, _loop() / _LOOP_SECONDS))
    assert taken < seconds * slowness, f"{taken:.1f} s of processor time, {slowness:.1f} times slower than a laptop"


def _loop() -> float:
    # Of this thread: others of the process may be at work.
    started = time.thread_time()
    total = 0
    for number in range(400_000):
        total += number
    return time.thread_time() - started
