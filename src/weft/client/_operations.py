# Written by scripts/generate.py from the operation registry; change the operations instead.
"""Every operation as a typed async method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from weft.capabilities.access.audit import AuditLog
from weft.capabilities.access.operations import (
    AgentCreated,
    AgentInfo,
    Agents,
    ApiKeyCreated,
    ApiKeys,
    Done,
    TokenIssued,
)
from weft.capabilities.board.guidance import ConventionGroup, ConventionNames, ConventionsDefined, Guidance
from weft.capabilities.board.hygiene import Hygiene
from weft.capabilities.board.inspection import Inspection
from weft.capabilities.board.operations import (
    Comparison,
    EntriesRead,
    EntryDeleted,
    EntryRead,
    EntryWritten,
    History,
    Keys,
    SnapshotInfo,
    SnapshotRead,
    SnapshotRestored,
    Snapshots,
)
from weft.capabilities.events.operations import Events
from weft.capabilities.sessions.model import SessionConfig
from weft.capabilities.sessions.operations import (
    SessionArchivedAt,
    SessionCreated,
    SessionDeleted,
    SessionFound,
    Sessions,
)
from weft.client._calling import Caller, given

ROUTES: dict[str, tuple[str, str]] = {
    "board.list_keys": ("GET", "/v1/sessions/{session_id}/context"),
    "board.read": ("GET", "/v1/sessions/{session_id}/context/{key}"),
    "board.read_batch": ("POST", "/v1/sessions/{session_id}/read-batch"),
    "board.write": ("PUT", "/v1/sessions/{session_id}/context/{key}"),
    "board.delete": ("DELETE", "/v1/sessions/{session_id}/context/{key}"),
    "board.read_history": ("GET", "/v1/sessions/{session_id}/history/{key}"),
    "board.snapshot": ("POST", "/v1/sessions/{session_id}/snapshots"),
    "board.list_snapshots": ("GET", "/v1/sessions/{session_id}/snapshots"),
    "board.read_snapshot": ("GET", "/v1/sessions/{session_id}/snapshots/{label}"),
    "board.compare_snapshots": ("GET", "/v1/sessions/{session_id}/snapshots/{from_label}/comparison"),
    "board.restore_snapshot": ("POST", "/v1/sessions/{session_id}/snapshots/{label}/restore"),
    "board.guidance": ("GET", "/v1/board-guidance"),
    "conventions.define": ("PUT", "/v1/conventions/{name}"),
    "conventions.list": ("GET", "/v1/conventions"),
    "board.hygiene": ("GET", "/v1/sessions/{session_id}/hygiene"),
    "session.create": ("POST", "/v1/sessions"),
    "session.get": ("GET", "/v1/sessions/{session_id}"),
    "session.list": ("GET", "/v1/sessions"),
    "session.archive": ("POST", "/v1/sessions/{session_id}/archive"),
    "session.delete": ("DELETE", "/v1/sessions/{session_id}"),
    "session.inspect": ("POST", "/v1/sessions/{session_id}/inspect"),
    "events.read": ("GET", "/v1/events"),
    "token.issue": ("POST", "/v1/tokens"),
    "token.refresh": ("POST", "/v1/tokens/refresh"),
    "token.revoke": ("POST", "/v1/tokens/revoke"),
    "agent.create": ("POST", "/v1/agents"),
    "agent.list": ("GET", "/v1/agents"),
    "agent.update": ("PATCH", "/v1/agents/{agent_id}"),
    "key.create": ("POST", "/v1/agents/{agent_id}/keys"),
    "key.list": ("GET", "/v1/agents/{agent_id}/keys"),
    "key.rotate": ("POST", "/v1/keys/{key_id}/rotate"),
    "key.revoke": ("DELETE", "/v1/keys/{key_id}"),
    "signing_key.rotate": ("POST", "/v1/signing-keys/rotate"),
    "audit.list": ("GET", "/v1/audit"),
}


class AgentOperations:
    """The agent operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def create(
        self,
        agent_id: str,
        *,
        agent_type: str | None = None,
        kind: Literal["agent", "human"] = "agent",
        parent_id: str | None = None,
        clearance: int = 1,
        permissions: Sequence[Literal["read", "write", "admin"]] = ("read", "write"),
    ) -> AgentCreated:
        """Add an agent or a human to the tenant, with an API key that is shown this once.

        An agent below another agent is a sub-agent and writes as ``subagent:{type}`` (or ``subagent:{type}:{id}`` when
        it is not named after its type); any other agent is an orchestrator. Nobody grants more than they hold
        themselves, and an agent adds only agents below itself.
        """
        return await self._caller.call(
            "agent.create",
            {
                "agent_id": agent_id,
                "kind": kind,
                "clearance": clearance,
                "permissions": permissions,
                **given(agent_type=agent_type, parent_id=parent_id),
            },
            AgentCreated,
        )

    async def list(self, *, after: str = "", limit: int = 100) -> Agents:
        """List the tenant's principals by id."""
        return await self._caller.call("agent.list", {"after": after, "limit": limit}, Agents)

    async def update(
        self,
        agent_id: str,
        *,
        permissions: Sequence[Literal["read", "write", "admin"]] | None = None,
        clearance: int | None = None,
        disabled: bool | None = None,
    ) -> AgentInfo:
        """Change what a principal may do, or lock it out. Acts on its next call, in every process.

        Humans change those cleared no higher than themselves, agents only those of them that stand below; nobody
        changes itself or grants more than it holds.
        """
        return await self._caller.call(
            "agent.update",
            {"agent_id": agent_id, **given(permissions=permissions, clearance=clearance, disabled=disabled)},
            AgentInfo,
        )


