"""Teams, their limits and errors."""

from __future__ import annotations

from typing import Annotated

import msgspec

from weftline.kernel.errors import Conflict, NotFound
from weftline.kernel.fields import NAME_PATTERN

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
