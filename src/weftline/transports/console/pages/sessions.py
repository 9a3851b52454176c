"""Sessions: the board, the transcript, windows, and what happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weftline.transports.console.pages.prompts import with_answers
from weftline.transports.console.timeline import groups_of
from weftline.transports.console.view import Page

if TYPE_CHECKING:
    from starlette.responses import Response

    from weftline.transports.console.view import PageView

_MESSAGES = 50
# Calls through the model proxy next to a window.
_CALLS = 10
_VALUES = 100
_EVENTS = 100
# Positions of the log that are looked through for the latest events of a session.
_LATEST = 500


async def sessions(view: PageView) -> Response:
    listed = await view.call(
        "session.list", limit=50, cursor=view.query("cursor"), include_archived=view.query("archived")
    )
    rows = view.arranged(listed.sessions, "purpose", "id", "created_by", "updated_at")
    return view.render("sessions.html", sessions=rows, next_cursor=listed.next_cursor)


async def board(view: PageView) -> Response:
    session_id, branch = view.part("session_id"), view.query("branch")
    listed = await view.call("board.list_keys", session_id=session_id, branch=branch)
    arranged = view.arranged(listed.keys, "key", "written_by", "written_at", "version", "value_size_tokens")
    keys = view.page_of(arranged, _VALUES)
    shown = [entry.key for entry in keys.rows]
    values = {}
    if shown:
        read = await view.call("board.read_batch", session_id=session_id, keys=shown, branch=branch)
        values = {entry.key: entry for entry in read.entries}
    return view.render(
        "board.html", session=await _session(view), keys=keys, values=values, size=listed.metadata, tab="board"
    )


async def entry(view: PageView) -> Response:
    history = await view.call("board.read_history", session_id=view.part("session_id"), key=view.part("key"))
    return view.render("board_entry.html", session=await _session(view), history=history, tab="board")


async def transcript(view: PageView) -> Response:
    offset = view.number("offset")
    listed = await view.call("message.list", session_id=view.part("session_id"), limit=_MESSAGES, offset=offset)
    known = {message.id: message for message in listed.messages}
    return view.render(
        "transcript.html",
        session=await _session(view),
        messages=view.arranged(listed.messages, "content", "sender", "visibility"),
        known=known,
        total=listed.total_count,
        offset=offset,
        following=offset + _MESSAGES if listed.has_more else None,
        previous=max(0, offset - _MESSAGES) if offset else None,
        tab="messages",
    )


async def windows(view: PageView) -> Response:
    listed = await view.call("window.list", session_id=view.part("session_id"), cursor=view.query("cursor"))
    return view.render(
        "windows.html",
        session=await _session(view),
        windows=view.arranged(listed.windows, "agent_id", "tokens", "limit", "updated_at"),
        next_cursor=listed.next_cursor,
        tab="windows",
    )


async def window(view: PageView) -> Response:
    session_id, agent_id, offset = view.part("session_id"), view.part("agent_id"), view.number("offset")
    shown = await view.call("window.show", session_id=session_id, agent_id=agent_id)
    events = await view.call("window.events", session_id=session_id, agent_id=agent_id, limit=_MESSAGES, offset=offset)
    session: Any = await _session(view)
    is_proxied = "proxy" in session.metadata
    calls = (
        await view.call("conversation.calls", session_id=session_id, agent_id=agent_id, limit=_CALLS)
        if is_proxied
        else None
    )
    return view.render(
        "window.html",
        session=session,
        calls=calls.calls if calls is not None else (),
        window=shown,
        events=events.events,
        total=events.total_count,
        offset=offset,
        following=offset + _MESSAGES if events.has_more else None,
        previous=max(0, offset - _MESSAGES) if offset else None,
        tab="windows",
    )


async def timeline(view: PageView) -> Response:
    """Show what happened: the latest first, or from ``?after=`` on in order."""
    session_id, given = view.part("session_id"), view.query("after")
    if given is None:
        # Without a position it answers the latest one.
        latest = (await view.call("events.read", session_id=session_id)).next_after
        after = max(0, latest - _LATEST)
    else:
        after = view.number("after")
    read = await view.call("events.read", session_id=session_id, after=after)
    shown = read.events[:_EVENTS] if given is not None else read.events[-_EVENTS:]
    prompts = await view.call("receipt.list", session_id=session_id, limit=200) if view.may("receipt.list") else None
    groups = groups_of(view.arranged(shown, "type", "subject", "actor"), prompts.receipts if prompts else ())
    return view.render(
        "timeline.html",
        session=await _session(view),
        groups=groups if given is not None else groups[::-1],
        following=read.events[_EVENTS - 1].seq if given is not None and len(read.events) > _EVENTS else None,
        is_latest=given is None,
        tab="timeline",
    )


async def session_prompts(view: PageView) -> Response:
    listed = await view.call("receipt.list", session_id=view.part("session_id"), limit=50, cursor=view.query("cursor"))
    return view.render(
        "session_prompts.html",
        session=await _session(view),
        prompts=await with_answers(
            view, view.arranged(listed.receipts, "task", "agent_id", "created_at", "tokens", "savings_ratio")
        ),
        next_cursor=listed.next_cursor,
        tab="prompts",
    )


async def _session(view: PageView) -> object:
    found = await view.call("session.get", session_id=view.part("session_id"))
    return found.session


SESSIONS = (
    Page("/sessions", sessions, "session.list", "Sessions", "s"),
    Page("/sessions/{session_id}", board, "board.list_keys"),
    Page("/sessions/{session_id}/keys/{key:path}", entry, "board.read_history"),
    Page("/sessions/{session_id}/messages", transcript, "message.list"),
    Page("/sessions/{session_id}/windows", windows, "window.list"),
    Page("/sessions/{session_id}/windows/{agent_id}", window, "window.show"),
    Page("/sessions/{session_id}/prompts", session_prompts, "receipt.list"),
    Page("/sessions/{session_id}/timeline", timeline, "events.read"),
)
