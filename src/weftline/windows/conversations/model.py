"""Conversations of agents with models, as the model proxy sees them: each is a window, or a branch of one."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from weftline.models.language_models.conversation_requests import Turn

# Answers by which a later request may go on, for providers that keep the messages themselves.
MAX_ANSWERS = 200
MAIN = ""


class Relation(StrEnum):
    """What a request is to the conversation that it was recognised in."""

    NEW = "new"
    CONTINUED = "continued"
    RETRY = "retry"
    EDITED = "edited"
    COMPACTED = "compacted"
    BRANCH = "branch"
    SUBAGENT = "subagent"


class Thread(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One line of a conversation: the window of a session, or a branch of it.

    ``view``: digests of the messages that the client sent last, and of the answer after them; the first ``sent`` are
    those of the request. ``counts``: how often each message is in the window. ``commits``: lengths of the view, with
    the version of the window that had them. ``answers``: ids of answers, with the length of the view after each.
    """

    client: str = ""
    client_id: str = ""
    frame: str = ""
    relation: str = Relation.NEW
    parent: str = ""
    view: list[str] = []
    sent: int = 0
    size: int = 0
    counts: dict[str, int] = {}
    commits: list[tuple[int, int]] = []
    answers: dict[str, int] = {}
    branches: int = 0


class StoredThread(NamedTuple):
    """A thread and where it is."""

    session_id: str
    branch: str
    thread: Thread


class Placement(NamedTuple):
    """Where the messages of a request belong.

    ``base``: the thread that it continues or starts from; None for a new conversation. ``shared``: the number of
    messages of the base's view that come before the new ones; ``added``: the places of the new ones in the request.
    """

    relation: Relation
    base: StoredThread | None
    shared: int
    added: tuple[int, ...]


def event_id(turn: Turn, occurrence: int) -> str:
    """Return the id of a message in its window: what it says, and the how manieth that says so it is."""
    return f"m{turn.digest}.{occurrence}"
