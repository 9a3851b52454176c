"""Export policies: which data an export may contain, in which form, and who may use the policy."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from weftline.exchange.transfer.policy_filter import AppliedPolicy, PolicyDefinition
from weftline.kernel.clock import Clock, optional_datetime, to_micros
from weftline.kernel.errors import Conflict, Forbidden, NotFound
from weftline.kernel.fields import Name
from weftline.kernel.identity import ANYONE, Actor, Permission, named_types, principal_of
from weftline.kernel.operation import Audience, Effect, RateClass, Request, Response, SessionUse, operation
from weftline.kernel.outbox import note_named_types
from weftline.kernel.transaction import SqlStore
from weftline.safety.trust.gate import GATE_ERRORS, ContentGate, IncomingContent
from weftline.safety.trust.model import TrustPolicies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.kernel.transaction import Row


# Export policies in SQL.


class ExportPolicy(NamedTuple):
    """A policy of a tenant."""

    name: str
    definition: PolicyDefinition
    updated_by: str
    updated_at: int


_POLICY = "SELECT name, definition, updated_by, updated_at FROM export_policies WHERE tenant = $1 "
_encode = msgspec.json.Encoder().encode
_definition = msgspec.json.Decoder(PolicyDefinition).decode
_SET = """
INSERT INTO export_policies (tenant, name, definition, updated_by, updated_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant, name) DO UPDATE SET definition = excluded.definition,
    updated_by = excluded.updated_by, updated_at = excluded.updated_at
"""


class PolicyStore(SqlStore):
    """The export policies of the transaction's tenant."""

    async def set(self, policy: ExportPolicy) -> None:
        """Add or replace a policy."""
        await self._tx.run(
            _SET, self._tenant, policy.name, _encode(policy.definition).decode(), policy.updated_by, policy.updated_at
        )
        await note_named_types(self._tx, named_types(policy.definition.who), principal_of(policy.updated_by))

    async def find(self, name: str) -> ExportPolicy | None:
        row = await self._tx.one(_POLICY + "AND name = $2", self._tenant, name)
        return None if row is None else _policy(row)

    async def listed(self) -> Sequence[ExportPolicy]:
        """Return all policies, ordered by name."""
        return [_policy(row) for row in await self._tx.all(_POLICY + "AND name >= '' ORDER BY name", self._tenant)]

    async def delete(self, name: str) -> bool:
        """Delete a policy; False if there is none."""
        deleted = await self._tx.changed(
            "DELETE FROM export_policies WHERE tenant = $1 AND name = $2", self._tenant, name
        )
        return deleted > 0


def _policy(row: Row) -> ExportPolicy:
    name, definition, updated_by, updated_at = row
    return ExportPolicy(name, _definition(definition), updated_by, updated_at)


TOOL = "export_policies"
_admin_operation = partial(
    operation,
    tool=TOOL,
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
)
STANDARD, DEFAULT = "standard", "default"
BUILT_IN = {
    STANDARD: PolicyDefinition(description="Everything you may read, without secrets.", who=ANYONE),
    "masked": PolicyDefinition(description="Without secrets and personal data.", who=ANYONE, mask=("secrets", "pii")),
    "metadata": PolicyDefinition(
        description="Which items exist and what happened to them, without their content.",
        who=ANYONE,
        content="none",
        mask=("secrets", "pii"),
    ),
    "full": PolicyDefinition(description="Everything you may read, unmasked.", mask=()),
}
PolicyName = Annotated[
    Name, msgspec.Meta(description=f"The policy's name. The policy named {DEFAULT} applies to exports that name none.")
]


class PolicyNotFound(NotFound):
    """There is no export policy with this name."""

    code = "POLICY_NOT_FOUND"
    hint = "List the policies you may use with `policy.list`."
    related = (TOOL,)


class PolicyForbidden(Forbidden):
    """You may not use this export policy."""

    code = "POLICY_FORBIDDEN"
    hint = "Choose one that you may use with `policy.list`, or ask an admin to add you to its 'who'."
    related = (TOOL,)


class PolicyBuiltIn(Conflict):
    """The policy is built in and cannot be changed."""

    code = "POLICY_BUILT_IN"
    hint = f"Choose another name. A policy named {DEFAULT} applies to exports that name none."
    related = (TOOL,)


