"""Live event feed: one reader per tenant tails the event log and serves all subscribers from memory.

An event wakes few subscribers at a time, tenants in turn, so that thousands of them leave the loop to other calls.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from contextlib import contextmanager
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from weftline.access.sql import AccessStore
from weftline.kernel.errors import PermissionDenied, Unavailable
from weftline.kernel.identity import ANYONE
from weftline.kernel.packed_text import LoopTurns
from weftline.kernel.ports import decrement
from weftline.sessions.events.model import AUDIENCE_CHANGES, MEMBERS_CHANGED, EventPage, is_about_a_key
from weftline.sessions.events.sql import EventStore
from weftline.sessions.model import find_session
from weftline.sessions.sql import SessionStore
from weftline.storage.sql.database import AccessChanged, Scope, caller_scope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from weftline.kernel.events import Event, StoredEvent
    from weftline.kernel.identity import Actor
    from weftline.kernel.transaction import Transaction
    from weftline.sessions.events.model import EventFilter
    from weftline.storage.sql.database import Database


# Subscribers to events: event streams, MCP subscriptions and calls that wait for an event.
#
# Every event costs a step for each subscriber, so they are limited: for a principal, for the agents below one, and for
# a tenant. In a full tenant, a subscriber of the principal with the most gives way to a principal with fewer.

MAX_OF_PRINCIPAL = 256
MAX_OF_TENANT = 2_000


class SubscriberLimits(NamedTuple):
    """Maximum subscribers in this process."""

    principal: int = MAX_OF_PRINCIPAL
    tenant: int = MAX_OF_TENANT

    @property
    def tree(self) -> int:
        """Return the maximum of an agent with all agents below it: those outside its tree have the rest."""
        return max(1, self.tenant // 2)


class TooManySubscriptions(Unavailable):
    """Too many event streams, subscriptions and waiting calls are open at once."""

    code = "TOO_MANY_SUBSCRIPTIONS"
    hint = (
        "Close those that are no longer read: one stream can follow all your sessions. To go on where a stream ended, "
        "pass context.resume_after as after to `events.read`, or open the stream with it."
    )
    http_status = 429
    severity = "warning"


class Subscriber:
    """One open subscription. ``displaced`` once it has to end for another principal."""

    __slots__ = ("displaced", "group", "tree", "wake")

    def __init__(self, actor: Actor) -> None:
        self.group = (actor.tenant, actor.principal_id)
        self.tree = [(actor.tenant, agent) for agent in actor.trees]
        self.displaced = False
        # Ends the wait of a displaced subscriber.
        self.wake: Callable[[], None] = lambda: None

    def displace(self) -> None:
        self.displaced = True
        self.wake()

    def check(self, position: int) -> None:
        """Raise if this subscription has to end; ``position`` is where to resume."""
        if self.displaced:
            raise TooManySubscriptions(
                "This subscription was ended: your tenant has too many, and others have fewer than you.",
                resume_after=position,
            )


class Subscribers:
    """The open subscriptions of this process."""

    def __init__(self, limits: SubscriberLimits | None = None) -> None:
        self._limits = SubscriberLimits() if limits is None else limits
        # In the order they were opened.
        self._of_principal: defaultdict[tuple[str, str], dict[Subscriber, None]] = defaultdict(dict)
        self._in_tree: Counter[tuple[str, str]] = Counter()
        self._of_tenant: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._of_tenant.total()

    @contextmanager
    def subscribed(self, actor: Actor) -> Iterator[Subscriber]:
        """Count a subscription while it is open; raises TooManySubscriptions."""
        subscriber = Subscriber(actor)
        self._admit(subscriber)
        self._of_principal[subscriber.group][subscriber] = None
        self._of_tenant[actor.tenant] += 1
        self._in_tree.update(subscriber.tree)
        try:
            yield subscriber
        finally:
            self._remove(subscriber)

    def _admit(self, subscriber: Subscriber) -> None:
        tenant, limits = subscriber.group[0], self._limits
        own = len(self._of_principal.get(subscriber.group, ()))
        if own >= limits.principal:
            raise TooManySubscriptions(f"You have {own} subscriptions open.", limit=limits.principal)
        if any(self._in_tree[agent] >= limits.tree for agent in subscriber.tree):
            raise TooManySubscriptions(
                "You and the agents above and below you have too many subscriptions open.", limit=limits.tree
            )
        if self._of_tenant[tenant] >= limits.tenant:
            self._make_room(tenant, own)

    def _make_room(self, tenant: str, own: int) -> None:
        """End a subscription of the principal with the most, unless that would leave it with fewer than the caller."""
        most = max((held for group, held in self._of_principal.items() if group[0] == tenant), key=len)
        if len(most) < own + 2:
            raise TooManySubscriptions("Your tenant has too many subscriptions open.", limit=self._limits.tenant)
        newest = next(reversed(most))
        self._remove(newest)
        newest.displace()

    def _remove(self, subscriber: Subscriber) -> None:
        held = self._of_principal.get(subscriber.group)
        if held is None or subscriber not in held:
            return
        del held[subscriber]
        if not held:
            del self._of_principal[subscriber.group]
        decrement(self._of_tenant, subscriber.group[0])
        for agent in subscriber.tree:
            decrement(self._in_tree, agent)


_PAGE_SIZE = 200
# Events from memory in one page: a subscriber that is far behind takes several turns.
_SLICE_SIZE = 200
# More of them are looked through in turns of the loop.
_FEW_EVENTS = 8
# Subscribers woken in one iteration of the loop.
_WOKEN_AT_ONCE = 8
_MAX_RECENT = 2_000
_MAX_TAILS = 256
# Keys of a tenant whose ACLs a tail remembers.
_MAX_ACLS = 10_000
_MAX_SOURCES = 10_000
_Key = tuple[str | None, str | None, str]
_FIRST_WAKE_SECONDS = 0.2


class LiveFeed:
    """Serves events from the log and wakes subscribers on new ones."""

    def __init__(
        self, database: Database, limits: SubscriberLimits | None = None, turns: LoopTurns | None = None
    ) -> None:
        self._database = database
        self._turns = LoopTurns() if turns is None else turns
        self.subscribers = Subscribers(limits)
        self._waker = _Waker()
        self._tails: dict[str, _Tail] = {}
        self._sources: dict[str, str] = {}
        self._waiting = 0
        self.listeners: list[Callable[[set[str]], None]] = []
        self.on_first_subscriber: Callable[[], None] = lambda: None
        self._listening: asyncio.Task[None] | None = None
        self._first_wake: asyncio.TimerHandle | None = None

    @property
    def is_followed(self) -> bool:
        """Return whether a subscriber is waiting for events."""
        return self._waiting > 0

    def start(self) -> None:
        """Start listening for new events, once: with the jobs, or with the first subscriber."""
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen(), name="weftline-feed")
            # Covers events written before the database began to notify.
            self._first_wake = asyncio.get_running_loop().call_later(_FIRST_WAKE_SECONDS, self._wake, set())

    async def close(self) -> None:
        if self._first_wake is not None:
            self._first_wake.cancel()
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        await self._waker.close()

    async def _listen(self) -> None:
        async for tenants in self._database.wakes():
            for listener in self.listeners:
                listener(tenants)
            self._wake(tenants)

    def _wake(self, tenants: set[str]) -> None:
        for name, tail in self._tails.items():
            if not tenants or name in tenants:
                tail.changed()
                self._waker.add(tail)

    async def next(
        self,
        actor: Actor,
        interest: EventFilter,
        after: int | None,
        wait_seconds: float,
        *,
        resuming: bool = False,
        subscriber: Subscriber | None = None,
    ) -> EventPage:
        """Return the next page. With ``resuming`` access was checked just before, and the tail is not refreshed.

        A call that waits without a ``subscriber`` counts as one while it waits.
        """
        tail = self._tail(actor.tenant)
        if not resuming:
            await self._check(actor, interest)
            tail.stale = True
        tail.followers += 1
        try:
            return await self._next(tail, actor, interest, after, _Wait(wait_seconds, subscriber))
        finally:
            tail.followers -= 1

    async def source(self, tenant: str) -> str:
        source = self._sources.get(tenant)
        if source is None:
            source = await self._database.read(Scope(tenant), lambda transaction: EventStore(transaction).source())
            if len(self._sources) >= _MAX_SOURCES:
                self._sources.clear()
            self._sources[tenant] = source
        return source

    async def _next(
        self, tail: _Tail, actor: Actor, interest: EventFilter, after: int | None, wait: _Wait
    ) -> EventPage:
        end = await tail.end(actor.epoch)
        position = end if after is None else min(after, end)
        pruned = await tail.pruned_after(position)
        position = max(position, pruned or 0)
        while True:
            wait.check(position)
            changes = tail.changes
            scanned, reached = await tail.after(position, actor, interest.session_id)
            if len(scanned) > _FEW_EVENTS:
                await self._turns.wait((actor.tenant, actor.path))
            covered = [recorded for recorded in scanned if interest.covers(recorded, actor)]
            if _may_have_lost_access(interest, scanned):
                await self._check(actor, interest)
            if covered:
                return EventPage(covered, reached, pruned)
            if reached == position and (pruned is not None or not await self._waited(tail, changes, actor, wait)):
                wait.check(position)
                return EventPage([], position, pruned)
            position = reached
            await asyncio.sleep(0)  # yields while scanning a long log

    async def _waited(self, tail: _Tail, changes: int, actor: Actor, wait: _Wait) -> bool:
        """Wait until the tail has changed since ``changes`` were counted; False on timeout."""
        if wait.is_over:
            return False
        self.start()
        with self._subscribed(actor, wait) as subscriber:
            return await tail.wait(changes, wait.deadline, subscriber)

    @contextmanager
    def _subscribed(self, actor: Actor, wait: _Wait) -> Iterator[Subscriber]:
        self._waiting += 1
        if self._waiting == 1:
            self.on_first_subscriber()
        try:
            if wait.subscriber is not None:
                yield wait.subscriber
            else:
                with self.subscribers.subscribed(actor) as subscriber:
                    yield subscriber
        finally:
            self._waiting -= 1

    def _tail(self, tenant: str) -> _Tail:
        tail = self._tails.get(tenant)
        if tail is None:
            if len(self._tails) >= _MAX_TAILS:
                self._tails = {name: known for name, known in self._tails.items() if known.followers}
            tail = self._tails[tenant] = _Tail(self._database, tenant)
        return tail

    async def _check(self, actor: Actor, interest: EventFilter) -> None:
        """Check the caller's access, and that it is a member of the session it names."""
        if interest.session_id is None and not (interest.personal or interest.addressed) and actor.is_subagent:
            raise PermissionDenied(
                "A sub-agent can follow only the session it works in.",
                hint="Pass the session_id you were given.",
            )

        async def check(transaction: Transaction) -> None:
            if interest.session_id is not None:
                await find_session(interest.session_id, actor, SessionStore(transaction))

        await self._database.read(caller_scope(actor), check)


