"""Fair sharing of a bounded resource: start-time fair queueing by tenant, then by tree of agents, then by principal.

Each flow (a tenant, a tree inside its tenant, a principal inside its tree) has a virtual time: what its work has cost
so far. The flow with the smallest is served next, so a flow that used much waits while others catch up, however much it
has queued, and an agent gets no more by creating others. A flow that becomes active starts at the current virtual time:
time it did not use is not saved up.

A principal is named by its path in the tree, see ``Actor.path``: ``planner``, and ``planner/research`` below it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from heapq import heappop, heappush, heapreplace
from math import ceil
from typing import TYPE_CHECKING, Generic, TypeVar

from weftline.kernel.errors import ServerBusy
from weftline.kernel.identity import PATH_SEPARATOR
from weftline.kernel.ports import decrement

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    # Tells whether a principal of a tenant may not be served now.
    Skip = Callable[[str, str], bool]

T = TypeVar("T")

# The cost of an item until its true cost is charged: flows take turns even if nobody measures.
_NOMINAL_COST = 0.0001
# Flows that owe no more than this are forgotten while they are idle.
_FORGIVEN_COST = 10 * _NOMINAL_COST
# Virtual times of idle flows are looked through when there are twice as many as after the last time, and this many.
_MIN_SWEEP = 64
_MAX_RETRY_SECONDS = 30


class _Schedule:
    """Names of flows in the order of their virtual time; ``now`` is the time of the flow that was served last."""

    __slots__ = ("_arrivals", "_heap", "_listed", "_sweep_at", "_times", "now")

    def __init__(self) -> None:
        self.now = 0.0
        # Also of idle flows that are ahead: they may not lose what they owe by pausing.
        self._times: dict[str, float] = {}
        # One entry for each listed flow. Charges do not touch it: an entry with an old time is corrected at the top.
        self._heap: list[tuple[float, int, str]] = []
        self._listed: set[str] = set()
        self._arrivals = 0
        self._sweep_at = _MIN_SWEEP

    def __len__(self) -> int:
        """Return the number of flows it knows."""
        return len(self._times)

    def __contains__(self, name: str) -> bool:
        return name in self._times

    def add(self, name: str) -> None:
        """List a flow that has items now."""
        if name in self._listed:
            return
        start = self._times[name] = max(self.now, self._times.get(name, self.now))
        self._listed.add(name)
        self._push(start, name)

    def charge(self, name: str, cost: float) -> None:
        self._times[name] = max(self.now, self._times.get(name, self.now)) + cost
        if len(self._times) > self._sweep_at:
            self._forget_idle()

    def first(self) -> str | None:
        """Return the listed flow with the smallest time."""
        heap = self._heap
        while heap:
            entry_time, _, name = heap[0]
            if entry_time >= self._times[name]:
                return name
            self._arrivals += 1
            heapreplace(heap, (self._times[name], self._arrivals, name))
        return None

    def take_first(self) -> str:
        """Unlist the first flow and return its name."""
        name = heappop(self._heap)[2]
        self._listed.discard(name)
        return name

    def serve(self, name: str) -> None:
        """Move on to the time of a flow that is served."""
        self.now = max(self.now, self._times[name])

    def _push(self, at: float, name: str) -> None:
        self._arrivals += 1
        heappush(self._heap, (at, self._arrivals, name))

    def _forget_idle(self) -> None:
        until = self.now + _FORGIVEN_COST
        for name in [n for n, at in self._times.items() if at <= until and n not in self._listed]:
            del self._times[name]
        self._sweep_at = max(_MIN_SWEEP, 2 * len(self._times))


class _Items(Generic[T]):
    """The items of one principal, in order of arrival."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: deque[T] = deque()

    def __len__(self) -> int:
        return len(self._items)

    def push(self, _: Sequence[str], item: T) -> None:
        self._items.append(item)

    def pop(self, skip: Skip | None, path: tuple[str, ...]) -> T | None:
        return None if skip is not None and skip(*_flow(path)) else self._items.popleft()

    def charge(self, _: Sequence[str], cost: float) -> None:
        """Do nothing: the cost is that of the flow which these items are."""

    def remove(self, _: Sequence[str], item: T) -> bool:
        if item not in self._items:
            return False
        self._items.remove(item)
        return True

    def waiting(self, _: Sequence[str]) -> int:
        return len(self._items)


