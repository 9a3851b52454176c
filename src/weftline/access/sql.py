"""Principals, keys, tokens and plans in SQL."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import msgspec

from weftline.access.model import Memberships, Principal, SigningKey, StoredKey, StoredToken
from weftline.kernel.identity import Permission, PrincipalKind, names_of_type
from weftline.kernel.transaction import SqlStore

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from weftline.kernel.transaction import Row
from weftline.access.plans import AssignedPlan

_PRINCIPAL = """
SELECT p.principal_id, p.kind, p.agent_type, p.parent_id, parent.kind, p.clearance, p.permissions, p.created_at,
       p.disabled_at, p.min_score, p.disabled_by, p.disabled_with,
       EXISTS (SELECT 1 FROM principals below
               WHERE below.tenant = p.tenant AND below.parent_id = p.principal_id AND below.kind = 'agent')
FROM principals p
LEFT JOIN principals parent ON parent.tenant = p.tenant AND parent.principal_id = p.parent_id
"""
_PRINCIPALS_NAMED = _PRINCIPAL + "WHERE p.tenant = $1 AND p.principal_id {among_texts}$2{end_among_texts}"
_KEY = "SELECT key_id, principal_id, secret_hash, created_at, expires_at, revoked_at, tools, step FROM api_keys"
_ISSUED = """
SELECT token_id, principal_id, key_id, permissions, proven_at, expires_at, revoked_at, step, single_use
FROM access_tokens
"""
_ADD_PRINCIPAL = """
INSERT INTO principals
    (tenant, principal_id, kind, agent_type, parent_id, clearance, permissions, created_at, min_score, root_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, CASE WHEN CAST($3 AS TEXT) = 'agent' THEN COALESCE(
    (SELECT parent.root_id FROM principals parent WHERE parent.tenant = $1 AND parent.principal_id = $5), $2) END)
ON CONFLICT DO NOTHING RETURNING 1
"""
_UPDATE_PRINCIPAL = """
UPDATE principals SET permissions = $1, clearance = $2, disabled_at = $3, min_score = $4, disabled_by = $5,
       disabled_with = $6
WHERE tenant = $7 AND principal_id = $8
"""
# CROSS JOIN, because SQLite keeps its order: first the tree so far, then the next level. UNION ends a cycle of parents.
_ABOVE = """
WITH RECURSIVE above (principal_id) AS (
    SELECT parent_id FROM principals WHERE tenant = $1 AND principal_id = $2
    UNION
    SELECT p.parent_id FROM above CROSS JOIN principals p WHERE p.tenant = $1 AND p.principal_id = above.principal_id)
"""
_BELOW = """
WITH RECURSIVE below_it (principal_id) AS (
    SELECT principal_id FROM principals WHERE tenant = $1 AND parent_id = $2
    UNION
    SELECT p.principal_id FROM below_it CROSS JOIN principals p
    WHERE p.tenant = $1 AND p.parent_id = below_it.principal_id)
"""
_ANCESTORS = _ABOVE + _PRINCIPAL + "WHERE p.tenant = $1 AND p.principal_id IN (SELECT principal_id FROM above)"  # noqa: S608 - constants only
_OF_BELOW = "WHERE p.tenant = $1 AND p.principal_id IN (SELECT principal_id FROM below_it) AND p.disabled_at IS NULL"
_ACTIVE_BELOW = _BELOW + _PRINCIPAL + _OF_BELOW + " ORDER BY p.principal_id"
_AGENTS_BELOW = """
SELECT COUNT(*) FROM principals WHERE tenant = $1 AND root_id = $2 AND disabled_at IS NULL AND principal_id <> $2
"""
_FOREIGN_TYPE = """
SELECT 1 FROM principals WHERE tenant = $1 AND agent_type = $2 AND (kind = 'human' OR (root_id <> $3 AND NOT EXISTS (
    SELECT 1 FROM principals WHERE tenant = $1 AND agent_type = $2 AND root_id = $3 AND disabled_at IS NULL))) LIMIT 1
