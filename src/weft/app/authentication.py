"""From a credential to an Actor, remembered until the tenant's access rules change."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft.capabilities.access.authentication import authenticate, identify_local, tenant_of
from weft.kernel.clock import to_micros
from weft.kernel.errors import InvalidApiKey, TokenExpired
from weft.storage.sql.access import SqlAccessStore
from weft.storage.sql.database import Scope

if TYPE_CHECKING:
    from weft.capabilities.access.store import TokenCodec
    from weft.kernel.clock import Clock
    from weft.kernel.identity import Actor
    from weft.storage.sql.database import Database, Transaction

_REMEMBER_AT_MOST = 20_000
_TRUST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Local:
    """A principal named by whoever holds the database itself: the process it runs in, the owner of the folder."""

    tenant: str
    principal_id: str


Credential = str | Local


class Authenticator:
    """Authenticates callers. What it remembers is checked again by every transaction's epoch."""

    def __init__(self, database: Database, codec: TokenCodec, clock: Clock) -> None:
        self._database = database
        self._codec = codec
        self._clock = clock
        self._known: OrderedDict[Credential, Actor] = OrderedDict()
        self._looked: dict[str, float] = {}

    async def identify(self, credential: Credential) -> Actor:
        actor = self._known.get(credential)
        if actor is None:
            actor = await self._look_up(credential)
            self._known[credential] = actor
            if len(self._known) > _REMEMBER_AT_MOST:
                self._known.popitem(last=False)
        if actor.valid_until is not None and actor.valid_until <= to_micros(self._clock.now()):
            self.forget(credential)
            raise TokenExpired if actor.token_id else InvalidApiKey("The API key has expired.")
        return actor

    async def identify_now(self, credential: Credential) -> Actor:
        """Identify a caller before there is a transaction to check the epoch; what is remembered lasts a second."""
        actor = await self.identify(credential)
        if time.monotonic() - self._looked.get(actor.tenant, 0.0) > _TRUST_SECONDS:
            epoch = await self._database.read(Scope(actor.tenant), lambda tx: SqlAccessStore(tx).epoch())
            self._looked[actor.tenant] = time.monotonic()
            if epoch != actor.epoch:
                self.forget_tenant(actor.tenant)
                return await self.identify(credential)
        return actor

    def forget(self, credential: Credential) -> None:
        self._known.pop(credential, None)

    def forget_tenant(self, tenant: str) -> None:
        """Look up everyone in a tenant again, after someone's access was changed here."""
        for credential, actor in list(self._known.items()):
            if actor.tenant == tenant:
                del self._known[credential]

    def claimed_tenant(self, credential: Credential) -> str:
        return credential.tenant if isinstance(credential, Local) else tenant_of(credential, self._codec)

    async def _look_up(self, credential: Credential) -> Actor:
        async def look(transaction: Transaction) -> Actor:
            store = SqlAccessStore(transaction)
            if isinstance(credential, Local):
                return await identify_local(credential.principal_id, store)
            return await authenticate(credential, store, self._codec, to_micros(self._clock.now()))

        return await self._database.read(Scope(self.claimed_tenant(credential)), look)