class _Flows(Generic[T]):
    """Flows of one level: each has flows of the next level, or items. ``path`` names those from here on."""

    __slots__ = ("_below", "_length", "_schedule")

    def __init__(self) -> None:
        self._schedule = _Schedule()
        self._below: dict[str, _Flows[T] | _Items[T]] = {}
        self._length = 0

    def __len__(self) -> int:
        """Return the number of items."""
        return self._length

    def push(self, path: Sequence[str], item: T) -> None:
        self._flow_below(path).push(path[1:], item)
        self._schedule.add(path[0])
        self._length += 1

    def pop(self, skip: Skip | None, path: tuple[str, ...] = ()) -> T | None:
        """Return the next item; None if all are skipped. ``path`` leads here."""
        schedule, skipped, found = self._schedule, [], None
        while (name := schedule.first()) is not None:
            below = self._below.get(name)
            if below:
                found = below.pop(skip, (*path, name))
                if found is not None:
                    schedule.serve(name)
                    schedule.charge(name, _NOMINAL_COST)
                    self._length -= 1
                    if not below:
                        schedule.take_first()
                    break
                skipped.append(name)
            schedule.take_first()
        for name in skipped:
            schedule.add(name)
        self._forget_idle()
        return found

    def charge(self, path: Sequence[str], cost: float) -> None:
        self._schedule.charge(path[0], cost)
        self._flow_below(path).charge(path[1:], cost)

    def remove(self, path: Sequence[str], item: T) -> bool:
        below = self._below.get(path[0])
        if below is None or not below.remove(path[1:], item):
            return False
        self._length -= 1
        return True

    def waiting(self, path: Sequence[str]) -> int:
        below = self._below.get(path[0])
        return 0 if below is None else below.waiting(path[1:])

    def _flow_below(self, path: Sequence[str]) -> _Flows[T] | _Items[T]:
        below = self._below.get(path[0])
        if below is None:
            below = self._below[path[0]] = _Flows() if len(path) > 1 else _Items()
        return below

    def _forget_idle(self) -> None:
        if len(self._below) > len(self._schedule):
            self._below = {name: below for name, below in self._below.items() if name in self._schedule}


class FairQueue(Generic[T]):
    """Items by tenant, tree of agents and principal, in the order of fair queueing; of a principal as they arrived.

    It takes no lock: use it on one thread, or under a lock. Flows are forgotten once they are idle and owe nothing.
    """

    __slots__ = ("_flows",)

    def __init__(self) -> None:
        self._flows: _Flows[T] = _Flows()

    def __len__(self) -> int:
        return len(self._flows)

    def push(self, tenant: str, principal: str, item: T) -> None:
        self._flows.push(_path(tenant, principal), item)

    def pop(self, skip: Skip | None = None) -> T | None:
        """Return the next item, without those of principals to ``skip``; None if there is none."""
        found = self._flows.pop(skip)
        if found is not None:
            self._end_debts()
        return found

    def charge(self, tenant: str, principal: str, cost: float) -> None:
        """Add what an item of this flow really cost, in any unit that is the same for all items.

        While nobody waits, nobody owes anybody.
        """
        if self._flows:
            self._flows.charge(_path(tenant, principal), cost)

    def remove(self, tenant: str, principal: str, item: T) -> bool:
        """Remove an item that waits; return whether it did."""
        removed = self._flows.remove(_path(tenant, principal), item)
        if removed:
            self._end_debts()
        return removed

    def waiting(self, tenant: str, principal: str) -> int:
        """Return the number of items of a principal that wait."""
        return self._flows.waiting(_path(tenant, principal))

    def _end_debts(self) -> None:
        if not self._flows:
            self._flows = _Flows()


def _path(tenant: str, principal: str) -> tuple[str, str, str]:
    """Return the flows of a principal: tenant, tree, and the agent below the first of its tree."""
    tree, _, agent = principal.partition(PATH_SEPARATOR)
    return tenant, tree, agent


def _flow(path: tuple[str, ...]) -> tuple[str, str]:
    tenant, tree, agent = path
    return tenant, f"{tree}{PATH_SEPARATOR}{agent}" if agent else tree


class Shares:
    """How much of a resource each tenant, tree of agents and principal holds, and how much they may.

    A tenant may hold ``share`` of it, at least one; a tree one less than its tenant, and an agent in it one less than
    its tree, so that its neighbours find a place at once. All are hard: what is left is not lent, because nobody can
    take back work that runs.
    """

    __slots__ = ("_held", "_limits")

    def __init__(self, total: int, share: float) -> None:
        tenant = max(1, int(total * share))
        self._limits = (tenant, max(1, tenant - 1), max(1, tenant - 2))
        # By the beginnings of paths.
        self._held: Counter[tuple[str, ...]] = Counter()

    def full(self, tenant: str, principal: str) -> bool:
        """Tell whether a principal may hold no more now."""
        held = self._held
        for flow, limit in zip(_nested(tenant, principal), self._limits, strict=False):
            if held.get(flow, 0) >= limit:
                return True
        return False

    def take(self, tenant: str, principal: str) -> None:
        for flow in _nested(tenant, principal):
            self._held[flow] += 1

    def give_back(self, tenant: str, principal: str) -> None:
        decrement(self._held, *_nested(tenant, principal))


