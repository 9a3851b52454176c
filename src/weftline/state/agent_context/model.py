"""Parts of a context, their lines, limits and rules.

An agent's context has its definition and its memory; the context of a team or a user has memory only.

Each part has its own line. The root line refers to the heads of all parts; its commit number is the version of the
whole context.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import msgspec
from msgspec import structs

from weftline.access.grants import HIGHEST_CLEARANCE
from weftline.access.model import AgentNotFound
from weftline.access.teams import TeamNotFound
from weftline.history.model import ChangeMeta, blob_hash, branch_of, line_name, no_line, trunk_of
from weftline.history.object_storage import Pointer
from weftline.history.store import SESSION_HOLDER, Rule
from weftline.kernel.clock import DAY_MICROS
from weftline.kernel.errors import Conflict, ContentTooLarge, InvalidInput, NotFound, PermissionDenied
from weftline.kernel.fields import is_name
from weftline.kernel.identity import PRINCIPAL, TEAM, USER, Permission, PrincipalKind
from weftline.safety.trust.model import TrustLabel
from weftline.sessions.team_operations import unknown_team

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from weftline.access.sql import AccessStore
    from weftline.access.teams import TeamStore
    from weftline.history.model import Change, Tag, Version
    from weftline.kernel.identity import Actor


# Owners of persistent memory: an agent or human by its id, a team as team:NAME, a user as user:ID.
#
# The memory of a team is shared by its members; that of a user by the human and the agents that serve it. Admins may
# use both, that of a user up to their own clearance.

SHARED = (TEAM, USER)
OWNER_ERRORS = (TeamNotFound, AgentNotFound)
Owner = Annotated[
    Annotated[
        str,
        msgspec.Meta(
            pattern=r"^(team|user):[A-Za-z0-9][A-Za-z0-9_-]{0,99}\Z",
            extra_json_schema={"examples": ["team:research", "user:ada"]},
        ),
    ]
    | None,
    msgspec.Meta(description="team:NAME or user:ID for memory shared with others. Default: your own."),
]


def is_shared(owner: str) -> bool:
    """Tell whether an owner is a team or a user; ids of principals have no colon."""
    return owner.startswith(SHARED)


def audience_of(owner: str) -> str:
    """Return the ACL pattern of those who may read an owner's memory, besides admins."""
    return owner if is_shared(owner) else f"{PRINCIPAL}{owner}"


def readable_memory_owners(actor: Actor) -> frozenset[str]:
    """Return the owners whose memory a caller reads as its own: itself, its teams and the users it serves."""
    shared = (*(f"{TEAM}{team}" for team in actor.teams), *(f"{USER}{user}" for user in actor.users))
    return frozenset((actor.principal_id, *shared))


async def may_use_shared(actor: Actor, owner: str, access: AccessStore, teams: TeamStore) -> bool:
    """Tell whether a caller may read and, with the permission, write the memory of a team or a user."""
    if Permission.READ not in actor.permissions:
        return False
    if owner in readable_memory_owners(actor):
        return True
    return actor.is_admin and await exists(owner, access, teams, up_to=actor.clearance)


async def exists(owner: str, access: AccessStore, teams: TeamStore, up_to: int = HIGHEST_CLEARANCE) -> bool:
    """Tell whether there is such a team, or such a human with at most this clearance."""
    if owner.startswith(TEAM):
        return await teams.find(owner.removeprefix(TEAM)) is not None
    principal = await access.principal(owner.removeprefix(USER))
    return principal is not None and principal.kind is PrincipalKind.HUMAN and principal.clearance <= up_to


async def check_may_use(actor: Actor, owner: str, access: AccessStore, teams: TeamStore) -> None:
    """Raise unless the caller may use the memory of a team or a user, as if there were none."""
    if Permission.READ not in actor.permissions:
        raise PermissionDenied("Shared memory needs the permission 'read'.")
    if not await may_use_shared(actor, owner, access, teams):
        error = unknown_owner(owner, actor)
        error.denial = await exists(owner, access, teams)
        raise error


def unknown_owner(owner: str, actor: Actor) -> TeamNotFound | AgentNotFound:
    """Return the error for a team or a user that does not exist or that the caller may not use."""
    if owner.startswith(TEAM):
        return unknown_team(owner.removeprefix(TEAM), actor)
    user = owner.removeprefix(USER)
    return AgentNotFound(
        f"There is no user '{user}' whose memory you share.",
        hint="You share the memory of the humans above you in the tree and of those in your teams.",
        related=("teams",),
        resource_type="user",
        resource_id=user,
    )


DEFINITION = "definition"
# The keys of a definition that decide what an agent may not do and when its windows are compacted. They are cached
# by the access epoch, which a change of them advances.
GUARDRAILS, CONFIG = "guardrails", "config"
CACHED_KEYS = frozenset({GUARDRAILS, CONFIG})
INLINE_BYTES = 32_768
MAX_VALUE_BYTES = 16 * 1_048_576
_ROOT = "context"
_AGENT = "agent"
_KEY = re.compile(r"[A-Za-z0-9_:/-][A-Za-z0-9_.:/-]{0,199}\Z")