"""
_TYPE_NAMED_BY_OTHERS = """
SELECT 1 FROM named_types n
WHERE n.tenant = $1 AND n.agent_type {among_texts}$2{end_among_texts} AND NOT EXISTS (
    SELECT 1 FROM principals p WHERE p.tenant = $1 AND p.principal_id = n.named_by AND p.root_id = $3)
  AND NOT EXISTS (
    SELECT 1 FROM principals p WHERE p.tenant = $1 AND p.agent_type = $4 AND p.root_id = $3 AND p.disabled_at IS NULL)
LIMIT 1
"""
_ACTIVE_AGENTS = "SELECT COUNT(*) FROM principals WHERE tenant = $1 AND kind = 'agent' AND disabled_at IS NULL"
_DISABLE = """
UPDATE principals SET disabled_at = COALESCE(disabled_at, $3), disabled_by = $4, disabled_with = $2
WHERE tenant = $1 AND principal_id IN (SELECT principal_id FROM below_it)
  AND principal_id <> $2 AND (disabled_at IS NULL OR disabled_with = $5)
RETURNING principal_id
"""
_DISABLE_BELOW = _BELOW + _DISABLE
_HEIGHT = """
WITH RECURSIVE below (principal_id, depth) AS (
    SELECT principal_id, 1 FROM principals WHERE tenant = $1 AND principal_id = $2
    UNION
    SELECT p.principal_id, below.depth + 1 FROM below CROSS JOIN principals p
    WHERE p.tenant = $1 AND p.parent_id = below.principal_id AND below.depth < 100)
SELECT MAX(depth) FROM below
"""
_SET_PARENT = """
UPDATE principals SET parent_id = $1, disabled_with = NULL,
       root_id = COALESCE((SELECT parent.root_id FROM principals parent
                           WHERE parent.tenant = $2 AND parent.principal_id = $1), $3)
WHERE tenant = $2 AND principal_id = $3
"""
_MOVE = """
UPDATE principals SET
    root_id = (SELECT moved.root_id FROM principals moved WHERE moved.tenant = $1 AND moved.principal_id = $2),
    disabled_with = CASE WHEN disabled_with = $3 THEN $2 ELSE disabled_with END
WHERE tenant = $1 AND principal_id IN (SELECT principal_id FROM below_it)
"""
_MOVE_BELOW = _BELOW + _MOVE
_ENABLE_BELOW = """
UPDATE principals SET disabled_at = NULL, disabled_by = NULL, disabled_with = NULL
WHERE tenant = $1 AND disabled_with = $2 RETURNING principal_id
"""
# Of the ids in a JSON array: their teams, the principals above them, the humans in their teams.
# CROSS JOIN, because SQLite keeps its order: first the few candidates, then their rows.
_TEAMS_OF = """
SELECT principal_id, team FROM team_members WHERE tenant = $1 AND principal_id {among_texts}$2{end_among_texts}
"""
_ABOVE_OF = """
WITH RECURSIVE above (principal_id, ancestor) AS (
    SELECT principal_id, parent_id FROM principals
    WHERE tenant = $1 AND principal_id {among_texts}$2{end_among_texts}
    UNION
    SELECT above.principal_id, p.parent_id FROM above CROSS JOIN principals p
    WHERE p.tenant = $1 AND p.principal_id = above.ancestor)
SELECT above.principal_id, p.principal_id, p.kind, p.parent_id FROM above CROSS JOIN principals p
WHERE p.tenant = $1 AND p.principal_id = above.ancestor
"""
_HUMANS_IN_TEAMS_OF = """
SELECT DISTINCT own.principal_id, p.principal_id
FROM team_members own CROSS JOIN team_members other CROSS JOIN principals p
WHERE own.tenant = $1 AND own.principal_id {among_texts}$2{end_among_texts}
  AND other.tenant = $1 AND other.team = own.team
  AND p.tenant = $1 AND p.principal_id = other.principal_id AND p.kind = 'human'
