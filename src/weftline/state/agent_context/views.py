"""Response types of an agent's context: definition and entries."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from weftline.history.composite_lines import PartVersion, part_states_apart
from weftline.history.model import ChangeKind, VersionPruned, is_metadata, metadata_key
from weftline.history.object_storage import Pointer
from weftline.history.three_way import same_content, state_by_key
from weftline.kernel.clock import from_micros
from weftline.kernel.json_input import raw_json
from weftline.kernel.operation import Response
from weftline.safety.guardrails.model import Guardrail
from weftline.safety.trust.model import TrustInfo, trust_info
from weftline.state.agent_context.model import EntryAddress

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from weftline.history.lines import LineStore
    from weftline.history.model import Change, StoredCommit, Version
    from weftline.state.agent_context.sql import SnapshotStore


# Limit of inlined values; larger entries are read one by one.
_MAX_INLINE_BYTES = 262_144
_PART_BATCH = 200


class AgentDefinition(Response, omit_defaults=False):
    """An agent's definition, which the agent itself cannot change."""

    role: str | None = None
    system_prompt: str | None = None
    guardrails: list[Guardrail] = msgspec.field(default_factory=list)
    config: dict[str, Any] = msgspec.field(default_factory=dict)


def persona_text(role: str | None, system_prompt: str | None) -> str:
    """Return what the persona layer of an agent's prompts says, by its definition."""
    return "\n\n".join(filter(None, (f"Role: {role}" if role else "", system_prompt))).strip()


class ContextEntry(Response):
    """One entry of an agent's memory. ``hash`` is the SHA-256 of the value.

    ``truncated`` if the value or its metadata is too large for this answer: read the entry by its key.
    ``pruned`` if history no longer has the value.
    """

    key: str
    memory_type: str
    version: int
    size: int
    written_by: str
    written_at: datetime
    hash: str = ""
    workflow_id: str | None = None
    media_type: str | None = None
    value: Any = msgspec.UNSET
    base64: bytes | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    truncated: bool = False
    pruned: bool = False
    trust: TrustInfo | None = None


class PersistedEntry(NamedTuple):
    """An entry with its version, and the version of its metadata."""

    place: EntryAddress
    version: Version
    metadata: Version | None = None

    @property
    def versions(self) -> tuple[Version, ...]:
        """The version of the value, then that of the metadata."""
        return (self.version,) if self.metadata is None else (self.version, self.metadata)

    def place_of(self, version: Version) -> EntryAddress:
        return EntryAddress(self.place.part, version.change.key)


class _Shown(NamedTuple):
    """The text of a version in an answer, or why it is missing: too large, or pruned."""

    text: str | None
    is_omitted: bool
    is_pruned: bool


async def entries_of(lines: LineStore, part: str, at: PartVersion) -> list[PersistedEntry]:
    """Return every entry of a part, by key, without values."""
    return _stored_entries(part, await lines.state_at(at.line, at.seq, values=False))


async def first_entries(
    snapshots: SnapshotStore, lines: LineStore, parts: Mapping[str, PartVersion], at_most: int
) -> list[PersistedEntry]:
    """Return entries of parts without values, ordered by part and key; stops after ``at_most`` are exceeded."""
    found: list[PersistedEntry] = []
    names = list(parts)
    for start in range(0, len(names), _PART_BATCH):
        some = names[start : start + _PART_BATCH]
        states = await snapshots.states([parts[name] for name in some], lines)
        found += [entry for name, state in zip(some, states, strict=True) for entry in _stored_entries(name, state)]
        if len(found) > at_most:
            break
    return found


def _stored_entries(part: str, versions: Sequence[Version]) -> list[PersistedEntry]:
    state = state_by_key(versions)
    keys = sorted(key for key in state if not is_metadata(key))
    return [PersistedEntry(EntryAddress(part, key), state[key], state.get(metadata_key(key))) for key in keys]


async def definition_at(lines: LineStore, at: PartVersion | None) -> AgentDefinition:
    if at is None:
        return AgentDefinition()
    return definition_of(state_by_key(await lines.state_at(at.line, at.seq)))


def definition_of(state: Mapping[str, Version]) -> AgentDefinition:
    """Return the definition in a state of its line."""
    return msgspec.convert({key: _decoded(version) for key, version in state.items()}, AgentDefinition)


def _decoded(version: Version) -> Any:  # noqa: ANN401 - any JSON
    if version.value is None:
        raise VersionPruned(f"The agent's {version.change.key} of that version was pruned.")
    return msgspec.json.decode(version.value)


async def render_entries(entries: Sequence[PersistedEntry], snapshots: SnapshotStore) -> list[ContextEntry]:
    """Return entries, with values as long as they fit in the answer."""
    fitting = _fitting(entries)
    texts = await snapshots.values(
        version.change.blob_hash
        for entry in entries
        for version in entry.versions
        # A value in object storage is a small pointer here.
        if version.change.blob_hash and (entry.place_of(version) in fitting or version.change.meta.outside)
    )
    return [_entry(each, texts, fitting) for each in entries]


