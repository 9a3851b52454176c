"""Sealed contents: what every reader gets of a redacted message or version, and what it was, for auditors.

Board, transcript, windows, memories and histories show what is stored, so the redacted text is stored in the place of
the content. Nothing that reads has to know of redactions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from weftline.history.item_ids import MessageItemId, VersionId
from weftline.history.line_kinds import is_composite, is_main_board, is_signed, kind_of, names_in, prefix_of, session_of
from weftline.history.lines import LineStore
from weftline.history.model import (
    Change,
    ChangeKind,
    Version,
    blob_hash,
    is_metadata,
    metadata_key,
    trunk_of,
)
from weftline.kernel.json_input import NO_METADATA
from weftline.records.refs import content_digest
from weftline.records.sql import RecordStore
from weftline.safety.redaction import Masker
from weftline.sessions.messages.store import MessageStore
from weftline.state.board.sql import EntryStore
from weftline.state.memory.model import scope_of
from weftline.state.memory.sql import MemoryStore
from weftline.windows.line_events import REMOVED, redact_event
from weftline.windows.model import (
    ORIGIN_MARK,
    PREFIX,
    content_key,
    decode_event,
    encode_event,
    is_content,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weftline.history.store import OriginalVersion
    from weftline.records.schemas import Redaction
    from weftline.sessions.messages.model import Message

_WINDOW = f"{PREFIX}:"
_encode = msgspec.json.Encoder().encode


class OriginalContent(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a redacted message or version was: its text, and its metadata as JSON text."""

    content: str
    metadata: str | None = None

    @property
    def has_something_to_mask(self) -> bool:
        mask, metadata = Masker(), msgspec.json.decode(self.metadata or NO_METADATA)
        return bool(mask.text(self.content) != self.content or mask.value(metadata) != metadata)


_decode_original = msgspec.json.Decoder(OriginalContent).decode


class SealedContents(msgspec.Struct, frozen=True):
    """Seals and reads the contents of messages and versions, in one transaction."""

    lines: LineStore
    messages: MessageStore
    entries: EntryStore
    memories: MemoryStore
    records: RecordStore

    async def copies(self, item_id: str) -> list[VersionId]:
        """Return the copies of a window event in other windows of its session, each in its newest version.

        Sub-agents inherit events, also those of a window that is shared or was deleted since, and a checkpoint is
        restored into another window: a copy names its origin.
        """
        name = VersionId.parse(item_id)
        if name is None or not name.line_id.startswith(_WINDOW):
            return []
        session = f"{_WINDOW}{names_in(name.line_id)[0]}:"
        keys = await self.lines.copied_keys(session, name.key, ORIGIN_MARK)
        places = {(trunk_of(line_id), key) for line_id, key in keys}
        found: list[VersionId] = []
        for line_id, key in sorted(places):
            versions = await self.lines.originals(line_id, key)
            origins = [decode_event(each.line_id, _as_version(each), None).origin for each in versions]
            parsed = [VersionId.parse(origin) for origin in origins if origin is not None]
            if any(each is not None and _event(each) == _event(name) for each in parsed):
                newest = max(versions, key=lambda each: (each.line_id == line_id, each.seq))
                found.append(VersionId(newest.line_id, key, newest.incarnation, newest.version))
        return found

    async def original(self, item_id: str) -> OriginalContent | None:
        """Return what an item was; None if it has no content, or is a record."""
        message, version = MessageItemId.parse(item_id), VersionId.parse(item_id)
        if message is not None:
            return await self._original_message(message)
        written = None if version is None else await self._written(version)
        if version is None or written is None:
            return None
        text = await self._event_text(version, written) or written.value
        return OriginalContent(text, await self._memory_metadata(version, written))

    async def seal(self, redaction: Redaction, original: OriginalContent) -> Redaction:
        """Store the redacted content in the place of the original; return the redaction with what it keeps.

        Definitions and layers are signed, and agents are bound by them as they are: only records hide them.
        """
        message, version = MessageItemId.parse(redaction.record_id), VersionId.parse(redaction.record_id)
        if redaction.state == "encrypted_ref":
            redaction = structs.replace(redaction, replacement=redaction.reference(content_digest(original.content)))
        if message is not None:
            await self._seal_message(message, redaction, original)
        elif version is not None and not is_signed(version.line_id):
            await self._seal_version(version, redaction, original)
        is_kept = redaction.state != "none" and (message is not None or original.metadata is not None)
        return structs.replace(redaction, original=_encode(original)) if is_kept else redaction

    async def _original_message(self, name: MessageItemId) -> OriginalContent | None:
        kept, found = await self.records.original(str(name)), await self.messages.find(*name)
        if kept is not None:
            return _decode_original(kept)
        return None if found is None else OriginalContent(found.content, found.metadata)

    async def _seal_message(self, name: MessageItemId, redaction: Redaction, original: OriginalContent) -> None:
        message = await self.messages.find(*name)
        if message is not None:
            await self.messages.rewrite(name.session_id, _redacted_message(message, redaction, original))

    async def _seal_version(self, name: VersionId, redaction: Redaction, original: OriginalContent) -> None:
        scope = scope_of(name.line_id)
        if scope is not None:
            # The owner before the line, as writes of memory do.
            await self.memories.lock(scope.owner)
        await self._lock_all(name.line_id)
        written = await self._written(name)
        if written is None:
            return
        # Window events are redacted in all versions. Of other keys, a rollback may have written the value again.
        is_event = name.line_id.startswith(_WINDOW)
        for version in await self.lines.originals(name.line_id, name.key):
            if is_event or version.hash == written.hash:
                await self._seal(version, redaction)
        for key in (content_key(name.key),) if is_event else (metadata_key(name.key),):
            for version in await self.lines.originals(name.line_id, key):
                if is_event or version.hash.hex() == written.meta.metadata_hash:
                    await self._seal(version, redaction)
        await self._seal_memory(name, written, original.metadata if redaction.state == "none" else None)

    async def _lock_all(self, line_id: str) -> None:
        """Lock a line, its branches and what it is a part of: rollbacks and merges write what they have read there."""
        trunk = trunk_of(line_id)
        root = f"{prefix_of(trunk)}:{names_in(trunk)[0]}"
        # The whole before its parts, as writes do.
        for each in (root, trunk) if is_composite(root) and root != trunk else (trunk,):
            for name in (each, *(branch.head.line_id for branch in await self.lines.branches(each))):
                await self.lines.lock(name)

    async def _seal(self, version: OriginalVersion, redaction: Redaction) -> None:
        shown = None if redaction.state == "none" else _shown_value(version, redaction)
        if shown is None:
            await self.lines.unseal(version)
        else:
            # What is shown in place of an object is JSON of its kind of line.
            media_type = None if version.meta.outside else version.meta.media_type
            meta = structs.replace(version.meta, outside=False, media_type=media_type, metadata_hash=None)
            await self.lines.seal(version, shown, meta)
        if not is_main_board(version.line_id):
            return
        session_id = session_of(version.line_id)
        entry = await self.entries.get(session_id, version.key)
        if entry is not None and (entry.incarnation, entry.version) == (version.incarnation, version.version):
            shown_hash = version.hash if shown is None else blob_hash(shown)
            await self.entries.put(session_id, structs.replace(entry, blob_hash=shown_hash))

    async def _memory_metadata(self, name: VersionId, written: OriginalVersion) -> str | None:
        """Return the metadata that the current entry of a private memory has, or had before its redaction."""
        scope = scope_of(name.line_id)
        if scope is None:
            return None
        kept, entry = await self.records.original(str(name)), await self.memories.get(scope, name.key)
        if kept is not None:
            return _decode_original(kept).metadata
        is_current = entry is not None and (entry.incarnation, entry.version) == (written.incarnation, written.version)
        return entry.metadata if entry is not None and is_current else None

    async def _seal_memory(self, name: VersionId, written: OriginalVersion, metadata: str | None) -> None:
        """Show the current entry of a private memory as its version is shown, with this metadata."""
        scope = scope_of(name.line_id)
        entry = None if scope is None else await self.memories.get(scope, name.key)
        if scope is None or entry is None:
            return
        current = await self._written(VersionId(name.line_id, name.key, entry.incarnation, entry.version))
        if current is not None and current.hash == written.hash:
            shown = structs.replace(entry, blob_hash=current.shown_hash, metadata=metadata)
            await self.memories.adjust(scope.owner, shown.weight - entry.weight, 0)
            await self.memories.put(scope, shown)

    async def _written(self, name: VersionId) -> OriginalVersion | None:
        """Return a version as it was written; None if its value is gone."""
        numbers = name.line_id, name.incarnation, name.version
        versions = await self.lines.originals(name.line_id, name.key)
        return next((each for each in versions if (each.line_id, each.incarnation, each.version) == numbers), None)

    async def _event_text(self, name: VersionId, written: OriginalVersion) -> str | None:
        """Return the text of a window event; None for other versions."""
        if not name.line_id.startswith(_WINDOW):
            return None
        contents = await self.lines.originals(name.line_id, content_key(name.key))
        before = [each for each in contents if each.line_id == written.line_id and each.seq <= written.seq]
        event = decode_event(name.line_id, _as_version(written), before[-1].value if before else None)
        return event.message.content


