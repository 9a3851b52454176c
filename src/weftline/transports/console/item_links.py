"""Links from the items that receipts and search results name to the pages that show them."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

from weftline.capabilities.records.item_refs import DocumentName
from weftline.transports.console.sign_in import PATH


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


def item_link(ref: str) -> str | None:
    """Return the page of an item: a board key, a message, an event of a window, a document, a layer."""
    document = DocumentName.parse(ref.partition("#")[0].partition("?")[0])
    if document is not None:
        return f"{PATH}/knowledge/{_quoted(document.domain)}/document?document={_quoted(document.document_id)}"
    line, _, key = ref.partition("/")
    kind, _, name = line.partition(":")
    session_id, _, agent_id = name.partition(":")
    if kind == "board" and key:
        return f"{PATH}/sessions/{_quoted(session_id)}/keys/{quote(key)}"
    if kind == "message" and key:
        return f"{PATH}/sessions/{_quoted(session_id)}/messages"
    if kind == "window" and agent_id:
        return f"{PATH}/sessions/{_quoted(session_id)}/windows/{_quoted(agent_id)}"
    if kind == "layer" and name and name != "platform":
        return f"{PATH}/history/{_quoted(line)}"
    return None


def _quoted(name: str) -> str:
    return quote(name, safe="")
