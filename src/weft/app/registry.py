"""Every operation of the product, gathered from the capabilities."""

from __future__ import annotations

from types import ModuleType

import weft.capabilities.access.audit
import weft.capabilities.access.operations
import weft.capabilities.agent_context.copy_context
import weft.capabilities.agent_context.definitions
import weft.capabilities.agent_context.pull
import weft.capabilities.agent_context.push
import weft.capabilities.agent_context.status
import weft.capabilities.board.admin_view
import weft.capabilities.board.check
import weft.capabilities.board.guidance
import weft.capabilities.board.operations
import weft.capabilities.events.operations
import weft.capabilities.events.webhooks.operations
import weft.capabilities.guidance.operations
import weft.capabilities.history.branches
import weft.capabilities.history.diff
import weft.capabilities.history.log
import weft.capabilities.history.merge_operations
import weft.capabilities.history.merge_reviews
import weft.capabilities.history.retention
import weft.capabilities.history.rollback
import weft.capabilities.history.verify
import weft.capabilities.indexing.embeddings.operations
import weft.capabilities.indexing.model_migration.operations
import weft.capabilities.knowledge.document_operations
import weft.capabilities.knowledge.document_queries
import weft.capabilities.knowledge.domain_operations
import weft.capabilities.knowledge.reindex
import weft.capabilities.knowledge.sources.operations
import weft.capabilities.memory.admin_view
import weft.capabilities.memory.operations
import weft.capabilities.messages.operations
import weft.capabilities.messages.search.by_sender_and_time
import weft.capabilities.messages.search.operations
import weft.capabilities.messages.session_overview
import weft.capabilities.metrics.operations
import weft.capabilities.missing_context.operations
import weft.capabilities.missing_context.requests
import weft.capabilities.record_log.add
import weft.capabilities.record_log.list_records
import weft.capabilities.record_log.redact
import weft.capabilities.record_log.resolve_source
import weft.capabilities.record_log.show
import weft.capabilities.records.operations
import weft.capabilities.search.operations
import weft.capabilities.search.session_indexing.reindex
import weft.capabilities.sessions.operations
import weft.capabilities.transfer.export
import weft.capabilities.transfer.importer
import weft.capabilities.transfer.policies
from weft.kernel.operation import Operation, Registry

_MODULES: tuple[ModuleType, ...] = (
    weft.capabilities.board.operations,
    weft.capabilities.board.guidance,
    weft.capabilities.board.check,
    weft.capabilities.sessions.operations,
    weft.capabilities.messages.session_overview,
    weft.capabilities.messages.operations,
    weft.capabilities.search.operations,
    weft.capabilities.messages.search.operations,
    weft.capabilities.messages.search.by_sender_and_time,
    weft.capabilities.knowledge.domain_operations,
    weft.capabilities.knowledge.document_operations,
    weft.capabilities.knowledge.document_queries,
    weft.capabilities.knowledge.reindex,
    weft.capabilities.search.session_indexing.reindex,
    weft.capabilities.memory.operations,
    weft.capabilities.memory.admin_view,
    weft.capabilities.agent_context.push,
    weft.capabilities.agent_context.pull,
    weft.capabilities.agent_context.status,
    weft.capabilities.agent_context.copy_context,
    weft.capabilities.agent_context.definitions,
    weft.capabilities.board.admin_view,
    weft.capabilities.history.log,
    weft.capabilities.history.diff,
    weft.capabilities.history.verify,
    weft.capabilities.history.rollback,
    weft.capabilities.history.branches,
    weft.capabilities.history.merge_operations,
    weft.capabilities.history.merge_reviews,
    weft.capabilities.history.retention,
    weft.capabilities.record_log.add,
    weft.capabilities.record_log.list_records,
    weft.capabilities.record_log.show,
    weft.capabilities.record_log.redact,
    weft.capabilities.record_log.resolve_source,
    weft.capabilities.transfer.export,
    weft.capabilities.transfer.importer,
    weft.capabilities.transfer.policies,
    weft.capabilities.indexing.embeddings.operations,
    weft.capabilities.knowledge.sources.operations,
    weft.capabilities.indexing.model_migration.operations,
    weft.capabilities.records.operations,
    weft.capabilities.missing_context.operations,
    weft.capabilities.missing_context.requests,
    weft.capabilities.events.operations,
    weft.capabilities.events.webhooks.operations,
    weft.capabilities.access.operations,
    weft.capabilities.access.audit,
    weft.capabilities.metrics.operations,
    weft.capabilities.guidance.operations,
)


def all_operations() -> Registry:
    """Return the registry that every face is derived from."""
    registry = Registry()
    for module in _MODULES:
        for value in vars(module).values():
            if isinstance(value, Operation):
                registry.add(value)
    return registry
