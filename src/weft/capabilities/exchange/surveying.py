"""Looking through a bundle: checked to its last byte, and known for what it is, before anything is written."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from weft.capabilities.exchange import rebuilding
from weft.capabilities.exchange.bundles import (
    BundleDamaged,
    BundleReader,
    Content,
    Header,
    RecordEntry,
    SessionEntry,
)
from weft.capabilities.records.checking import Checked, Problem, check_record
from weft.capabilities.records.misfits import Misfit
from weft.capabilities.records.model import ContextItem
from weft.capabilities.sessions.model import ALL_SESSIONS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from weft.capabilities.exchange.bundles import AnyEntry, Line

# How an item is told that says its own words; a summary, for one, says others.
_IN_ITS_OWN_WORDS = frozenset({"inline", "ref"})


@dataclass(slots=True)
class Survey:
    """What a bundle says of itself, known before anything is written."""

    header: Header
    session: SessionEntry | None = None
    digest: str = ""
    # Keys whose newest version does not say what it said: an older one must not be taken for what stands.
    silent: set[str] = field(default_factory=set)

    @property
    def session_id(self) -> str | None:
        return None if self.session is None else self.session.session_id


class Piece(msgspec.Struct, frozen=True):
    """An entry of a bundle with the content that belongs to it."""

    line: Line
    content: bytes | None = None

    @property
    def entry(self) -> AnyEntry:
        return self.line.entry

    @property
    def text(self) -> str | None:
        """Return what an item says in its own words: in itself or behind it."""
        record = self.line.record
        if not isinstance(record, ContextItem) or record.content_mode not in _IN_ITS_OWN_WORDS:
            return None
        if isinstance(record.content, str):
            return record.content
        try:
            return None if self.content is None else self.content.decode()
        except UnicodeDecodeError:
            return None


def survey(file: BinaryIO, expected_digest: str | None = None) -> Survey:
    """Check a whole bundle and return what it says of itself."""
    reader = read(file)
    found: Survey | None = None
    for piece in pieces(reader):
        entry = piece.entry
        if isinstance(entry, Header):
            found = Survey(entry)
        elif isinstance(entry, SessionEntry) and found is not None:
            if entry.session_id != found.header.session_id or entry.session_id == ALL_SESSIONS:
                raise piece.line.damaged("the session is another than the bundle's")
            found.session = entry
        elif found is not None:
            _note_silence(found, piece)
    assert found is not None  # noqa: S101 - a bundle without a header is refused by the reader
    assert reader.digest is not None  # noqa: S101 - likewise without a seal
    if expected_digest not in {None, reader.digest}:
        raise BundleDamaged(
            f"This is another bundle than the one you expect: its digest is {reader.digest}.", digest=reader.digest
        )
    found.digest = reader.digest
    return found


def check_bundle(document: bytes) -> Checked:
    """Check a bundle as any file of records is checked: every record more strictly than an import does."""
    problems: list[Problem] = []
    reader = BundleReader(io.BytesIO(document))
    try:
        for line in reader:
            if isinstance(line.entry, RecordEntry):
                problems += _misfits(line.number, line.entry)
    except BundleDamaged as damage:
        problems.append(Problem(damage.context["line"], "$", damage.context["problem"]))
    return Checked(reader.records, problems)


def read(file: BinaryIO) -> BundleReader:
    """Read a bundle from its beginning, as often as need be."""
    file.seek(0)
    return BundleReader(file)


def pieces(reader: BundleReader) -> Iterator[Piece]:
    """Yield entries, each with the content right behind it."""
    last: Line | None = None
    for line in reader:
        if isinstance(line.entry, Content) and last is not None:
            yield Piece(last, line.entry.bytes())
            last = None
            continue
        if last is not None:
            yield Piece(last)
        last = line
    if last is not None:
        yield Piece(last)


def _misfits(number: int, entry: RecordEntry) -> Iterator[Problem]:
    try:
        check_record(bytes(entry.record), entry.type)
    except Misfit as found:
        yield Problem(number, f"$.entry.record{found.path.removeprefix('$')}", found.reason)


def _note_silence(found: Survey, piece: Piece) -> None:
    entry, record = piece.entry, piece.line.record
    if not isinstance(record, ContextItem) or not isinstance(entry, RecordEntry) or entry.stored is not UNSET:
        return
    version = rebuilding.board_version(record, piece.text, found.session_id or "")
    if version is None:
        return
    if version.is_silent:
        found.silent.add(version.version.change.key)
    else:
        found.silent.discard(version.version.change.key)