def _fitting(entries: Iterable[PersistedEntry]) -> set[EntryAddress]:
    """Return the addresses of the values and metadata that fit in an answer."""
    room, fitting = _MAX_INLINE_BYTES, set()
    for entry in entries:
        for version in entry.versions:
            meta = version.change.meta
            if not meta.outside and meta.size <= room:
                room -= meta.size
                fitting.add(entry.place_of(version))
    return fitting


def with_value(entry: ContextEntry, content: bytes) -> ContextEntry:
    """Return an entry with the value that it was shown without."""
    if entry.media_type is None:
        return msgspec.structs.replace(entry, value=raw_json(content.decode()), truncated=False)
    return msgspec.structs.replace(entry, base64=content, truncated=False)


def _entry(entry: PersistedEntry, texts: Mapping[bytes, str], fitting: AbstractSet[EntryAddress]) -> ContextEntry:
    change = entry.version.change
    value, *metadata = (_shown(each, texts, is_wanted=entry.place_of(each) in fitting) for each in entry.versions)
    return ContextEntry(
        key=entry.place.key,
        memory_type=entry.place.memory_type,
        workflow_id=entry.place.workflow_id,
        version=change.version,
        size=change.meta.size,
        hash=_hash(entry.version, texts),
        written_by=entry.version.author,
        written_at=from_micros(entry.version.committed_at),
        media_type=change.meta.media_type,
        value=msgspec.UNSET if value.text is None else raw_json(value.text),
        metadata=next((raw_json(each.text) for each in metadata if each.text is not None), {}),
        truncated=not value.is_pruned and any(each.is_omitted for each in (value, *metadata)),
        pruned=value.is_pruned,
        trust=trust_info(change.meta.trust),
    )


def _shown(version: Version, texts: Mapping[bytes, str], *, is_wanted: bool) -> _Shown:
    text = texts.get(version.change.blob_hash or b"")
    if version.change.meta.outside:
        return _Shown(None, is_omitted=True, is_pruned=text is None)
    return _Shown(text if is_wanted else None, is_omitted=not is_wanted, is_pruned=is_wanted and text is None)


def _hash(version: Version, texts: Mapping[bytes, str]) -> str:
    """Return the hash of a value; for one in object storage it is in the pointer, unless that was pruned."""
    value_hash = version.change.blob_hash or b""
    if not version.change.meta.outside:
        return value_hash.hex()
    return Pointer.decode(texts[value_hash]).sha256 if value_hash in texts else ""


# Differences between two versions of an agent's context.


class EntryDiff(NamedTuple):
    """An entry that differs; None where it does not exist."""

    place: EntryAddress
    before: Version | None
    after: Version | None


class EntryChange(NamedTuple):
    """One change of one entry, and the commit that made it."""

    place: EntryAddress
    act: str
    version: int
    commit: StoredCommit


def count_changes(changes: Iterable[Change]) -> dict[str, int]:
    """Return the numbers of added, updated and removed entries."""
    counts = {"added": 0, "updated": 0, "removed": 0}
    for change in changes:
        written = "added" if change.version == 1 else "updated"
        counts[written if change.act is ChangeKind.WRITE else "removed"] += 1
    return counts


async def changed_entries(
    lines: LineStore, before: Mapping[str, PartVersion], after: Mapping[str, PartVersion]
) -> list[EntryDiff]:
    """Return the entries in which two versions differ, part by part. Unchanged parts are not read."""
    found: list[EntryDiff] = []
    for part in sorted(before.keys() | after.keys()):
        then, now = before.get(part), after.get(part)
        if then == now:
            continue
        was, is_ = await part_states_apart(lines, then, now, values=False)
        keys = [key for key in sorted(was.keys() | is_.keys()) if not is_metadata(key)]
        found += [
            EntryDiff(EntryAddress(part, key), was.get(key), is_.get(key))
            for key in keys
            if not same_content(was.get(key), is_.get(key))
        ]
    return found


async def changes_between(
    lines: LineStore, before: Mapping[str, PartVersion], after: Mapping[str, PartVersion], limit: int
) -> list[EntryChange]:
    """Return the changes between two versions, newest first in each part, up to a limit."""
    found: list[EntryChange] = []
    for part, now in sorted(after.items()):
        begin = before[part].seq if part in before else 0
        if now.seq > begin and len(found) < limit:
            commits = await lines.log(now.line, now.seq, min(limit, now.seq - begin))
            found += [step for commit in commits if commit.commit.seq > begin for step in _steps(part, commit)]
    return found[:limit]


def _steps(part: str, recorded: StoredCommit) -> Iterator[EntryChange]:
    for change in recorded.commit.changes:
        if not is_metadata(change.key):
            yield EntryChange(EntryAddress(part, change.key), change.act, change.version, recorded)
