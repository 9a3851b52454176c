"""The bundle file format: a streaming writer and reader.

A line holds one entry and a digest over it and the previous digest (a hash chain), so any change is detected at the
first altered line. The same lines form NDJSON or, with commas between them, one JSON array.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Raw, Struct

from weftline.access.model import Pattern
from weftline.kernel.errors import ContentTooLarge, Rejected
from weftline.kernel.fields import Count, Name
from weftline.kernel.identity import ANYONE
from weftline.records.engine_metadata import ENGINE
from weftline.records.model import RECORD_TYPES, ContextEnvelope, ContextItem, Producer, Record
from weftline.records.refs import Digest, Id, Link, Maybe, RecordTime, Uri, content_digest
from weftline.records.vocabulary import RecordType, Scope
from weftline.sessions.member_operations import MAX_MEMBERS, MemberPattern
from weftline.sessions.model import SessionConfig
from weftline.windows.model import Category

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

BundleEncoding = Literal["ndjson", "json"]
FORMAT: Final = "weftline-bundle"
MAX_LINE_BYTES: Final = 16 * 2**20
# Bundles of these scopes carry a session entry, from which an import restores the session.
SESSION_SCOPES: Final = frozenset({"session", "handoff"})
MAX_PURPOSE: Final = 2_000
_BEGIN, _MIDDLE, _END = b'{"digest":"sha256:', b'","entry":', b"}"
_HEX = 64
_INITIAL_DIGEST = b"0" * _HEX
_ENTRY_OFFSET = len(_BEGIN) + _HEX + len(_MIDDLE)
_DIGITS = frozenset(b"0123456789abcdef")
_encode = msgspec.json.Encoder().encode


class BundleDamaged(Rejected):
    """The bundle is damaged or was altered."""

    code = "BUNDLE_DAMAGED"
    hint = "Nothing was imported. Get the bundle again from its exporter, and compare the digest."
    related = ("import_context", "export_context")


class BundleEntry(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="kind"):
    """Base of the entries, one per line."""


class BundleHeader(BundleEntry, frozen=True, kw_only=True, tag="header"):
    """What the bundle contains. ``history``: all versions, not only the current ones."""

    format: Literal["weftline-bundle"]
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
    """The session, for an import to restore it."""

    session_id: Name
    purpose: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_PURPOSE, pattern=r"^[^\x00]*\Z")]
    metadata: dict[str, Any]
    config: SessionConfig
    created_by: Id
    created_at: RecordTime
    updated_at: RecordTime
    archived_at: Maybe[RecordTime] = UNSET
    members: Annotated[tuple[MemberPattern, ...], msgspec.Meta(max_length=MAX_MEMBERS)] = ()


class StoredInfo(Struct, frozen=True, forbid_unknown_fields=True):
    """Author, creation time and last change of a stored record."""

    by: Id
    at: RecordTime
    changed_at: RecordTime


class BundleRecord(BundleEntry, frozen=True, kw_only=True, tag="record"):
    """One record: a stored one, or one derived from engine data (without ``stored``).

    ``salt`` is that of the commit whose last version this is, if the bundle contains all of the commit unchanged: with
    it, an import computes the original hash.
    """

    type: RecordType
    record: Raw
    readable_by: tuple[Pattern, ...] = ANYONE
    stored: Maybe[StoredInfo] = UNSET
    salt: Maybe[Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}\Z")]] = UNSET


class BundleContent(BundleEntry, frozen=True, kw_only=True, tag="content"):
    """The content that the item in the previous entry refers to by digest."""

    digest: Digest
    text: Maybe[str] = UNSET
    base64: Maybe[str] = UNSET

    @classmethod
    def of(cls, content: bytes) -> BundleContent:
        """Return an entry with text if the bytes are UTF-8, else with base64."""
        digest = content_digest(content)
        try:
            return cls(digest=digest, text=content.decode())
        except UnicodeDecodeError:
            return cls(digest=digest, base64=base64.b64encode(content).decode())

    def bytes(self) -> bytes:
        if isinstance(self.text, str):
            return self.text.encode()
        return base64.b64decode(self.base64 or "", validate=True)


class BundleSnapshot(BundleEntry, frozen=True, kw_only=True, tag="snapshot"):
    """A snapshot of the board."""

    label: Name
    seq: Count
    created_by: Id
    created_at: RecordTime
    automatic: bool = False


class BundleWindow(BundleEntry, frozen=True, kw_only=True, tag="window"):
    """The settings and checkpoints of an agent's window; its events are items."""

    agent_id: Name
    model: str | None = None
    model_max_tokens: Count | None = None
    shared_cw_max_tokens: Count | None = None
    reserved_tokens: Count | None = None
    shares: dict[Category, float] | None = None
    parent_id: Name | None = None
    shares_with: Name | None = None
    compaction_threshold: float | None = None
    autosave: bool = True
    last_number: Count = 0
    created_at: RecordTime
    updated_at: RecordTime
    checkpoints: tuple[BundleSnapshot, ...] = ()


