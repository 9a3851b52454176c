"""Restores entries and parts of a context from earlier versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weftline.history.composite_lines import PART_MARK, PartVersion, part_states_apart
from weftline.history.model import ChangeMeta, LineNotFound, VersionPruned, is_metadata, metadata_key
from weftline.history.three_way import same_content
from weftline.kernel.errors import InvalidInput
from weftline.state.agent_context.model import (
    DEFINITION,
    ContextLine,
    EntryText,
    check_value_size,
    is_overdue,
    text_of_version,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from weftline.history.model import Point, Version
    from weftline.state.agent_context.service import OpenContext, OpenPart


async def restore_entries(
    part: OpenPart, state: Mapping[str, Version | None], known: Mapping[str, Version | None] | None = None
) -> None:
    """Restore entries of a part from these versions (None: delete the entry) with the next commit.

    Metadata is restored together with its value. Entries beyond retention are not restored. ``known`` are current
    entries, as far as the caller has looked them up.
    """
    state = {key: version for key, version in sorted(state.items()) if not is_metadata(key)}
    await part.load([name for key in state for name in (key, metadata_key(key))], known or {})
    metadata = await _metadata(part, state.values())
    for key, version in state.items():
        if version is None or is_overdue(version, part.expired_before):
            await part.delete(metadata_key(key))
            await part.delete(key)
            continue
        value = text_of_version(version)
        if value is None:
            raise _pruned(key)
        check_value_size(value.meta.size, key)
        if await part.write(key, value):
            await _restore_metadata(part, key, value.meta.metadata_hash, metadata)


async def _metadata(part: OpenPart, versions: Iterable[Version | None]) -> Mapping[bytes, str]:
    """Return the texts of the metadata that versions have, by hash."""
    hashes = [version.change.meta.metadata_hash for version in versions if version is not None]
    return await part.context.service.snapshots.values([bytes.fromhex(each) for each in hashes if each is not None])


async def _restore_metadata(part: OpenPart, key: str, metadata_hash: str | None, metadata: Mapping[bytes, str]) -> None:
    if metadata_hash is None:
        await part.delete(metadata_key(key))
        return
    text = metadata.get(bytes.fromhex(metadata_hash))
    if text is None:
        raise _pruned(key)
    # Written again, so that it expires with its value.
    await part.write(metadata_key(key), EntryText(text, ChangeMeta(size=len(text.encode()))), force=True)


def _pruned(key: str) -> VersionPruned:
    return VersionPruned(f"The value of '{key}' in that version was pruned.", key=key)


async def restore_parts(
    context: OpenContext, state: Mapping[str, Version | None], merged: Point | None
) -> list[OpenPart]:
    """Restore parts to the versions in these root entries, and return them.

    A merge may also restore single entries, by PART/KEY; no part name contains a slash.
    """
    # The definition has no branches: neither a merge nor a branch changes it.
    with_definition = merged is None and context.line.branch is None
    names = {name.partition(PART_MARK)[0] for name in state}
    parts = [await context.part(name) for name in sorted(names) if name != DEFINITION or with_definition]
    for part in parts:
        if part.name in state:
            await _restore_part(part, state[part.name])
        await restore_entries(part, _entries_of(part.name, state))
        part.merged = None if merged is None else await _named_at(part, merged)
    return parts


async def _restore_part(part: OpenPart, named: Version | None) -> None:
    target = None if named is None else await _checked(part, named)
    ours, theirs = await part_states_apart(part.context.service.lines, part.at, target, values=True)
    keys = ours.keys() | theirs.keys()
    changed = {key: theirs.get(key) for key in keys if not same_content(ours.get(key), theirs.get(key))}
    await restore_entries(part, changed, {key: ours.get(key) for key in keys})


def _entries_of(part: str, state: Mapping[str, Version | None]) -> dict[str, Version | None]:
    prefix = part + PART_MARK
    return {name.removeprefix(prefix): version for name, version in state.items() if name.startswith(prefix)}


async def _named_at(part: OpenPart, root: Point) -> Point | None:
    """Return the version of a part in a version of the whole context, if it has the part."""
    named = await part.context.service.lines.latest(root.line_id, part.name, root.seq)
    return None if named is None else PartVersion.named_by(named).point


async def _checked(part: OpenPart, named: Version) -> PartVersion:
    """Parse and check the part version in a root entry; a manual merge decision may contain anything."""
    try:
        target = PartVersion.named_by(named)
        line, point = ContextLine.parse(target.line), target.point
    except (msgspec.MsgspecError, ValueError, LineNotFound) as error:
        raise _not_of(part) from error
    commit = await part.context.service.lines.commit_at(point.line_id, point.seq)
    if (line.owner, line.part) != (part.line.owner, part.name) or commit is None or commit.hash != point.hash:
        raise _not_of(part)
    return target


def _not_of(part: OpenPart) -> InvalidInput:
    return InvalidInput(f"{part.name}: must be a version of a part of the same context")
