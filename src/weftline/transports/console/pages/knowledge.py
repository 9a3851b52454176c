"""Knowledge: domains, documents, ingestion, and a playground for searches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weftline.transports.console.item_links import item_link
from weftline.transports.console.view import Page

if TYPE_CHECKING:
    from starlette.responses import Response

    from weftline.transports.console.view import PageView

_RESULTS = 20


async def domains(view: PageView) -> Response:
    listed = await view.call("knowledge.list_domains")
    rows = view.arranged(listed.domains, "domain", "description", "documents", "bytes", "pending", "updated_at")
    return view.render("domains.html", domains=rows, plan=listed.plan)


async def domain(view: PageView) -> Response:
    name = view.part("domain")
    listed = await view.call(
        "knowledge.list_documents", domain=name, state=view.query("state"), cursor=view.query("cursor"), limit=50
    )
    return view.render(
        "domain.html",
        domain=await view.call("knowledge.show_domain", domain=name),
        documents=view.arranged(listed.documents, "document_id", "title", "state", "bytes", "updated_at"),
        next_cursor=listed.next_cursor,
    )


async def document(view: PageView) -> Response:
    name, document_id = view.part("domain"), view.query("document") or ""
    shown = await view.call("knowledge.get_document", domain=name, document_id=document_id)
    text = None
    if shown.state == "indexed":
        text = await view.call(
            "knowledge.read_document", domain=name, document_id=document_id, start=view.query("start")
        )
    # A link to a passage says where it ends; the text begins with it.
    end = view.number("end") if text is not None else 0
    passage = max(0, end - text.start) if text is not None else 0
    return view.render("document.html", document=shown, text=text, passage=passage)


async def search(view: PageView) -> Response:
    query, found = view.query("q"), None
    if query:
        found = await view.call(
            "search.query",
            query=query,
            domain=view.query("domain"),
            session_id=view.query("session"),
            top_k=_RESULTS,
            explain=True,
        )
    results = found.results if found else []
    return view.render(
        "search.html",
        query=query or "",
        found=found,
        links=[_place_of(each) for each in results],
        titles=[_title_of(each) for each in results],
    )


def _place_of(result: Any) -> str | None:  # noqa: ANN401 - a result of a search
    """Return the page of what a search found, at the passage."""
    source = result.source_ref or None
    selector = getattr(source, "selector", None)
    return item_link(
        getattr(source, "uri", None) or result.ref, getattr(selector, "start", None), getattr(selector, "end", None)
    )


def _title_of(result: Any) -> str:  # noqa: ANN401 - as above
    if result.title:
        return str(result.title)
    if getattr(result, "message_id", None):
        return f"Message {result.message_id} of {result.speaker or 'a member'}"
    return str(getattr(result, "key", None) or getattr(result, "event_id", None) or result.ref)


KNOWLEDGE = (
    Page("/knowledge", domains, "knowledge.list_domains", "Knowledge", "k"),
    Page("/knowledge/{domain}", domain, "knowledge.show_domain"),
    Page("/knowledge/{domain}/document", document, "knowledge.get_document"),
    Page("/search", search, "search.query", "Search", "f"),
)
