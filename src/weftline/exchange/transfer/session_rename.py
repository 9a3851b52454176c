"""Rewrites the ids in a bundle whose session is imported under another id."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from weftline.records.model import RECORD_TYPES, ContextEvent, decode_record

if TYPE_CHECKING:
    from collections.abc import Collection

    from weftline.exchange.transfer.validate_bundle import EntryWithContent
    from weftline.records.model import Record

_MAX_ID = 500
# Fields that hold a record id.
_ID_FIELDS = frozenset(kind.id_field for kind in RECORD_TYPES.values())
_REF_SUFFIXES = ("_ref", "_refs")
_CONTENT_FIELD = "content"
_SESSION_EVENTS = "session."
_encode = msgspec.json.Encoder().encode


class SessionRename:
    """Rewrites every id in a bundle that contains the session id.

    A record whose id is ``taken`` gets a new id, and references to it follow. Free text stays unchanged.
    """

    def __init__(self, old: str, new: str, taken: Collection[str] = ()) -> None:
        self.old = old
        self.new = new
        self._taken = taken
        # Ids of lines, messages, pulls, summaries and surfaces, and URIs of boards and transcripts.
        prefix = r"(?:board|session|message|pull|window|summary):(?://)?|memory:[^:/@\s]+:"
        self._id = re.compile(rf"({prefix}){re.escape(old)}((?:[:/@?#]\S*)?)\Z")

    def entry(self, piece: EntryWithContent) -> EntryWithContent:
        record = piece.line.record
        if record is None:
            return piece
        return msgspec.structs.replace(piece, line=piece.line._replace(record=self.record(record)))

    def record(self, record: Record) -> Record:
        fields = self._rewritten(msgspec.json.decode(_encode(record)), "")
        if isinstance(record, ContextEvent) and record.subject is not msgspec.UNSET:
            fields["subject"] = self._subject(record, record.subject)
        return decode_record(record.type, _encode(fields))

    def _subject(self, event: ContextEvent, subject: str) -> str:
        """Rewrite the subject of an event: the id of a session or a record; keys and messages have other subjects."""
        if subject == self.old and str(event.data.get("type")).startswith(_SESSION_EVENTS):
            return self.new
        return self._ref(subject) if "record_type" in event.data else self._engine_id(subject)

    def _rewritten(self, value: Any, name: str) -> Any:  # noqa: ANN401 - JSON of any shape
        if isinstance(value, dict):
            rewritten = {key: self._rewritten(inner, self._field_of(name, key)) for key, inner in value.items()}
            return (
                {**rewritten, "id": self.new}
                if (value.get("kind"), value.get("id")) == ("session", self.old)
                else rewritten
            )
        if isinstance(value, list):
            return [self._rewritten(inner, name) for inner in value]
        if not isinstance(value, str) or name == _CONTENT_FIELD:
            return value
        if name == "session_id" and value == self.old:
            return self.new
        return self._ref(value) if name in _ID_FIELDS or name.endswith(_REF_SUFFIXES) else self._engine_id(value)

    def _field_of(self, name: str, key: str) -> str:
        """Treat the id inside a reference like the reference itself."""
        return name if key == "id" and name.endswith(_REF_SUFFIXES) else key

    def _ref(self, ref: str) -> str:
        return f"{ref[: _MAX_ID - len(self.new) - 1]}@{self.new}" if ref in self._taken else self._engine_id(ref)

    def _engine_id(self, text: str) -> str:
        return self._id.sub(lambda found: f"{found[1]}{self.new}{found[2]}", text) if self._id.match(text) else text
