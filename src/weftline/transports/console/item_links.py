"""Links from the items that receipts and search results name to the pages that show them."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

from weftline.history.item_ids import DocumentName
from weftline.transports.console.paths import PATH

# Messages that a page shows before the one that a link leads to.
_BEFORE = 10


class LineOwner(NamedTuple):
    """Whose history a page shows: the title of the page, and the page of the session or agent."""

    title: str
    name: str
    link: str


def owner_of(line_id: str) -> LineOwner | None:
    """Return the session or agent of a history; None for other kinds."""
    kind, _, name = line_id.partition("@")[0].partition(":")
    first, _, second = name.partition(":")
    if kind == "board" and first:
        return LineOwner("History of the board", f"Session {first}", f"{PATH}/sessions/{_quoted(first)}")
    if kind == "window" and second:
        link = f"{PATH}/sessions/{_quoted(first)}/windows/{_quoted(second)}"
        return LineOwner(f"History of the window of {second}", f"Session {first}", link)
    titles = {"agent": "History of the definition", "context": "History of the persistent context"}
    if kind in titles and first:
        return LineOwner(titles[kind], first, f"{PATH}/agents/{_quoted(first)}")
    return None


def item_link(ref: str, start: int | None = None, end: int | None = None) -> str | None:
    """Return the page of an item: a board key, a message, an event of a window, a document, a layer, a memory.

    ``start`` and ``end`` are where a passage is in the text of a document.
    """
    document = DocumentName.parse(ref.partition("#")[0].partition("?")[0])
    if document is not None:
        place = "" if start is None or end is None else f"&start={start}&end={end}"
        return f"{PATH}/knowledge/{_quoted(document.domain)}/document?document={_quoted(document.document_id)}{place}"
    line, _, key = ref.partition("/")
    kind, _, name = line.partition(":")
    session_id, _, agent_id = name.partition(":")
    page = None
    if kind == "board" and key:
        page = f"/sessions/{_quoted(session_id)}/keys/{quote(key)}"
    elif kind == "board" and name:
        page = f"/sessions/{_quoted(name)}"
    elif kind == "message" and key:
        # Messages are numbered in each session; the page begins some way before this one.
        before = max(0, int(key) - _BEFORE) if key.isdecimal() else 0
        page = f"/sessions/{_quoted(session_id)}/messages?offset={before}#message-{_quoted(key)}"
    elif kind == "window" and agent_id:
        page = f"/sessions/{_quoted(session_id)}/windows/{_quoted(agent_id)}"
    elif kind == "layer" and name and name != "platform":
        page = f"/history/{_quoted(line)}"
    elif kind == "agent" and name and not key:
        page = f"/agents/{_quoted(name)}"
    elif kind == "memory" and name and key:
        page = f"/agents/{_quoted(session_id)}/memory?key={quote(key, safe='')}"
    elif kind == "context" and name:
        page = f"/agents/{_quoted(session_id)}/context"
    return None if page is None else PATH + page


def subject_link(subject: str) -> str | None:
    """Return the page of what an alert or a budget is about."""
    kind, _, name = subject.partition(":")
    if kind in {"agent", "team"} and name:
        return f"{PATH}/{kind}s/{_quoted(name)}"
    return f"{PATH}/tenant" if kind == "tenant" else None


def _quoted(name: str) -> str:
    return quote(name, safe="")
