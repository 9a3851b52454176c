"""Which moment of a line a caller means."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import msgspec

from weft.capabilities.history.model import EMPTY, Point, VersionNotFound
from weft.kernel.ids import is_name

if TYPE_CHECKING:
    from weft.capabilities.history.store import LineStore

VersionName = Annotated[
    str,
    msgspec.Meta(min_length=1, max_length=100, description="A version's number, a snapshot's label, or head."),
]
HEADS = frozenset({"head", "latest"})
_NUMBER = re.compile(r"[0-9]{1,16}\Z")


async def moment_named(lines: LineStore, head: Point, name: str) -> Point:
    """Return the moment of a line that a number or a label stands for."""
    if name in HEADS:
        return head
    seq = int(name) if _NUMBER.match(name) else await _labelled(lines, head.line_id, name)
    if seq == 0:
        return Point(head.line_id, 0, EMPTY)
    commit = await lines.commit_at(head.line_id, seq) if seq is not None else None
    if seq is None or commit is None:
        raise VersionNotFound(f"There is no version '{name[:100]}'.", resource_type="version", resource_id=name[:100])
    return Point(head.line_id, seq, commit.hash)


async def _labelled(lines: LineStore, line_id: str, label: str) -> int | None:
    tag = await lines.find_tag(line_id, label) if is_name(label) else None
    return None if tag is None else tag.seq