"""
_TERMINATE_SESSION = """
INSERT INTO terminated_sessions (tenant, principal_id, session_id, terminated_at) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING
"""
_TERMINATED_SESSIONS = """
SELECT principal_id, session_id FROM terminated_sessions
WHERE tenant = $1 AND principal_id {among_texts}$2{end_among_texts}
"""
_NEAR_IN_TREE_AND_TEAMS = f"""
WITH RECURSIVE above (principal_id) AS (
    SELECT parent_id FROM principals WHERE tenant = $1 AND principal_id = $2
    UNION
    SELECT p.parent_id FROM above CROSS JOIN principals p WHERE p.tenant = $1 AND p.principal_id = above.principal_id),
below (principal_id) AS (
    SELECT principal_id FROM principals WHERE tenant = $1 AND parent_id = $2
    UNION
    SELECT p.principal_id FROM below CROSS JOIN principals p WHERE p.tenant = $1 AND p.parent_id = below.principal_id),
near (principal_id) AS (
    SELECT principal_id FROM above
    UNION
    SELECT principal_id FROM below
    UNION
    SELECT sibling.principal_id FROM principals own CROSS JOIN principals sibling
    WHERE own.tenant = $1 AND own.principal_id = $2 AND sibling.tenant = $1 AND sibling.parent_id = own.parent_id
    UNION
    SELECT other.principal_id FROM team_members own CROSS JOIN team_members other
    WHERE own.tenant = $1 AND own.principal_id = $2 AND other.tenant = $1 AND other.team = own.team)
{_PRINCIPAL}
WHERE p.tenant = $1 AND p.principal_id IN (SELECT principal_id FROM near WHERE principal_id <> $2 AND principal_id > $3)
  AND p.disabled_at IS NULL
ORDER BY p.principal_id LIMIT $4
"""  # noqa: S608 - constants only
_ADD_KEY = """
INSERT INTO api_keys (tenant, key_id, principal_id, secret_hash, created_at, expires_at, tools, step)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
"""
_REVOKE_TOKENS_OF_KEY = """
UPDATE access_tokens SET revoked_at = $1 WHERE tenant = $2 AND key_id = $3 AND revoked_at IS NULL
  AND principal_id = (SELECT principal_id FROM api_keys WHERE tenant = $2 AND key_id = $3)
"""
_INSERT_ACCESS = """
INSERT INTO access_tokens
    (tenant, token_id, principal_id, key_id, permissions, proven_at, expires_at, step, single_use)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
