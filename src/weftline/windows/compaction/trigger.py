"""Queues compactions of windows that have reached their threshold, in the transaction that adds the events."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import structs

from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.fields import new_ordered_id
from weftline.kernel.identity import Actor
from weftline.windows.compaction.compacted_events import SummaryOfEvents, compacted
from weftline.windows.compaction.model import OPEN_STATES, Compaction, CompactionOptions, CompactionState
from weftline.windows.compaction.sql import CompactionStore
from weftline.windows.sql import LineCompaction

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from weftline.models.language_models.catalog import CacheRules
    from weftline.state.agent_context.settings import ResolvedCompaction
    from weftline.windows.compaction.model import CompactedView, CompactionTrigger
    from weftline.windows.model import Window, WindowEvent


class CompactionJobs(NamedTuple):
    """What works on windows in the background, handed in by the ring above.

    ``wake`` runs what is queued, ``read`` reads what is new in a line (tenant, session, line): both soon, as the
    transaction may not have ended yet. ``run`` performs a queued compaction, or joins its run, and returns when it is
    finished, or after this many seconds: then it goes on.
    """

    wake: Callable[[], None]
    read: Callable[[str, str, str], None]
    run: Callable[[Actor, str, float], Awaitable[None]]


class ThresholdTrigger(msgspec.Struct, frozen=True):
    """Implements the CompactionQueue of windows."""

    actor: Actor
    store: CompactionStore
    jobs: CompactionJobs
    clock: Clock

    async def of_line(self, line_id: str) -> LineCompaction:
        newest, applied = await self.store.newest(line_id)
        if newest is None:
            return LineCompaction()
        saved = 0 if applied is None else applied.saved_tokens
        return LineCompaction(saved, newest.window_tokens, newest.state in OPEN_STATES)

    def foresee(self, window: Window) -> None:
        self.jobs.read(self.actor.tenant, window.session_id, window.line_id)

    async def add(self, window: Window, settings: ResolvedCompaction, tokens: int) -> None:
        options = CompactionOptions(settings.strategy, settings.target, settings.keep_recent, settings.model)
        now = to_micros(self.clock.now())
        if await self.store.add(queued(window, options, "threshold", self.actor, now, tokens)):
            self.jobs.wake()

    async def restored(self, line_id: str) -> None:
        for compaction_id in {each.compaction_id for each in await self.store.newest(line_id) if each is not None}:
            known = await self.store.lock(compaction_id)
            # A run begins with the size that the line has then.
            if known is not None and known.state not in OPEN_STATES:
                await self.store.save(structs.replace(known, window_tokens=0, saved_tokens=0))


def queued(
    window: Window, options: CompactionOptions, trigger: CompactionTrigger, actor: Actor, now: int, tokens: int
) -> Compaction:
    """Return a new compaction of a window with this many tokens."""
    return Compaction(
        compaction_id=new_ordered_id(),
        session_id=window.session_id,
        agent_id=window.agent_id,
        line_id=window.line_id,
        requested_by=actor.participant,
        trigger=trigger,
        state=CompactionState.QUEUED,
        strategy=options.strategy,
        target=options.target,
        keep_recent=options.keep_recent,
        model=options.model,
        created_at=now,
        window_tokens=tokens,
    )


# Whether an automatic compaction costs less than it saves: shorter prompts against the provider's cache that it loses.
#
# Costs are in uncached input tokens, over the calls that are expected to follow.

# Calls that are expected to follow with the same prefix: the mean of an agent's loop.
EXPECTED_CALLS = 8
# From this part of the limit on, prompts are about to be trimmed, which loses the cache and more.
NEAR_LIMIT = 0.95


class CompactionCosts(NamedTuple):
    """Modelled cost of the calls to come with the window as it is, and with the new view."""

    unchanged: float
    compacted: float

    @property
    def is_worth_it(self) -> bool:
        return self.compacted < self.unchanged


def modelled_costs(
    events: Sequence[WindowEvent], before: CompactedView | None, after: CompactedView, cache: CacheRules
) -> CompactionCosts:
    """Return what the expected calls cost: text up to the first difference is read from the cache in both cases."""
    old, new = (_parts(events, view) for view in (before, after))
    same = 0
    for one, other in zip(old, new, strict=False):
        if one != other:
            break
        same += one[1]
    old_tokens, new_tokens = (sum(tokens for _, tokens in parts) for parts in (old, new))
    return costs_of(same, old_tokens, new_tokens, cache)


def costs_of(same: int, old_tokens: int, new_tokens: int, cache: CacheRules) -> CompactionCosts:
    """Return what the expected calls cost with so many tokens, of which the first ``same`` are the same."""
    write, read = max(cache.write_multipliers.values(), default=1.0), cache.read_multiplier
    first = same * read + (new_tokens - same) * write
    return CompactionCosts(
        unchanged=EXPECTED_CALLS * old_tokens * read, compacted=first + (EXPECTED_CALLS - 1) * new_tokens * read
    )


def _parts(events: Sequence[WindowEvent], view: CompactedView | None) -> list[tuple[object, int]]:
    """Return what identifies the text of each part of a window, with its tokens."""
    shown = events if view is None else compacted(events, view)
    return [
        ((part.summary.text, part.facts), part.summary.tokens)
        if isinstance(part, SummaryOfEvents)
        else ((part.event_id, part.tokens), part.tokens)
        for part in shown
    ]