def _may_have_lost_access(interest: EventFilter, scanned: Sequence[StoredEvent]) -> bool:
    """Tell whether the members of the subscriber's session changed, so that its stream must end if it is none."""
    return interest.session_id is not None and any(
        recorded.event.type == MEMBERS_CHANGED and recorded.event.session_id == interest.session_id
        for recorded in scanned
    )


class _Wait:
    """How long a call waits for events, and the subscription it belongs to."""

    __slots__ = ("deadline", "subscriber")

    def __init__(self, seconds: float, subscriber: Subscriber | None) -> None:
        self.deadline = asyncio.get_running_loop().time() + seconds
        self.subscriber = subscriber

    @property
    def is_over(self) -> bool:
        return asyncio.get_running_loop().time() >= self.deadline

    def check(self, position: int) -> None:
        if self.subscriber is not None:
            self.subscriber.check(position)


class _Waker:
    """Wakes the waiting subscribers of changed tails: a few in each iteration of the loop, tails in turn."""

    def __init__(self) -> None:
        self._changed: deque[_Tail] = deque()
        self._waking: asyncio.Task[None] | None = None

    def add(self, tail: _Tail) -> None:
        if tail not in self._changed:
            self._changed.append(tail)
        if self._waking is None or self._waking.done():
            self._waking = asyncio.create_task(self._wake_all(), name="weftline-feed-waker")

    async def close(self) -> None:
        if self._waking is not None:
            self._waking.cancel()
            await asyncio.gather(self._waking, return_exceptions=True)

    async def _wake_all(self) -> None:
        while self._changed:
            tail = self._changed.popleft()
            if tail.wake_some(_WOKEN_AT_ONCE):
                self._changed.append(tail)
            await asyncio.sleep(0)


