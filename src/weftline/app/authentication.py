"""Authentication: from a credential to an Actor, cached until the tenant's access rules change."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from weftline.access.authentication import authenticate, enter_step, identify_local, tenant_of
from weftline.access.model import member_patterns
from weftline.access.sql import AccessStore
from weftline.kernel.clock import to_micros
from weftline.kernel.errors import InvalidApiKey, TokenExpired
from weftline.kernel.fair_queue import FairSlots
from weftline.sessions.events.sql import EventStore
from weftline.sessions.sql import SessionStore
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weftline.access.model import TokenCodec
    from weftline.kernel.clock import Clock
    from weftline.kernel.identity import Actor
    from weftline.kernel.transaction import Transaction
    from weftline.storage.sql.database import Database


_MAX_CACHED = 20_000
_FRESH_SECONDS = 1.0
# Credentials that are looked up at the same time, at most half of them of one address.
_LOOKUPS = 16
_MAX_LOOKUPS_WAITING = 10_000
_LOOKUP_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Local:
    """A principal named by the process that holds the database; needs no key.

    ``by_owner``: whoever runs the process makes the calls, and not an agent that it serves.
    """

    tenant: str
    principal_id: str
    by_owner: bool = False


@dataclass(frozen=True, slots=True)
class InStep:
    """A credential that is used within the step that its endpoint names."""

    credential: str | Local
    step: str


Credential = str | Local | InStep


class Authenticator:
    """Authenticates callers. Cached actors carry an epoch, which every transaction checks."""

    def __init__(self, database: Database, codec: TokenCodec, clock: Clock) -> None:
        self._database = database
        self._codec = codec
        self._clock = clock
        self._cached: OrderedDict[Credential, Actor] = OrderedDict()
        self._checked_at: dict[str, float] = {}
        self._lookups = FairSlots(_LOOKUPS, max_wait_seconds=_LOOKUP_SECONDS, max_waiting=_MAX_LOOKUPS_WAITING)

    async def identify(self, credential: Credential, address: str = "") -> Actor:
        """Return the caller; addresses that present unknown credentials share the lookups fairly."""
        actor = self._cached.get(credential)
        if actor is None:
            async with self._lookups.hold(address, ""):
                # Others may have presented the same meanwhile.
                actor = self._cached.get(credential) or await self._load(credential)
            self._cached[credential] = actor
            if len(self._cached) > _MAX_CACHED:
                self._cached.popitem(last=False)
        if actor.valid_until is not None and actor.valid_until <= to_micros(self._clock.now()):
            self.forget(credential)
            raise TokenExpired if actor.token_id else InvalidApiKey("The API key has expired.")
        return actor

    async def identify_now(self, credential: Credential, address: str = "") -> Actor:
        """Identify a caller without a transaction that checks the epoch: reads it at most once a second."""
        actor = await self.identify(credential, address)
        if time.monotonic() - self._checked_at.get(actor.tenant, 0.0) > _FRESH_SECONDS:
            epoch = await self._database.read(Scope(actor.tenant), lambda tx: AccessStore(tx).epoch())
            self._checked_at[actor.tenant] = time.monotonic()
            if epoch != actor.epoch:
                self.forget_tenant(actor.tenant)
                return await self.identify(credential, address)
        return actor

    def forget(self, credential: Credential) -> None:
        self._cached.pop(credential, None)

    def forget_tenant(self, tenant: str) -> None:
        """Drop the cached actors of a tenant, after its access rules changed."""
        for credential, actor in list(self._cached.items()):
            if actor.tenant == tenant:
                del self._cached[credential]

    def claimed_tenant(self, credential: Credential) -> str:
        if isinstance(credential, InStep):
            credential = credential.credential
        return credential.tenant if isinstance(credential, Local) else tenant_of(credential, self._codec)

    async def _load(self, credential: Credential) -> Actor:
        async def load(transaction: Transaction) -> Actor:
            store = AccessStore(transaction)
            if isinstance(credential, InStep):
                return await enter_step(await self._actor(credential.credential, store), credential.step, store)
            return await self._actor(credential, store)

        return await self._database.read(Scope(self.claimed_tenant(credential)), load)

    async def _actor(self, credential: str | Local, store: AccessStore) -> Actor:
        if isinstance(credential, Local):
            actor = await identify_local(credential.principal_id, store)
            return structs.replace(actor, by_owner=credential.by_owner)
        return await authenticate(credential, store, self._codec, to_micros(self._clock.now()))


# Cache of session ACLs for searches, updated incrementally from the event log.

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
        tenant, seq = transaction.tenant, await EventStore(transaction).last_seq()
        known = self._tenants.get(tenant)
        if known is None or await _is_too_old(known.seq, seq, transaction):
            known = await _all(transaction, seq)
            self._keep(tenant, known)
        elif known.seq < seq:
            known.take(await SessionStore(transaction).audiences_changed(known.seq), seq)
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
    return known < seq and known < await EventStore(transaction).pruned_seq()


async def _all(transaction: Transaction, seq: int) -> _TenantSessions:
    store, known = SessionStore(transaction), _TenantSessions(seq)
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