class BundleSeal(BundleEntry, frozen=True, kw_only=True, tag="seal"):
    """The last entry: the number of entries before it, and the last digest, which covers them all."""

    entries: Count
    digest: Digest


AnyBundleEntry = (
    BundleHeader | BundleSession | BundleRecord | BundleContent | BundleSnapshot | BundleWindow | BundleSeal
)
# The order of entries; a content entry belongs to the record before it.
_ORDER: dict[type[BundleEntry], int] = {
    BundleHeader: 0,
    BundleSession: 1,
    BundleRecord: 2,
    BundleContent: 2,
    BundleSnapshot: 3,
    BundleWindow: 3,
    BundleSeal: 4,
}
_entry = msgspec.json.Decoder(AnyBundleEntry)
_records: dict[str, msgspec.json.Decoder[Any]] = {
    name: msgspec.json.Decoder(kind) for name, kind in RECORD_TYPES.items()
}


class BundleWriter:
    """Writes entries as lines with chained digests."""

    def __init__(self, out: Callable[[bytes], object], encoding: BundleEncoding = "ndjson") -> None:
        self._out = out
        self._encoding = encoding
        self._last = _INITIAL_DIGEST
        self.entries = 0
        self.records = 0
        self.bytes = 0

    @property
    def digest(self) -> str:
        """Return the digest of all entries so far."""
        return f"sha256:{self._last.decode()}"

    def add(self, entry: AnyBundleEntry) -> None:
        body = _encode(entry)
        if len(body) > MAX_LINE_BYTES - _ENTRY_OFFSET - len(_END):
            raise ContentTooLarge(
                "An entry of the bundle is larger than 16 MiB.",
                hint="Export less: one task, or with a policy without contents.",
            )
        self._last = _chained(self._last, body)
        between = b"" if self._encoding == "ndjson" else b",\n" if self.entries else b"[\n"
        self._put(
            b"".join((between, _BEGIN, self._last, _MIDDLE, body, _END, b"\n" if self._encoding == "ndjson" else b""))
        )
        self.entries += 1

    def add_record(
        self,
        record: Record,
        readable_by: tuple[str, ...] = ANYONE,
        stored: Maybe[StoredInfo] = UNSET,
        salt: Maybe[str] = UNSET,
    ) -> None:
        self.records += 1
        raw = Raw(_encode(record))
        self.add(BundleRecord(type=record.type, record=raw, readable_by=readable_by, stored=stored, salt=salt))

    def seal(self) -> str:
        """Write the seal and return the digest of the bundle."""
        digest = self.digest
        self.add(BundleSeal(entries=self.entries, digest=digest))
        if self._encoding == "json":
            self._put(b"\n]\n")
        return digest

    def _put(self, line: bytes) -> None:
        self._out(line)
        self.bytes += len(line)


