"""Knowledge: domains, documents, ingestion, and a playground for searches."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    return view.render("document.html", document=shown, text=text)


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
    return view.render("search.html", query=query or "", found=found)


KNOWLEDGE = (
    Page("/knowledge", domains, "knowledge.list_domains", "Knowledge", "k"),
    Page("/knowledge/{domain}", domain, "knowledge.show_domain"),
    Page("/knowledge/{domain}/document", document, "knowledge.get_document"),
    Page("/search", search, "search.query", "Search", "f"),
)