class AuditOperations:
    """The audit operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def list(
        self, *, before: str | None = None, outcome: Literal["done", "denied"] | None = None, limit: int = 100
    ) -> AuditLog:
        """Read the tenant's audit log: every denial and every administrative act, newest first."""
        return await self._caller.call(
            "audit.list", {"limit": limit, **given(before=before, outcome=outcome)}, AuditLog
        )


class BoardOperations:
    """The board operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def list_keys(self, session_id: str) -> Keys:
        """See what the board holds, with sizes but without values, so you can choose what is worth reading."""
        return await self._caller.call("board.list_keys", {"session_id": session_id}, Keys)

    async def read(self, session_id: str, key: str) -> EntryRead:
        """Read one entry."""
        return await self._caller.call("board.read", {"session_id": session_id, "key": key}, EntryRead)

    async def read_batch(self, session_id: str, keys: Sequence[str]) -> EntriesRead:
        """Read several entries in one call, all as they stood at one moment."""
        return await self._caller.call("board.read_batch", {"session_id": session_id, "keys": keys}, EntriesRead)

    async def write(
        self,
        session_id: str,
        key: str,
        value: str,
        *,
        if_version: int | None = None,
        ttl_seconds: int | None = None,
        readable_by: Sequence[str] | None = None,
        writable_by: Sequence[str] | None = None,
    ) -> EntryWritten:
        """Create or overwrite one entry: conclusions and state that others need, not raw data.

        The last write wins unless ``if_version`` says which version it must replace.
        """
        return await self._caller.call(
            "board.write",
            {
                "session_id": session_id,
                "key": key,
                "value": value,
                **given(
                    if_version=if_version, ttl_seconds=ttl_seconds, readable_by=readable_by, writable_by=writable_by
                ),
            },
            EntryWritten,
        )

    async def delete(self, session_id: str, key: str, *, if_version: int | None = None) -> EntryDeleted:
        """Remove an entry that is no longer relevant."""
        return await self._caller.call(
            "board.delete", {"session_id": session_id, "key": key, **given(if_version=if_version)}, EntryDeleted
        )

    async def read_history(
        self, session_id: str, key: str, *, versions: Sequence[int] | None = None, life: int | None = None
    ) -> History:
        """See how a key came to say what it says: its earlier versions, who wrote them and when."""
        return await self._caller.call(
            "board.read_history", {"session_id": session_id, "key": key, **given(versions=versions, life=life)}, History
        )

    async def snapshot(self, session_id: str, label: str) -> SnapshotInfo:
        """Freeze the whole board under a name, to look back at or return to."""
        return await self._caller.call("board.snapshot", {"session_id": session_id, "label": label}, SnapshotInfo)

    async def list_snapshots(self, session_id: str) -> Snapshots:
        """List the board's snapshots."""
        return await self._caller.call("board.list_snapshots", {"session_id": session_id}, Snapshots)

    async def read_snapshot(self, session_id: str, label: str) -> SnapshotRead:
        """Read the board as it was when a snapshot was taken."""
        return await self._caller.call("board.read_snapshot", {"session_id": session_id, "label": label}, SnapshotRead)

    async def compare_snapshots(self, session_id: str, from_label: str, *, to_label: str | None = None) -> Comparison:
        """Compare two snapshots, or a snapshot with the present board."""
        return await self._caller.call(
            "board.compare_snapshots",
            {"session_id": session_id, "from_label": from_label, **given(to_label=to_label)},
            Comparison,
        )

    async def restore_snapshot(self, session_id: str, label: str) -> SnapshotRestored:
        """Return the whole board to a snapshot. Nothing is rewritten: the way back is recorded as new versions."""
        return await self._caller.call(
            "board.restore_snapshot", {"session_id": session_id, "label": label}, SnapshotRestored
        )

    async def guidance(
        self,
        *,
        session_id: str | None = None,
        conventions: str | None = None,
        part: Literal["all", "conventions", "writing", "reading"] = "all",
    ) -> Guidance:
        """Get the text that tells an agent how to use the board, ready for its system prompt."""
        return await self._caller.call(
            "board.guidance", {"part": part, **given(session_id=session_id, conventions=conventions)}, Guidance
        )

    async def hygiene(self, session_id: str, *, stale_hours: float = 168.0, unread_hours: float = 1.0) -> Hygiene:
        """Check the board for raw dumps, likely secrets and personal data, stale, duplicate and unread keys."""
        return await self._caller.call(
            "board.hygiene",
            {"session_id": session_id, "stale_hours": stale_hours, "unread_hours": unread_hours},
            Hygiene,
        )


