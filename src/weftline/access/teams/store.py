"""Ports of teams: their store, and what they own in other slices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.access.teams.model import Member, Team, TeamContent


class TeamStore(Protocol):
    """Teams of the transaction's tenant."""

    async def add(self, team: Team) -> bool:
        """Add a team; False if the name is taken, also by a deleted team."""
        ...

    async def find(self, name: str) -> Team | None: ...

    async def lock(self, name: str) -> Team | None:
        """Return a team, and block other changes of it until the transaction ends."""
        ...

    async def all(self, after: str, limit: int) -> Sequence[Team]:
        """Return the next teams of the tenant, by name."""
        ...

    async def of_member(self, principal_id: str) -> Sequence[Team]:
        """Return the teams of a member, by name."""
        ...

    async def describe(self, name: str, description: str, at: int) -> None: ...

    async def delete(self, name: str, at: int) -> None:
        """Remove the members of a team and reserve its name."""
        ...

    async def members(self, name: str) -> Sequence[Member]:
        """Return the members of a team, by id."""
        ...

    async def add_member(self, name: str, principal_id: str, added_by: str, at: int) -> bool:
        """Add a member; False if it is one already."""
        ...

    async def remove_member(self, name: str, principal_id: str) -> bool:
        """Remove a member; False if it is none."""
        ...


class TeamContents(Protocol):
    """What teams own: memory and guidelines."""

    async def of(self, team: str) -> TeamContent: ...

    async def erase(self, team: str) -> None:
        """Delete what a team owns, with its history."""
        ...
