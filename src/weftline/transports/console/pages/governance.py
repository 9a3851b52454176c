"""What is held, prohibited and recorded: approvals, guardrails, audit."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import msgspec

from weftline.history.item_ids import DocumentName
from weftline.kernel.errors import InvalidInput, NotFound, QuotaExceeded, WeftlineError
from weftline.transports.console.item_links import item_link
from weftline.transports.console.paths import PATH
from weftline.transports.console.side_by_side import as_text
from weftline.transports.console.view import Page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.responses import Response

    from weftline.transports.console.view import PageView


# Calls that a list shows with their texts.
_SHOWN_IN_FULL = 20
# Fields of requests that are the text to read, and those that say where it goes.
_TEXTS = ("value", "content", "text", "description", "system_prompt")
_CHANGE_KEYS = frozenset({"board.delete", "board.write"})
_PLACES = ("session_id", "key", "domain", "document_id", "compaction_id", "version")


class HeldCallView(NamedTuple):
    """A call that waits or was decided, with what a person has to read: its text, where that is from, what was found.

    ``before``, ``found`` and ``after`` are the text around what looks like an attack; ``current`` is what would be
    replaced or deleted; ``request`` has the other fields.
    """

    approval: Any
    place: str | None
    before: str
    found: str
    after: str
    current: str | None
    origins: list[str]
    added_by: str | None
    request: dict[str, Any]


async def approvals(view: PageView) -> Response:
    """Show what waits with its text; what was decided as a list."""
    state = view.query("state") or "pending"
    listed = await view.call(
        "approval.list", state=None if state == "all" else state, cursor=view.query("cursor"), limit=50
    )
    waiting = [each for each in listed.approvals if each.state == "pending"][:_SHOWN_IN_FULL]
    shown = {each.approval_id: await _held(view, each.approval_id) for each in waiting}
    return view.render(
        "approvals.html",
        state=state,
        waiting=[each for each in shown.values() if each is not None],
        approvals=view.arranged(
            [each for each in listed.approvals if shown.get(each.approval_id) is None],
            *("operation", "agent_id", "state", "created_at", "reason"),
        ),
        next_cursor=listed.next_cursor,
    )


async def approval(view: PageView) -> Response:
    return view.render("approval.html", held=await held_call(view, view.part("approval_id")))


async def _held(view: PageView, approval_id: str) -> HeldCallView | None:
    """Return a held call; None if it was decided or removed meanwhile."""
    try:
        return await held_call(view, approval_id)
    except NotFound:
        return None


async def held_call(view: PageView, approval_id: str) -> HeldCallView:
    shown = await view.call("approval.show", approval_id=approval_id)
    details = shown.details or {}
    request = {name: value for name, value in shown.request.items() if value not in (None, [], {})}
    text, excerpt = (
        next((str(request[name]) for name in _TEXTS if name in request), ""),
        str(details.get("excerpt", "")),
    )
    origins = [str(each) for each in request.get("derived_from", ())]
    added_by = None
    if shown.operation == "knowledge.release_document":
        document = await _document(view, request)
        if document is not None:
            text = "\n\n".join(each.excerpt for each in document.quarantine.passages)
            excerpt, added_by = text, document.added_by
    before, found, after = text.partition(excerpt) if excerpt and excerpt in text else (text, "", "")
    if excerpt and not found:
        found = excerpt
    current = await _current_value(view, request) if shown.operation in _CHANGE_KEYS else None
    others = {name: value for name, value in request.items() if name not in {*_TEXTS, *_PLACES, "derived_from"}}
    return HeldCallView(
        shown, _place(request, has_key=current is not None), before, found, after, current, origins, added_by, others
    )


async def _current_value(view: PageView, request: dict[str, Any]) -> str | None:
    """Return the value of a board's key as it is now; None if there is none, or the caller may not read it."""
    where = {name: request[name] for name in ("session_id", "key", "branch") if name in request}
    try:
        return as_text((await view.call("board.read", **where)).value)
    except WeftlineError:
        return None


async def _document(view: PageView, request: dict[str, Any]) -> Any:  # noqa: ANN401 - the operation's response
    """Return a document that is held, with the passages that were found; None if the caller may not read it."""
    try:
        held = await view.call("knowledge.get_document", domain=request["domain"], document_id=request["document_id"])
    except WeftlineError:
        return None
    return held if getattr(held, "quarantine", None) else None


def _place(request: dict[str, Any], *, has_key: bool) -> str | None:
    """Return the page where a held call would change something."""
    if "domain" in request and "document_id" in request:
        return item_link(str(DocumentName(request["domain"], request["document_id"])))
    if "compaction_id" in request:
        return f"{PATH}/compactions/{quote(str(request['compaction_id']), safe='')}"
    if "session_id" not in request:
        return None
    board = f"board:{request['session_id']}"
    return item_link(f"{board}/{request['key']}" if has_key else board)


