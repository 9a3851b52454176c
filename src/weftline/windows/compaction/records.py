"""Records and events of compactions: what was replaced by what, what was lost, and how to refresh it.

They are written in the transaction that applies a compaction. A summary that the compaction before it has too, with the
same text for the same events, keeps its record.
"""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from weftline.history.model import BRANCH_MARK, LATEST, trunk_of
from weftline.kernel.clock import from_micros
from weftline.kernel.events import NewEvent
from weftline.kernel.identity import PERMISSION, PRINCIPAL, SYSTEM_ID, Permission
from weftline.records.model import ContextCompaction, ContextSummary, Coverage, Validation
from weftline.records.record_ids import COMPACTION, SummaryId
from weftline.records.refs import Link, content_digest
from weftline.records.vocabulary import SCHEMA_VERSION
from weftline.sessions.recorder import Recorder
from weftline.windows.compaction.model import Compaction
from weftline.windows.model import window_line
from weftline.windows.service import Windows

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from weftline.kernel.events import EventType
    from weftline.records.vocabulary import CompactionMethod
    from weftline.windows.compaction.model import CompactedView, KeyFact, Summary

_ADMINS = f"{PERMISSION}{Permission.ADMIN}"
_MAX_TEXT = 100_000
_MAX_NOTES = 100
_REPLACEMENT_POLICY = (
    "A summary stands for its sources in prompts as long as they are unchanged. The sources stay in history."
)
_REFRESH_POLICY = {
    "stale_when": "a source is changed, removed, redacted or labelled as suspicious",
    "until_refreshed": "prompts contain the sources",
    "refresh": "context.compact",
}
_TRIGGERS = {"threshold": "token_pressure", "request": "request"}
_encode = msgspec.json.Encoder(order="deterministic").encode
_log = logging.getLogger("weftline.compaction")


class CompactionRecorder(msgspec.Struct, frozen=True):
    """Writes the records and publishes the events of the caller's compactions."""

    windows: Windows
    recorder: Recorder

    async def started(self, compaction: Compaction) -> None:
        """Publish that a compaction runs."""
        data = {"trigger": compaction.trigger, "strategy": compaction.strategy}
        await self._publish("context.compaction.started", compaction, data)

    async def applied(self, compaction: Compaction, view: CompactedView) -> None:
        """Record an applied compaction and its summaries. Last, because publishing blocks other publishers."""
        items = await self._item_ids(compaction.line_id, view)
        readers = await self._readers(compaction)
        if not items:
            await self._publish("context.compaction.completed", compaction, _figures(compaction))
            return
        summaries = {
            str(summary_id(compaction.line_id, each, view.facts)): summary_record(compaction, view, each, items)
            for each in view.summaries
        }
        session = await self.windows.sessions.find(compaction.session_id)
        known = await self.recorder.records.find_several([(ContextSummary.type, each) for each in summaries])
        new = [summaries[each] for each in summaries if each not in {row.record_id for row in known}]
        record = compaction_record(compaction, view, list(summaries), items)
        await self.recorder.add_all([record, *new], session, readable_by=readers, author=self._author(compaction))
        await self.ended(compaction)

    async def ended(self, compaction: Compaction) -> None:
        """Publish and log what could not be done as configured."""
        if not compaction.degraded:
            return
        figures = {**_figures(compaction), "state": compaction.state.value, "degraded": list(compaction.degraded)}
        await self._publish("compaction.degraded", compaction, figures)
        fields = {"tenant": self.windows.actor.tenant, "compaction_id": compaction.compaction_id, **figures}
        _log.warning("a compaction was degraded", extra={"fields": fields})

    async def _publish(self, event_type: EventType, compaction: Compaction, data: Mapping[str, Any]) -> None:
        event = NewEvent(
            type=event_type,
            session_id=compaction.session_id,
            subject=f"{COMPACTION}{compaction.compaction_id}",
            actor=self._author(compaction),
            readable_by=await self._readers(compaction),
            data={"agent_id": compaction.agent_id, **data},
        )
        await self.recorder.outbox.publish(event)

    def _author(self, compaction: Compaction) -> str:
        """Return on whose behalf a compaction is made; a human who applies a held one does that itself."""
        actor = self.windows.actor
        return compaction.requested_by if actor.principal_id == SYSTEM_ID else actor.participant

    async def _readers(self, compaction: Compaction) -> tuple[str, ...]:
        """Return whom the window is open to: the agents that use it, their ancestors, and admins."""
        windows = self.windows
        owner = trunk_of(compaction.line_id).removeprefix(window_line(compaction.session_id, ""))
        sharing = await windows.store.sharing(compaction.session_id, owner)
        agents = dict.fromkeys((owner, compaction.agent_id, *(each.agent_id for each in sharing)))
        above = [each.principal_id for agent in agents for each in await windows.access.ancestors(agent)]
        return (*(f"{PRINCIPAL}{name}" for name in dict.fromkeys((*agents, *above))), _ADMINS)

    async def _item_ids(self, line_id: str, view: CompactedView) -> dict[str, str]:
        """Return the item ids of the covered events; an event of a branch may be one of the line it starts from."""
        versions = {event_id: version for each in view.summaries for event_id, version in each.sources.items()}
        versions |= {each.event_id: each.version for each in view.shortened}
        homes = await self._homes(line_id, versions) if BRANCH_MARK in line_id else {}
        return {
            event_id: f"{homes.get(event_id, line_id)}/{event_id}/{version}" for event_id, version in versions.items()
        }

    async def _homes(self, line_id: str, event_ids: Collection[str]) -> dict[str, str]:
        lines = self.windows.lines
        ranges = await lines.past(line_id, LATEST)
        current = await lines.latest_of_each(line_id, sorted(event_ids), LATEST)
        return {
            version.change.key: next((each.line_id for each in ranges if each.after < version.seq), line_id)
            for version in current
        }


