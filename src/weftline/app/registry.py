"""Registry of every operation; a module of operations is imported when one of its operations is first used."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from weftline.kernel.data_files import operation_index
from weftline.kernel.operation import Operation, Registry

if TYPE_CHECKING:
    from collections.abc import Iterator

# In the order in which tools, commands and reference pages list them.
_MODULES = (
    "state.board.operations",
    "state.board.guidance",
    "state.board.check",
    "sessions.operations",
    "sessions.member_operations",
    "sessions.messages.session_overview",
    "sessions.messages.operations",
    "sessions.messages.inbox_operations",
    "windows.ingest",
    "windows.operations",
    "windows.shared_windows",
    "windows.checkpoints",
    "windows.compaction.operations",
    "windows.conversations.operations",
    "prompts.assembly.operations",
    "prompts.assembly.receipt_operations",
    "prompts.assembly.validate_operation",
    "insight.recommendations.operations",
    "search.operations",
    "search.entity_operations",
    "search.pin_operations",
    "prompts.assembly.get_context",
    "sessions.messages.search_operations",
    "knowledge.domain_operations",
    "knowledge.templates.operations",
    "search.domain_evaluation",
    "knowledge.document_operations",
    "knowledge.document_queries",
    "knowledge.document_review",
    "search.reindex",
    "state.memory.operations",
    "state.agent_context.push",
    "state.agent_context.pull",
    "state.agent_context.copy_context",
    "state.agent_context.definitions",
    "state.layers.operations",
    "insight.alerts.operations",
    "safety.approvals.operations",
    "state.layers.guardrail_operations",
    "state.board.admin_view",
    "history.log",
    "history.diff",
    "history.verify",
    "history.snapshots",
    "history.rollback",
    "history.branches",
    "history.merge_operations",
    "history.merge_reviews",
    "history.retention",
    "exchange.record_log.add",
    "exchange.record_log.list_records",
    "exchange.record_log.show",
    "exchange.record_log.redact",
    "exchange.record_log.resolve_source",
    "exchange.transfer.export",
    "exchange.transfer.importer",
    "exchange.transfer.policies",
    "exchange.lineage_operations",
    "indexing.embeddings",
    "knowledge.source_operations",
    "indexing.operations",
    "exchange.missing_context_operations",
    "sessions.events.operations",
    "access.operations",
    "sessions.agent_directory",
    "sessions.team_operations",
    "models.operations",
    "insight.usage",
    "access.audit",
    "insight.metrics",
    "insight.guidance",
    "prompts.tools.catalogue",
    "prompts.tools.operations",
    "prompts.gateway.operations",
)


@dataclass(slots=True)
class LazyRegistry(Registry):
    """Imports one module for a lookup by name, and all of them for an iteration."""

    def __getitem__(self, name: str) -> Operation:
        if name not in self._by_name and name in operation_index():
            module = operation_index()[name]["module"]
            self._by_name |= {operation.name: operation for operation in _operations_in(module)}
        return self._by_name[name] if name in self._by_name else self._complete()[name]

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._complete())

    @staticmethod
    @cache
    def _complete() -> Registry:
        """Return a registry of all operations in the order of their modules."""
        everything = Registry()
        for module in _MODULES:
            for operation in _operations_in(module):
                everything.add(operation)
        return everything


@cache
def all_operations() -> Registry:
    """Return the registry that every interface is derived from."""
    return LazyRegistry()


@cache
def _operations_in(module: str) -> list[Operation]:
    # The errors of history operations include those of every kind of line.
    if module.startswith("history."):
        import_module("weftline.app.line_kinds")
    defined = vars(import_module(f"weftline.{module}"))
    return [value for value in defined.values() if isinstance(value, Operation)]
