"""Export policies in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weftline.access.sql import note_named_types
from weftline.exchange.transfer.policy_filter import PolicyDefinition
from weftline.kernel.identity import named_types, principal_of
from weftline.kernel.transaction import SqlStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.kernel.transaction import Row


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