def _nested(tenant: str, principal: str) -> tuple[tuple[str, ...], ...]:
    """Return a tenant, a tree in it, and an agent below the first of its tree, if the principal is one."""
    tree, _, agent = principal.partition(PATH_SEPARATOR)
    if agent:
        return (tenant,), (tenant, tree), (tenant, tree, agent)
    return (tenant,), (tenant, tree)


class _Wait:
    """One caller that waits for a slot."""

    __slots__ = ("flow", "granted")

    def __init__(self, flow: tuple[str, str], granted: asyncio.Future[None]) -> None:
        self.flow = flow
        self.granted = granted


class FairSlots:
    """Bounds concurrent work of one event loop, shared fairly by tenants, trees of agents and principals.

    ``share`` is the part of the slots that one tenant may hold (see Shares). More than ``max_waiting`` of one
    principal, or a wait above ``max_wait_seconds``, raises ServerBusy. Work of the system itself has no principal and
    may wait in any number.
    """

    def __init__(
        self, total: int, *, share: float = 0.5, max_wait_seconds: float | None = None, max_waiting: int = 1_000
    ) -> None:
        self.total = total
        self._free = total
        self._shares = Shares(total, share)
        self._max_wait_seconds = max_wait_seconds
        self._max_waiting = max_waiting
        self._queue: FairQueue[_Wait] = FairQueue()
        self._mean_seconds = 0.0

    def hold(self, tenant: str, principal: str) -> _Hold:
        """Hold a slot for the time of an ``async with``, after a wait if none is free."""
        return _Hold(self, tenant, principal)

    async def take(self, tenant: str, principal: str) -> None:
        if self._free and not self._shares.full(tenant, principal):
            # Calls that wait while a slot is free have used up their share, so taking it overtakes none of them.
            self._free -= 1
            self._shares.take(tenant, principal)
            return
        if principal and self._queue.waiting(tenant, principal) >= self._max_waiting:
            raise self._busy()
        await self._wait(_Wait((tenant, principal), asyncio.get_running_loop().create_future()))

    def give_back(self, tenant: str, principal: str, seconds: float) -> None:
        """Return a slot that was held for some time; the time is charged to its holder."""
        self._mean_seconds += (seconds - self._mean_seconds) / 16
        self._free += 1
        self._shares.give_back(tenant, principal)
        self._queue.charge(tenant, principal, seconds)
        self._grant()

    async def _wait(self, wait: _Wait) -> None:
        self._queue.push(*wait.flow, wait)
        try:
            async with asyncio.timeout(self._max_wait_seconds):
                await wait.granted
        except BaseException as error:
            if not self._queue.remove(*wait.flow, wait) and not wait.granted.cancelled():
                # It was granted at the moment it gave up.
                self.give_back(*wait.flow, 0.0)
            if isinstance(error, TimeoutError):
                raise self._busy() from None
            raise

    def _grant(self) -> None:
        while self._free and self._queue and (wait := self._queue.pop(self._shares.full)) is not None:
            # Who was cancelled just now has not left the queue yet.
            if not wait.granted.done():
                self._free -= 1
                self._shares.take(*wait.flow)
                wait.granted.set_result(None)

    def _busy(self) -> ServerBusy:
        return server_busy(self._mean_seconds * (1 + len(self._queue) / self.total))


class _Hold:
    """A slot, held from entering to leaving."""

    __slots__ = ("_flow", "_slots", "_started")

    def __init__(self, slots: FairSlots, tenant: str, principal: str) -> None:
        self._slots = slots
        self._flow = (tenant, principal)
        self._started = 0.0

    async def __aenter__(self) -> None:
        await self._slots.take(*self._flow)
        self._started = time.monotonic()

    async def __aexit__(self, *_: object) -> None:
        self._slots.give_back(*self._flow, time.monotonic() - self._started)


def server_busy(wait_seconds: float) -> ServerBusy:
    """Return the refusal of a call that would wait too long; ``wait_seconds`` is the estimated time to a free slot."""
    return ServerBusy(retry_after_seconds=min(_MAX_RETRY_SECONDS, max(1, ceil(wait_seconds))))
