"""Summaries of events for the compaction of Google ADK, without a call of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.adapters.bridge import Bridge, missing_framework
from weftline.adapters.google_adk.contents import messages_of
from weftline.adapters.summaries import summarize

try:
    from google.adk.apps.base_events_summarizer import BaseEventsSummarizer
    from google.adk.events.event import Event
    from google.adk.events.event_actions import EventActions, EventCompaction
    from google.genai import types
except ImportError as error:
    raise missing_framework("google-adk", error) from error

if TYPE_CHECKING:
    from weftline.client._operations import Operations, SyncOperations


class WeftlineSummarizer(BaseEventsSummarizer):
    """A summarizer over any client of Weftline: ``EventsCompactionConfig(summarizer=...)``.

    Every decision, constraint, open question, number and name of the events is in the summary. If Weftline fails, the
    events stay as they are, with a warning; with ``strict``, the call fails.
    """

    def __init__(self, weftline: Operations | SyncOperations, *, strict: bool = False) -> None:
        self.bridge = Bridge(weftline, strict=strict)

    async def maybe_summarize_events(self, *, events: list[Event]) -> Event | None:
        contents = [content for event in events if (content := _content(event)) is not None]
        told = [message for message, _ in messages_of(contents) if message["content"] or "tool_calls" in message]
        if not told:
            return None
        summary = await self.bridge.arun(self.bridge.guarded(summarize(self.bridge, told), lambda: None))
        if summary is None:
            return None
        compaction = EventCompaction(
            start_timestamp=events[0].timestamp,
            end_timestamp=events[-1].timestamp,
            compacted_content=types.Content(role="model", parts=[types.Part(text=summary)]),
        )
        return Event(author="user", actions=EventActions(compaction=compaction), invocation_id=Event.new_id())


def _content(event: Event) -> types.Content | None:
    """Return what an event says; of an earlier compaction, its summary."""
    compaction = event.actions.compaction
    return event.content if compaction is None else compaction.compacted_content
