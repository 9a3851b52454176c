"""Teams: named groups of agents and humans, with shared memory, guidelines and a place in ACLs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Protocol

import msgspec

from weftline.kernel.errors import Conflict, NotFound
from weftline.kernel.fields import NAME_PATTERN
from weftline.kernel.transaction import SqlStore

if TYPE_CHECKING:
    from collections.abc import Sequence


# Teams, their limits and errors.

# Every caller carries its teams, and an agent the humans in them, so both are limited.
MAX_MEMBERS = 200
MAX_TEAMS_OF_MEMBER = 20
# Clearance from which a member, except a sub-agent, may add and remove members.
MANAGER_CLEARANCE = 3

TeamName = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=100,
        pattern=NAME_PATTERN,
        description="The team's name: letters, digits, underscores and dashes.",
    ),
]


class TeamNotFound(NotFound):
    """There is no such team, or you are not a member of it."""

    code = "TEAM_NOT_FOUND"
    hint = "List your teams with `team.list`."
    related = ("teams",)


class TeamExists(Conflict):
    """A team with this name exists, or existed."""

    code = "TEAM_EXISTS"
    hint = "Choose another name. The name of a deleted team stays reserved, because ACLs may still name it."
    related = ("teams",)


class TeamFull(Conflict):
    """The team has as many members, or the member as many teams, as possible."""

    code = "TEAM_FULL"
    hint = "Remove members that are no longer needed with `team.remove_member`, or create another team."
    related = ("teams",)


class TeamNotEmpty(Conflict):
    """The team still has memory or guidelines, which would be deleted with it."""

    code = "TEAM_NOT_EMPTY"
    hint = "Repeat `team.delete` with force to delete them too; this cannot be undone."
    related = ("teams",)


class Team(msgspec.Struct, frozen=True):
    """A team and the number of its members."""

    team: str
    description: str
    created_by: str
    created_at: int
    updated_at: int
    members: int = 0


class Member(msgspec.Struct, frozen=True):
    """A member of a team."""

    principal_id: str
    kind: str
    added_by: str
    added_at: int


class TeamContent(msgspec.Struct, frozen=True):
    """What a team owns: versions are 0 where there is nothing."""

    memory_version: int = 0
    memory_bytes: int = 0
    layer_version: int = 0

    @property
    def is_empty(self) -> bool:
        return self.memory_version == 0 and self.layer_version == 0


# Teams in SQL.

_TEAM = """
SELECT t.team, t.description, t.created_by, t.created_at, t.updated_at,
       (SELECT COUNT(*) FROM team_members m WHERE m.tenant = t.tenant AND m.team = t.team)
FROM teams t
"""
_PAGE = f"{_TEAM} WHERE t.tenant = $1 AND t.team > $2 AND t.deleted_at IS NULL ORDER BY t.team LIMIT $3"
_ADD = """
INSERT INTO teams (tenant, team, description, created_by, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING RETURNING 1
"""
_LOCK = "SELECT 1 FROM teams WHERE tenant = $1 AND team = $2 {for_update}"
_OF_MEMBER = """
SELECT t.team, t.description, t.created_by, t.created_at, t.updated_at,
       (SELECT COUNT(*) FROM team_members m WHERE m.tenant = t.tenant AND m.team = t.team)
FROM team_members own CROSS JOIN teams t
WHERE own.tenant = $1 AND own.principal_id = $2 AND t.tenant = $1 AND t.team = own.team ORDER BY t.team
"""
_MEMBERS = """
SELECT m.principal_id, p.kind, m.added_by, m.added_at FROM team_members m
JOIN principals p ON p.tenant = m.tenant AND p.principal_id = m.principal_id
WHERE m.tenant = $1 AND m.team = $2 ORDER BY m.principal_id
"""
_ADD_MEMBER = """
INSERT INTO team_members (tenant, team, principal_id, added_by, added_at)
VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING RETURNING 1
"""


class TeamStore(SqlStore):
    """Teams of the transaction's tenant."""

    async def add(self, team: Team) -> bool:
        """Add a team; False if the name is taken, also by a deleted team."""
        values = team.team, team.description, team.created_by, team.created_at, team.updated_at
        return await self._tx.one(_ADD, self._tenant, *values) is not None

    async def find(self, name: str) -> Team | None:
        row = await self._tx.one(
            _TEAM + "WHERE t.tenant = $1 AND t.team = $2 AND t.deleted_at IS NULL", self._tenant, name
        )
        return None if row is None else Team(*row)

    async def lock(self, name: str) -> Team | None:
        """Return a team, and block other changes of it until the transaction ends."""
        await self._tx.one(_LOCK, self._tenant, name)
        return await self.find(name)

    async def all(self, after: str, limit: int) -> Sequence[Team]:
        """Return the next teams of the tenant, by name."""
        return [Team(*row) for row in await self._tx.all(_PAGE, self._tenant, after, limit)]

    async def of_member(self, principal_id: str) -> Sequence[Team]:
        """Return the teams of a member, by name."""
        return [Team(*row) for row in await self._tx.all(_OF_MEMBER, self._tenant, principal_id)]

    async def describe(self, name: str, description: str, at: int) -> None:
        await self._tx.run(
            "UPDATE teams SET description = $1, updated_at = $2 WHERE tenant = $3 AND team = $4",
            description,
            at,
            self._tenant,
            name,
        )

    async def delete(self, name: str, at: int) -> None:
        """Remove the members of a team and reserve its name."""
        await self._tx.run("DELETE FROM team_members WHERE tenant = $1 AND team = $2", self._tenant, name)
        await self._tx.run(
            "UPDATE teams SET deleted_at = $1 WHERE tenant = $2 AND team = $3 AND deleted_at IS NULL",
            at,
            self._tenant,
            name,
        )

    async def members(self, name: str) -> Sequence[Member]:
        """Return the members of a team, by id."""
        return [Member(*row) for row in await self._tx.all(_MEMBERS, self._tenant, name)]

    async def add_member(self, name: str, principal_id: str, added_by: str, at: int) -> bool:
        """Add a member; False if it is one already."""
        return await self._tx.one(_ADD_MEMBER, self._tenant, name, principal_id, added_by, at) is not None

    async def remove_member(self, name: str, principal_id: str) -> bool:
        """Remove a member; False if it is none."""
        row = await self._tx.one(
            "DELETE FROM team_members WHERE tenant = $1 AND team = $2 AND principal_id = $3 RETURNING 1",
            self._tenant,
            name,
            principal_id,
        )
        return row is not None


# Port of teams: what they own in other rooms.


class TeamContents(Protocol):
    """What teams own: memory and guidelines."""

    async def of(self, team: str) -> TeamContent: ...

    async def erase(self, team: str) -> None:
        """Delete what a team owns, with its history."""
        ...
