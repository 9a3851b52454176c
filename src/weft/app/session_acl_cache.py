"""Who may look into which session, kept between searches: only what was made or deleted since is read."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from weft.storage.sql.events import SqlEventStore
from weft.storage.sql.sessions import SqlSessionStore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft.kernel.identity import Actor
    from weft.storage.sql.database import Transaction

_READ_AT_ONCE = 5_000
# So far from what was known, it is read anew: it costs no more, and the database may have been put back meanwhile.
_FAR = 10_000
# Of all tenants together; those that nobody searched for longest are forgotten first.
_MOST_SESSIONS = 500_000


class _Sessions:
    """The sessions of a tenant as they were at an event, by those who may know of them: mostly the same few."""

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self._audiences: dict[str, tuple[str, ...]] = {}
        self._by_audience: dict[tuple[str, ...], set[str]] = {}

    def __len__(self) -> int:
        return len(self._audiences)

    def take(self, changed: Iterable[tuple[str, tuple[str, ...] | None]]) -> None:
        """Take in who may know of sessions; None of one that is gone."""
        for session_id, audience in changed:
            before = self._audiences.pop(session_id, None)
            if before is not None:
                self._leave(before, session_id)
            if audience is not None:
                self._audiences[session_id] = audience
                self._by_audience.setdefault(audience, set()).add(session_id)

    def admitting(self, actor: Actor) -> frozenset[str]:
        admitted = (sessions for audience, sessions in self._by_audience.items() if actor.matches(audience))
        return frozenset().union(*admitted)

    def _leave(self, audience: tuple[str, ...], session_id: str) -> None:
        others = self._by_audience[audience]
        others.discard(session_id)
        if not others:
            del self._by_audience[audience]


class SessionAclCache:
    """What this process knows of the sessions of the tenants that are searched."""

    def __init__(self) -> None:
        self._tenants: OrderedDict[str, _Sessions] = OrderedDict()

    async def of(self, transaction: Transaction) -> _Sessions:
        """Return the sessions of the transaction's tenant, as it sees them or newer."""
        tenant, seq = transaction.tenant, await SqlEventStore(transaction).last_seq()
        known = self._tenants.get(tenant)
        if known is None or abs(known.seq - seq) > _FAR:
            known = await _all(transaction, seq)
            self._keep(tenant, known)
        elif known.seq < seq:
            changed = await SqlSessionStore(transaction).audiences_changed(known.seq)
            # Whoever was quicker may have seen more; then this is old news.
            if known.seq <= seq:
                known.take(changed)
                known.seq = seq
        if tenant in self._tenants:
            self._tenants.move_to_end(tenant)
        return known

    def _keep(self, tenant: str, known: _Sessions) -> None:
        self._tenants[tenant] = known
        while len(self._tenants) > 1 and sum(map(len, self._tenants.values())) > _MOST_SESSIONS:
            self._tenants.popitem(last=False)


async def _all(transaction: Transaction, seq: int) -> _Sessions:
    store, known = SqlSessionStore(transaction), _Sessions(seq)
    after = ""
    while True:
        page = await store.audiences(after, _READ_AT_ONCE)
        known.take(page)
        if len(page) < _READ_AT_ONCE:
            return known
        after = page[-1][0]


class CallSessionAcl(NamedTuple):
    """The sessions of one call's tenant."""

    tenants: SessionAclCache
    transaction: Transaction

    async def admitting(self, actor: Actor) -> frozenset[str]:
        return (await self.tenants.of(self.transaction)).admitting(actor)
