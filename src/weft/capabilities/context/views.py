"""How an agent's context is shown: what it is, and the entries of what it knows."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from weft.capabilities.context.model import EntryPlace, is_metadata, metadata_key
from weft.capabilities.history.merging import state_by_key
from weft.capabilities.objects.model import Pointer
from weft.kernel.clock import from_micros
from weft.kernel.given_json import passed_on
from weft.kernel.operation import Response

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weft.capabilities.context.model import PartAt
    from weft.capabilities.context.store import SnapshotStore
    from weft.capabilities.history.model import Version
    from weft.capabilities.history.store import LineStore

# How much of the values an answer carries itself; the rest is read one by one.
_SHOWN_BYTES = 262_144


class AgentDefinition(Response, kw_only=True, omit_defaults=False):
    """What an agent is. Nothing of it is the agent's own to change."""

    role: str | None = None
    system_prompt: str | None = None
    guardrails: list[dict[str, Any]] = msgspec.field(default_factory=list)
    config: dict[str, Any] = msgspec.field(default_factory=dict)


class ContextEntry(Response):
    """One entry of an agent's memory. ``hash`` is the SHA-256 of the value; ``truncated`` if it is not shown here."""

    key: str
    memory_type: str
    version: int
    size: int
    hash: str
    written_by: str
    written_at: datetime
    workflow_id: str | None = None
    media_type: str | None = None
    value: Any = msgspec.UNSET
    base64: bytes | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    truncated: bool = False


class Held(NamedTuple):
    """An entry as history has it: its value, and what was said about it."""

    place: EntryPlace
    version: Version
    about: Version | None = None


async def entries_of(lines: LineStore, part: str, at: PartAt) -> list[Held]:
    """Return every entry of a part, by key, without values."""
    state = state_by_key(await lines.state_at(at.line, at.seq, values=False))
    keys = sorted(key for key in state if not is_metadata(key))
    return [Held(EntryPlace(part, key), state[key], state.get(metadata_key(key))) for key in keys]


async def definition_at(lines: LineStore, at: PartAt | None) -> AgentDefinition:
    if at is None:
        return AgentDefinition()
    said = state_by_key(await lines.state_at(at.line, at.seq))
    return msgspec.convert(
        {key: msgspec.json.decode(version.value or "null") for key, version in said.items()}, AgentDefinition
    )


async def shown(entries: Sequence[Held], snapshots: SnapshotStore) -> list[ContextEntry]:
    """Return entries with as many of their values as fit in an answer, the first ones first."""
    room, inline = _SHOWN_BYTES, set()
    for place, version, _ in entries:
        if not version.change.meta.outside and version.change.meta.size <= room:
            room -= version.change.meta.size
            inline.add(place)
    texts = await snapshots.values(_hashes(entries, inline))
    return [_entry(held, texts, is_shown=held.place in inline) for held in entries]


def with_value(entry: ContextEntry, content: bytes) -> ContextEntry:
    """Return an entry that was shown without its value together with it."""
    if entry.media_type is None:
        return msgspec.structs.replace(entry, value=passed_on(content.decode()), truncated=False)
    return msgspec.structs.replace(entry, base64=content, truncated=False)


def _hashes(entries: Iterable[Held], inline: set[EntryPlace]) -> list[bytes]:
    wanted = [
        version.change.blob_hash
        for held in entries
        for version in (held.version, held.about)
        # What lies outside is small in here: it is what points there.
        if version is not None and (held.place in inline or version.change.meta.outside or version is held.about)
    ]
    return [each for each in wanted if each is not None]


def _entry(held: Held, texts: Mapping[bytes, str], *, is_shown: bool) -> ContextEntry:
    place, version, about = held
    change = version.change
    value_hash = change.blob_hash or b""
    said = texts[value_hash] if is_shown else None
    return ContextEntry(
        key=place.key,
        memory_type=place.memory_type,
        workflow_id=place.workflow_id,
        version=change.version,
        size=change.meta.size,
        hash=Pointer.decode(texts[value_hash]).sha256 if change.meta.outside else value_hash.hex(),
        written_by=version.author,
        written_at=from_micros(version.committed_at),
        media_type=change.meta.media_type,
        value=msgspec.UNSET if said is None else passed_on(said),
        metadata={} if about is None else passed_on(texts[about.change.blob_hash or b""]),
        truncated=not is_shown,
    )
