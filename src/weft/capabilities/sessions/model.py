"""What a session is, who takes part in it, and what it allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

from weft.capabilities.history.model import trunk_of
from weft.kernel.errors import Conflict, NotFound
from weft.kernel.fields import Name
from weft.kernel.identity import ANYONE, PRINCIPAL
from weft.kernel.ids import is_name
from weft.kernel.suggestions import COMPARE_WITH, names_like

if TYPE_CHECKING:
    from weft.capabilities.history.model import Head
    from weft.capabilities.sessions.store import SessionStore
    from weft.kernel.identity import Actor

SessionId = Annotated[
    str,
    msgspec.Meta(
        description="The session's id.",
        extra_json_schema={"examples": ["session_a1b2c3d4e5f60718"]},
    ),
]
Pattern = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=200,
        pattern=r"^[A-Za-z0-9_:*?-]+\Z",
        description="A participant's name, with * and ? as wildcards, such as subagent:review:*.",
    ),
]
# In place of a session's id, where one may ask for all.
ALL_SESSIONS: Final = "all"
TokenLimit = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]


class SessionNotFound(NotFound):
    """There is no such session, or it has been closed."""

    code = "SESSION_NOT_FOUND"
    hint = "Check the session_id; see yours with list_sessions or make one with create_session."
    related = ("list_sessions", "create_session")


class SessionArchived(Conflict):
    """The session has been archived and can only be read."""

    code = "SESSION_ARCHIVED"
    hint = "Read what it holds, and create a new session with create_session to go on working."
    related = ("create_session", "get_session")


class SessionExists(Conflict):
    """A session with this id exists already."""

    code = "SESSION_EXISTS"
    hint = "Use the existing session, or leave session_id out to have one generated."
    related = ("get_session", "create_session")


class SessionConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one session's board behaves."""

    max_value_tokens: Annotated[TokenLimit, msgspec.Meta(description="A larger value is refused.")] = 1_000
    warn_value_tokens: Annotated[
        TokenLimit | None,
        msgspec.Meta(description="A value from this size on is warned of; 80 % of max_value_tokens if left out."),
    ] = None
    advise_value_tokens: Annotated[
        TokenLimit | None,
        msgspec.Meta(description="From this size on, advice to distil; 50 % of max_value_tokens if left out."),
    ] = None
    max_total_tokens: Annotated[TokenLimit, msgspec.Meta(description="All values of the board together.")] = 10_000
    keep_versions: Annotated[
        int, msgspec.Meta(ge=1, le=1_000_000, description="Versions of each key whose values history keeps.")
    ] = 100
    namespaces: Annotated[bool, msgspec.Meta(description="Allow keys of the form namespace:key.")] = False
    tokenizer: Annotated[
        Literal["approximate", "o200k_base", "cl100k_base"],
        msgspec.Meta(description="How tokens are counted; the exact ones need the weft[tokenizers] extra."),
    ] = "approximate"
    conventions: Annotated[Name, msgspec.Meta(description="The key conventions its agents are told of.")] = "default"
    participants: Annotated[
        tuple[Pattern, ...],
        msgspec.Meta(min_length=1, max_length=100, description="Who may take part; to others it does not exist."),
    ] = ANYONE

    @property
    def warns_from(self) -> int:
        return self.warn_value_tokens or self.max_value_tokens * 8 // 10

    @property
    def advises_from(self) -> int:
        return self.advise_value_tokens or self.max_value_tokens // 2


class Session(msgspec.Struct, frozen=True):
    """A unit of work."""

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

    @property
    def audience(self) -> tuple[str, ...]:
        """Return who may know of the session."""
        return audience_of(self.config, self.created_by)

    def admits(self, actor: Actor) -> bool:
        return actor.is_admin or actor.matches(self.audience)


def audience_of(config: SessionConfig, created_by: str) -> tuple[str, ...]:
    """Return who may know of a session: its participants, and whoever created it."""
    participants = config.participants
    return participants if participants == ANYONE else (*participants, f"{PRINCIPAL}{created_by}")


def line_of(session_id: str) -> str:
    """Return the line that keeps the history of a session's board."""
    return f"board:{session_id}"


def is_main_board(line_id: str) -> bool:
    """Tell whether a line is that of a board itself, and not of a branch or of something else."""
    return line_id.startswith("board:") and trunk_of(line_id) == line_id


def session_of(line_id: str) -> str:
    """Return the session whose board, or branch of it, a line keeps the history of."""
    return trunk_of(line_id).removeprefix("board:")


async def find_session(session_id: str, actor: Actor, sessions: SessionStore) -> Session:
    """Return a session the caller takes part in; to everyone else it does not exist."""
    session = await sessions.find(session_id) if is_name(session_id) else None
    if session is None or not session.admits(actor):
        raise await _unknown(session_id, actor, sessions, denied=session is not None)
    return session


async def lock_session(session_id: str, actor: Actor, sessions: SessionStore) -> tuple[Session, Head]:
    """Return a session the caller takes part in, with the head of its line, before anyone else can change either."""
    found = await sessions.find_locked(session_id) if is_name(session_id) else None
    if found is None or not found[0].admits(actor):
        raise await _unknown(session_id, actor, sessions, denied=found is not None)
    return found


async def lock_active_session(session_id: str, actor: Actor, sessions: SessionStore) -> tuple[Session, Head]:
    session, head = await lock_session(session_id, actor, sessions)
    if session.archived_at is not None:
        raise SessionArchived(
            f"The session '{session_id}' has been archived.", resource_type="session", resource_id=session_id
        )
    return session, head


async def _unknown(session_id: str, actor: Actor, sessions: SessionStore, *, denied: bool) -> SessionNotFound:
    """Return the error for a session that is not there for the caller, naming those of its own that look like it."""
    shown = session_id[:100]
    # A sub-agent works in the session it was given, and is told of no other.
    others = [] if actor.is_subagent else await sessions.newest(None, COMPARE_WITH, archived=True)
    error = SessionNotFound(
        f"There is no session '{shown}'.",
        resource_type="session",
        resource_id=shown,
        available_alternatives=names_like(shown, [s.session_id for s in others if s.admits(actor)]),
    )
    error.denial = denied
    return error
