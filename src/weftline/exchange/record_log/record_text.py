"""The free text in a record: which fields can hold it, and how to mask or remove it.

This follows from the field types. Ids, timestamps and enumerations never hold free text and stay unchanged, so that
references still resolve; text, URIs and open JSON do.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, get_args

import msgspec
from msgspec import NODEFAULT, UNSET, structs

from weftline.records.model import Block, ContextAssembly, ContextItem, ContextSourceRef, ContextSummary
from weftline.records.refs import Link, RecordPart, content_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weftline.records.model import Record
    from weftline.safety.redaction import Masker

P = TypeVar("P", bound=RecordPart)
R = TypeVar("R", bound="Record")
TextKind = Literal["text", "uri", "name", "digest", "json", "parts"]
_TEXT_KINDS: tuple[TextKind, ...] = get_args(TextKind)
# Replaces the value of a required field.
REDACTED = "[redacted]"
_MAX_ID = 500
_URI = r"^[^\x00-\x20\x7f]+\Z"
_DIGEST = r"^sha256:[0-9a-f]{64}\Z"
_IS_DIGEST = re.compile(r"(?:sha256:)?[0-9a-f]{64}\Z")
# Typed as ids, but free text.
_FREE_TEXT_IDS = frozenset({"blocked_actions", "authority"})
# Typed as ids and chosen by the author; needed to make sense of a record.
_KINDS = frozenset({"kind", "context_kind", "source_kind", "surface_kind"})


class TextField(NamedTuple):
    """A field that can hold free text, or parts with such fields; ``empty`` returns its value without text."""

    name: str
    holds: TextKind
    max_length: int | None
    empty: Callable[[], Any]


def rewrite_text(
    part: P,
    rewrite: Callable[[TextField, Any], Any],
    after_change: Callable[[RecordPart], dict[str, Any]] | None = None,
) -> P:
    """Return a record, or a part of one, with ``rewrite`` applied to its text fields; UNSET removes a value.

    ``after_change`` returns further changes to a part of which a field has changed.
    """
    changes: dict[str, Any] = {}
    for field in _fields(type(part)):
        value = getattr(part, field.name)
        if value is not UNSET and (new := _rewritten(field, value, rewrite, after_change)) != value:
            changes[field.name] = field.empty() if new is UNSET else new
    if not changes:
        return part
    new_part = structs.replace(part, **changes)
    return new_part if after_change is None else structs.replace(new_part, **after_change(new_part))


def mask_record(part: P, mask: Masker) -> P:
    """Mask a record, and remove digests from which the masked text could be guessed."""

    def rewrite(field: TextField, value: Any) -> Any:  # noqa: ANN401 - JSON of any shape
        if field.holds == "digest":
            return value
        masked = mask.value(value)
        if not isinstance(masked, str) or masked == value:
            return masked
        # A URI has no spaces, and a placeholder may be longer than the value it replaces.
        return (masked.replace(" ", "-") if field.holds == "uri" else masked)[: field.max_length]

    return rewrite_text(part, rewrite, _without_digests)


def strip_text(part: P) -> P:
    """Remove all free text from a record; ids, kinds and timestamps stay."""
    if isinstance(part, ContextSourceRef):
        part = structs.replace(part, selector=UNSET)
    return rewrite_text(part, lambda field, value: value if field.holds in {"uri", "name"} else UNSET)


def replace_quotes(record: R, which: Callable[[Block | ContextSummary], bool], *, digests: bool) -> R:
    """Replace quoted content by references: the blocks of an assembly, the text of a summary.

    Without ``digests`` the content cannot be guessed by hashing candidates.
    """
    match record:
        case ContextSummary() if which(record):
            return structs.replace(record, **_ref_to(record, record.summary_id, digests=digests))
        case ContextAssembly():
            blocks = tuple(
                structs.replace(block, **_ref_to(block, f"{record.assembly_id}#{place}", digests=digests))
                if which(block)
                else block
                for place, block in enumerate(record.ordered_blocks)
            )
            return structs.replace(record, ordered_blocks=blocks)
        case _:
            return record


def _ref_to(part: Block | ContextSummary, name: str, *, digests: bool) -> dict[str, Any]:
    """Return the changes that replace a part's content by a reference."""
    if part.content is not UNSET:
        link = Link(kind="content", id=name[:_MAX_ID], digest=content_digest(part.content) if digests else UNSET)
        return {"content": UNSET, "content_ref": part.content_ref or link, "token_estimate": UNSET}
    if digests or not isinstance(part.content_ref, Link):
        return {}
    return {"content_ref": structs.replace(part.content_ref, digest=UNSET), "token_estimate": UNSET}


