"""The compactions that other settings would have made, by the real compactor without a language model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.insight.recommendations.replay import events_in
from weftline.kernel.thread_pools import COMPACTION_THREADS
from weftline.models.language_models.token_counts import PromptCounter
from weftline.prompts.assembly.conversation import EventPreparer
from weftline.windows.compaction.compacted_events import compacted_tokens
from weftline.windows.compaction.model import Compaction, CompactionState
from weftline.windows.compaction.runs import FrozenCut, reason_to_skip
from weftline.windows.compaction.summariser import ExtractiveSummariser

if TYPE_CHECKING:
    from weftline.insight.recommendations.replay import RecordedWindow, ReplayServices
    from weftline.state.agent_context.compaction_settings import ResolvedCompaction
    from weftline.windows.compaction.compactor import Compactor
    from weftline.windows.compaction.model import CompactedView
    from weftline.windows.model import WindowEvent

# A window that stays above its threshold is compacted again when it has grown by this part of its limit.
_GROWTH = 0.05


async def views_under(
    window: RecordedWindow, settings: ResolvedCompaction, compactor: Compactor, services: ReplayServices
) -> list[CompactedView | None]:
    """Return the view that each call would have had. A compaction that was due is finished before the call."""
    view: CompactedView | None = None
    tried_at = 0
    views: list[CompactedView | None] = []
    for call in window.calls:
        receipt = call.receipt
        info = services.catalog.find(receipt.model)
        preparer = EventPreparer(
            window.line_id, window.session_id, receipt.limits.limit, PromptCounter(info, services.counters)
        )
        events = [event for event in events_in(receipt, window.events, preparer) if not event.routed]
        limit = window.window_limit or receipt.limits.window_tokens
        used = compacted_tokens(events, view)
        if settings.auto and used >= settings.threshold * limit and used >= tried_at + _GROWTH * limit:
            cut = _cut(window, settings, events, view, limit, services, receipt.model)
            draft = await compactor.compact(cut.source, settings.strategy, ExtractiveSummariser())
            if await COMPACTION_THREADS.run(reason_to_skip, cut, draft) is None:
                view = draft.view
            tried_at = compacted_tokens(events, view)
        views.append(view)
    return views


def _cut(
    window: RecordedWindow,
    settings: ResolvedCompaction,
    events: list[WindowEvent],
    view: CompactedView | None,
    limit: int,
    services: ReplayServices,
    model: str | None,
) -> FrozenCut:
    compaction = Compaction(
        compaction_id="replayed",
        session_id=window.session_id,
        agent_id=window.line_id.rpartition(":")[2],
        line_id=window.line_id,
        requested_by="",
        trigger="threshold",
        state=CompactionState.RUNNING,
        strategy=settings.strategy,
        target=settings.target,
        keep_recent=settings.keep_recent,
        created_at=0,
    )
    return FrozenCut(compaction, events, 0, frozenset(), limit, services.catalog.find(model).cache, view, None)
