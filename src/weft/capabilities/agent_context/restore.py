"""Restores entries and parts of a context from earlier versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weft.capabilities.agent_context.model import DEFINITION, ContextLine, check_value_size, is_overdue
from weft.capabilities.agent_context.values import EntryText, text_of_version
from weft.capabilities.history.composite_lines import PART_MARK, PartVersion, part_states_apart
from weft.capabilities.history.model import ChangeMeta, LineNotFound, VersionPruned, is_metadata, metadata_key
from weft.capabilities.history.three_way import same_content
from weft.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.capabilities.agent_context.service import OpenContext, OpenPart
    from weft.capabilities.history.model import Point, Version


async def restore_entries(part: OpenPart, state: Mapping[str, Version | None]) -> None:
    """Have entries of a part say what these versions said (None: have them go), with the next commit.

    What was said about a value comes with it from the same side, and never by itself. What retention has ended does
    not come back, whatever the version that still has it is called.
    """
    for key, version in sorted(state.items()):
        if is_metadata(key):
            continue
        if version is None or is_overdue(version, part.ended_before):
            await part.delete(metadata_key(key))
            await part.delete(key)
            continue
        said = text_of_version(version)
        if said is None:
            raise _pruned(key)
        check_value_size(said.meta.size, key)
        if await part.write(key, said):
            await _take_over_metadata(part, key, said.meta.metadata_hash)


async def _take_over_metadata(part: OpenPart, key: str, metadata_hash: str | None) -> None:
    if metadata_hash is None:
        await part.delete(metadata_key(key))
        return
    texts = await part.context.needs.snapshots.values([bytes.fromhex(metadata_hash)])
    if not texts:
        raise _pruned(key)
    (text,) = texts.values()
    # Anew, so that it lasts as long as the value it belongs to.
    await part.write(metadata_key(key), EntryText(text, ChangeMeta(size=len(text.encode()))), anew=True)


def _pruned(key: str) -> VersionPruned:
    return VersionPruned(f"What '{key}' said then is no longer kept.", key=key)


async def restore_parts(
    context: OpenContext, state: Mapping[str, Version | None], merged: Point | None
) -> list[OpenPart]:
    """Have parts say what they said where these versions of the root name them; return those parts.

    A merge may also bring single entries, by the name PART/KEY. No part has a slash in its name.
    """
    # What an agent is has no branches, so a merge brings none of it, and a branch has none of it to take back.
    with_definition = merged is None and context.line.branch is None
    names = {name.partition(PART_MARK)[0] for name in state}
    parts = [await context.part(name) for name in sorted(names) if name != DEFINITION or with_definition]
    for part in parts:
        if part.name in state:
            await _take_over_whole(part, state[part.name])
        await restore_entries(part, _entries_of(part.name, state))
        part.merged = None if merged is None else await _named_at(part, merged)
    return parts


async def _take_over_whole(part: OpenPart, named: Version | None) -> None:
    target = None if named is None else await _checked(part, named)
    ours, theirs = await part_states_apart(part.context.needs.lines, part.at, target, values=True)
    keys = ours.keys() | theirs.keys()
    await restore_entries(
        part, {key: theirs.get(key) for key in keys if not same_content(ours.get(key), theirs.get(key))}
    )


def _entries_of(part: str, state: Mapping[str, Version | None]) -> dict[str, Version | None]:
    prefix = part + PART_MARK
    return {name.removeprefix(prefix): version for name, version in state.items() if name.startswith(prefix)}


async def _named_at(part: OpenPart, root: Point) -> Point | None:
    """Return where a part stood at a moment of the whole context, if it was there."""
    named = await part.context.needs.lines.latest(root.line_id, part.name, root.seq)
    return None if named is None else PartVersion.named_by(named).point


async def _checked(part: OpenPart, named: Version) -> PartVersion:
    """Return where a version of the root says this part is; one decided by hand may say anything."""
    try:
        target = PartVersion.named_by(named)
        line, point = ContextLine.parse(target.line), target.point
    except (msgspec.MsgspecError, ValueError, LineNotFound) as error:
        raise _not_of(part) from error
    commit = await part.context.needs.lines.commit_at(point.line_id, point.seq)
    if (line.owner, line.part) != (part.line.owner, part.name) or commit is None or commit.hash != point.hash:
        raise _not_of(part)
    return target


def _not_of(part: OpenPart) -> InvalidInput:
    return InvalidInput(f"{part.name}: a whole context names versions of its own parts, and nothing else")
