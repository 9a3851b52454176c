"""The file format of a bundle, written and read as a stream.

A line holds one entry and the digest of it and of the line before, so every byte of a bundle is either fixed or hashed
and the first line that was altered is known. The same lines make NDJSON or, with commas between, one JSON array.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Raw, Struct

from weft.capabilities.records.model import RECORD_TYPES, ContextEnvelope, ContextItem, Producer, Record
from weft.capabilities.records.refs import Digest, Id, Link, Maybe, RecordTime, Uri
from weft.capabilities.records.vocabulary import RecordType, Scope
from weft.capabilities.sessions.model import Pattern, SessionConfig
from weft.kernel.errors import ContentTooLarge, Rejected
from weft.kernel.fields import Count, Name
from weft.kernel.identity import ANYONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

BundleEncoding = Literal["ndjson", "json"]
FORMAT: Final = "weft-bundle"
MAX_LINE_BYTES: Final = 16 * 2**20
# Bundles with these scopes carry what it takes to open their session elsewhere.
SESSION_SCOPES: Final = frozenset({"session", "handoff"})
MAX_PURPOSE: Final = 2_000
_BEGIN, _MIDDLE, _END = b'{"digest":"sha256:', b'","entry":', b"}"
_HEX = 64
_BEFORE_FIRST = b"0" * _HEX
# What stands before the first entry, between two and behind each.
_FRAMES: dict[BundleEncoding, tuple[bytes, bytes, bytes]] = {"ndjson": (b"", b"", b"\n"), "json": (b"[\n", b",\n", b"")}
_ENTRY_AT = len(_BEGIN) + _HEX + len(_MIDDLE)
_DIGITS = frozenset(b"0123456789abcdef")
_encode = msgspec.json.Encoder().encode


class BundleDamaged(Rejected):
    """The bundle is not as it was exported."""

    code = "BUNDLE_DAMAGED"
    hint = "Nothing was imported. Get the bundle once more from whoever exported it, and compare its digest."
    related = ("import_context", "export_context")


class BundleEntry(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="kind"):
    """What one line of a bundle says."""


class BundleHeader(BundleEntry, frozen=True, kw_only=True, tag="header"):
    """What the bundle is, and of what. ``history``: of all that was, not only of what stands."""

    format: Literal["weft-bundle"]
    version: Literal[1]
    bundle_id: Id
    scope: Scope
    schema_version: Literal["0.1.0"]
    created_at: RecordTime
    producer: Producer
    source: Uri
    session_id: Maybe[Id] = UNSET
    turn_id: Maybe[Id] = UNSET
    task_id: Maybe[Id] = UNSET
    tool_call_id: Maybe[Id] = UNSET
    review_id: Maybe[Id] = UNSET
    recipient: Maybe[Id] = UNSET
    policy: Maybe[Link] = UNSET
    history: bool = True


class BundleSession(BundleEntry, frozen=True, kw_only=True, tag="session"):
    """What it takes to open the session elsewhere."""

    session_id: Name
    purpose: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_PURPOSE, pattern=r"^[^\x00]*\Z")]
    metadata: dict[str, Any]
    config: SessionConfig
    created_by: Id
    created_at: RecordTime
    updated_at: RecordTime
    archived_at: Maybe[RecordTime] = UNSET


class StoredInfo(Struct, frozen=True, forbid_unknown_fields=True):
    """By whom a record was made that nothing else is the source of, when, and when it last changed."""

    by: Id
    at: RecordTime
    changed_at: RecordTime


class BundleRecord(BundleEntry, frozen=True, kw_only=True, tag="record"):
    """One record. One that is ``stored`` was made as such; others tell of what the engine keeps anyway."""

    type: RecordType
    record: Raw
    readable_by: tuple[Pattern, ...] = ANYONE
    stored: Maybe[StoredInfo] = UNSET


class BundleContent(BundleEntry, frozen=True, kw_only=True, tag="content"):
    """What the item right before names by digest."""

    digest: Digest
    text: Maybe[str] = UNSET
    base64: Maybe[str] = UNSET

    @classmethod
    def of(cls, content: bytes) -> BundleContent:
        """Return the entry for some bytes: as text if they are any."""
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        try:
            return cls(digest=digest, text=content.decode())
        except UnicodeDecodeError:
            return cls(digest=digest, base64=base64.b64encode(content).decode())

    def bytes(self) -> bytes:
        if isinstance(self.text, str):
            return self.text.encode()
        return base64.b64decode(self.base64 or "", validate=True)


class BundleSnapshot(BundleEntry, frozen=True, kw_only=True, tag="snapshot"):
    """A named moment of the board."""

    label: Name
    seq: Count
    created_by: Id
    created_at: RecordTime
    automatic: bool = False


class BundleSeal(BundleEntry, frozen=True, kw_only=True, tag="seal"):
    """The end: how many entries there are before it, and the digest of the last, which stands for them all."""

    entries: Count
    digest: Digest


AnyBundleEntry = BundleHeader | BundleSession | BundleRecord | BundleContent | BundleSnapshot | BundleSeal
# In which order the kinds come; a content is part of the record before it.
_PLACES: dict[type[BundleEntry], int] = {
    BundleHeader: 0,
    BundleSession: 1,
    BundleRecord: 2,
    BundleContent: 2,
    BundleSnapshot: 3,
    BundleSeal: 4,
}
_entry = msgspec.json.Decoder(AnyBundleEntry)
_records: dict[str, msgspec.json.Decoder[Any]] = {
    name: msgspec.json.Decoder(kind) for name, kind in RECORD_TYPES.items()
}


class BundleWriter:
    """Writes entries as lines, each with its digest."""

    def __init__(self, out: Callable[[bytes], object], form: BundleEncoding = "ndjson") -> None:
        self._out = out
        self._form = form
        self._last = _BEFORE_FIRST
        self.entries = 0
        self.records = 0
        self.bytes = 0

    @property
    def digest(self) -> str:
        """Return the digest of all that was written."""
        return f"sha256:{self._last.decode()}"

    def add(self, entry: AnyBundleEntry) -> None:
        body = _encode(entry)
        if len(body) > MAX_LINE_BYTES - _ENTRY_AT - len(_END):
            raise ContentTooLarge(
                "A part of the bundle is larger than 16 MiB.", hint="Export less at once: a task, or without contents."
            )
        self._last = _chained(self._last, body)
        between = b"" if self._form == "ndjson" else b",\n" if self.entries else b"[\n"
        self._put(
            b"".join((between, _BEGIN, self._last, _MIDDLE, body, _END, b"\n" if self._form == "ndjson" else b""))
        )
        self.entries += 1

    def add_record(
        self, record: Record, readable_by: tuple[str, ...] = ANYONE, stored: Maybe[StoredInfo] = UNSET
    ) -> None:
        self.records += 1
        self.add(BundleRecord(type=record.type, record=Raw(_encode(record)), readable_by=readable_by, stored=stored))

    def seal(self) -> str:
        """End the bundle and return its digest."""
        digest = self.digest
        self.add(BundleSeal(entries=self.entries, digest=digest))
        if self._form == "json":
            self._put(b"\n]\n")
        return digest

    def _put(self, line: bytes) -> None:
        self._out(line)
        self.bytes += len(line)


class BundleLine(NamedTuple):
    """One entry as it was read: where it stands, and its record if it is one."""

    number: int
    offset: int
    entry: AnyBundleEntry
    record: Record | None = None

    def damaged(self, what: str) -> BundleDamaged:
        return damaged(self.number, self.offset, what)


def damaged(number: int, offset: int, what: str) -> BundleDamaged:
    return BundleDamaged(
        f"The bundle is damaged at line {number} (byte {offset}): {what}.", line=number, offset=offset, problem=what
    )


class BundleReader:
    """Reads entries, each checked before it is handed out. ``digest`` is what the seal says, once that was read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._number = self._offset = self._next = 0
        self._in_array = False
        self._goes_on = False
        self._before = self._last = _BEFORE_FIRST
        self._place = -1
        self._named: str | None = None
        self._header: BundleHeader | None = None
        self.entries = 0
        self.records = 0
        self.digest: str | None = None

    def __iter__(self) -> Iterator[BundleLine]:
        """Yield every entry but the seal; whoever got them all without an error has a whole bundle."""
        self._begin()
        while self.digest is None:
            line = self._checked(self._body())
            if isinstance(line.entry, BundleSeal):
                self._check_seal(line.entry)
            else:
                yield line
        self._end()

    def _begin(self) -> None:
        first = self._file.read(1)
        self._in_array = first == b"["
        self._file.seek(-len(first), 1)
        if self._in_array and self._line() != b"[":
            raise self._damaged("a JSON bundle begins with a bracket on a line of its own")

    def _line(self) -> bytes:
        """Return the next line, which must be complete."""
        self._number += 1
        self._offset = self._next
        line = self._file.readline(MAX_LINE_BYTES + 1)
        self._next += len(line)
        if not line.endswith(b"\n"):
            too_long = len(line) > MAX_LINE_BYTES
            raise self._damaged("the line is too long" if too_long else "the bundle ends before its seal")
        return line[:-1]

    def _body(self) -> bytes:
        """Return the entry of the next line, having checked that line by byte and by digest."""
        line = self._line()
        self._goes_on = not self._in_array or line.endswith(b",")
        line = line[:-1] if self._in_array and self._goes_on else line
        given, body = line[len(_BEGIN) : len(_BEGIN) + _HEX], line[_ENTRY_AT : -len(_END)]
        if line != b"".join((_BEGIN, given, _MIDDLE, body, _END)) or not _DIGITS.issuperset(given):
            raise self._damaged("the line is not of the form of a bundle's lines")
        self._before, self._last = self._last, _chained(self._last, body)
        if self._last != given:
            raise self._damaged("the digest does not match")
        return body

    def _checked(self, body: bytes) -> BundleLine:
        entry = self._decoded(_entry, body)
        self._check_order(entry)
        record = None
        if isinstance(entry, BundleRecord):
            record = self._decoded(_records[entry.type], entry.record, "record: ")
            self._check_record(record)
            self.records += 1
        elif isinstance(entry, BundleContent):
            self._check_content(entry)
        if not isinstance(entry, BundleSeal):
            self.entries += 1
        self._named = _content_named(record)
        return BundleLine(self._number, self._offset, entry, record)

    def _decoded(self, decoder: msgspec.json.Decoder[Any], text: bytes | Raw, where: str = "") -> Any:  # noqa: ANN401
        try:
            return decoder.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._damaged(f"{where}{_in_words(error)}") from error

    def _check_order(self, entry: AnyBundleEntry) -> None:
        place, before = _PLACES[type(entry)], self._place
        has_session = self._header is not None and self._header.scope in SESSION_SCOPES
        behind = {0: {-1}, 1: {0} if has_session else set(), 2: {1, 2} if has_session else {0, 2}}
        if before not in behind.get(place, {2, 3}):
            raise self._damaged(f"a {_kind(entry)} has no place here")
        if self._in_array and self._goes_on == isinstance(entry, BundleSeal):
            raise self._damaged("a comma stands behind every entry but the seal")
        if isinstance(entry, BundleHeader):
            self._header = entry
        self._place = place

    def _check_record(self, record: Record) -> None:
        if self.records:
            return
        header = self._header
        is_own = isinstance(record, ContextEnvelope) and header is not None and record.context_id == header.bundle_id
        if not is_own:
            raise self._damaged("the first record is not the bundle's own envelope")

    def _check_content(self, content: BundleContent) -> None:
        if content.digest != self._named:
            raise self._damaged("the content is not what the item before it names")
        if (content.text is UNSET) == (content.base64 is UNSET):
            raise self._damaged("a content is text or base64")
        try:
            digest = hashlib.sha256(content.bytes()).hexdigest()
        except (binascii.Error, UnicodeEncodeError, ValueError) as error:
            raise self._damaged("the content cannot be read") from error
        if content.digest != f"sha256:{digest}":
            raise self._damaged("the content has another digest than it says")

    def _check_seal(self, seal: BundleSeal) -> None:
        if seal.entries != self.entries:
            raise self._damaged(f"the seal is for {seal.entries} entries, and there are {self.entries}")
        if seal.digest != f"sha256:{self._before.decode()}":
            raise self._damaged("the seal is that of another bundle")
        self.digest = seal.digest

    def _end(self) -> None:
        if self._in_array and self._line() != b"]":
            raise self._damaged("a JSON bundle ends with a bracket on a line of its own")
        if self._file.read(1):
            raise damaged(self._number + 1, self._next, "there is something behind the end")

    def _damaged(self, what: str) -> BundleDamaged:
        return damaged(self._number, self._offset, what)


def is_bundle(beginning: bytes) -> bool:
    """Tell whether a file that begins so is a bundle."""
    return beginning.removeprefix(b"[\n").startswith(_BEGIN)


def _chained(last: bytes, body: bytes) -> bytes:
    return hashlib.sha256(last + body).hexdigest().encode()


def _kind(entry: AnyBundleEntry) -> str:
    kind: str = type(entry).__struct_config__.tag  # type: ignore[assignment]
    return kind


def _content_named(record: Record | None) -> str | None:
    """Return the digest of what an item says, where that does not stand in the item itself."""
    if not isinstance(record, ContextItem) or not isinstance(record.content_ref, Link):
        return None
    return record.content_ref.digest or None


def _in_words(error: Exception) -> str:
    """Return what is wrong with an entry or a record, with the place in it."""
    if isinstance(error, msgspec.ValidationError):
        said, _, path = str(error).partition(" - at ")
        return f"{path.strip('`') or '$'}: {said}"
    return "not JSON"
