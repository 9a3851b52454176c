"""Domains, documents, sources, reindexing and model migrations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from weftline.transports.cli.render import cell, counted, escape_controls, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from weftline.indexing.operations import CanaryStep, ModelMigrationInfo
    from weftline.knowledge.document_queries import DocumentList
    from weftline.knowledge.domain_operations import DomainDetails, DomainInfo, DomainList
    from weftline.knowledge.source_operations import SourceInfo, SourceList, SyncRequested
    from weftline.knowledge.sources import SyncCounts
    from weftline.knowledge.templates.model import DomainEvaluation
    from weftline.knowledge.templates.operations import TemplateInfo, TemplateList
    from weftline.search.domain_evaluation import EvaluationInfo
    from weftline.search.reindex import ReindexStatus
    from weftline.transports.cli.knowledge_add import FilesAdded
    from weftline.transports.cli.knowledge_sources import SyncResult
    from weftline.transports.cli.progress import IndexingFailure

# Failures shown per source; --json shows more.
_MAX_FAILURES = 10


def render_added(added: FilesAdded) -> str:
    put = counted(len(added.documents) - len(added.failed), "document")
    unchanged = f", {added.unchanged} unchanged" if added.unchanged else ""
    failed = f"; {len(added.failed)} could not be indexed:" if added.failed else "."
    lines = [f"{put} in {escape_controls(added.domain)}{unchanged}{failed}", *_indexing_failures(added.failed)]
    if added.pending:
        lines.append(f"{added.pending} waiting to be indexed: weftline knowledge show-domain shows the progress.")
    return "\n".join(lines)


def render_sync_requested(requested: SyncRequested) -> str:
    return f"{requested.source_id} is queued for synchronisation: weftline knowledge list-sources shows the result."


def render_sync(result: SyncResult) -> str:
    if result.error is not None:
        return escape_controls(f"{result.location} could not be read: {result.error}")
    lines = [f"{escape_controls(result.location)}: {_changes(result.last)}."]
    if result.last.failed:
        lines += [f"{counted(result.last.failed, 'file')} could not be read:", *_sync_failures(result.last)]
    if result.failed:
        lines += [f"{counted(len(result.failed), 'document')} could not be indexed:"]
        lines += _indexing_failures(result.failed)
    return "\n".join(lines)


def _indexing_failures(failed: Iterable[IndexingFailure]) -> Iterator[str]:
    return (escape_controls(f"  {each.document_id}: {each.error}") for each in failed)


def _render_domains(listed: DomainList) -> str:
    if not listed.domains:
        return "No domain is visible to you. Create one with weftline knowledge create-domain."
    return table([_domain_row(domain) for domain in listed.domains])


def _domain_row(domain: DomainInfo) -> dict[str, str]:
    states = ((domain.pending, "pending"), (domain.failed, "failed"), (domain.quarantined, "quarantined"))
    busy = [f"{number} {what}" for number, what in states if number]
    busy += [f"{domain.to_reindex} to reindex"] if domain.reindexing else []
    return {
        "domain": escape_controls(domain.domain),
        "documents": str(domain.documents),
        "chunks": str(domain.chunks),
        "clearance": str(domain.clearance),
        "for": escape_controls(", ".join(domain.agents)),
        "state": ", ".join(busy) or "indexed",
        "description": escape_controls(domain.description),
    }


def _render_domain(domain: DomainDetails) -> str:
    lines = [table([_domain_row(domain)])]
    if domain.template is not None:
        lines += ["", f"Template: {escape_controls(domain.template)}, version {domain.template_version}."]
    if isinstance(domain.evaluation, msgspec.Struct):
        lines += ["", _render_evaluation(domain.evaluation)]
    return "\n".join(lines)


def _render_templates(listed: TemplateList) -> str:
    rows = [
        {"template": each.name, "version": str(each.version), "description": each.description}
        for each in listed.templates
    ]
    return table(rows)


def render_template(template: TemplateInfo) -> str:
    """Return a template as TOML, to save and change it."""
    lines = [f"{name} = {_toml(getattr(template, name))}" for name in ("name", "version", "description")]
    lines.append(f"chunking = {_inline(msgspec.to_builtins(template.chunking))}")
    if template.pinned:
        lines.append(f"pinned = {_toml(template.pinned)}")
    if template.retention_days is not None:
        lines.append(f"retention_days = {template.retention_days}")
    for heading, parts in (("metadata", template.metadata), ("questions", template.questions)):
        for part in parts:
            fields = msgspec.to_builtins(part).items()
            lines += ["", f"[[{heading}]]", *(f"{name} = {_toml(value)}" for name, value in fields)]
    return "\n".join(lines)


def _inline(values: dict[str, Any]) -> str:
    return "{ " + ", ".join(f"{name} = {_toml(value)}" for name, value in values.items()) + " }"


def _toml(value: object) -> str:
    """Return text, a number, a truth value or a list of texts as TOML, which writes these like JSON."""
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")


def _render_evaluation(evaluation: EvaluationInfo | DomainEvaluation) -> str:
    rows = [
        {
            "question": escape_controls(each.question),
            "evidence": "found" if each.found else "not found",
            "rank": _rank(each.rank),
            "confidence": f"{each.confidence:.2f}",
            "document": escape_controls(each.document_id or ""),
        }
        for each in evaluation.questions
    ]
    found = f"{evaluation.found} of {counted(len(rows), 'example question')} found their evidence."
    return f"{table(rows)}\n\n{found}" if rows else "The template has no example questions."


def _rank(rank: int | None) -> str:
    return "" if rank is None else "pinned" if rank == 0 else str(rank)


def _render_documents(listed: DocumentList) -> str:
    if not listed.documents:
        return "No documents."
    rows = [
        {
            "document": escape_controls(each.document_id),
            "state": each.state,
            "version": str(each.version),
            "chunks": str(each.chunks),
            "bytes": str(each.bytes),
            "title": escape_controls(each.title),
            "error": escape_controls(each.error or ""),
        }
        for each in listed.documents
    ]
    more = f"\n\nMore: --cursor {escape_controls(listed.next_cursor or '')}" if listed.has_more else ""
    return table(rows) + more


def _render_sources(listed: SourceList) -> str:
    if not listed.sources:
        return "The domain has no sources. Add one with weftline knowledge watch or weftline knowledge add-source."
    problems = [line for source in listed.sources for line in _problems(source)]
    return "\n".join([table([_source_row(source) for source in listed.sources]), *problems])


def _source_row(source: SourceInfo) -> dict[str, str]:
    return {
        "source": source.source_id,
        "kind": source.kind,
        "location": escape_controls(source.location),
        "prefix": escape_controls(source.prefix),
        "schedule": _schedule(source),
        "state": _state(source),
        "synced at": cell(source.synced_at),
        "last sync": "" if source.synced_at is None else _changes(source.last_sync),
    }


def _schedule(source: SourceInfo) -> str:
    if source.kind == "hook":
        return "when called"
    every = "" if source.every_seconds is None else f"every {source.every_seconds} s"
    return "watching" if source.watch else every or "on request"


def _state(source: SourceInfo) -> str:
    if not source.enabled:
        return "disabled"
    if source.error is not None:
        return "failed"
    return "queued" if source.sync_requested else "ok"


def _problems(source: SourceInfo) -> Iterator[str]:
    """Yield the errors of a source, each below a line that names it."""
    if source.error is not None:
        yield escape_controls(f"\n{source.source_id} {_state(source)}: {source.error}")
    if source.last_sync.failed:
        yield f"\n{source.source_id} could not read {counted(source.last_sync.failed, 'file')}:"
        yield from _sync_failures(source.last_sync)


def _sync_failures(last: SyncCounts) -> Iterator[str]:
    shown = last.failures[:_MAX_FAILURES]
    yield from (escape_controls(f"  {each.document_id}: {each.reason}") for each in shown)
    if last.failed > len(shown):
        yield f"  and {last.failed - len(shown)} more; --json shows up to a hundred"


def _changes(last: SyncCounts) -> str:
    return ", ".join(f"{number} {what}" for what, number in last.figures.items() if number) or "no documents"


def _render_migration(migration: ModelMigrationInfo) -> str:
    lines = [escape_controls(f"{migration.from_model} -> {migration.to_model}: {migration.state}")]
    if migration.state == "embedding":
        lines.append(f"{migration.embedded} of {counted(migration.chunks, 'chunk')} embedded.")
    if migration.comparison is not None:
        compared = migration.comparison
        lines.append(
            f"Recall of {counted(compared.probes, 'probe')}: {compared.recall_before:.0%} with the old model, "
            f"{compared.recall_after:.0%} with the new one; they agree on {compared.agreement:.0%}."
        )
    lines += [_canary_step(step) for step in migration.canary]
    if migration.rollback_until is not None:
        lines.append(
            f"Until {cell(migration.rollback_until)}: weftline knowledge cancel-model-migration rolls it back."
        )
    if migration.problem is not None:
        lines.append(escape_controls(f"Stopped: {migration.problem}"))
    return "\n".join(lines)


def _canary_step(step: CanaryStep) -> str:
    failed = f", {step.failures} failed" if step.failures else ""
    if not step.queries:
        return f"{step.share:.0%} of queries: none compared{failed}."
    return (
        f"{step.share:.0%} of queries: {step.queries} compared{failed}; {step.overlap:.0%} of results agree, rank "
        f"correlation {step.rank_correlation:.2f}, {step.results_before:.1f} to {step.results_after:.1f} results, "
        f"confidence {step.confidence_before:.2f} to {step.confidence_after:.2f}, "
        f"{step.ms_before:.0f} to {step.ms_after:.0f} ms."
    )


def _render_reindexing(shown: ReindexStatus) -> str:
    lines = [escape_controls(f"{each.domain}: {counted(each.to_reindex, 'document')} left") for each in shown.domains]
    if shown.events is not None:
        lines.append(f"sessions and memory: {counted(shown.events, 'event')} left")
    lines = lines or ["Nothing is being reindexed."]
    if shown.semantic_search_off:
        lines.append(f"Texts are indexed by their words only: {escape_controls(shown.semantic_search_off)}.")
    return "\n".join(lines)


FORMATTERS: dict[str, Callable[[Any], str]] = {
    "knowledge.list_domains": _render_domains,
    "knowledge.show_domain": _render_domain,
    "knowledge.list_templates": _render_templates,
    "knowledge.show_template": render_template,
    "knowledge.evaluate_domain": _render_evaluation,
    "knowledge.list_documents": _render_documents,
    "knowledge.list_sources": _render_sources,
    "knowledge.start_model_migration": _render_migration,
    "knowledge.show_model_migration": _render_migration,
    "knowledge.cancel_model_migration": _render_migration,
    "knowledge.reindex_all": _render_reindexing,
    "knowledge.show_reindexing": _render_reindexing,
}
