"""What is held, prohibited and recorded: approvals, quarantine, guardrails, layers, audit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from weftline.kernel.errors import InvalidInput
from weftline.transports.console.view import Page

if TYPE_CHECKING:
    from starlette.responses import Response

    from weftline.transports.console.view import PageView

_HELD_DOMAINS = 20
_HELD_DOCUMENTS = 20


async def approvals(view: PageView) -> Response:
    listed = await view.call("approval.list", state=view.query("state"), cursor=view.query("cursor"), limit=50)
    return view.render(
        "approvals.html",
        approvals=view.arranged(listed.approvals, "operation", "agent_id", "state", "created_at", "reason"),
        next_cursor=listed.next_cursor,
    )


async def approval(view: PageView) -> Response:
    return view.render("approval.html", approval=await view.call("approval.show", approval_id=view.part("approval_id")))


async def quarantine(view: PageView) -> Response:
    """Show what is held because it looks like instructions to a model: documents, and calls that wait."""
    domains = await view.call("knowledge.list_domains")
    held = [each for each in domains.domains if each.quarantined]
    documents = [
        document
        for each in held[:_HELD_DOMAINS]
        for document in (
            await view.call("knowledge.list_documents", domain=each.domain, state="quarantined", limit=_HELD_DOCUMENTS)
        ).documents
    ]
    calls = []
    if view.may("approval.list"):
        listed = await view.call("approval.list", state="pending", limit=100)
        calls = [each for each in listed.approvals if each.hold == "quarantine"]
    return view.render(
        "quarantine.html",
        documents=view.arranged(documents, "document_id", "domain", "title", "updated_at"),
        total=sum(each.quarantined for each in held),
        calls=calls,
    )


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
    Page("/quarantine", quarantine, "knowledge.list_documents", "Quarantine", "q"),
    Page("/guardrails", guardrails, "guardrail.list", "Guardrails", "r"),
    Page("/audit", audit, "audit.list", "Audit", "u"),
)
