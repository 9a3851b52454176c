"""The text of a summary in a prompt: its prose, then the key facts that the prose does not contain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.windows.compaction.digest import digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.windows.compaction.model import KeyFact, Summary

_HEADING = "Key facts:"


def summary_text(summary: Summary, facts: Sequence[KeyFact]) -> str:
    """Return the text that stands for the events of a summary; ``facts`` are those that it does not contain."""
    return "\n".join(filter(None, (summary.title, summary.text, facts_text(facts))))


def facts_text(facts: Sequence[KeyFact]) -> str:
    """Return key facts as lists by kind; nothing if there are none."""
    return f"{_HEADING}\n{digest(facts)}" if facts else ""
