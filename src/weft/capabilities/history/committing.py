"""Adding to a line: the commit itself, and the moments that get a name without anybody asking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.capabilities.history.model import Tag

if TYPE_CHECKING:
    from weft.capabilities.history.model import Commit, Head
    from weft.capabilities.history.store import LineStore


async def record(
    lines: LineStore, head: Head, commit: Commit, *, weight: int, next_expiry_at: int | None = None
) -> Head:
    """Add a commit behind the head. Where a workflow goes on to its next step, what the last one left gets a name."""
    if commit.step is not None and head.step not in {None, commit.step}:
        await keep_moment(lines, head, f"after-{head.step}", commit.author.participant, commit.committed_at)
    return await lines.append(head, commit, weight=weight, next_expiry_at=next_expiry_at)


async def keep_moment(lines: LineStore, head: Head, occasion: str, by: str, now: int) -> str:
    """Name the present state of a line before it is changed in a way one may want to take back."""
    label = f"{occasion[:80]}-v{head.seq}"
    await lines.tag(head.line_id, Tag(label, head.seq, by, now, automatic=True))
    return label
