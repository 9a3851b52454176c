"""Tool calls with their results: what no border may part."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.windows.model import WindowEvent

# A call that is still open after this many further messages is long-running: it stays in full, with its results.
_MAX_MESSAGES_WHILE_OPEN = 8


class CallUnits(NamedTuple):
    """Events by position. ``first`` is the position of the call that an event belongs to, else its own.

    ``unfinished`` are calls without a result, long-running ones, and those answered again later. ``ends`` are the
    positions after which a border is possible. All but the newest of them are the same when events are appended.
    """

    first: Sequence[int]
    unfinished: frozenset[int]
    ends: Sequence[int]

    def whole(self, positions: frozenset[int]) -> frozenset[int]:
        """Return positions with the calls and results that belong to them, or that they are in the midst of.

        A call and its result with an event in between that stays could not be in one group.
        """
        last = {first: at for at, first in enumerate(self.first) if at != first}
        while True:
            units = {self.first[at] for at in positions}
            before = list(accumulate((at in positions for at in range(len(self.first))), initial=0))
            units.update(first for first, end in last.items() if before[end + 1] > before[first])
            found = frozenset(at for at, first in enumerate(self.first) if first in units)
            if found == positions:
                return found
            positions = found


class _OpenCalls:
    """Calls seen so far and their results."""

    def __init__(self) -> None:
        self.unfinished: set[int] = set()
        self._calls: dict[str, int] = {}
        self._open: dict[str, int] = {}
        self._missing: Counter[int] = Counter()
        self._messages = 0
        self._start = 0

    def call_of(self, event: WindowEvent) -> int | None:
        """Return the position of the call that an event answers."""
        call_id = event.message.tool_call_id
        called = self._calls.get(call_id) if call_id is not None and event.message.role == "tool" else None
        if called is None or call_id is None:
            return None
        if self._open.pop(call_id, None) is not None:
            self._missing[called] -= 1
        if called < self._start:
            # Long-running, or answered again: a border may be between the call and this result.
            self.unfinished.add(called)
        return called

    def add(self, at: int, event: WindowEvent) -> None:
        if self._open and event.message.role != "tool":
            self._messages += 1
        for call in event.message.tool_calls:
            self._calls[call.call_id] = self._open[call.call_id] = at
            self._missing[at] += 1

    def may_end(self, at: int) -> bool:
        """Tell whether a border is possible after a position; calls that are open for too long do not prevent it."""
        if self._open and self._messages <= _MAX_MESSAGES_WHILE_OPEN:
            return False
        self.unfinished.update(self._open.values())
        self._open.clear()
        self._messages = 0
        self._start = at + 1
        return True

    @property
    def pending(self) -> set[int]:
        """Return the calls without a result, those too whose id was used again before one came."""
        return {at for at, missing in self._missing.items() if missing}


def call_units(events: Sequence[WindowEvent]) -> CallUnits:
    """Find the calls in a window, what answers them, and where a border is possible."""
    calls = _OpenCalls()
    first = list(range(len(events)))
    ends: list[int] = []
    for at, event in enumerate(events):
        called = calls.call_of(event)
        if called is not None:
            first[at] = called
        calls.add(at, event)
        if calls.may_end(at):
            ends.append(at + 1)
    if events and (not ends or ends[-1] < len(events)):
        ends.append(len(events))
    return CallUnits(first, frozenset(calls.unfinished | calls.pending), ends)