"""
_SIGNING_KEYS = """
SELECT kid, secret, created_at, retired_at FROM signing_keys
WHERE tenant = $1 ORDER BY created_at DESC, kid
"""
_ADD_SIGNING_KEY = "INSERT INTO signing_keys (tenant, kid, secret, created_at) VALUES ($1, $2, $3, $4)"
_SET_PLAN = """
INSERT INTO tenant_plans (tenant, plan, limits, since) VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant) DO UPDATE SET plan = excluded.plan, limits = excluded.limits, since = excluded.since
"""
_limits = msgspec.json.Decoder(dict[str, Any]).decode


class AccessStore(SqlStore):
    """Principals, keys and tokens of the transaction's tenant."""

    @property
    def tenant(self) -> str:
        """Return the tenant this transaction runs inside."""
        return self._tenant

    async def epoch(self) -> int | None:
        """Return the tenant's access epoch; None if there is no such tenant."""
        row = await self._tx.one("SELECT access_epoch FROM tenants WHERE tenant = $1", self._tenant)
        return None if row is None else int(row[0])

    async def advance_epoch(self) -> None:
        """Invalidate the cached callers of the tenant in every process."""
        self._tx.access_changed = True
        await self._tx.run("UPDATE tenants SET access_epoch = access_epoch + 1 WHERE tenant = $1", self._tenant)

    async def principal(self, principal_id: str) -> Principal | None:
        row = await self._tx.one(_PRINCIPAL + "WHERE p.tenant = $1 AND p.principal_id = $2", self._tenant, principal_id)
        return None if row is None else _principal(row)

    async def find_principals(self, principal_ids: Sequence[str]) -> Mapping[str, Principal]:
        """Return the principals with these ids, by id and in their order, without those that do not exist."""
        ids = msgspec.json.encode(principal_ids).decode()
        found = {row[0]: _principal(row) for row in await self._tx.all(_PRINCIPALS_NAMED, self._tenant, ids)}
        return {each: found[each] for each in principal_ids if each in found}

    async def lock_tree(self) -> None:
        """Let no other transaction create, disable or enable principals of the tenant until this one ends."""
        await self._tx.run("SELECT 1 FROM tenants WHERE tenant = $1 {for_update}", self._tenant)

    async def ancestors(self, principal_id: str) -> Sequence[Principal]:
        """Return the principals above one, the nearest first."""
        found = {row[0]: _principal(row) for row in await self._tx.all(_ANCESTORS, self._tenant, principal_id)}
        child = await self.principal(principal_id)
        chain: list[Principal] = []
        while child is not None and child.parent_id in found:
            child = found.pop(child.parent_id)
            chain.append(child)
        return chain

    async def below(self, principal_id: str) -> Sequence[Principal]:
        """Return all active principals below one, by id."""
        return [_principal(row) for row in await self._tx.all(_ACTIVE_BELOW, self._tenant, principal_id)]

    async def clearance_of_type(self, agent_type: str) -> int:
        """Return the highest clearance of the principals of a type, also of disabled ones; 0 if there are none."""
        row = await self._tx.one(
            "SELECT MAX(clearance) FROM principals WHERE tenant = $1 AND agent_type = $2", self._tenant, agent_type
        )
        return 0 if row is None or row[0] is None else int(row[0])

    async def is_foreign_type(self, agent_type: str, orchestrator_id: str) -> bool:
        """Tell whether a human has this type, or agents of other trees and no active agent of this orchestrator's."""
        return await self._tx.one(_FOREIGN_TYPE, self._tenant, agent_type, orchestrator_id) is not None

    async def is_type_named_by_others(self, agent_type: str, orchestrator_id: str) -> bool:
        """Tell whether ACLs written outside of an orchestrator's tree name a type that no agent in the tree has."""
        names = msgspec.json.encode(names_of_type(agent_type)).decode()
        return await self._tx.one(_TYPE_NAMED_BY_OTHERS, self._tenant, names, orchestrator_id, agent_type) is not None

    async def agents_below(self, orchestrator_id: str) -> int:
        """Return how many agents below an orchestrator are not disabled."""
        row = await self._tx.one(_AGENTS_BELOW, self._tenant, orchestrator_id)
        return 0 if row is None else int(row[0])

    async def active_agents(self) -> int:
        """Return how many agents of the tenant are not disabled."""
        row = await self._tx.one(_ACTIVE_AGENTS, self._tenant)
        return 0 if row is None else int(row[0])

    async def disable_below(self, root: Principal, instead_of: str | None) -> Sequence[str]:
        """Disable the active principals below one with it, and return their ids.

        Those disabled with ``instead_of``, a principal above it, count as disabled with it from now on.
        """
        rows = await self._tx.all(
            _DISABLE_BELOW, self._tenant, root.principal_id, root.disabled_at, root.disabled_by, instead_of
        )
        return sorted(row[0] for row in rows)

    async def height(self, principal_id: str) -> int:
        """Return the levels of the tree of a principal: 1 if nothing is below it."""
        row = await self._tx.one(_HEIGHT, self._tenant, principal_id)
        return 0 if row is None or row[0] is None else int(row[0])

    async def move(self, principal: Principal, parent_id: str) -> None:
        """Put a principal with everything below it under another one, in the tree of that one.

        What was disabled with a principal that is no longer above it is disabled with the moved one.
        """
        await self._tx.run(_SET_PARENT, parent_id, self._tenant, principal.principal_id)
        await self._tx.run(_MOVE_BELOW, self._tenant, principal.principal_id, principal.disabled_with or "")

    async def enable_below(self, principal_id: str) -> Sequence[str]:
        """Enable the principals that were disabled with one, and return their ids."""
        return sorted(row[0] for row in await self._tx.all(_ENABLE_BELOW, self._tenant, principal_id))

    async def principals(self, after: str, limit: int) -> Sequence[Principal]:
        rows = await self._tx.all(
            _PRINCIPAL + "WHERE p.tenant = $1 AND p.principal_id > $2 ORDER BY p.principal_id LIMIT $3",
            self._tenant,
            after,
            limit,
        )
        return [_principal(row) for row in rows]

    async def active_principals(self, after: str, limit: int) -> Sequence[Principal]:
        """Return principals that are not disabled, by id."""
        rows = await self._tx.all(
            _PRINCIPAL
            + "WHERE p.tenant = $1 AND p.principal_id > $2 AND p.disabled_at IS NULL ORDER BY p.principal_id LIMIT $3",
            self._tenant,
            after,
            limit,
        )
        return [_principal(row) for row in rows]

    async def near(self, principal_id: str, after: str, limit: int) -> Sequence[Principal]:
        """Return active principals above and below one in the tree, with the same parent, or in one of its teams."""
        rows = await self._tx.all(_NEAR_IN_TREE_AND_TEAMS, self._tenant, principal_id, after, limit)
        return [_principal(row) for row in rows]

    async def add_principal(self, principal: Principal) -> bool:
        """Add a principal; False if the id is taken."""
        row = await self._tx.one(
            _ADD_PRINCIPAL,
            self._tenant,
            principal.principal_id,
            principal.kind,
            principal.agent_type,
            principal.parent_id,
            principal.clearance,
            _names(principal.permissions),
            principal.created_at,
            principal.min_score,
        )
        return row is not None

    async def update_principal(self, principal: Principal) -> None:
        """Store the mutable fields of a principal: permissions, clearance, disabled state, search threshold."""
        await self._tx.run(
            _UPDATE_PRINCIPAL,
            _names(principal.permissions),
            principal.clearance,
            principal.disabled_at,
            principal.min_score,
            principal.disabled_by,
            principal.disabled_with,
            self._tenant,
            principal.principal_id,
        )

    async def memberships(self, principal: Principal) -> Memberships:
        """Return a principal's teams and the humans it serves: above it in the tree, or in its teams."""
        return (await self.memberships_of([principal]))[principal.principal_id]

    async def memberships_of(self, principals: Sequence[Principal]) -> Mapping[str, Memberships]:
        """Return the memberships of several principals, by id."""
        ids = msgspec.json.encode([principal.principal_id for principal in principals]).decode()
        teams: dict[str, set[str]] = defaultdict(set)
        users: dict[str, set[str]] = defaultdict(set)
        ancestors: dict[str, set[str]] = defaultdict(set)
        for principal_id, team in await self._tx.all(_TEAMS_OF, self._tenant, ids):
            teams[principal_id].add(team)
        for principal_id, human in await self._tx.all(_HUMANS_IN_TEAMS_OF, self._tenant, ids):
            users[principal_id].add(human)
        agents: dict[str, dict[str, str]] = defaultdict(dict)
        for principal_id, ancestor, kind, parent in await self._tx.all(_ABOVE_OF, self._tenant, ids):
            ancestors[principal_id].add(ancestor)
            if kind == PrincipalKind.HUMAN:
                users[principal_id].add(ancestor)
            else:
                agents[principal_id][ancestor] = parent
        for principal in principals:
            if principal.kind is PrincipalKind.HUMAN:
                users[principal.principal_id] = {principal.principal_id}
        known = {principal.principal_id for principal in principals}
        terminated = await self._terminated_sessions(known.union(*ancestors.values()))
        return {
            each: Memberships(
                frozenset(teams[each]),
                frozenset(users[each]),
                frozenset(ancestors[each]),
                frozenset().union(*(terminated[above] for above in (each, *ancestors[each])))
                if terminated
                else frozenset(),
                _topmost(agents[each]),
            )
            for each in (principal.principal_id for principal in principals)
        }

    async def _terminated_sessions(self, principal_ids: Iterable[str]) -> Mapping[str, set[str]]:
        ids = msgspec.json.encode(sorted(principal_ids)).decode()
        found: dict[str, set[str]] = defaultdict(set)
        for principal_id, session_id in await self._tx.all(_TERMINATED_SESSIONS, self._tenant, ids):
            found[principal_id].add(session_id)
        return found

    async def terminate_session(self, principal_id: str, session_id: str, at: int) -> int | None:
        """Refuse a principal in a session; return in how many it is refused now, None if it was refused already."""
        added = await self._tx.changed(_TERMINATE_SESSION, self._tenant, principal_id, session_id, at)
        if not added:
            return None
        row = await self._tx.one(
            "SELECT COUNT(*) FROM terminated_sessions WHERE tenant = $1 AND principal_id = $2",
            self._tenant,
            principal_id,
        )
        return int(row[0]) if row else 0

    async def reinstate_session(self, principal_id: str, session_id: str) -> bool:
        """Admit a principal to a session again; False if it was not refused."""
        removed = await self._tx.changed(
            "DELETE FROM terminated_sessions WHERE tenant = $1 AND principal_id = $2 AND session_id = $3",
            self._tenant,
            principal_id,
            session_id,
        )
        return removed > 0

    async def step_tools(self, name: str, owners: Collection[str]) -> frozenset[str] | None:
        """Return the tools of a step of the tenant or of one of these principals; None if there is no such step.

        A step of the tenant comes before one of a principal with the same name.
        """
        rows = await self._tx.all(
            "SELECT owner, tools FROM steps WHERE tenant = $1 AND name = $2 ORDER BY owner", self._tenant, name
        )
        # The step of the tenant has the owner '', which comes first.
        found = next((tools for owner, tools in rows if owner in ("", *owners)), None)
        return None if found is None else frozenset(msgspec.json.decode(found, type=list[str]))

    async def key(self, key_id: str) -> StoredKey | None:
        row = await self._tx.one(_KEY + " WHERE tenant = $1 AND key_id = $2", self._tenant, key_id)
        return None if row is None else StoredKey(*row)

    async def keys_of(self, principal_id: str) -> Sequence[StoredKey]:
        rows = await self._tx.all(
            _KEY + " WHERE tenant = $1 AND principal_id = $2 ORDER BY created_at DESC", self._tenant, principal_id
        )
        return [StoredKey(*row) for row in rows]

    async def add_key(self, key: StoredKey) -> None:
        await self._tx.run(
            _ADD_KEY,
            self._tenant,
            key.key_id,
            key.principal_id,
            key.secret_hash,
            key.created_at,
            key.expires_at,
            key.tools,
            key.step,
        )

    async def revoke_key(self, key_id: str, at: int) -> None:
        """Revoke a key and every token issued for it."""
        await self._tx.run(
            "UPDATE api_keys SET revoked_at = $1 WHERE tenant = $2 AND key_id = $3 AND revoked_at IS NULL",
            at,
            self._tenant,
            key_id,
        )
        await self._tx.run(_REVOKE_TOKENS_OF_KEY, at, self._tenant, key_id)

    async def token(self, token_id: str) -> StoredToken | None:
        row = await self._tx.one(_ISSUED + "WHERE tenant = $1 AND token_id = $2", self._tenant, token_id)
        if row is None:
            return None
        found_id, principal_id, key_id, permissions, proven_at, expires_at, revoked_at, step, single_use = row
        return StoredToken(
            found_id,
            principal_id,
            key_id,
            _permissions(permissions),
            proven_at,
            expires_at,
            revoked_at,
            step,
            bool(single_use),
        )

    async def add_token(self, token: StoredToken) -> None:
        await self._tx.run(
            _INSERT_ACCESS,
            self._tenant,
            token.token_id,
            token.principal_id,
            token.key_id,
            _names(token.permissions),
            token.proven_at,
            token.expires_at,
            token.step,
            int(token.single_use),
        )

    async def lock_tokens(self, principal_id: str) -> None:
        """Let no other transaction exchange or revoke tokens of a principal until this one ends."""
        await self._tx.run(
            "SELECT 1 FROM principals WHERE tenant = $1 AND principal_id = $2 {for_update}", self._tenant, principal_id
        )

    async def revoke_token(self, token_id: str, at: int) -> None:
        await self._tx.run(
            "UPDATE access_tokens SET revoked_at = $1 WHERE tenant = $2 AND token_id = $3 AND revoked_at IS NULL",
            at,
            self._tenant,
            token_id,
        )

    async def revoke_sign_in(self, token: StoredToken, at: int) -> None:
        """Revoke a token with all that were refreshed from the same one: they have its key and its time of proof."""
        await self._tx.run(
            "UPDATE access_tokens SET revoked_at = $1 WHERE tenant = $2 AND principal_id = $3 AND proven_at = $4 "
            "AND (token_id = $5 OR key_id = $6) AND revoked_at IS NULL",
            at,
            self._tenant,
            token.principal_id,
            token.proven_at,
            token.token_id,
            token.key_id,
        )

    async def revoke_tokens_of(self, principal_id: str, at: int) -> None:
        """Revoke every token of a principal."""
        await self._tx.run(
            "UPDATE access_tokens SET revoked_at = $1 WHERE tenant = $2 AND principal_id = $3 AND revoked_at IS NULL",
            at,
            self._tenant,
            principal_id,
        )

    async def forget_expired_tokens(self, principal_id: str, before: int) -> None:
        await self._tx.run(
            "DELETE FROM access_tokens WHERE tenant = $1 AND principal_id = $2 AND expires_at < $3",
            self._tenant,
            principal_id,
            before,
        )

    async def signing_keys(self) -> Sequence[SigningKey]:
        """Return the tenant's signing keys, newest first."""
        rows = await self._tx.all(_SIGNING_KEYS, self._tenant)
        return [SigningKey(*row) for row in rows]

    async def add_signing_key(self, key: SigningKey) -> None:
        await self._tx.run(_ADD_SIGNING_KEY, self._tenant, key.kid, key.secret, key.created_at)

    async def retire_signing_keys(self, at: int, *, forget: bool) -> None:
        """Stop signing with the current keys; ``forget`` also invalidates the tokens they signed."""
        if forget:
            await self._tx.run("DELETE FROM signing_keys WHERE tenant = $1", self._tenant)
        else:
            await self._tx.run(
                "UPDATE signing_keys SET retired_at = $1 WHERE tenant = $2 AND retired_at IS NULL", at, self._tenant
            )


