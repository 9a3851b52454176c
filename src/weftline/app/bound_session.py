"""What a call may reach on a connection that is bound to one session, by the SessionUse of its operation.

The other half is ``Session.admits``: for a bound caller only its session does, whatever names or lists it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weftline.history.line_kinds import SESSION, line_kinds, name_in
from weftline.kernel.operation import SessionUse
from weftline.sessions.model import ALL_SESSIONS, BoundToSession, session_elsewhere

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from weftline.kernel.identity import Actor
    from weftline.kernel.operation import Operation

_SESSION = "session_id"
# Request fields that name a context in history.
LINE_FIELDS = ("context_id", "from_context_id", "other_context_id")


def works_in_session(operation: Operation) -> bool:
    """Return whether an operation works in the session of its session_id, which a bound connection fills in."""
    return operation.session is SessionUse.WORKS_IN and _SESSION in operation.request.__struct_fields__


def fill_in_session(operation: Operation, raw: Mapping[str, Any], session_id: str) -> Mapping[str, Any]:
    """Return a request in the session of the connection; ``board`` is the board of that session."""
    given = {name: _full_line_id(raw[name], session_id) for name in LINE_FIELDS if isinstance(raw.get(name), str)}
    if works_in_session(operation):
        given[_SESSION] = raw.get(_SESSION) or session_id
    return {**raw, **given} if given else raw


def check_in_session(operation: Operation, raw: Mapping[str, Any], actor: Actor) -> None:
    """Refuse a request that names another session than the one of the connection, as if that did not exist."""
    for named in _named_sessions(operation, raw):
        if named != actor.bound_session:
            raise session_elsewhere(str(named), actor)


def check_not_outside(operation: Operation, actor: Actor) -> None:
    """Refuse operations that create sessions or cover all of them."""
    if operation.session is SessionUse.OUTSIDE:
        raise BoundToSession(
            f"This connection works in the session '{actor.bound_session}' only; `{operation.name}` reaches beyond it.",
            session_id=actor.bound_session,
        )


def _named_sessions(operation: Operation, raw: Mapping[str, Any]) -> Iterator[object]:
    """Return the sessions that a request names itself; those of other ids are looked up by the operation."""
    named = raw.get(_SESSION)
    if named is not None and not (named == ALL_SESSIONS and operation.session is SessionUse.MAY_NAME):
        yield named
    for line in (raw.get(name) for name in LINE_FIELDS):
        of_line = name_in(line, SESSION) if isinstance(line, str) else None
        if of_line is not None:
            yield of_line


def _full_line_id(named: str, session_id: str) -> str:
    line, mark, branch = named.partition("@")
    kind = line_kinds().get(line)
    return f"{line}:{session_id}{mark}{branch}" if kind is not None and kind.of_session else named
