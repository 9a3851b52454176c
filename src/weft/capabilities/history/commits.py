"""Adding to a line: the commit itself, and the moments that get a name without anybody asking."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from weft.capabilities.history.model import Tag
from weft.kernel.errors import InvalidInput
from weft.kernel.ids import is_name

if TYPE_CHECKING:
    from weft.capabilities.history.model import Commit, Head
    from weft.capabilities.history.store import LineStore

_MEANS_A_VERSION = re.compile(r"(?:head|latest|v?[0-9]+)\Z")
_NAMED_BY_ITSELF = re.compile(r"(?:before|after)-.+-v[0-9]+(?:-[0-9]+)?\Z")


async def record(
    lines: LineStore, head: Head, commit: Commit, *, weight: int, next_expiry_at: int | None = None
) -> Head:
    """Add a commit behind the head. Where a workflow goes on to its next step, what the last one left gets a name."""
    if commit.step is not None and head.step not in {None, commit.step}:
        await tag_automatically(lines, head, f"after-{head.step}", commit.author.participant, commit.committed_at)
    return await lines.append(head, commit, weight=weight, next_expiry_at=next_expiry_at)


async def tag_automatically(lines: LineStore, head: Head, occasion: str, by: str, now: int) -> str:
    """Name the present state of a line before it is changed in a way one may want to take back; return the name."""
    label = name = f"{occasion[:70]}-v{head.seq}"
    further = 1
    while not await _is_named(lines, head.line_id, Tag(label, head.seq, by, now, automatic=True)):
        further += 1
        label = f"{name}-{further}"
    return label


def check_label(label: str) -> None:
    """Refuse what cannot be a snapshot's name, and names of the form that moments get by themselves."""
    if not is_name(label):
        raise InvalidInput("label: use letters, digits, underscores and dashes, at most 100", field="label")
    if _MEANS_A_VERSION.match(label):
        raise InvalidInput(f"label: '{label}' names a version already; choose another", field="label")
    if _NAMED_BY_ITSELF.match(label):
        raise InvalidInput(
            "label: before-...-vN and after-...-vN are names that Weft gives; choose another", field="label"
        )


async def _is_named(lines: LineStore, line_id: str, tag: Tag) -> bool:
    """Give a moment a name, unless it has that already; False if another moment has it."""
    if await lines.tag(line_id, tag):
        return True
    taken = await lines.find_tag(line_id, tag.label)
    return taken is not None and taken.seq == tag.seq
