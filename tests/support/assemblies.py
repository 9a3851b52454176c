"""Helpers to assemble prompts and to read their receipts and records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from support.world import Caller, World

PARTS = ("surface", "selection", "budget", "window", "assembly", "injection")
TASK = "Summarise the incident."


async def ingest(caller: Caller, *events: dict[str, Any], **where: Any) -> None:
    """Add events with the ids e0, e1 and so on."""
    numbered = [{"event_id": f"e{number}", **event} for number, event in enumerate(events)]
    await caller.call("context.ingest", session_id=caller.session, events=numbered, **where)


async def assemble(caller: Caller, task: str = TASK, **options: Any) -> Any:
    return await caller.call("context.assemble", session_id=caller.session, task_description=task, **options)


def texts(answer: Any) -> list[str]:
    """Return the texts of the messages of a prompt in neutral form."""
    return [message.get("content", "") for message in answer["body"]["messages"]]


async def receipt(caller: Caller, answer: Any) -> Any:
    return await caller.call("receipt.show", receipt_id=answer["receipt_id"])


async def replay(caller: Caller, answer: Any, **how: Any) -> Any:
    return await caller.call("receipt.replay", receipt_id=answer["receipt_id"], **how)


async def derived_records(caller: Caller, answer: Any) -> dict[str, Any]:
    """Return the records derived from the receipt of a prompt, by part."""
    return {
        part: (await caller.call("records.show", record_id=f"receipt:{answer['receipt_id']}/{part}"))["record"]
        for part in PARTS
    }


async def add_documents(world: World, *documents: str, domain: str = "handbook", **fields: Any) -> None:
    """Add documents to a domain, which is created if there is none, and index them."""
    if domain not in {each["domain"] for each in (await world.admin.call("knowledge.list_domains"))["domains"]}:
        await world.admin.call("knowledge.create_domain", domain=domain)
    added = [{"document_id": f"d{number}", "text": text, **fields} for number, text in enumerate(documents)]
    await world.admin.call("knowledge.add_documents", domain=domain, documents=added)
    await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