MemoryTypeName = Literal["conversation_context", "learned_knowledge", "team_preferences", "work_artifacts"]


class MemoryType(StrEnum):
    """Types of persistent memory."""

    CONVERSATION_CONTEXT = "conversation_context"
    LEARNED_KNOWLEDGE = "learned_knowledge"
    TEAM_PREFERENCES = "team_preferences"
    WORK_ARTIFACTS = "work_artifacts"


# Default retention of each memory type, and the number of changed entries from which a push is a learning cycle with an
# automatic snapshot. Conversations and artifacts regularly reach such numbers, so they have none.
MEMORY_RULES: Mapping[str, Rule] = {
    MemoryType.CONVERSATION_CONTEXT: Rule(None, None),
    MemoryType.LEARNED_KNOWLEDGE: Rule(None, None, snapshot_from=10),
    MemoryType.TEAM_PREFERENCES: Rule(None, None, snapshot_from=10),
    MemoryType.WORK_ARTIFACTS: Rule(90, None),
}


class ContextLimitExceeded(Conflict):
    """The write would exceed the size limit of the context."""

    code = "CONTEXT_LIMIT_EXCEEDED"
    hint = "Remove entries you no longer need with `context.push` and its field remove, then push again."
    related = ("push_context", "read_context")


class ContextNotPulled(Conflict):
    """You have not pulled a context in this session."""

    code = "CONTEXT_NOT_PULLED"
    hint = "Call `context.pull` with this session_id first, or omit session_id to read the current version."
    related = ("pull_context",)


class ContextKeyNotFound(NotFound):
    """The context has no such entry."""

    code = "CONTEXT_KEY_NOT_FOUND"
    hint = "List the entries with `context.read` without a key; get the latest ones with `context.pull`."
    related = ("read_context", "pull_context")


@dataclass(frozen=True, slots=True)
class ContextLimits:
    """Size limit of an agent's context."""

    limit_mb: int

    @property
    def total_bytes(self) -> int:
        return self.limit_mb * 1_048_576


class EntryAddress(NamedTuple):
    """Address of an entry in a context: its part and key."""

    part: str
    key: str

    @property
    def memory_type(self) -> str:
        return self.part.partition(":")[0]

    @property
    def workflow_id(self) -> str | None:
        return self.part.partition(":")[2] or None


class ContextLine(NamedTuple):
    """Parsed line id: owner, part (None: the root) and branch.

    The root of an agent's memory is context:AGENT; that of a team or a user has the owner's name, such as team:NAME.
    """

    owner: str
    part: str | None
    branch: str | None

    @classmethod
    def parse(cls, line_id: str) -> ContextLine:
        """Parse a line id; LineNotFound if it is not one of a context."""
        prefix, _, rest = trunk_of(line_id).partition(":")
        name, _, part = rest.partition(":")
        owner = f"{prefix}:{name}" if is_shared(line_id) else name
        found = cls(owner, DEFINITION if prefix == _AGENT else part or None, branch_of(line_id))
        if found.line_id != line_id or not found.is_well_formed:
            raise no_line(line_id)
        return found

    @property
    def is_well_formed(self) -> bool:
        known = self.part is None or self.part == DEFINITION or _is_memory_part(self.part)
        return known and is_name(self.owner.rpartition(":")[2]) and (self.branch is None or is_name(self.branch))

    @property
    def line_id(self) -> str:
        if self.part == DEFINITION:
            return f"{_AGENT}:{self.owner}"
        root = self.owner if is_shared(self.owner) else f"{_ROOT}:{self.owner}"
        return line_name(root if self.part is None else f"{root}:{self.part}", self.branch)

    @property
    def root(self) -> ContextLine:
        return ContextLine(self.owner, None, self.branch)


def _is_memory_part(part: str) -> bool:
    memory_type, _, workflow_id = part.partition(":")
    if memory_type == MemoryType.CONVERSATION_CONTEXT:
        return is_name(workflow_id)
    return part in set(MemoryType)


def part_of(memory_type: str, workflow_id: str | None, field: str) -> str:
    """Return the part of a memory type; each workflow has its own part."""
    of_workflow = memory_type == MemoryType.CONVERSATION_CONTEXT
    if of_workflow != (workflow_id is not None):
        problem = "is needed for" if of_workflow else "is only for"
        raise InvalidInput(
            f"{field}: workflow_id {problem} the memory type conversation_context", field=f"{field}.workflow_id"
        )
    return f"{memory_type}:{workflow_id}" if of_workflow else memory_type


def check_key(key: str, field: str) -> None:
    """Raise for a malformed key. Its name does not matter: memory has its own lines, and none is a definition."""
    if not is_well_formed(key):
        raise InvalidInput(
            f"{field}: use 1 to 200 letters, digits and any of _.:/- , without a leading dot or two in a row",
            field=field,
        )