class ConventionsOperations:
    """The conventions operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def define(self, name: str, groups: Sequence[ConventionGroup]) -> ConventionsDefined:
        """Define the keys a domain's agents agree on; sessions name them in their config."""
        return await self._caller.call("conventions.define", {"name": name, "groups": groups}, ConventionsDefined)

    async def list(self) -> ConventionNames:
        """List the key conventions that sessions can name."""
        return await self._caller.call("conventions.list", {}, ConventionNames)


class EventsOperations:
    """The events operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def read(
        self,
        *,
        session_id: str | None = None,
        keys: Sequence[str] = ("*",),
        after: int | None = None,
        wait_seconds: float = 0.0,
    ) -> Events:
        """Read what happened since an offset, waiting for the next event if there is none yet.

        Events come in order and are never lost: repeat the call with ``after`` set to the ``next_after`` you were
        given.
        """
        return await self._caller.call(
            "events.read",
            {"keys": keys, "wait_seconds": wait_seconds, **given(session_id=session_id, after=after)},
            Events,
        )


class KeyOperations:
    """The key operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def create(self, agent_id: str, *, expires_in: int | None = None) -> ApiKeyCreated:
        """Give a principal a further API key, shown this once."""
        return await self._caller.call(
            "key.create", {"agent_id": agent_id, **given(expires_in=expires_in)}, ApiKeyCreated
        )

    async def list(self, agent_id: str) -> ApiKeys:
        """List a principal's API keys, without their secrets."""
        return await self._caller.call("key.list", {"agent_id": agent_id}, ApiKeys)

    async def rotate(self, key_id: str) -> ApiKeyCreated:
        """Replace an API key: the new one is shown this once, the old one and its tokens end at once.

        Everyone may rotate their own key; an admin may rotate those of others it may change.
        """
        return await self._caller.call("key.rotate", {"key_id": key_id}, ApiKeyCreated)

    async def revoke(self, key_id: str) -> Done:
        """End an API key and every token it was used to get, at once."""
        return await self._caller.call("key.revoke", {"key_id": key_id}, Done)


