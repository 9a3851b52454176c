"""Conversations in short words, for frameworks that ask for a summary of theirs: without a call of a model."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from weftline.errors import WeftlineError

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from weftline.adapters.bridge import Bridge
    from weftline.client._operations import SyncOperations

_AT_ONCE, _MAX_SUMMARIES = 200, 50
_WAIT_SECONDS = 60.0
# Compaction leaves the newest message as it is.
_END = {"role": "user", "content": "Go on."}


def summarize(bridge: Bridge, messages: Sequence[Mapping[str, Any]]) -> Generator[Any, Any, str | None]:
    """Return messages of OpenAI's chat API in short words; None if nothing would be gained.

    They are compacted in a session that is deleted afterwards. Every decision, constraint, open question, number and
    name of theirs is in the summary: compaction checks that.
    """
    weftline, session_id = bridge.weftline, f"summary-{uuid4().hex}"
    yield weftline.session.create("A summary for an agent framework", session_id=session_id)
    try:
        text = yield from _compaction(weftline, session_id, [*map(_event, messages), _END])
    except WeftlineError:
        with suppress(WeftlineError):
            yield weftline.session.delete(session_id, force=True)
        raise
    yield weftline.session.delete(session_id, force=True)
    return text


def _compaction(
    weftline: SyncOperations, session_id: str, events: Sequence[Mapping[str, Any]]
) -> Generator[Any, Any, str | None]:
    for start in range(0, len(events), _AT_ONCE):
        yield weftline.context.ingest(session_id, events[start : start + _AT_ONCE])
    compaction: Any = yield weftline.context.compact(session_id, keep_recent=1, wait_seconds=_WAIT_SECONDS)
    if compaction.state != "applied":
        return None
    shown: Any = yield weftline.compaction.show(compaction.compaction_id, limit=_MAX_SUMMARIES, originals=False)
    lines = [line for summary in shown.summaries for line in (summary.text, *_carried(summary))]
    return "\n".join(lines) or None


def _event(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message as an event of a window."""
    calls = [
        {"call_id": call["id"], "name": call["function"]["name"], "arguments": call["function"]["arguments"]}
        for call in message.get("tool_calls") or ()
    ]
    event = {"role": message["role"], "content": message["content"], "tool_call_id": message.get("tool_call_id")}
    return {**event, "tool_calls": calls}


def _carried(summary: Any) -> list[str]:  # noqa: ANN401 - of two clients
    """Return the key facts that the text of a summary lacks."""
    return [f"- {fact.text}" for fact in summary.facts if fact.place == "carried"]
