"""Append commits to a line, and tag versions automatically before changes that someone may want to undo."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from weftline.history.line_kinds import label_agent
from weftline.history.model import SnapshotExists, Tag
from weftline.history.snapshot_quota import snapshot_owner
from weftline.kernel.errors import InvalidInput
from weftline.kernel.fields import is_name

if TYPE_CHECKING:
    from weftline.history.line_kinds import EditProof
    from weftline.history.lines import LineStore
    from weftline.history.model import Commit, Head
    from weftline.kernel.identity import Actor

_VERSION_NAME = re.compile(r"(?:head|latest|v?[0-9]+)\Z")
_AUTOMATIC_LABEL = re.compile(r"(?:(?:before|after)-.+|autosave(?:-.+)?)-v[0-9]+(?:-[0-9]+)?\Z")


async def record(
    lines: LineStore,
    head: Head,
    commit: Commit,
    *,
    weight: int,
    next_expiry_at: int | None = None,
    proof: EditProof | None = None,
) -> Head:
    """Append a commit. When the workflow step changes, the last version of the previous step is tagged."""
    if commit.step is not None and head.step not in {None, commit.step}:
        await tag_automatically(lines, head, f"after-{head.step}", commit.author.participant, commit.committed_at)
    return await lines.append(head, commit, weight=weight, next_expiry_at=next_expiry_at, proof=proof)


async def tag_automatically(lines: LineStore, head: Head, occasion: str, by: str, now: int) -> str:
    """Tag the head and return the label; a number is added if another version has it."""
    agent = label_agent(head.line_id)
    base = f"{occasion[:70]}-v{head.seq}" if agent is None else f"{occasion[:40]}-{agent[:40]}-v{head.seq}"
    label = base
    number = 1
    while not await _tag(lines, head.line_id, Tag(label, head.seq, by, now, automatic=True)):
        number += 1
        label = f"{base}-{number}"
    return label


async def add_snapshot(lines: LineStore, head: Head, label: str, actor: Actor, now: int) -> Tag:
    """Tag the head with a label that a caller chose; raises SnapshotExists if it is taken.

    The caller checks the quota of snapshots after the event.
    """
    check_label(label)
    tag = Tag(label, head.seq, actor.participant, now, owner=snapshot_owner(head.line_id, actor))
    if not await lines.tag(head.line_id, tag):
        raise SnapshotExists(f"There is already a snapshot '{label}'.", resource_id=label)
    return tag


def check_label(label: str) -> None:
    """Refuse labels that are not names, that look like version numbers, or that Weftline gives automatically."""
    if not is_name(label):
        raise InvalidInput("label: use letters, digits, underscores and dashes, at most 100", field="label")
    if _VERSION_NAME.match(label):
        raise InvalidInput(f"label: '{label}' already names a version; choose another", field="label")
    if _AUTOMATIC_LABEL.match(label):
        raise InvalidInput(
            "label: before-...-vN, after-...-vN and autosave-...-vN are reserved for automatic ones; choose another",
            field="label",
        )


async def _tag(lines: LineStore, line_id: str, tag: Tag) -> bool:
    """Add a tag; True also if the same version already has it, False if another version does."""
    if await lines.tag(line_id, tag):
        return True
    taken = await lines.find_tag(line_id, tag.label)
    return taken is not None and taken.seq == tag.seq
