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
from weft.capabilities.memory.inspection import MemoryInspected, MemoryOverview
from weft.capabilities.memory.operations import MemoryDeleted, MemoryFound, MemoryListed, MemorySet
from weft.capabilities.messages.operations import MessageAdded, Messages, VisibilityChanged
from weft.capabilities.messages.session_views import SessionFound, SessionOverview
from weft.capabilities.performance.operations import Performance
from weft.capabilities.search.filters import MessagesBySender, MessagesByTime
from weft.capabilities.search.operations import SearchResults
from weft.capabilities.sessions.model import SessionConfig
from weft.capabilities.sessions.operations import SessionArchivedAt, SessionCreated, SessionDeleted, Sessions
from weft.capabilities.usage.operations import UsageGuidance
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
    "session.list": ("GET", "/v1/sessions"),
    "session.archive": ("POST", "/v1/sessions/{session_id}/archive"),
    "session.delete": ("DELETE", "/v1/sessions/{session_id}"),
    "session.get": ("GET", "/v1/sessions/{session_id}"),
    "session.overview": ("GET", "/v1/sessions/{session_id}/overview"),
    "message.add": ("POST", "/v1/sessions/{session_id}/messages"),
    "message.list": ("GET", "/v1/sessions/{session_id}/messages"),
    "message.set_visibility": ("PUT", "/v1/sessions/{session_id}/messages/{message_id:int}/visibility"),
    "message.inspect": ("POST", "/v1/sessions/{session_id}/messages/inspect"),
    "search.context": ("GET", "/v1/sessions/{session_id}/search"),
    "search.by_sender": ("GET", "/v1/sessions/{session_id}/search/by-sender"),
    "search.by_timerange": ("GET", "/v1/sessions/{session_id}/search/by-timerange"),
    "memory.set": ("PUT", "/v1/memory/{key}"),
    "memory.get": ("GET", "/v1/memory/{key}"),
    "memory.list": ("GET", "/v1/memory"),
    "memory.delete": ("DELETE", "/v1/memory/{key}"),
    "memory.overview": ("GET", "/v1/agents/{agent_id}/memory"),
    "memory.inspect": ("POST", "/v1/agents/{agent_id}/memory/inspect"),
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
    "performance.read": ("GET", "/v1/performance"),
    "usage.guidance": ("GET", "/v1/usage-guidance"),
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
        types: Sequence[str] = ("*",),
        personal: bool = False,
        after: int | None = None,
        wait_seconds: float = 0.0,
    ) -> Events:
        """Read what happened since an offset, waiting for the next event if there is none yet.

        Events come in order and are never lost: repeat the call with ``after`` set to the ``next_after`` you were
        given.
        """
        return await self._caller.call(
            "events.read",
            {
                "keys": keys,
                "types": types,
                "personal": personal,
                "wait_seconds": wait_seconds,
                **given(session_id=session_id, after=after),
            },
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


class MemoryOperations:
    """The memory operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def set(
        self,
        key: str,
        value: object,
        *,
        session_id: str | None = None,
        expires_in: int | None = None,
        metadata: dict[str, Any] | None = None,
        overwrite: bool = True,
        if_version: int | None = None,
    ) -> MemorySet:
        """Remember something for later calls, for yourself alone: globally, or within one session.

        Nobody else can read it. The last write wins unless ``if_version`` or ``overwrite`` says otherwise.
        """
        return await self._caller.call(
            "memory.set",
            {
                "key": key,
                "value": value,
                "overwrite": overwrite,
                **given(session_id=session_id, expires_in=expires_in, metadata=metadata, if_version=if_version),
            },
            MemorySet,
        )

    async def get(self, key: str, *, session_id: str | None = None) -> MemoryFound:
        """Recall something you remembered."""
        return await self._caller.call("memory.get", {"key": key, **given(session_id=session_id)}, MemoryFound)

    async def list(
        self, *, session_id: str | None = None, prefix: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> MemoryListed:
        """See what you remember, with sizes but without values."""
        return await self._caller.call(
            "memory.list", {"limit": limit, **given(session_id=session_id, prefix=prefix, cursor=cursor)}, MemoryListed
        )

    async def delete(self, key: str, *, session_id: str | None = None, if_version: int | None = None) -> MemoryDeleted:
        """Forget something you remembered."""
        return await self._caller.call(
            "memory.delete", {"key": key, **given(session_id=session_id, if_version=if_version)}, MemoryDeleted
        )

    async def overview(self, agent_id: str) -> MemoryOverview:
        """See all of your own memory at once, values included, with what it adds up to."""
        return await self._caller.call("memory.overview", {"agent_id": agent_id}, MemoryOverview)

    async def inspect(self, agent_id: str, *, limit: int = 50, cursor: str | None = None) -> MemoryInspected:
        """Look into an agent's private memory, values included, a page at a time.

        For admins only; every use is written to the audit log.
        """
        return await self._caller.call(
            "memory.inspect", {"agent_id": agent_id, "limit": limit, **given(cursor=cursor)}, MemoryInspected
        )


class MessageOperations:
    """The message operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def add(
        self,
        session_id: str,
        content: str,
        *,
        visibility: Literal["public", "private", "agent_only", "admin_only"] = "public",
        metadata: dict[str, Any] | None = None,
        parent_message_id: int | None = None,
        recipient_id: str | None = None,
        message_type: str = "message",
        category: str = "DIALOG",
    ) -> MessageAdded:
        """Say something in a session: to everyone, to agents of your own type, to admins, or only to yourself.

        The text is kept byte for byte. Answer a message with ``parent_message_id``.
        """
        return await self._caller.call(
            "message.add",
            {
                "session_id": session_id,
                "content": content,
                "visibility": visibility,
                "message_type": message_type,
                "category": category,
                **given(metadata=metadata, parent_message_id=parent_message_id, recipient_id=recipient_id),
            },
            MessageAdded,
        )

    async def list(
        self,
        session_id: str,
        *,
        limit: int = 50,
        offset: int = 0,
        visibility_filter: Literal["public", "private", "agent_only", "admin_only"] | None = None,
        after_id: int = 0,
    ) -> Messages:
        """Read a session's messages, oldest first, as far as they are meant for you.

        Pages stay as they are while others write, because new messages come last. To poll, pass ``after_id``. A page
        ends before its limit where it would have more than about 4 MiB; ``has_more`` is true then.
        """
        return await self._caller.call(
            "message.list",
            {
                "session_id": session_id,
                "limit": limit,
                "offset": offset,
                "after_id": after_id,
                **given(visibility_filter=visibility_filter),
            },
            Messages,
        )

    async def set_visibility(
        self, session_id: str, message_id: int, visibility: Literal["public", "private", "agent_only", "admin_only"]
    ) -> VisibilityChanged:
        """Change who may see a message, such as one that should not have been public. For admins; always on record."""
        return await self._caller.call(
            "message.set_visibility",
            {"session_id": session_id, "message_id": message_id, "visibility": visibility},
            VisibilityChanged,
        )

    async def inspect(self, session_id: str, *, limit: int = 50, offset: int = 0) -> Messages:
        """Look at every message of a session, whoever it is for. For admins only; every use is on record."""
        return await self._caller.call(
            "message.inspect", {"session_id": session_id, "limit": limit, "offset": offset}, Messages
        )


class PerformanceOperations:
    """The performance operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def read(self) -> Performance:
        """See how fast and how busy the server is: database, memory, calls and where they are heading.

        Memory, CPU, connections and caches are those of the process that answers; calls, sessions and agents are your
        tenant's alone. What cannot be measured is null.
        """
        return await self._caller.call("performance.read", {}, Performance)


class SearchOperations:
    """The search operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def context(
        self,
        session_id: str,
        query: str,
        *,
        fuzzy_threshold: float = 60.0,
        limit: int = 10,
        search_metadata: bool = True,
        search_scope: Literal["all", "public", "private"] = "all",
    ) -> SearchResults:
        """Search a session's messages, however old: by words that may be misspelt, or with a question.

        A score of 100 means that everything asked for is there, or that what is there tells this message from all
        others.
        """
        return await self._caller.call(
            "search.context",
            {
                "session_id": session_id,
                "query": query,
                "fuzzy_threshold": fuzzy_threshold,
                "limit": limit,
                "search_metadata": search_metadata,
                "search_scope": search_scope,
            },
            SearchResults,
        )

    async def by_sender(self, session_id: str, sender: str, *, limit: int = 20, offset: int = 0) -> MessagesBySender:
        """Find what one sender said in a session, newest first, as far as it is meant for you."""
        return await self._caller.call(
            "search.by_sender",
            {"session_id": session_id, "sender": sender, "limit": limit, "offset": offset},
            MessagesBySender,
        )

    async def by_timerange(
        self, session_id: str, start_time: str, end_time: str, *, limit: int = 50, offset: int = 0
    ) -> MessagesByTime:
        """Find what was said in a span of time, oldest first, as far as it is meant for you."""
        return await self._caller.call(
            "search.by_timerange",
            {
                "session_id": session_id,
                "start_time": start_time,
                "end_time": end_time,
                "limit": limit,
                "offset": offset,
            },
            MessagesByTime,
        )


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

    async def list(self, *, limit: int = 50, cursor: str | None = None, include_archived: bool = False) -> Sessions:
        """List the sessions you take part in, newest first."""
        return await self._caller.call(
            "session.list", {"limit": limit, "include_archived": include_archived, **given(cursor=cursor)}, Sessions
        )

    async def archive(self, session_id: str) -> SessionArchivedAt:
        """Close a session for writing and keep it for reading and audit."""
        return await self._caller.call("session.archive", {"session_id": session_id}, SessionArchivedAt)

    async def delete(self, session_id: str) -> SessionDeleted:
        """Remove a session for good, with all that agents keep in it. Only the audit log remembers it."""
        return await self._caller.call("session.delete", {"session_id": session_id}, SessionDeleted)

    async def get(self, session_id: str) -> SessionFound:
        """Look at one session: its purpose, state and settings, and its latest messages."""
        return await self._caller.call("session.get", {"session_id": session_id}, SessionFound)

    async def overview(self, session_id: str) -> SessionOverview:
        """See a session you work in at a glance: its state, the latest messages for you, and figures."""
        return await self._caller.call("session.overview", {"session_id": session_id}, SessionOverview)

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


class UsageOperations:
    """The usage operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def guidance(
        self, *, guidance_type: Literal["operations", "coordination", "security", "troubleshooting"] = "operations"
    ) -> UsageGuidance:
        """Learn what you may do here right now, with an example of each call, or how to work together well."""
        return await self._caller.call("usage.guidance", {"guidance_type": guidance_type}, UsageGuidance)


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
        self.memory = MemoryOperations(caller)
        self.message = MessageOperations(caller)
        self.performance = PerformanceOperations(caller)
        self.search = SearchOperations(caller)
        self.session = SessionOperations(caller)
        self.signing_key = SigningKeyOperations(caller)
        self.token = TokenOperations(caller)
        self.usage = UsageOperations(caller)
