"""What changed since the version that a caller expected, for VERSION_CONFLICT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weftline.history.model import ChangeKind
from weftline.history.text_diff import DiffBudget, text_diff
from weftline.kernel.clock import from_micros

if TYPE_CHECKING:
    from weftline.history.model import Author, Version

# An agent that meets a conflict has to read it: short, and cheap to compute.
_MAX_CHARACTERS = 600
_MAX_STEPS = 20_000
# Longer values are not compared: a conflict is answered on the event loop.
_MAX_COMPARED = 20_000


def changed_by(author: Author, at: int) -> dict[str, Any]:
    """Return who made a change, and when."""
    return {"changed_by": author.participant, "agent_id": author.principal_id, "changed_at": from_micros(at)}


def last_change(version: Version, before: Version | None = None) -> dict[str, Any]:
    """Return who made the current version and when, and how its value differs from an earlier one.

    Only of versions that the caller may read.
    """
    about: dict[str, Any] = {
        "changed_by": version.author,
        "agent_id": version.principal_id,
        "changed_at": from_micros(version.committed_at),
    }
    if version.change.act is not ChangeKind.WRITE:
        return about | {"change": version.change.act}
    if before is None or before.value is None or version.value is None:
        return about
    if max(len(before.value), len(version.value)) > _MAX_COMPARED:
        return about
    diff = text_diff(before.value, version.value, DiffBudget(_MAX_STEPS, _MAX_CHARACTERS))
    return about | {"diff": diff.text, **({"omitted_lines": diff.omitted_lines} if diff.omitted_lines else {})}