class _Tail:
    """The recent events of one tenant, read once for all subscribers."""

    def __init__(self, database: Database, tenant: str) -> None:
        self._database = database
        self._tenant = tenant
        self._recent: deque[StoredEvent] = deque(maxlen=_MAX_RECENT)
        self._cached_after = -1
        self._end = -1
        self._epoch = -1
        self._acls: dict[_Key, tuple[str, ...]] = {}
        self.stale = True
        self._reading = asyncio.Lock()
        self.changes = 0
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._to_wake = 0
        self.followers = 0

    def changed(self) -> None:
        """Note new events; those who wait now are woken by ``wake_some``."""
        self.stale = True
        self.changes += 1
        self._to_wake = len(self._waiting)

    def wake_some(self, limit: int) -> bool:
        """Wake those who wait longest; return whether others have to be woken."""
        for _ in range(min(limit, self._to_wake, len(self._waiting))):
            waiter = next(iter(self._waiting))
            del self._waiting[waiter]
            _wake(waiter)
        self._to_wake = min(max(0, self._to_wake - limit), len(self._waiting))
        return self._to_wake > 0

    async def wait(self, changes: int, deadline: float, subscriber: Subscriber) -> bool:
        """Wait for a change after ``changes`` were counted, or until the subscriber is displaced; False on timeout."""
        if changes != self.changes:
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = None
        subscriber.wake = lambda: _wake(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                await waiter
        except TimeoutError:
            return False
        finally:
            self._waiting.pop(waiter, None)
        return True

    async def end(self, epoch: int) -> int:
        await self._refresh(epoch)
        return self._end

    async def pruned_after(self, seq: int) -> int | None:
        """Return the last event that retention deleted, if it comes after ``seq``."""
        if seq >= self._cached_after:
            return None
        pruned = await self._database.read(Scope(self._tenant), lambda tx: EventStore(tx).pruned_seq())
        return pruned if pruned > seq else None

    async def after(self, seq: int, actor: Actor, session_id: str | None) -> tuple[Sequence[StoredEvent], int]:
        """Return the next events after ``seq`` and the seq they reach, from memory if it goes back far enough."""
        await self._refresh(actor.epoch)
        if seq >= self._end:
            return (), seq
        if seq >= self._cached_after:
            return self._recent_after(seq)
        # Not beyond the end that was known before: others may move it while this reads, past events that it misses.
        end = self._end
        older = await self._database.read(
            caller_scope(actor),
            lambda transaction: EventStore(transaction).after(seq, session_id, _PAGE_SIZE),
            heavy=True,
        )
        known = [recorded for recorded in older if recorded.event.seq <= end]
        return known, known[-1].event.seq if len(older) == _PAGE_SIZE and known else end

    def _recent_after(self, seq: int) -> tuple[Sequence[StoredEvent], int]:
        # From the end: most subscribers lack the last event only.
        newer = list(takewhile(lambda recorded: recorded.event.seq > seq, reversed(self._recent)))
        newer.reverse()
        if len(newer) <= _SLICE_SIZE:
            return newer, self._end
        return newer[:_SLICE_SIZE], newer[_SLICE_SIZE - 1].event.seq

    async def _refresh(self, epoch: int) -> None:
        async with self._reading:
            if self.stale or self._epoch != epoch:
                self.stale = False
                try:
                    await self._database.read(Scope(self._tenant), self._catch_up)
                except BaseException:
                    # A call that was cancelled leaves the reading to the next one.
                    self.stale = True
                    raise
        if self._epoch != epoch:
            raise AccessChanged

    async def _catch_up(self, transaction: Transaction) -> None:
        store = EventStore(transaction)
        self._epoch = await AccessStore(transaction).epoch() or 0
        end = await store.last_seq()
        if self._end < 0 or end - self._end > _MAX_RECENT:
            self._recent.clear()
            self._cached_after = end
        else:
            if len(self._recent) + (end - self._end) > _MAX_RECENT:
                dropped = len(self._recent) + (end - self._end) - _MAX_RECENT
                self._cached_after = self._recent[min(dropped, len(self._recent)) - 1].event.seq
            new = await store.after(self._end, None, _MAX_RECENT)
            await self._reread_closed(new, store)
            self._recent.extend(new)
            readdressed = [recorded.event.seq for recorded in new if recorded.event.type in AUDIENCE_CHANGES]
            if readdressed:
                self._drop_before(readdressed[-1])
        self._end = end

    async def _reread_closed(self, new: Sequence[StoredEvent], store: EventStore) -> None:
        """Read the cached events of keys again whose ACL is another one now."""
        changed = {about for recorded in new if (about := self._noted_acl(recorded)) is not None}
        cached = [known.event.seq for known in self._recent if _key_of(known.event) in changed] if changed else []
        if cached:
            fresh = {recorded.event.seq: recorded for recorded in await store.numbered(cached)}
            self._recent = deque((fresh.get(known.event.seq, known) for known in self._recent), maxlen=_MAX_RECENT)

    def _noted_acl(self, recorded: StoredEvent) -> _Key | None:
        """Note the ACL of a key, and return the key if it had another one before."""
        about = _key_of(recorded.event)
        if about is None or self._acls.get(about, ANYONE) == recorded.readable_by:
            return None
        if len(self._acls) >= _MAX_ACLS:
            self._acls.clear()
        self._acls[about] = recorded.readable_by
        return about

    def _drop_before(self, seq: int) -> None:
        """Drop cached events before ``seq``, whose ACLs have changed."""
        self._recent = deque((known for known in self._recent if known.event.seq >= seq), maxlen=_MAX_RECENT)
        self._cached_after = seq - 1


def _key_of(event: Event) -> _Key | None:
    """Return session, branch and key of an event that is about a key."""
    return (event.session_id, event.data.get("branch"), event.subject) if is_about_a_key(event) else None


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