def _event(name: VersionId) -> tuple[str, str]:
    """Return the event that a version is of, on whatever branch of its window."""
    return trunk_of(name.line_id), name.key


def _redacted_message(message: Message, redaction: Redaction, original: OriginalContent) -> Message:
    if redaction.state == "none":
        return structs.replace(message, content=original.content, metadata=original.metadata or NO_METADATA)
    if redaction.state != "masked":
        return structs.replace(message, content=redaction.replacement or REMOVED, metadata=NO_METADATA)
    mask = Masker()
    content = mask.text(original.content)
    metadata: Mapping[str, object] = mask.value(msgspec.json.decode(original.metadata or NO_METADATA))
    return structs.replace(message, content=content, metadata=_encode(metadata).decode())


def _shown_value(version: OriginalVersion, redaction: Redaction) -> str:
    """Return the stored form of what readers see instead of a value."""
    line_id, text = version.line_id, version.value
    if is_metadata(version.key):
        return "{}"
    if is_content(version.key) and line_id.startswith(_WINDOW):
        return _shown_text(text, redaction)
    if line_id.startswith(_WINDOW):
        event = decode_event(line_id, _as_version(version), None)
        return encode_event(redact_event(event, redaction))[0]
    if kind_of(line_id).is_text(version.meta.media_type):
        return _shown_text(text, redaction)
    if redaction.state == "masked" and not version.meta.outside:
        return _encode(Masker().value(msgspec.json.decode(text))).decode()
    return _encode(redaction.replacement or REMOVED).decode()


def _shown_text(text: str, redaction: Redaction) -> str:
    return Masker().text(text) if redaction.state == "masked" else redaction.replacement or REMOVED


def _as_version(version: OriginalVersion) -> Version:
    change = Change(version.key, version.incarnation, version.version, ChangeKind.WRITE, version.hash, version.meta)
    return Version(change, version.seq, "", 0, version.value)