class BundleLine(NamedTuple):
    """One entry with its line number and byte offset, and its decoded record if it has one."""

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
    """Reads and checks entries one by one. ``digest`` is set once the seal was read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._number = self._offset = self._next = 0
        self._in_array = False
        self._has_comma = False
        self._before = self._last = _INITIAL_DIGEST
        self._position = -1
        self._expected_content: str | None = None
        self._header: BundleHeader | None = None
        self.entries = 0
        self.records = 0
        self.digest: str | None = None

    def __iter__(self) -> Iterator[BundleLine]:
        """Yield every entry except the seal; without an error, the bundle is complete and unaltered."""
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
            raise self._damaged("a JSON bundle starts with a bracket on a separate line")

    def _line(self) -> bytes:
        """Return the next line, without its line break."""
        self._number += 1
        self._offset = self._next
        line = self._file.readline(MAX_LINE_BYTES + 1)
        self._next += len(line)
        if not line.endswith(b"\n"):
            too_long = len(line) > MAX_LINE_BYTES
            raise self._damaged("the line is too long" if too_long else "the bundle ends before its seal")
        return line[:-1]

    def _body(self) -> bytes:
        """Return the encoded entry of the next line after checking its form and its digest."""
        line = self._line()
        self._has_comma = not self._in_array or line.endswith(b",")
        line = line[:-1] if self._in_array and self._has_comma else line
        digest, body = line[len(_BEGIN) : len(_BEGIN) + _HEX], line[_ENTRY_OFFSET : -len(_END)]
        if line != b"".join((_BEGIN, digest, _MIDDLE, body, _END)) or not _DIGITS.issuperset(digest):
            raise self._damaged("the line does not have the form of a bundle line")
        self._before, self._last = self._last, _chained(self._last, body)
        if self._last != digest:
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
        self._expected_content = _content_digest(record)
        return BundleLine(self._number, self._offset, entry, record)

    def _decoded(self, decoder: msgspec.json.Decoder[Any], text: bytes | Raw, where: str = "") -> Any:  # noqa: ANN401
        try:
            return decoder.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._damaged(f"{where}{_describe(error)}") from error

    def _check_order(self, entry: AnyBundleEntry) -> None:
        position, before = _ORDER[type(entry)], self._position
        has_session = self._header is not None and self._header.scope in SESSION_SCOPES
        allowed = {0: {-1}, 1: {0} if has_session else set(), 2: {1, 2} if has_session else {0, 2}}
        if before not in allowed.get(position, {2, 3}):
            raise self._damaged(f"a {_kind(entry)} entry is not allowed here")
        if self._in_array and self._has_comma == isinstance(entry, BundleSeal):
            raise self._damaged("every entry except the seal is followed by a comma")
        if isinstance(entry, BundleHeader):
            self._header = entry
        self._position = position

    def _check_record(self, record: Record) -> None:
        if not isinstance(record.metadata.get(ENGINE, {}), dict):
            raise self._damaged(f"record: metadata.{ENGINE} is not what Weftline writes")
        if self.records:
            return
        header = self._header
        is_bundle_envelope = (
            isinstance(record, ContextEnvelope) and header is not None and record.context_id == header.bundle_id
        )
        if not is_bundle_envelope:
            raise self._damaged("the first record is not the bundle's own envelope")

    def _check_content(self, content: BundleContent) -> None:
        if content.digest != self._expected_content:
            raise self._damaged("the content is not the one that the previous item refers to")
        if (content.text is UNSET) == (content.base64 is UNSET):
            raise self._damaged("a content entry has either text or base64")
        try:
            digest = content_digest(content.bytes())
        except (binascii.Error, UnicodeEncodeError, ValueError) as error:
            raise self._damaged("the content cannot be decoded") from error
        if content.digest != digest:
            raise self._damaged("the content does not match its digest")

    def _check_seal(self, seal: BundleSeal) -> None:
        if seal.entries != self.entries:
            raise self._damaged(f"the seal is for {seal.entries} entries, but there are {self.entries}")
        if seal.digest != f"sha256:{self._before.decode()}":
            raise self._damaged("the seal belongs to another bundle")
        self.digest = seal.digest

    def _end(self) -> None:
        if self._in_array and self._line() != b"]":
            raise self._damaged("a JSON bundle ends with a bracket on a separate line")
        if self._file.read(1):
            raise damaged(self._number + 1, self._next, "there is data after the end")

    def _damaged(self, what: str) -> BundleDamaged:
        return damaged(self._number, self._offset, what)


def is_bundle(prefix: bytes) -> bool:
    """Tell from the first bytes of a file whether it is a bundle."""
    return prefix.removeprefix(b"[\n").startswith(_BEGIN)


def _chained(last: bytes, body: bytes) -> bytes:
    return hashlib.sha256(last + body).hexdigest().encode()


def _kind(entry: AnyBundleEntry) -> str:
    kind: str = type(entry).__struct_config__.tag  # type: ignore[assignment]
    return kind


def _content_digest(record: Record | None) -> str | None:
    """Return the digest of content that an item refers to."""
    if not isinstance(record, ContextItem) or not isinstance(record.content_ref, Link):
        return None
    return record.content_ref.digest or None


def _describe(error: Exception) -> str:
    """Return the path and the reason of a decoding error."""
    if isinstance(error, msgspec.ValidationError):
        reason, _, path = str(error).partition(" - at ")
        return f"{path.strip('`') or '$'}: {reason}"
    return "not JSON"