class TenantPolicies(msgspec.Struct, frozen=True):
    """The policies of the transaction's tenant, built-in ones included."""

    store: PolicyStore
    trust: TrustPolicies

    async def prepare(self, name: str | None, actor: Actor) -> AppliedPolicy:
        """Return the named or default policy; PolicyForbidden if the caller may not use it."""
        default = await self.store.find(DEFAULT)
        chosen = name or (STANDARD if default is None else DEFAULT)
        definition = await self._definition(chosen)
        if not may_use(chosen, definition, actor, has_default=default is not None):
            raise PolicyForbidden(f"You may not use the export policy '{chosen}'.", policy=chosen)
        return AppliedPolicy(chosen, definition, await self.trust.current())

    async def _definition(self, name: str) -> PolicyDefinition:
        if name in BUILT_IN:
            return BUILT_IN[name]
        found = await self.store.find(name)
        if found is None:
            raise _unknown(name)
        return found.definition


class SetPolicy(Request):
    """A policy to add or replace."""

    name: PolicyName
    definition: PolicyDefinition


class ListPolicies(Request):
    """No parameters."""


class DeletePolicy(Request):
    """The policy to delete."""

    name: PolicyName


class PolicyInfo(Response):
    """An export policy. Exports refer to it by name and ``digest`` of its definition."""

    name: str
    definition: PolicyDefinition
    digest: str
    built_in: bool = False
    is_default: bool = False
    updated_by: str | None = None
    updated_at: datetime | None = None


class PolicyList(Response):
    """The policies you may use; for admins, all."""

    policies: list[PolicyInfo]


class PolicyDeleted(Response):
    """The deleted policy. ``default`` now applies to exports that name none."""

    name: str
    default: str


@_admin_operation(
    "policy.set",
    action="set",
    http="PUT /v1/export-policies/{name}",
    errors=(PolicyBuiltIn, *GATE_ERRORS),
    session=SessionUse.NONE,
)
async def set_policy(
    request: SetPolicy, actor: Actor, policies: PolicyStore, clock: Clock, gate: ContentGate
) -> PolicyInfo:
    """Add or replace an export policy: what an export may contain, in which form, and who may use the policy.

    A policy named default applies to exports that name none; while it exists, only admins may use the built-in ones.
    """
    if request.name in BUILT_IN:
        raise PolicyBuiltIn(f"The policy '{request.name}' is built in.", policy=request.name)
    description = await gate.admit(IncomingContent("export_policy", request.name, request.definition.description))
    definition = msgspec.structs.replace(request.definition, description=description.text)
    policy = ExportPolicy(request.name, definition, actor.participant, to_micros(clock.now()))
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
    session=SessionUse.NONE,
)
async def list_policies(request: ListPolicies, actor: Actor, policies: PolicyStore) -> PolicyList:
    """List the export policies that you may use, and which one is the default."""
    del request
    default = await _default(policies)
    known = [
        *(_info(name, definition, None, default=default) for name, definition in BUILT_IN.items()),
        *(_info(policy.name, policy.definition, policy, default=default) for policy in await policies.listed()),
    ]
    has_default = default == DEFAULT
    shown = [each for each in known if may_use(each.name, each.definition, actor, has_default=has_default)]
    return PolicyList(policies=known if actor.is_admin else shown)


@_admin_operation(
    "policy.delete",
    action="delete",
    http="DELETE /v1/export-policies/{name}",
    destructive=True,
    errors=(PolicyNotFound, PolicyBuiltIn),
    session=SessionUse.NONE,
)
async def delete_policy(request: DeletePolicy, policies: PolicyStore) -> PolicyDeleted:
    """Delete an export policy. Exports made with it still refer to it, with the digest of its definition."""
    if request.name in BUILT_IN:
        raise PolicyBuiltIn(f"The policy '{request.name}' is built in.", policy=request.name)
    if not await policies.delete(request.name):
        raise _unknown(request.name)
    return PolicyDeleted(name=request.name, default=await _default(policies))


def may_use(name: str, definition: PolicyDefinition, actor: Actor, *, has_default: bool) -> bool:
    """Tell whether a caller may use a policy. Built-in ones must not bypass a tenant's default policy."""
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