class PlanStore(SqlStore):
    """The plan of the transaction's tenant."""

    async def plan(self) -> AssignedPlan | None:
        """Return the plan with the tenant's own limits; None if the default applies."""
        row = await self._tx.one("SELECT plan, limits FROM tenant_plans WHERE tenant = $1", self._tenant)
        return None if row is None else AssignedPlan(row[0], _limits(row[1]))

    async def set_plan(self, assigned: AssignedPlan, now: int) -> None:
        limits = msgspec.json.encode(assigned.limits).decode()
        await self._tx.run(_SET_PLAN, self._tenant, assigned.plan, limits, now)


def _principal(row: Row) -> Principal:
    principal_id, kind, agent_type, parent_id, parent_kind, clearance, permissions, *rest = row
    created_at, disabled_at, min_score, disabled_by, disabled_with, has_agents_below = rest
    return Principal(
        principal_id=principal_id,
        kind=PrincipalKind(kind),
        agent_type=agent_type,
        parent_id=parent_id,
        parent_is_agent=parent_kind == PrincipalKind.AGENT,
        clearance=clearance,
        permissions=_permissions(permissions),
        created_at=created_at,
        disabled_at=disabled_at,
        min_score=min_score,
        has_agents_below=bool(has_agents_below),
        disabled_by=disabled_by,
        disabled_with=disabled_with,
    )


def _topmost(parents: Mapping[str, str]) -> str | None:
    """Return the agent without another above it, from agents above one another with the parent of each."""
    return next((agent for agent, parent in parents.items() if parent not in parents), None)


def _names(permissions: frozenset[Permission]) -> str:
    return " ".join(sorted(permissions))


def _permissions(names: str) -> frozenset[Permission]:
    return frozenset(map(Permission, names.split()))