def _without_digests(part: RecordPart) -> dict[str, Any]:
    """Return the changes that remove digests from a part whose text was masked: they are of the original text.

    The content of an item is masked separately and gets a new digest.
    """
    changes: dict[str, Any] = {field.name: UNSET for field in _fields(type(part)) if field.holds == "digest"}
    changes |= {name: _no_digest(value) for name in ("metadata", "data") if (value := getattr(part, name, None))}
    ref = UNSET if isinstance(part, ContextItem) else getattr(part, "content_ref", UNSET)
    return {**changes, "content_ref": structs.replace(ref, digest=UNSET)} if isinstance(ref, Link) else changes


def _no_digest(value: Any) -> Any:  # noqa: ANN401 - JSON of any shape
    if isinstance(value, dict):
        return {name: _no_digest(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_no_digest(inner) for inner in value]
    return REDACTED if isinstance(value, str) and _IS_DIGEST.match(value) else value


def _rewritten(
    field: TextField,
    value: Any,  # noqa: ANN401 - JSON of any shape
    rewrite: Callable[[TextField, Any], Any],
    after_change: Callable[[RecordPart], dict[str, Any]] | None,
) -> Any:  # noqa: ANN401 - likewise
    if isinstance(value, RecordPart):
        return rewrite_text(value, rewrite, after_change)
    if isinstance(value, tuple):
        rewritten = (_rewritten(field, inner, rewrite, after_change) for inner in value)
        return tuple(inner for inner in rewritten if inner is not UNSET)
    return value if field.holds == "parts" else rewrite(field, value)


@cache
def _fields(kind: type[RecordPart]) -> tuple[TextField, ...]:
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)  # noqa: S101 - parts are structs
    return tuple(found for field in info.fields if (found := _field(field)) is not None)


def _field(field: msgspec.inspect.Field) -> TextField | None:
    types = list(_value_types(field.type))
    max_length = next((each.max_length for each in types if isinstance(each, msgspec.inspect.StrType)), None)
    kinds = {kind for each in types if (kind := _text_kind(each, field.name)) is not None}
    holds = next((kind for kind in _TEXT_KINDS if kind in kinds), None)
    return None if holds is None else TextField(field.name, holds, max_length, lambda: _empty(field, types))


def _value_types(kind: msgspec.inspect.Type) -> Iterator[msgspec.inspect.Type]:
    """Yield the types of a single value of a field, without unions, tuples and metadata."""
    match kind:
        case msgspec.inspect.Metadata():
            yield from _value_types(kind.type)
        case msgspec.inspect.UnionType():
            for each in kind.types:
                yield from _value_types(each)
        case msgspec.inspect.VarTupleType():
            yield from _value_types(kind.item_type)
        case _:
            yield kind


def _text_kind(kind: msgspec.inspect.Type, name: str) -> TextKind | None:
    match kind:
        case msgspec.inspect.StructType():
            return "parts"
        case msgspec.inspect.AnyType() | msgspec.inspect.DictType(value_type=msgspec.inspect.AnyType()):
            return "json"
        case msgspec.inspect.StrType(pattern=pattern) if pattern in {_URI, _DIGEST}:
            return "uri" if pattern == _URI else "digest"
        case msgspec.inspect.StrType(pattern=pattern, max_length=max_length):
            is_text = max_length != _MAX_ID and (pattern is None or max_length is not None)
            if is_text or name in _FREE_TEXT_IDS:
                return "text"
            return "name" if name in _KINDS else None
        case _:
            return None


def _empty(field: msgspec.inspect.Field, types: list[msgspec.inspect.Type]) -> Any:  # noqa: ANN401 - JSON of any shape
    """Return the value of a field without text: its default, or a placeholder if it is required."""
    if field.default_factory is not NODEFAULT:
        return field.default_factory()
    if field.default is not NODEFAULT or not field.required:
        return UNSET if field.default is NODEFAULT else field.default
    return {} if any(isinstance(each, msgspec.inspect.DictType) for each in types) else REDACTED