def is_well_formed(key: str) -> bool:
    return _KEY.match(key) is not None and ".." not in key


def check_value_size(size: int, field: str) -> None:
    if size > MAX_VALUE_BYTES:
        raise ContentTooLarge(
            f"{field}: the value has {size} bytes; one entry may have {MAX_VALUE_BYTES}.",
            field=field,
            value_size=size,
            limit_bytes=MAX_VALUE_BYTES,
        )


def memory_size(change: Change) -> int:
    """Return the bytes that count against the limit; the key counts too, so that empty values are not free."""
    return len(change.key) + change.meta.size


def retention_cutoff(line: ContextLine, rules: Mapping[str, Rule], now: int) -> int | None:
    """Return the time before which entries of a part have expired, removed or not."""
    if line.part is None or line.part == DEFINITION:
        return None
    days = _rules_for(line, rules)[0].days
    return None if days is None else now - days * DAY_MICROS


def is_learning_cycle(entries: int, line: ContextLine, rules: Mapping[str, Rule]) -> bool:
    """Tell whether a push changes enough entries for an automatic snapshot of the part before it."""
    thresholds = [rule.snapshot_from for rule in _rules_for(line, rules) if rule.snapshot_from is not None]
    return bool(thresholds) and 0 < thresholds[0] <= entries


def retained_tags(tags: Iterable[Tag], line: ContextLine, rules: Mapping[str, Rule], now: int) -> list[Tag]:
    """Return the tags that retention keeps: all manual ones, and automatic ones within the age and number of its rule.

    The whole context has no retention rule, so its automatic tags follow the rule of the part.
    """
    rule = _rules_for(line, rules)[0]
    since = 0 if rule.days is None else now - rule.days * DAY_MICROS
    newest = sorted(tags, key=lambda tag: (-tag.created_at, tag.label))
    automatic = [tag for tag in newest if tag.automatic and tag.created_at >= since]
    return [tag for tag in newest if not tag.automatic] + automatic[: rule.versions]


def _rules_for(line: ContextLine, rules: Mapping[str, Rule]) -> list[Rule]:
    """Return the rules for a part, most specific first: its line's, its trunk's, its memory type's, the default."""
    kind = _AGENT if line.part == DEFINITION else EntryAddress(line.part or "", "").memory_type
    subjects = (line.line_id, trunk_of(line.line_id), kind)
    return [*(rules[subject] for subject in subjects if subject in rules), MEMORY_RULES.get(kind, Rule(None, None))]


def is_overdue(version: Version, since: int | None) -> bool:
    return since is not None and version.committed_at <= since


def pin_holder(session_id: str, principal_id: str) -> str:
    """Return the pin holder of an agent in a session."""
    return f"{SESSION_HOLDER}{session_id}:{principal_id}"


class EntryText(NamedTuple):
    """The stored text of an entry with its metadata; for a value in object storage, the encoded ``pointer``."""

    text: str
    meta: ChangeMeta
    pointer: Pointer | None = None

    @property
    def hash(self) -> bytes:
        return blob_hash(self.text)


class NewValue(NamedTuple):
    """A new value: JSON bytes, or bytes of a media type; ``metadata`` is JSON text."""

    content: bytes
    media_type: str | None = None
    metadata: str | None = None
    trust: TrustLabel | None = None

    @property
    def text(self) -> str | None:
        """Return the content as text; None if it is not."""
        try:
            return self.content.decode()
        except UnicodeDecodeError:
            return None

    @property
    def metadata_hash(self) -> str | None:
        return None if self.metadata is None else blob_hash(self.metadata).hex()


def belongs_in_object_storage(given: NewValue, memory_type: str) -> bool:
    """Tell whether a value goes to object storage: large values, binary ones and artifacts."""
    return given.media_type is not None or memory_type == MemoryType.WORK_ARTIFACTS or len(given.content) > INLINE_BYTES


def inline(given: NewValue) -> EntryText:
    meta = ChangeMeta(size=len(given.content), metadata_hash=given.metadata_hash, trust=given.trust)
    return EntryText(given.content.decode(), meta)


def as_object(given: NewValue, tenant: str, owner: str) -> EntryText:
    pointer = Pointer.to(tenant, owner, given.content)
    meta = ChangeMeta(
        size=pointer.size,
        metadata_hash=given.metadata_hash,
        outside=True,
        media_type=given.media_type,
        trust=given.trust,
    )
    return EntryText(pointer.encode(), meta, pointer)


def text_of_version(version: Version) -> EntryText | None:
    """Return the text of an earlier version; None if it was pruned."""
    if version.value is None:
        return None
    meta = version.change.meta
    if meta.outside:
        return EntryText(version.value, meta, Pointer.decode(version.value))
    # A value from a merge decision has no size yet.
    return EntryText(version.value, structs.replace(meta, size=len(version.value.encode())))
