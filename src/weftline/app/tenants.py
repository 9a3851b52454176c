"""Tenants of an installation: created by the operator, outside all permissions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from weftline.access.model import DEFAULT_TENANT, Principal, new_key, new_signing_key
from weftline.access.plans import PLANS, AssignedPlan, checked_limits
from weftline.access.sql import AccessStore, PlanStore
from weftline.app.metrics_snapshot import tenant_figures
from weftline.history.signed_lists import SignedLists
from weftline.indexing.embeddings import TenantModelStore
from weftline.kernel.clock import to_micros
from weftline.kernel.errors import Conflict, InvalidInput, NotFound
from weftline.kernel.fields import is_name
from weftline.kernel.identity import HIGHEST_CLEARANCE, Permission, PrincipalKind
from weftline.settings import InvalidSetting
from weftline.storage.sql.database import SYSTEM, Scope
from weftline.storage.sql.tenants import add_tenant, tenant_names

if TYPE_CHECKING:
    from weftline.access.plans import Plan
    from weftline.app.metrics_snapshot import TenantFigures
    from weftline.kernel.clock import Clock
    from weftline.kernel.transaction import Transaction
    from weftline.settings import Settings
    from weftline.storage.sql.database import Database

ADMIN = "admin"


class TenantExists(Conflict):
    """A tenant with this name exists already."""

    code = "TENANT_EXISTS"
    hint = "Choose another name; weftline tenant list shows the existing ones."


class TenantNotFound(NotFound):
    """There is no tenant with this name."""

    code = "TENANT_NOT_FOUND"
    hint = "List the tenants with weftline tenant list."


@dataclass(frozen=True, slots=True)
class NewTenant:
    """A new tenant and the API key of its first admin, which is shown only once."""

    tenant: str
    admin_key: str


class Tenants:
    """Creates and lists tenants, and sets their plans and options."""

    def __init__(self, database: Database, clock: Clock, signing_secret: bytes = b"") -> None:
        self._database = database
        self._clock = clock
        self._signing_secret = signing_secret

    async def create(self, tenant: str) -> NewTenant:
        """Create a tenant with a human admin."""
        if not is_name(tenant):
            raise InvalidInput("tenant: use at most 100 letters, digits, underscores and dashes", field="tenant")
        now = to_micros(self._clock.now())
        key = new_key(tenant, ADMIN, now, None)
        human, everything = PrincipalKind.HUMAN, frozenset(Permission) - {Permission.AUDIT}
        admin = Principal(ADMIN, human, ADMIN, None, False, HIGHEST_CLEARANCE, everything, now)  # noqa: FBT003

        async def insert(transaction: Transaction) -> bool:
            if not await add_tenant(transaction, tenant, now):
                return False
            await SignedLists(transaction, self._signing_secret).write_all({})
            access = AccessStore(transaction)
            await access.add_principal(admin)
            await access.add_key(key.stored)
            await access.add_signing_key(new_signing_key(tenant, now))
            return True

        if not await self._database.write(Scope(tenant), insert):
            raise TenantExists(f"A tenant '{tenant}' exists.")
        return NewTenant(tenant, key.text)

    async def ensure_default(self) -> NewTenant | None:
        """Create the default tenant on an empty database; None if there is any tenant."""
        if await self.names():
            return None
        try:
            return await self.create(DEFAULT_TENANT)
        except TenantExists:
            return None  # another process was faster

    async def names(self) -> list[str]:
        return await self._database.read(SYSTEM, tenant_names)

    async def figures(self, since: int = 0) -> list[TenantFigures]:
        """Return usage and health of every tenant; model calls from ``since`` on, in microseconds."""
        read = partial(tenant_figures, since=since, now=to_micros(self._clock.now()))
        return [await self._database.read(Scope(tenant), read, heavy=True) for tenant in await self.names()]

    async def exists(self, tenant: str) -> bool:
        return await self.epoch(tenant) is not None

    async def epoch(self, tenant: str) -> int | None:
        """Return the epoch of a tenant's access rules, which every change of them advances; None if there is none."""
        return await self._database.read(Scope(tenant), lambda tx: AccessStore(tx).epoch())

    async def plan(self, tenant: str) -> AssignedPlan | None:
        """Return the plan of a tenant with its own limits; None if it has the default."""
        await self._check_exists(tenant)
        return await self._database.read(Scope(tenant), lambda tx: PlanStore(tx).plan())

    async def set_plan(self, tenant: str, plan: Plan, **limits: Any) -> None:  # noqa: ANN401 - of several types
        """Set the plan of a tenant, and limits of its own. Data above its quotas stays; more is rejected."""
        await self._check_exists(tenant)
        assigned, now = AssignedPlan(plan, checked_limits(limits)), to_micros(self._clock.now())
        await self._database.write(Scope(tenant), lambda tx: PlanStore(tx).set_plan(assigned, now))

    async def semantic_search(self, tenant: str) -> bool:
        """Return whether the content of a tenant is embedded and searched by meaning."""
        await self._check_exists(tenant)
        return await self._database.read(Scope(tenant), lambda tx: TenantModelStore(tx).semantic_search())

    async def set_semantic_search(self, tenant: str, *, on: bool) -> None:
        """Turn semantic search of a tenant on or off. What was not embedded meanwhile is embedded later."""
        await self._check_exists(tenant)
        await self._database.write(Scope(tenant), lambda tx: TenantModelStore(tx).set_semantic_search(on=on))

    async def _check_exists(self, tenant: str) -> None:
        if not is_name(tenant) or not await self.exists(tenant):
            raise TenantNotFound(f"There is no tenant '{tenant[:100]}'.")


def default_plan(settings: Settings) -> Plan:
    """Return the plan of tenants that have none set."""
    for plan in PLANS:
        if plan == settings.default_plan:
            return plan
    raise InvalidSetting(f"WEFTLINE_DEFAULT_PLAN: '{settings.default_plan}' is not one of {', '.join(PLANS)}.")
