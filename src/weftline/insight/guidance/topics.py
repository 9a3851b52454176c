"""Topics of usage guidance: the operations of each, and advice on using them."""

from __future__ import annotations

from functools import cache
from typing import Literal, NotRequired, TypedDict

from weftline.kernel.data_files import JsonFile

GuidanceType = Literal[
    "operations",
    "coordination",
    "security",
    "troubleshooting",
    "sessions",
    "board",
    "messages",
    "memory",
    "search",
    "assembly",
    "windows",
    "compaction",
    "knowledge",
    "indexing",
    "history",
    "branches",
    "retention",
    "records",
    "missing",
    "agents",
    "approvals",
    "guardrails",
    "trust",
    "insight",
    "admin",
]


class Topic(TypedDict):
    """Advice, and the operations it is about: names, or groups of names such as ``board``."""

    advice: list[str]
    operations: NotRequired[list[str]]


topics = JsonFile("insight/guidance/topics.json", dict[str, Topic])


@cache
def _topics_by_name() -> dict[str, str]:
    return {name: topic for topic, described in topics().items() for name in described.get("operations", ())}


def topic_of(operation: str) -> str:
    """Return the topic of an operation: that of its name, or else that of its group."""
    group = operation.partition(".")[0]
    return _topics_by_name().get(operation) or _topics_by_name()[group]