async def guardrails(view: PageView) -> Response:
    listed = await view.call("guardrail.list", agent_id=view.query("agent"), cursor=view.query("cursor"))
    return view.render(
        "guardrails.html",
        guardrails=view.arranged(listed.guardrails, "name", "layer", "level", "violation_response"),
        next_cursor=listed.next_cursor,
        tested=await _tested(view),
    )


async def _tested(view: PageView) -> Any:  # noqa: ANN401 - the response of guardrail.test
    """Return what the rules decide about the call in the query; nothing is performed."""
    tool = view.query("tool")
    if tool is None:
        return None
    try:
        arguments = msgspec.json.decode(view.query("arguments") or "{}")
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(f"arguments: not valid JSON: {error}", field="arguments") from error
    return await view.call("guardrail.test", tool=tool, arguments=arguments, agent_id=view.query("agent"))


async def audit(view: PageView) -> Response:
    listed = await view.call("audit.list", before=view.query("before"), outcome=view.query("outcome"), limit=100)
    return view.render(
        "audit.html",
        entries=view.arranged(listed.entries, "at", "actor", "action", "outcome", "target"),
        following=listed.entries[-1].audit_id if listed.has_more else None,
    )


GOVERNANCE = (
    Page("/approvals", approvals, "approval.list", "Approvals", "v"),
    Page("/approvals/{approval_id}", approval, "approval.show"),
    Page("/guardrails", guardrails, "guardrail.list", "Guardrails", "r"),
    Page("/audit", audit, "audit.list", "Audit", "u"),
)


# What calls cost and how well they were used: usage, alerts, recommendations, budgets.

# Times without calls that a table has rows for.
_GAPS = 400


class NoCalls(NamedTuple):
    """A day or hour without calls, between others."""

    group: str
    calls: None = None
    naive_baseline_tokens: int = 0
    engine_assembled_tokens: int = 0


def days_of(rows: Sequence[Any], by: str) -> tuple[list[Any], bool]:
    """Return rows by day or hour with those between them that have no calls, and whether they are by time."""
    step = {"day": timedelta(days=1), "hour": timedelta(hours=1)}.get(by)
    if step is None:
        return list(rows), False
    filled: list[Any] = []
    for row in sorted(rows, key=lambda each: str(each.group)):
        at = datetime.fromisoformat(row.group)
        while filled and len(filled) < _GAPS and (day := datetime.fromisoformat(filled[-1].group) + step) < at:
            filled.append(NoCalls(day.isoformat()))
        filled.append(row)
    return filled, True


async def usage_report(view: PageView) -> tuple[str, Any]:
    """Return what a report is by, and the report: by day if nothing is chosen, by agent in plans without that."""
    filters = {
        "since": view.query("since"),
        "until": view.query("until"),
        "agent_id": view.query("agent"),
        "model": view.query("model"),
    }
    by = view.query("by")
    try:
        return by or "day", await view.call("usage.report", by=by or "day", **filters)
    except QuotaExceeded:
        if by is not None:
            raise
    return "agent", await view.call("usage.report", by="agent", **filters)


async def usage(view: PageView) -> Response:
    by, report = await usage_report(view)
    filled, is_time = days_of(report.rows, by)
    rows = view.arranged(
        filled, "group", "calls", "engine_assembled_tokens", "naive_baseline_tokens", "savings_ratio", "cost"
    )
    budgets = await view.call("budget.list") if view.may("budget.list") else None
    return view.render("usage.html", report=report, rows=rows, by=by, is_time=is_time, budgets=budgets)


async def alerts(view: PageView) -> Response:
    listed = await view.call("alerts.list", state=view.query("state"), cursor=view.query("cursor"), limit=50)
    return view.render(
        "alerts.html",
        alerts=view.arranged(listed.alerts, "condition", "subject", "state", "opened_at", "message"),
        next_cursor=listed.next_cursor,
    )


async def advice(view: PageView) -> Response:
    listed = await view.call("advise.list", agent_id=view.query("agent"))
    return view.render(
        "advice.html",
        recommendations=view.arranged(
            listed.recommendations, "title", "kind", "agent_id", "saved_tokens", "saved_cost"
        ),
        analysed=listed.analysed,
    )


async def recommendation(view: PageView) -> Response:
    """Show a recommendation; ``?try=1`` plans the last calls again under its settings."""
    recommendation_id = view.part("recommendation_id")
    shown = await view.call("advise.show", recommendation_id=recommendation_id)
    tried = await view.call("advise.try", recommendation_id=recommendation_id) if view.query("try") else None
    return view.render("recommendation.html", shown=shown, tried=tried)


INSIGHT = (
    Page("/usage", usage, "usage.report", "Usage", "c"),
    Page("/alerts", alerts, "alerts.list", "Alerts", "l"),
    Page("/advice", advice, "advise.list", "Advice", "d"),
    Page("/advice/{recommendation_id}", recommendation, "advise.show"),
)


# Knowledge: domains, documents, ingestion, and a playground for searches.

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