def summary_id(line_id: str, summary: Summary, facts: Sequence[KeyFact] = ()) -> SummaryId:
    """Return the id of a summary: the same for the same text and facts of the same events, in every compaction."""
    carried = [fact for fact in _facts_of(summary, facts) if fact.carried]
    content = [summary.text, summary.method, list(summary.sources.items()), summary.loss_notes, carried]
    digest = hashlib.sha256(_encode(content)).hexdigest()
    return SummaryId(line_id, summary.first_number, summary.last_number, digest[:16])


def compaction_record(
    compaction: Compaction, view: CompactedView, summary_ids: Sequence[str], items: Mapping[str, str]
) -> ContextCompaction:
    """Return the record of an applied compaction."""
    record_id = f"{COMPACTION}{compaction.compaction_id}"
    only = summary_ids[0] if len(summary_ids) == 1 else None
    covered = sum(each.tokens_before for each in view.summaries) + sum(each.tokens_before for each in view.shortened)
    return ContextCompaction(
        schema_version=SCHEMA_VERSION,
        compaction_id=record_id,
        scope="session",
        source_item_refs=tuple(items.values()),
        summary_ref=only or Link(kind="compacted_view", id=record_id),
        method=_method(view),
        trigger=_TRIGGERS[compaction.trigger],
        coverage=Coverage(
            items_covered=len(items),
            estimated_tokens_before=covered,
            estimated_tokens_after=max(covered - (compaction.tokens_before - compaction.tokens_after), 0),
        ),
        loss_notes=tuple(dict.fromkeys(note for each in view.summaries for note in each.loss_notes))[:_MAX_NOTES],
        validation=_validation(compaction, view.facts),
        replacement_policy=_REPLACEMENT_POLICY,
        created_at=from_micros(compaction.finished_at or compaction.created_at),
        metadata=_native(
            line=compaction.line_id,
            agent_id=compaction.agent_id,
            requested_by=compaction.requested_by,
            strategy=compaction.used,
            reason=compaction.reason,
            version=compaction.version,
            summary_refs=list(summary_ids),
            shortened=len(view.shortened),
            model=compaction.model,
            degraded=list(compaction.degraded) or None,
        ),
    )


def summary_record(
    compaction: Compaction, view: CompactedView, summary: Summary, items: Mapping[str, str]
) -> ContextSummary:
    """Return the record of a summary, with the key facts that are listed beside it."""
    facts = _facts_of(summary, view.facts)
    name = str(summary_id(compaction.line_id, summary, facts))
    is_long = len(summary.text) > _MAX_TEXT
    link = Link(kind="compacted_view", id=name, digest=content_digest(summary.text))
    return ContextSummary(
        schema_version=SCHEMA_VERSION,
        summary_id=name,
        content=UNSET if is_long else summary.text,
        content_ref=link if is_long else UNSET,
        compaction_ref=f"{COMPACTION}{compaction.compaction_id}",
        source_item_refs=tuple(items[event_id] for event_id in summary.sources),
        coverage=Coverage(
            items_covered=len(summary.sources),
            estimated_tokens_before=summary.tokens_before,
            estimated_tokens_after=summary.tokens,
        ),
        loss_notes=summary.loss_notes,
        validation=_validation(compaction, facts),
        refresh_policy=_REFRESH_POLICY,
        token_estimate=summary.tokens,
        sensitivity="private",
        redaction_state="none",
        created_at=from_micros(compaction.finished_at or compaction.created_at),
        metadata=_native(
            line=compaction.line_id,
            title=summary.title,
            method=summary.method,
            confidence=summary.confidence,
            trust=None if summary.trust is None else msgspec.to_builtins(summary.trust),
            facts=[msgspec.to_builtins(fact) for fact in facts if fact.carried] or None,
        ),
    )


def _facts_of(summary: Summary, facts: Sequence[KeyFact]) -> list[KeyFact]:
    return [fact for fact in facts if fact.event_ids and fact.event_ids[0] in summary.sources]


def _method(view: CompactedView) -> CompactionMethod:
    """Return the method of a compaction: that of most of its tokens; shorter results of tools are extracts."""
    tokens: dict[CompactionMethod, int] = {}
    for summary in view.summaries:
        tokens[summary.method] = tokens.get(summary.method, 0) + summary.tokens_before
    return max(tokens, key=lambda method: tokens[method], default="extractive_summary")


def _validation(compaction: Compaction, facts: Sequence[KeyFact]) -> Validation:
    """Return how a compaction was checked: every key fact is in the text, or listed beside it."""
    carried = sum(fact.carried for fact in facts)
    status = "reviewed" if compaction.approval_id else "degraded" if compaction.degraded else "verified"
    return Validation(
        status=status,
        reviewer=Link(kind="approval", id=compaction.approval_id) if compaction.approval_id else "weftline",
        checked_at=from_micros(compaction.finished_at or compaction.created_at),
        metadata={"facts": len(facts), "facts_in_text": len(facts) - carried, "facts_listed": carried},
    )


def _figures(compaction: Compaction) -> dict[str, Any]:
    return {
        "strategy": compaction.used,
        "tokens_before": compaction.tokens_before,
        "tokens_after": compaction.tokens_after,
    }


def _native(**fields: object) -> dict[str, Any]:
    return {"weftline": {name: value for name, value in fields.items() if value is not None}}
