"""Sessions: configuration, members, and the checks that open one for a caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

from weftline.access.model import member_patterns
from weftline.kernel.errors import MAX_COMPARED, Conflict, Forbidden, NotFound, PermissionDenied, close_names
from weftline.kernel.fields import Name, is_name
from weftline.kernel.identity import PRINCIPAL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weftline.history.model import Head
    from weftline.kernel.identity import Actor
    from weftline.sessions.sql import SessionStore

SessionId = Annotated[
    str,
    msgspec.Meta(
        description="The session's id.",
        extra_json_schema={"examples": ["session_a1b2c3d4e5f60718"]},
    ),
]
# Accepted instead of a session id where all sessions can be addressed.
ALL_SESSIONS: Final = "all"
DEFAULT_CONVENTIONS_NAME: Final = "default"
TokenLimit = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]


class SessionNotFound(NotFound):
    """The session does not exist, or the caller is not a member of it."""

    code = "SESSION_NOT_FOUND"
    hint = (
        "Check the session_id; list yours with `session.list` or create one with `session.create`. The creator of a "
        "session can add you with `session.add_members`."
    )
    related: tuple[str, ...] = ("list_sessions", "create_session")


_SUBAGENT_HINT = (
    "Use the session_id you were given. If it is right, ask the agent that started you to add you with "
    "`session.add_members`."
)


class NotMember(SessionNotFound):
    """The session exists, and the agent is not a member of it.

    A caller is told so of itself if it may know: above the session's creator, or with the database in its own process.
    """

    code = "NOT_A_MEMBER"
    hint = "Add the agent with `session.add_members`, or use a session that it is a member of."
    related: tuple[str, ...] = ("session_members",)


class SessionArchived(Conflict):
    """The session is archived and read-only."""

    code = "SESSION_ARCHIVED"
    hint = "Create a new session with `session.create` to continue working; this one can still be read."
    related = ("create_session", "get_session")


class SessionTerminated(Forbidden):
    """A rule ended this agent's part in the session, or that of an agent above it."""

    code = "SESSION_TERMINATED"
    hint = "Stop working in this session. A human with clearance 3 can admit you again with `session.reinstate`."
    related = ()
    recoverable = False


class BoundToSession(PermissionDenied):
    """The connection is bound to one session, and this call reaches beyond it."""

    code = "BOUND_TO_SESSION"
    hint = "Work in your session; leave this to a caller whose connection is not bound to one."
    related: tuple[str, ...] = ()


class SessionExists(Conflict):
    """A session with this id already exists."""

    code = "SESSION_EXISTS"
    hint = "Use the existing session, or omit session_id to generate one."
    related = ("get_session", "create_session")


class SessionInUse(Conflict):
    """Others depend on this session: they have windows, messages, keys or other work in it."""

    code = "SESSION_IN_USE"
    hint = "Nothing was deleted. Archive it with `session.archive`, or pass force (--force) to delete it all the same."
    related = ("delete_session", "archive_session")


class ConventionsNotFound(NotFound):
    """No key conventions have this name."""

    code = "CONVENTIONS_NOT_FOUND"
    hint = "List the names with `conventions.list`; an admin adds one with `conventions.define`."
    related = ("list_conventions", "define_conventions")


def convention_names(defined: Iterable[str]) -> list[str]:
    """Return the names that a session may give: those that an admin has defined, and the default."""
    return sorted({DEFAULT_CONVENTIONS_NAME, *defined})


def conventions_not_found(name: str) -> ConventionsNotFound:
    return ConventionsNotFound(f"There are no key conventions named '{name}'.", resource_id=name)


class SessionConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits and options of one session: its board and its windows."""

    max_value_tokens: Annotated[TokenLimit, msgspec.Meta(description="Larger values are rejected.")] = 1_000
    warn_value_tokens: Annotated[
        TokenLimit | None,
        msgspec.Meta(description="Values of this size or more return a warning; by default 80 % of max_value_tokens."),
    ] = None
    advise_value_tokens: Annotated[
        TokenLimit | None,
        msgspec.Meta(
            description="Values of this size or more return advice to shorten; by default 50 % of max_value_tokens."
        ),
    ] = None
    max_total_tokens: Annotated[TokenLimit, msgspec.Meta(description="Limit of all values of the board together.")] = (
        10_000
    )
    max_keys: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] | None,
        msgspec.Meta(description="Limit of the keys of the board; by default as many as the tenant's plan allows."),
    ] = None
    keep_versions: Annotated[
        int,
        msgspec.Meta(
            ge=1,
            le=1_000_000,
            description="How many versions of each key keep their value in history, within the tenant's plan.",
        ),
    ] = 100
    namespaces: Annotated[bool, msgspec.Meta(description="Allow keys of the form namespace:key.")] = False
    tokenizer: Annotated[
        Literal["approximate", "o200k_base", "cl100k_base"],
        msgspec.Meta(description="Token counter; the exact ones need the weftline[tokenizers] extra."),
    ] = "approximate"
    semantic_search: Annotated[
        bool, msgspec.Meta(description="False: its messages and keys are not embedded, and found by their words only.")
    ] = True
    conventions: Annotated[Name, msgspec.Meta(description="The key conventions rendered for its agents.")] = (
        DEFAULT_CONVENTIONS_NAME
    )
    compaction_review: Annotated[
        bool, msgspec.Meta(description="A human approves each compaction of its windows before it is used.")
    ] = False
    envelopes: Annotated[
        tuple[Literal["turn", "task", "tool_invocation"], ...],
        msgspec.Meta(
            description="What is recorded as an envelope when it happens: turn (each assembled prompt), "
            "tool_invocation (each tool call with its answer), task (each message or event of task_message_types)."
        ),
    ] = ()
    task_message_types: Annotated[
        tuple[Name, ...], msgspec.Meta(max_length=20, description="Types of messages and events that end a task.")
    ] = ("result", "task_completed")

    @property
    def warns_from(self) -> int:
        return self.warn_value_tokens or self.max_value_tokens * 8 // 10

    @property
    def advises_from(self) -> int:
        return self.advise_value_tokens or self.max_value_tokens // 2


class Session(msgspec.Struct, frozen=True):
    """A unit of work. ``members`` are the ACL patterns of those who may see it, besides its creator."""

    session_id: str
    purpose: str
    metadata: dict[str, Any]
    config: SessionConfig
    created_by: str
    created_at: int
    updated_at: int
    archived_at: int | None
    message_count: int = 0
    last_message_at: int | None = None
    branches: int = 0

    members: tuple[str, ...] = ()

    @property
    def audience(self) -> tuple[str, ...]:
        """Return the ACL patterns of those who may see the session: its creator first, then its members."""
        return (f"{PRINCIPAL}{self.created_by}", *self.members)

    def admits(self, actor: Actor) -> bool:
        return actor.may_enter(self.session_id) and (actor.is_admin or actor.matches(self.audience))


def check_not_terminated(session_id: str, actor: Actor) -> None:
    """Refuse an agent whose part in the session was ended."""
    if session_id in actor.terminated_sessions:
        raise SessionTerminated(session_id=session_id)


async def find_session(session_id: str, actor: Actor, sessions: SessionStore) -> Session:
    """Return a session that the caller is a member of; raise SessionNotFound otherwise."""
    check_not_terminated(session_id, actor)
    session = await sessions.find(session_id) if is_name(session_id) else None
    if session is None or not session.admits(actor):
        raise await session_not_found(session_id, actor, sessions, session)
    return session


async def admitted_sessions(session_ids: Iterable[str], actor: Actor, sessions: SessionStore) -> frozenset[str]:
    """Return those of some sessions that the caller is a member of."""
    found = await sessions.find_several(set(session_ids))
    return frozenset(session.session_id for session in found if session.admits(actor))


async def lock_session(session_id: str, actor: Actor, sessions: SessionStore) -> tuple[Session, Head]:
    """Return a session that the caller is a member of, with the head of its board, both locked for writing."""
    check_not_terminated(session_id, actor)
    found = await sessions.find_locked(session_id) if is_name(session_id) else None
    if found is None or not found[0].admits(actor):
        raise await session_not_found(session_id, actor, sessions, found and found[0])
    return found


async def lock_active_session(session_id: str, actor: Actor, sessions: SessionStore) -> tuple[Session, Head]:
    session, head = await lock_session(session_id, actor, sessions)
    if session.archived_at is not None:
        raise SessionArchived(
            f"The session '{session_id}' has been archived.", resource_type="session", resource_id=session_id
        )
    return session, head


async def session_not_found(
    session_id: str, actor: Actor, sessions: SessionStore, denied: Session | None
) -> SessionNotFound:
    """Return the error, suggesting the caller's own sessions with similar ids.

    ``denied`` is the session, if it exists and does not admit the caller.
    """
    if actor.bound_session not in (None, session_id):
        return session_elsewhere(session_id, actor)
    if denied is not None and (actor.by_owner or await sessions.is_above_creator(actor.principal_id, denied)):
        return _not_a_member(denied, actor)
    shown, hint, related, names = session_id[:100], None, None, []
    if actor.is_subagent or actor.bound_session is not None:
        # It works in the session it was given, and cannot list others.
        hint, related = _SUBAGENT_HINT, ()
    else:
        own = await sessions.newest(None, MAX_COMPARED, archived=True, patterns=patterns_to_list(actor))
        names = close_names(shown, [each.session_id for each in own])
    error = SessionNotFound(
        f"There is no session '{shown}'.",
        hint=hint,
        related=related,
        resource_type="session",
        resource_id=shown,
        available_alternatives=names,
    )
    error.denial = denied is not None
    return error


def _not_a_member(session: Session, actor: Actor) -> NotMember:
    """Return the error for a caller that may know that the session exists, with the call that adds it."""
    error = NotMember(
        f"'{actor.principal_id}' is not a member of the session '{session.session_id}'.",
        hint=f"'{session.created_by}', who created it, or an admin adds '{actor.principal_id}' with "
        f"`session.add_members`; a new session takes its members in `session.create`.",
        resource_type="session",
        resource_id=session.session_id,
        created_by=session.created_by,
        add={"session_id": session.session_id, "members": [actor.principal_id]},
    )
    error.denial = True
    return error


def session_elsewhere(session_id: str, actor: Actor) -> SessionNotFound:
    """Return the error for a session other than the one that the caller's connection is bound to."""
    shown = session_id[:100]
    error = SessionNotFound(
        f"There is no session '{shown}' here: this connection works in '{actor.bound_session}' only.",
        hint="Leave out the session_id.",
        related=(),
        resource_type="session",
        resource_id=shown,
    )
    error.denial = True
    return error


def patterns_to_list(actor: Actor) -> frozenset[str] | None:
    """Return the patterns of the sessions that a caller may list; None for all."""
    return None if actor.is_admin else member_patterns(actor)
