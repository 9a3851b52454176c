"""A bundle's session under another id: whatever in its records is named after the session is named after the new one.

A record whose own id is taken here gets another as well, and those that name it follow. What somebody wrote stays.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from weft.capabilities.records.model import RECORD_TYPES, ContextEvent

if TYPE_CHECKING:
    from collections.abc import Collection

    from weft.capabilities.records.model import Record
    from weft.capabilities.transfer.validate_bundle import EntryWithContent

_LONGEST_ID = 500
# Where records are named by their ids alone.
_IDS = frozenset(kind.id_field for kind in RECORD_TYPES.values())
_REFS = ("_ref", "_refs")
_WORDS = "content"
_OF_SESSION = "session."
_decoders = {name: msgspec.json.Decoder(kind) for name, kind in RECORD_TYPES.items()}
_encode = msgspec.json.Encoder().encode


class SessionRename:
    """From one session's id to another's, and from ids that are ``taken`` to others."""

    def __init__(self, old: str, new: str, taken: Collection[str] = ()) -> None:
        self.old = old
        self.new = new
        self._taken = taken
        # Lines, messages, pulls and surfaces, and the addresses of boards and transcripts.
        named_after = r"(?:board|session|message|pull):(?://)?|memory:[^:/@\s]+:"
        self._id = re.compile(rf"({named_after}){re.escape(old)}((?:[/@?#]\S*)?)\Z")

    def piece(self, piece: EntryWithContent) -> EntryWithContent:
        """Return an entry of the bundle as it is called here."""
        record = piece.line.record
        if record is None:
            return piece
        return msgspec.structs.replace(piece, line=piece.line._replace(record=self.record(record)))

    def record(self, record: Record) -> Record:
        said = self._walked(msgspec.json.decode(_encode(record)), "")
        if isinstance(record, ContextEvent) and record.subject is not msgspec.UNSET:
            said["subject"] = self._subject(record, record.subject)
        renamed: Record = _decoders[record.type].decode(_encode(said))
        return renamed

    def _subject(self, event: ContextEvent, subject: str) -> str:
        """Return what an event is about: a session or a record by its id alone, a key or a message by neither."""
        if subject == self.old and str(event.data.get("type")).startswith(_OF_SESSION):
            return self.new
        return self._ref(subject) if "record_type" in event.data else self._named_after(subject)

    def _walked(self, value: Any, name: str) -> Any:  # noqa: ANN401 - JSON of any shape
        if isinstance(value, dict):
            walked = {inner: self._walked(said, self._within(name, inner)) for inner, said in value.items()}
            return (
                {**walked, "id": self.new} if (value.get("kind"), value.get("id")) == ("session", self.old) else walked
            )
        if isinstance(value, list):
            return [self._walked(inner, name) for inner in value]
        if not isinstance(value, str) or name == _WORDS:
            return value
        if name == "session_id" and value == self.old:
            return self.new
        return self._ref(value) if name in _IDS or name.endswith(_REFS) else self._named_after(value)

    def _within(self, name: str, inner: str) -> str:
        """Return the name by which something in a reference is known: that of the reference, if it is what it is to."""
        return name if inner == "id" and name.endswith(_REFS) else inner

    def _ref(self, ref: str) -> str:
        return f"{ref[: _LONGEST_ID - len(self.new) - 1]}@{self.new}" if ref in self._taken else self._named_after(ref)

    def _named_after(self, text: str) -> str:
        return self._id.sub(lambda found: f"{found[1]}{self.new}{found[2]}", text) if self._id.match(text) else text