class SessionOperations:
    """The session operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def create(
        self,
        purpose: str,
        *,
        metadata: dict[str, Any] | None = None,
        session_id: str | None = None,
        config: SessionConfig | None = None,
    ) -> SessionCreated:
        """Create a session: an isolated place for agents to work together, with an empty board.

        It lasts until it is archived or deleted, over days, conversations and restarts.
        """
        return await self._caller.call(
            "session.create",
            {"purpose": purpose, **given(metadata=metadata, session_id=session_id, config=config)},
            SessionCreated,
        )

    async def get(self, session_id: str) -> SessionFound:
        """Look at one session: its purpose, state and settings."""
        return await self._caller.call("session.get", {"session_id": session_id}, SessionFound)

    async def list(self, *, limit: int = 50, cursor: str | None = None, include_archived: bool = False) -> Sessions:
        """List the sessions you take part in, newest first."""
        return await self._caller.call(
            "session.list", {"limit": limit, "include_archived": include_archived, **given(cursor=cursor)}, Sessions
        )

    async def archive(self, session_id: str) -> SessionArchivedAt:
        """Close a session for writing and keep it for reading and audit."""
        return await self._caller.call("session.archive", {"session_id": session_id}, SessionArchivedAt)

    async def delete(self, session_id: str) -> SessionDeleted:
        """Remove a session for good: its board, history, snapshots and events. Only the audit log remembers it."""
        return await self._caller.call("session.delete", {"session_id": session_id}, SessionDeleted)

    async def inspect(self, session_id: str) -> Inspection:
        """Look at everything a session holds, values included, and check that its history is intact.

        For admins only; every use is written to the audit log.
        """
        return await self._caller.call("session.inspect", {"session_id": session_id}, Inspection)


class SigningKeyOperations:
    """The signing key operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def rotate(self, *, revoke_existing: bool = False) -> Done:
        """Sign the tenant's tokens with a new secret from now on.

        It concerns everyone in the tenant, so it takes the highest clearance.
        """
        return await self._caller.call("signing_key.rotate", {"revoke_existing": revoke_existing}, Done)


class TokenOperations:
    """The token operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def issue(
        self,
        agent_id: str,
        agent_type: str,
        api_key: str,
        *,
        requested_permissions: Sequence[Literal["read", "write", "admin"]] = ("read", "write"),
    ) -> TokenIssued:
        """Exchange an agent's API key for a token that expires.

        The token carries those of the requested permissions that an admin granted; asking for more never gives more.
        """
        return await self._caller.call(
            "token.issue",
            {
                "agent_id": agent_id,
                "agent_type": agent_type,
                "api_key": api_key,
                "requested_permissions": requested_permissions,
            },
            TokenIssued,
        )

    async def refresh(self) -> TokenIssued:
        """Get a fresh token for the one this call is made with, which runs out at its own time.

        Refreshing can go on for a day (by default); after that the API key must be shown again.
        """
        return await self._caller.call("token.refresh", {}, TokenIssued)

    async def revoke(self, *, token_id: str | None = None) -> Done:
        """End a token at once: your own, or, as an admin, that of someone you may change."""
        return await self._caller.call("token.revoke", given(token_id=token_id), Done)


class Operations:
    """All operations, by group."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self.agent = AgentOperations(caller)
        self.audit = AuditOperations(caller)
        self.board = BoardOperations(caller)
        self.conventions = ConventionsOperations(caller)
        self.events = EventsOperations(caller)
        self.key = KeyOperations(caller)
        self.session = SessionOperations(caller)
        self.signing_key = SigningKeyOperations(caller)
        self.token = TokenOperations(caller)
