"""Cache of session ACLs for searches, updated incrementally from the event log."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from weftline.access.patterns import member_patterns
from weftline.storage.sql.events import SqlEventStore
from weftline.storage.sql.sessions import SqlSessionStore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weftline.kernel.identity import Actor
    from weftline.kernel.transaction import Transaction

_PAGE_SIZE = 5_000
# With more events than this to catch up on (or back, after a restored backup), it is rebuilt, which costs no more.
_MAX_CATCH_UP = 10_000
# Of all tenants together; the least recently searched are evicted.
_MAX_SESSIONS = 500_000


class _TenantSessions:
    """Sessions of a tenant as of an event, by the patterns of those who may see them."""

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self._lock = threading.Lock()
        self._audiences: dict[str, tuple[str, ...]] = {}
        self._by_pattern: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._audiences)

    def take(self, changed: Iterable[tuple[str, tuple[str, ...] | None]], seq: int) -> None:
        """Apply changed ACLs as of an event, unless newer ones are applied; None for a deleted session."""
        with self._lock:
            if self.seq <= seq:
                self._take(changed)
                self.seq = seq

    def _take(self, changed: Iterable[tuple[str, tuple[str, ...] | None]]) -> None:
        for session_id, audience in changed:
            for pattern in self._audiences.pop(session_id, ()):
                self._leave(pattern, session_id)
            if audience is not None:
                self._audiences[session_id] = audience
                for pattern in audience:
                    self._by_pattern.setdefault(pattern, set()).add(session_id)

    def admitting(self, actor: Actor) -> frozenset[str]:
        """Return the sessions of a caller, without looking at those of others."""
        with self._lock:
            member_of = frozenset().union(*(self._by_pattern.get(pattern, ()) for pattern in member_patterns(actor)))
        return frozenset(filter(actor.may_enter, member_of))

    def _leave(self, pattern: str, session_id: str) -> None:
        others = self._by_pattern.get(pattern, set())
        others.discard(session_id)
        if not others:
            self._by_pattern.pop(pattern, None)


class SessionAclCache:
    """Session ACLs of the tenants that this process searches."""

    def __init__(self) -> None:
        self._tenants: OrderedDict[str, _TenantSessions] = OrderedDict()
        # Searches read in threads.
        self._lock = threading.Lock()

    async def of(self, transaction: Transaction) -> _TenantSessions:
        """Return the sessions of the transaction's tenant, at its snapshot or newer."""
        tenant, seq = transaction.tenant, await SqlEventStore(transaction).last_seq()
        known = self._tenants.get(tenant)
        if known is None or await _is_too_old(known.seq, seq, transaction):
            known = await _all(transaction, seq)
            self._keep(tenant, known)
        elif known.seq < seq:
            known.take(await SqlSessionStore(transaction).audiences_changed(known.seq), seq)
        with self._lock:
            if tenant in self._tenants:
                self._tenants.move_to_end(tenant)
        return known

    def _keep(self, tenant: str, known: _TenantSessions) -> None:
        with self._lock:
            self._tenants[tenant] = known
            while len(self._tenants) > 1 and sum(map(len, self._tenants.values())) > _MAX_SESSIONS:
                self._tenants.popitem(last=False)


async def _is_too_old(known: int, seq: int, transaction: Transaction) -> bool:
    """Tell whether the events since a number are too many to catch up on, or no longer all there."""
    if abs(known - seq) > _MAX_CATCH_UP:
        return True
    return known < seq and known < await SqlEventStore(transaction).pruned_seq()


async def _all(transaction: Transaction, seq: int) -> _TenantSessions:
    store, known = SqlSessionStore(transaction), _TenantSessions(seq)
    after = ""
    while True:
        page = await store.audiences(after, _PAGE_SIZE)
        known.take(page, seq)
        if len(page) < _PAGE_SIZE:
            return known
        after = page[-1][0]


class CallSessionAcl(NamedTuple):
    """Session ACLs of the tenant of one call."""

    tenants: SessionAclCache
    transaction: Transaction

    async def admitting(self, actor: Actor) -> frozenset[str]:
        return (await self.tenants.of(self.transaction)).admitting(actor)
