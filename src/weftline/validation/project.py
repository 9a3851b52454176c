"""The demo's project in a temporary Weftline: three agents with long conversations, and documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from weftline.demo.project import (
    CHUNKING,
    DOMAIN,
    FINDER,
    FIXER,
    MODEL,
    ORCHESTRATOR,
    STEPS,
    TOKEN_BUDGET,
    conversation,
    documents,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from weftline.demo.project import Step
    from weftline.validation.temporary_weftline import TenantCaller

SESSION = "project"


class Prompted(NamedTuple):
    """A step of the project, the agent that takes it, and the prompt that was assembled for it."""

    agent: str
    step: Step
    prompt: Any


async def prepare_project(admin: TenantCaller) -> None:
    """Add agents, documents and conversations, and index them."""
    await prepare_documents(admin)
    for agent in STEPS:
        await admin.acting_as(agent).call("context.ingest", session_id=SESSION, events=conversation(agent))
    await admin.index()


async def prepare_documents(admin: TenantCaller) -> None:
    """Add agents in a session, and the documents, and index them."""
    for agent, parent in ((ORCHESTRATOR, None), (FINDER, ORCHESTRATOR), (FIXER, ORCHESTRATOR)):
        await admin.call("agent.create", agent_id=agent, parent_id=parent)
    await admin.call("knowledge.create_domain", domain=DOMAIN, chunking=CHUNKING)
    for name, text in documents().items():
        await admin.call("knowledge.add_document", domain=DOMAIN, document_id=name, text=text)
    planner = admin.acting_as(ORCHESTRATOR)
    await planner.call("session.create", session_id=SESSION, purpose="Repair slow orders.", members=["*"])
    await admin.index()


async def prompts_of_steps(admin: TenantCaller) -> AsyncIterator[Prompted]:
    """Assemble the prompt of each step; the scripted answer is part of the conversation from then on."""
    for agent, steps in STEPS.items():
        caller = admin.acting_as(agent)
        for number, step in enumerate(steps):
            question = {"event_id": f"question-{number}", "content": step.question}
            await caller.call("context.ingest", session_id=SESSION, events=[question])
            prompt = await caller.call(
                "context.assemble",
                session_id=SESSION,
                task_description=step.question,
                model=MODEL,
                token_budget=TOKEN_BUDGET,
            )
            yield Prompted(agent, step, prompt)
            answer = {"event_id": f"answer-{number}", "role": "assistant", "content": step.answer}
            await caller.call("context.ingest", session_id=SESSION, events=[answer])
