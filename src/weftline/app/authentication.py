"""Authentication: from a credential to an Actor, cached until the tenant's access rules change."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import structs

from weftline.access.authentication import authenticate, enter_step, identify_local, tenant_of
from weftline.access.sql import AccessStore
from weftline.kernel.clock import to_micros
from weftline.kernel.errors import InvalidApiKey, TokenExpired
from weftline.kernel.fair_queue import FairSlots
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from weftline.access.store import TokenCodec
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
