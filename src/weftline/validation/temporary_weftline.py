"""Weftline on a temporary folder, which is removed afterwards: no validation touches the data of this installation."""

from __future__ import annotations

import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from weftline.app.app import App
from weftline.app.authentication import Local
from weftline.app.dispatch import CallContext
from weftline.app.tenants import ADMIN
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
from weftline.jobs.ingestion import INGEST
from weftline.jobs.session_indexing import INDEX
from weftline.jobs.vectors import EMBED
from weftline.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from weftline.demo.project import Step
    from weftline.kernel.clock import Clock
    from weftline.kernel.operation import Operation


TENANT = "validation"
# What is measured depends on them, and they name no place where data is kept.
_SAME_AS_HERE = (
    *("embedder", "embedding_url", "embedding_model", "embedding_key", "embedding_dimensions", "embedding_batch"),
    *("embedding_threads", "semantic_search", "models_file", "injection_model"),
)


@dataclass(frozen=True, slots=True)
class TenantCaller:
    """A principal of a tenant; answers are as in JSON."""

    app: App
    tenant: str = TENANT
    principal: str = ADMIN

    async def call(self, operation: str, /, **fields: Any) -> Any:  # noqa: ANN401 - JSON
        return await self._json(self.app.registry[operation], fields)

    async def call_tool(self, operation: str, /, **fields: Any) -> Any:  # noqa: ANN401 - JSON
        """Call an operation by the MCP tool that has it."""
        called = self.app.registry[operation]
        arguments: Mapping[str, Any] = {"action": called.action, **fields} if called.action else fields
        resolved, raw = await self.app.resolve_tool(called.tool, arguments, self.context)
        return await self._json(resolved, raw)

    async def _json(self, operation: Operation, raw: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        return msgspec.json.decode(msgspec.json.encode(await self.app.call(operation, raw, self.context)))

    @property
    def context(self) -> CallContext:
        return CallContext(Local(self.tenant, self.principal))

    def acting_as(self, principal: str) -> TenantCaller:
        return TenantCaller(self.app, self.tenant, principal)

    async def index(self) -> None:
        """Index everything that was added."""
        await self.app.scheduler.drain(INDEX, EMBED, INGEST)


def temporary_settings(settings: Settings, folder: str, **changed: Any) -> Settings:  # noqa: ANN401 - settings are of several types
    """Return settings for a SQLite database in a folder, with the embedding model of this installation."""
    same = {name: getattr(settings, name) for name in _SAME_AS_HERE}
    return Settings(
        **{**same, "database_url": f"{folder}/weftline.db", "data_dir": folder, "rate_limits": "off", **changed}
    )


@asynccontextmanager
async def opened(settings: Settings, clock: Clock | None = None) -> AsyncIterator[App]:
    """Open Weftline without background jobs."""
    app = App(settings, clock=clock)
    await app.open(background=False)
    try:
        yield app
    finally:
        await app.close()


@asynccontextmanager
async def temporary_weftline(
    settings: Settings,
    clock: Clock | None = None,
    **changed: Any,  # noqa: ANN401 - likewise
) -> AsyncIterator[TenantCaller]:
    """Yield the admin of a tenant in a database that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="weftline-validate-") as folder:
        async with opened(temporary_settings(settings, folder, **changed), clock) as app:
            await app.tenants.create(TENANT)
            yield TenantCaller(app)


# The demo's project in a temporary Weftline: three agents with long conversations, and documents.

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
