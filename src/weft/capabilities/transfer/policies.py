"""Export policies: who may take what along, said once and held to by every export."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, NamedTuple, Protocol

import msgspec

from weft.capabilities.transfer.policy_filter import AppliedPolicy, PolicyDefinition
from weft.kernel.clock import Clock, optional_datetime, to_micros
from weft.kernel.errors import Conflict, Forbidden, NotFound
from weft.kernel.fields import Name
from weft.kernel.identity import ANYONE, Actor, Permission
from weft.kernel.operation import Audience, Effect, RateClass, Request, Response, operation

if TYPE_CHECKING:
    from collections.abc import Sequence

TOOL = "export_policies"
STANDARD, DEFAULT = "standard", "default"
BUILT_IN = {
    STANDARD: PolicyDefinition(description="Everything you may read, without secrets.", who=ANYONE),
    "masked": PolicyDefinition(description="Without secrets and personal data.", who=ANYONE, mask=("secrets", "pii")),
    "metadata": PolicyDefinition(
        description="What there is and what happened, without what it says.",
        who=ANYONE,
        content="none",
        mask=("secrets", "pii"),
    ),
    "full": PolicyDefinition(description="Everything you may read, as it is.", mask=()),
}
PolicyName = Annotated[Name, msgspec.Meta(description=f"The policy's name; {DEFAULT} is used where none is named.")]


class PolicyNotFound(NotFound):
    """There is no export policy of this name."""

    code = "POLICY_NOT_FOUND"
    hint = "See the policies you may use with the action list of export_policies."
    related = (TOOL,)


class PolicyForbidden(Forbidden):
    """This export policy is not for you."""

    code = "POLICY_FORBIDDEN"
    hint = "Name one that you may use: see the action list of export_policies, or ask an admin to name you in 'who'."
    related = (TOOL,)


class PolicyBuiltIn(Conflict):
    """A policy of this name comes with Weft and does not change."""

    code = "POLICY_BUILT_IN"
    hint = f"Choose another name; one called {DEFAULT} is used wherever no policy is named."
    related = (TOOL,)


class ExportPolicy(NamedTuple):
    """A policy as a tenant has set it."""

    name: str
    definition: PolicyDefinition
    updated_by: str
    updated_at: int


class PolicyStore(Protocol):
    """The export policies of the transaction's tenant."""

    async def set(self, policy: ExportPolicy) -> None:
        """Add a policy, or let it say something else from now on."""
        ...

    async def find(self, name: str) -> ExportPolicy | None: ...

    async def listed(self) -> Sequence[ExportPolicy]:
        """Return all there are, by name."""
        ...

    async def delete(self, name: str) -> bool:
        """Remove a policy; False if there is none."""
        ...


class TenantPolicies(msgspec.Struct, frozen=True):
    """The policies that a tenant's exports are held to."""

    store: PolicyStore

    async def prepare(self, name: str | None, actor: Actor) -> AppliedPolicy:
        """Return a policy that the caller may use, the one that holds if none is named; refuse any other."""
        default = await self.store.find(DEFAULT)
        wanted = name or (STANDARD if default is None else DEFAULT)
        definition = await self._definition(wanted)
        if not may_use(wanted, definition, actor, has_default=default is not None):
            raise PolicyForbidden(f"The export policy '{wanted}' is not for you.", policy=wanted)
        return AppliedPolicy(wanted, definition)

    async def _definition(self, name: str) -> PolicyDefinition:
        if name in BUILT_IN:
            return BUILT_IN[name]
        found = await self.store.find(name)
        if found is None:
            raise _unknown(name)
        return found.definition


class SetPolicy(Request):
    """A policy, and what it says."""

    name: PolicyName
    definition: PolicyDefinition


class ListPolicies(Request):
    """Every policy."""


class DeletePolicy(Request):
    """Which policy."""

    name: PolicyName


class PolicyInfo(Response):
    """An export policy. ``digest`` stands for what it says now; exports name both."""

    name: str
    definition: PolicyDefinition
    digest: str
    built_in: bool = False
    is_default: bool = False
    updated_by: str | None = None
    updated_at: datetime | None = None


class PolicyList(Response):
    """The policies you may use; to admins, all there are."""

    policies: list[PolicyInfo]


class PolicyDeleted(Response):
    """The policy is gone. ``default`` is what holds now where none is named."""

    name: str
    default: str


@operation(
    "policy.set",
    tool=TOOL,
    action="set",
    http="PUT /v1/export-policies/{name}",
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    errors=(PolicyBuiltIn,),
)
async def set_policy(request: SetPolicy, actor: Actor, policies: PolicyStore, clock: Clock) -> PolicyInfo:
    """Say what may leave with an export, in which form, and who may export so. What is left out is as it begins.

    A policy named default holds wherever no policy is named; from then on only admins may name a built-in one.
    """
    if request.name in BUILT_IN:
        raise PolicyBuiltIn(f"The policy '{request.name}' comes with Weft.", policy=request.name)
    policy = ExportPolicy(request.name, request.definition, actor.participant, to_micros(clock.now()))
    await policies.set(policy)
    return _info(policy.name, policy.definition, policy, default=await _default(policies))


@operation(
    "policy.list",
    tool=TOOL,
    action="list",
    http="GET /v1/export-policies",
    permission=Permission.READ,
    rate=RateClass.ADMIN,
    effect=Effect.READ,
)
async def list_policies(request: ListPolicies, actor: Actor, policies: PolicyStore) -> PolicyList:
    """See the export policies that you may use, and which one holds where none is named."""
    del request
    default = await _default(policies)
    known = [
        *(_info(name, definition, None, default=default) for name, definition in BUILT_IN.items()),
        *(_info(policy.name, policy.definition, policy, default=default) for policy in await policies.listed()),
    ]
    has_default = default == DEFAULT
    shown = [each for each in known if may_use(each.name, each.definition, actor, has_default=has_default)]
    return PolicyList(policies=known if actor.is_admin else shown)


@operation(
    "policy.delete",
    tool=TOOL,
    action="delete",
    http="DELETE /v1/export-policies/{name}",
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    errors=(PolicyNotFound, PolicyBuiltIn),
)
async def delete_policy(request: DeletePolicy, policies: PolicyStore) -> PolicyDeleted:
    """Remove an export policy. Exports that were made by it still name it, with the digest of what it said."""
    if request.name in BUILT_IN:
        raise PolicyBuiltIn(f"The policy '{request.name}' comes with Weft.", policy=request.name)
    if not await policies.delete(request.name):
        raise _unknown(request.name)
    return PolicyDeleted(name=request.name, default=await _default(policies))


def may_use(name: str, definition: PolicyDefinition, actor: Actor, *, has_default: bool) -> bool:
    """Tell whether a caller may export by a policy.

    Where a tenant says what holds by default, the built-in ones would be a way around it.
    """
    if name in BUILT_IN and has_default and not actor.is_admin:
        return False
    return actor.matches(definition.who)


async def _default(policies: PolicyStore) -> str:
    return STANDARD if await policies.find(DEFAULT) is None else DEFAULT


def _info(name: str, definition: PolicyDefinition, policy: ExportPolicy | None, *, default: str) -> PolicyInfo:
    return PolicyInfo(
        name=name,
        definition=definition,
        digest=definition.digest,
        built_in=policy is None,
        is_default=name == default,
        updated_by=policy.updated_by if policy else None,
        updated_at=optional_datetime(policy.updated_at if policy else None),
    )


def _unknown(name: str) -> PolicyNotFound:
    return PolicyNotFound(f"There is no export policy '{name}'.", resource_type="policy", resource_id=name)
