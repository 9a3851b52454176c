"""Every operation of the product, gathered from the capabilities."""

from __future__ import annotations

from types import ModuleType

import weft.capabilities.access.audit
import weft.capabilities.access.operations
import weft.capabilities.board.guidance
import weft.capabilities.board.hygiene
import weft.capabilities.board.inspection
import weft.capabilities.board.operations
import weft.capabilities.context.copying
import weft.capabilities.context.definitions
import weft.capabilities.context.pulling
import weft.capabilities.context.pushing
import weft.capabilities.context.status
import weft.capabilities.embedding.operations
import weft.capabilities.events.operations
import weft.capabilities.exchange.adding
import weft.capabilities.exchange.exporting
import weft.capabilities.exchange.importing
import weft.capabilities.exchange.listing
import weft.capabilities.exchange.policies
import weft.capabilities.exchange.redacting
import weft.capabilities.exchange.showing
import weft.capabilities.exchange.sources
import weft.capabilities.following.reindexing
import weft.capabilities.knowledge.looking
import weft.capabilities.knowledge.managing
import weft.capabilities.knowledge.putting
import weft.capabilities.knowledge.reindexing
import weft.capabilities.knowledge_sources.operations
import weft.capabilities.memory.inspection
import weft.capabilities.memory.operations
import weft.capabilities.messages.operations
import weft.capabilities.messages.session_views
import weft.capabilities.missing.operations
import weft.capabilities.missing.requesting
import weft.capabilities.models.operations
import weft.capabilities.performance.operations
import weft.capabilities.records.operations
import weft.capabilities.retrieval.operations
import weft.capabilities.search.filters
import weft.capabilities.search.operations
import weft.capabilities.sessions.operations
import weft.capabilities.timeline.branching
import weft.capabilities.timeline.checking
import weft.capabilities.timeline.comparing
import weft.capabilities.timeline.looking_back
import weft.capabilities.timeline.merging
import weft.capabilities.timeline.retaining
import weft.capabilities.timeline.reviewing
import weft.capabilities.timeline.taking_back
import weft.capabilities.usage.operations
import weft.capabilities.webhooks.operations
from weft.kernel.operation import Operation, Registry

_MODULES: tuple[ModuleType, ...] = (
    weft.capabilities.board.operations,
    weft.capabilities.board.guidance,
    weft.capabilities.board.hygiene,
    weft.capabilities.sessions.operations,
    weft.capabilities.messages.session_views,
    weft.capabilities.messages.operations,
    weft.capabilities.retrieval.operations,
    weft.capabilities.search.operations,
    weft.capabilities.search.filters,
    weft.capabilities.knowledge.managing,
    weft.capabilities.knowledge.putting,
    weft.capabilities.knowledge.looking,
    weft.capabilities.knowledge.reindexing,
    weft.capabilities.following.reindexing,
    weft.capabilities.memory.operations,
    weft.capabilities.memory.inspection,
    weft.capabilities.context.pushing,
    weft.capabilities.context.pulling,
    weft.capabilities.context.status,
    weft.capabilities.context.copying,
    weft.capabilities.context.definitions,
    weft.capabilities.board.inspection,
    weft.capabilities.timeline.looking_back,
    weft.capabilities.timeline.comparing,
    weft.capabilities.timeline.checking,
    weft.capabilities.timeline.taking_back,
    weft.capabilities.timeline.branching,
    weft.capabilities.timeline.merging,
    weft.capabilities.timeline.reviewing,
    weft.capabilities.timeline.retaining,
    weft.capabilities.exchange.adding,
    weft.capabilities.exchange.listing,
    weft.capabilities.exchange.showing,
    weft.capabilities.exchange.redacting,
    weft.capabilities.exchange.sources,
    weft.capabilities.exchange.exporting,
    weft.capabilities.exchange.importing,
    weft.capabilities.exchange.policies,
    weft.capabilities.embedding.operations,
    weft.capabilities.knowledge_sources.operations,
    weft.capabilities.models.operations,
    weft.capabilities.records.operations,
    weft.capabilities.missing.operations,
    weft.capabilities.missing.requesting,
    weft.capabilities.events.operations,
    weft.capabilities.webhooks.operations,
    weft.capabilities.access.operations,
    weft.capabilities.access.audit,
    weft.capabilities.performance.operations,
    weft.capabilities.usage.operations,
)


def all_operations() -> Registry:
    """Return the registry that every face is derived from."""
    registry = Registry()
    for module in _MODULES:
        for value in vars(module).values():
            if isinstance(value, Operation):
                registry.add(value)
    return registry
