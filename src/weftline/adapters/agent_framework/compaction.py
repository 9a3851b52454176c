"""Compaction for Microsoft Agent Framework: older messages in short words, without a call of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from weftline.adapters.agent_framework.messages import messages_of
from weftline.adapters.bridge import Bridge, missing_framework
from weftline.adapters.summaries import summarize

try:
    from agent_framework import (
        EXCLUDED_KEY,
        GROUP_ANNOTATION_KEY,
        GROUP_ID_KEY,
        SUMMARIZED_BY_SUMMARY_ID_KEY,
        SUMMARY_OF_GROUP_IDS_KEY,
        SUMMARY_OF_MESSAGE_IDS_KEY,
        Message,
        annotate_message_groups,
        included_messages,
    )
except ImportError as error:
    raise missing_framework("agent-framework", error) from error

if TYPE_CHECKING:
    from weftline.client._operations import Operations, SyncOperations


class WeftlineCompactionStrategy:
    """A compaction strategy over any client of Weftline: ``Agent(..., compaction_strategy=...)``.

    If there are more than ``target_count + threshold`` messages, the older groups are replaced by one message, which
    has every decision, constraint, open question, number and name of theirs. If Weftline fails, messages stay as they
    are, with a warning; with ``strict``, the call fails.
    """

    def __init__(
        self, weftline: Operations | SyncOperations, *, target_count: int = 4, threshold: int = 2, strict: bool = False
    ) -> None:
        if target_count <= 0:
            raise ValueError("target_count must be greater than 0.")
        if threshold < 0:
            raise ValueError("threshold must be greater than or equal to 0.")
        self.bridge = Bridge(weftline, strict=strict)
        self._target, self._threshold = target_count, threshold

    async def __call__(self, messages: list[Message]) -> bool:
        older = self._older(messages)
        told = [message for message, _ in messages_of([each for group in older.values() for each in group])]
        if not told:
            return False
        text = await self.bridge.arun(self.bridge.guarded(summarize(self.bridge, told), lambda: None))
        if text is None:
            return False
        summary = _summary(older, text)
        place = messages.index(next(iter(older.values()))[0])
        for message in (each for group in older.values() for each in group):
            message.additional_properties |= {EXCLUDED_KEY: True, "_exclude_reason": "summarized"}
            message.additional_properties[GROUP_ANNOTATION_KEY][SUMMARIZED_BY_SUMMARY_ID_KEY] = summary.message_id
        messages.insert(place, summary)
        annotate_message_groups(messages, from_index=place)
        return True

    def _older(self, messages: list[Message]) -> dict[str, list[Message]]:
        """Return the groups to summarize: calls and their results stay together, the newest groups stay."""
        groups: dict[str, list[Message]] = {}
        for message in included_messages(messages):
            if message.role != "system":
                name = message.additional_properties.get(GROUP_ANNOTATION_KEY, {}).get(GROUP_ID_KEY, "")
                groups.setdefault(name, []).append(message)
        count = sum(len(group) for group in groups.values())
        if count <= self._target + self._threshold:
            return {}
        retained = 0
        for name in reversed([*groups]):
            if retained >= self._target:
                break
            retained += len(groups.pop(name))
        return groups


def _summary(older: dict[str, list[Message]], text: str) -> Message:
    """Return the message for groups, which says what it stands for and from which sessions that came."""
    replaced = [message for group in older.values() for message in group]
    annotation = {
        SUMMARY_OF_MESSAGE_IDS_KEY: [message.message_id for message in replaced if message.message_id],
        SUMMARY_OF_GROUP_IDS_KEY: list(older),
    }
    properties: dict[str, Any] = {GROUP_ANNOTATION_KEY: annotation}
    attributions = (message.additional_properties.get("_attribution") or {} for message in replaced)
    origins = dict.fromkeys(name for each in attributions for name in each.get("origin_session_ids") or ())
    if origins:
        properties["_attribution"] = {"origin_session_ids": list(origins)}
    return Message("assistant", [text], message_id=f"summary_{uuid4().hex}", additional_properties=properties)
