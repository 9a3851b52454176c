"""Records of other producers, read as openly as the standard is.

Its schemas allow unknown fields, other values in most enumerations, and objects of any form as references. Such a
record is stored as what Weftline understands of it, with the given form beside, which readers get back unchanged.
"""

from __future__ import annotations

from datetime import datetime
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import UnsetType, structs

from weftline.records.engine_metadata import ENGINE, engine_metadata
from weftline.records.model import ContextSourceRef, Omission, Record
from weftline.records.validation import InvalidRecord, find_kind, parse_record
from weftline.records.vocabulary import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

R = TypeVar("R", bound=Record)
GIVEN: Final = "given"
_VERSION = "schema_version"
# Values of required enumerations where the given one is not among those of Weftline.
_OTHER = {
    "content_mode": "opaque",
    "injection_point": "custom",
    "lifecycle": "available",
    "method": "custom",
    "severity": "medium",
    "status": "detected",
}
_SCOPE, _ENVELOPE = "scope", "context_envelope"
_SELECTOR = "selector"
# What a field has to give way to if it needs others that are absent.
_WITHOUT_OTHERS: Sequence[dict[str, Any]] = (
    {"content_mode": "opaque"},
    {"status": "detected"},
    {"reserved_tokens": None},
)
_encode = msgspec.json.Encoder(order="sorted").encode


def read_open_record(given: dict[str, Any]) -> Record:
    """Return what Weftline understands of a record, with the given form in its metadata, or raise InvalidRecord."""
    kind = find_kind(given)
    metadata = given.get("metadata")
    if isinstance(metadata, dict) and ENGINE in metadata:
        raise InvalidRecord(f"$.metadata.{ENGINE}", "is what Weftline itself writes about a record")
    fields = {each.encode_name: each for each in structs.fields(kind)}
    for name, value in given.items():
        if name in fields and not _is_open(fields[name].type, name, value):
            raise InvalidRecord(f"$.{name}", "has another type in the standard")
    understood: dict[str, Any] = {_VERSION: SCHEMA_VERSION}
    for name, field in fields.items():
        if name in given and name != _VERSION:
            value = _understand(_without_unset(field.type), given[name])
            if value is msgspec.UNSET and field.required:
                value = _other(kind.type, name)
            if value is not msgspec.UNSET:
                understood[name] = value
    return _with_given(_parse(understood, kind.type), given)


def is_open(record: Record) -> bool:
    """Tell whether a record was given in another form than that of Weftline."""
    return GIVEN in engine_metadata(record.metadata)


def without_given(record: R) -> R:
    """Return a record without the form it was given in, which a change of the record does not change."""
    native = engine_metadata(record.metadata)
    if GIVEN not in native:
        return record
    others = {name: value for name, value in native.items() if name != GIVEN}
    metadata = {name: value for name, value in record.metadata.items() if name != ENGINE}
    return structs.replace(record, metadata=metadata | ({ENGINE: others} if others else {}))


def shown_form(body: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON of a record for readers: as it was given, unless it was changed since."""
    metadata = body.get("metadata")
    given = engine_metadata(metadata).get(GIVEN) if isinstance(metadata, dict) else None
    if not isinstance(given, dict):
        return body
    try:
        stored = msgspec.json.decode(_encode(read_open_record(given)))
    except InvalidRecord:
        stored = None
    if stored == msgspec.json.decode(_encode(body)):
        return given
    others = {name: value for name, value in engine_metadata(body["metadata"]).items() if name != GIVEN}
    kept = {name: value for name, value in body["metadata"].items() if name != ENGINE}
    shown = {**body, "metadata": kept | ({ENGINE: others} if others else {})}
    return shown if shown["metadata"] else {name: value for name, value in shown.items() if name != "metadata"}


def _parse(understood: dict[str, Any], record_type: str) -> Record:
    """Convert a record; a field that needs another one gives way."""
    try:
        return parse_record(understood, record_type)
    except InvalidRecord as problem:
        for changes in _WITHOUT_OTHERS:
            changed = {name: value for name, value in (understood | changes).items() if value is not None}
            if changes.keys() <= understood.keys() and changed != understood:
                return _parse(changed, record_type)
        raise problem from None


def _with_given(record: Record, given: dict[str, Any]) -> Record:
    native = engine_metadata(record.metadata)
    return structs.replace(record, metadata={**record.metadata, ENGINE: {**native, GIVEN: given}})


def _other(record_type: str, name: str) -> Any:  # noqa: ANN401 - a value, or UNSET
    """Return a known value of a required enumeration for an unknown one. Scopes of envelopes are closed."""
    if name == _SCOPE:
        return msgspec.UNSET if record_type == _ENVELOPE else "custom"
    return _OTHER.get(name, msgspec.UNSET)


def _is_open(hint: Any, name: str, value: Any) -> bool:  # noqa: ANN401, PLR0911 - one answer for each kind of type
    """Tell whether the standard allows a value: the types of its schemas, without Weftline's patterns and names."""
    if name == _SELECTOR:
        return isinstance(value, dict | list | str)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _is_open(arguments[0], name, value)
    if origin in {Union, UnionType}:
        return any(_is_open(each, name, value) for each in arguments if each is not UnsetType)
    if origin is tuple:
        return isinstance(value, list) and all(_is_open(arguments[0], name, each) for each in value)
    if origin is Literal or hint is str:
        return isinstance(value, str)
    if hint is datetime:
        return isinstance(value, str) and _understand(hint, value) is not msgspec.UNSET
    if hint in {int, float}:
        return isinstance(value, int | hint) and not isinstance(value, bool) and value >= 0
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return isinstance(value, dict) or (hint is Omission and isinstance(value, str))
    return hint is Any or isinstance(value, dict)


def _understand(hint: Any, value: Any) -> Any:  # noqa: ANN401 - any annotation and JSON
    """Return what Weftline can store of a value: all of it, the elements that it understands, or UNSET."""
    try:
        msgspec.convert(value, hint)
    except (msgspec.ValidationError, InvalidRecord):
        pass
    else:
        return value
    if isinstance(value, list) and (element := _element_of(hint)) is not None:
        known = (_understand(element, each) for each in value)
        return [each for each in known if each is not msgspec.UNSET]
    if isinstance(value, dict) and ContextSourceRef in get_args(hint):
        return _understood_source(value)
    return msgspec.UNSET


def _understood_source(value: dict[str, Any]) -> Any:  # noqa: ANN401 - JSON, or UNSET
    """Return an embedded source as a record, as its id, or UNSET."""
    completed = {_VERSION: SCHEMA_VERSION, "source_kind": "custom"} | value
    known = {field.encode_name: field for field in structs.fields(ContextSourceRef)}
    parts = {
        name: _understand(_without_unset(known[name].type), each) for name, each in completed.items() if name in known
    }
    found = _understand(ContextSourceRef, {name: each for name, each in parts.items() if each is not msgspec.UNSET})
    return value.get("source_id", msgspec.UNSET) if found is msgspec.UNSET else found


def _element_of(hint: Any) -> Any:  # noqa: ANN401 - any annotation
    """Return the type of the elements of a list."""
    if get_origin(hint) is Annotated:
        return _element_of(get_args(hint)[0])
    return get_args(hint)[0] if get_origin(hint) is tuple else None


def _without_unset(hint: Any) -> Any:  # noqa: ANN401 - any annotation
    if get_origin(hint) not in {Union, UnionType}:
        return hint
    return Union[tuple(each for each in get_args(hint) if each is not UnsetType)]  # noqa: UP007 - built at run time
