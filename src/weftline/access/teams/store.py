"""Port of teams: what they own in other rooms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from weftline.access.teams.model import TeamContent


class TeamContents(Protocol):
    """What teams own: memory and guidelines."""

    async def of(self, team: str) -> TeamContent: ...

    async def erase(self, team: str) -> None:
        """Delete what a team owns, with its history."""
        ...
