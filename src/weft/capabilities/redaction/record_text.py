"""The words in a record: which of its fields can hold what somebody wrote, and how those are changed.

What a field may hold is read off its type: ids, times and closed vocabularies name things and stay as they are, so that
references still meet; texts, addresses and whatever is open to any JSON are words.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, get_args

import msgspec
from msgspec import NODEFAULT, UNSET, structs

from weft.capabilities.record_log.engine_items import digest_of
from weft.capabilities.records.model import Block, ContextAssembly, ContextItem, ContextSourceRef, ContextSummary
from weft.capabilities.records.refs import Link, RecordPart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weft.capabilities.records.model import Record
    from weft.capabilities.redaction.masker import Masker

P = TypeVar("P", bound=RecordPart)
R = TypeVar("R", bound="Record")
Sort = Literal["text", "uri", "name", "digest", "json", "parts"]
_SORTS: tuple[Sort, ...] = get_args(Sort)
# In place of words that a record cannot do without.
WITHHELD = "[withheld]"
_LONGEST_ID = 500
_URI = r"^[^\x00-\x20\x7f]+\Z"
_DIGEST = r"^sha256:[0-9a-f]{64}\Z"
_IS_DIGEST = re.compile(r"(?:sha256:)?[0-9a-f]{64}\Z")
# Of the type of an id, and yet words.
_WORDS_LIKE_IDS = frozenset({"blocked_actions", "authority"})
# Of the type of an id, and chosen by whoever wrote it; a record without them would say nothing.
_KINDS = frozenset({"kind", "context_kind", "source_kind", "surface_kind"})


class Field(NamedTuple):
    """A field that can hold words, or parts that have such; ``most`` is how many characters it takes."""

    name: str
    holds: Sort
    most: int | None
    empty: Any


def changed(
    part: P, words: Callable[[Field, Any], Any], then: Callable[[RecordPart], dict[str, Any]] | None = None
) -> P:
    """Return a record, or a part of one, with its words as ``words`` has them; what becomes UNSET is left out.

    What ``then`` returns for a part of which anything has changed is changed as well.
    """
    said: dict[str, Any] = {}
    for field in _fields(type(part)):
        value = getattr(part, field.name)
        if value is not UNSET and (new := _walk(field, value, words, then)) != value:
            said[field.name] = field.empty() if new is UNSET else new
    if not said:
        return part
    new_part = structs.replace(part, **said)
    return new_part if then is None else structs.replace(new_part, **then(new_part))


def masked(part: P, mask: Masker) -> P:
    """Return a record without what a mask takes away, and without digests by which that could be tried."""

    def words(field: Field, value: Any) -> Any:  # noqa: ANN401 - JSON of any shape
        if field.holds == "digest":
            return value
        told = mask.value(value)
        if not isinstance(told, str) or told == value:
            return told
        # An address has no spaces; what stands for something long may itself be longer.
        return (told.replace(" ", "-") if field.holds == "uri" else told)[: field.most]

    return changed(part, words, _without_digests)


def wordless(part: P) -> P:
    """Return a record that says what happened to what, and quotes nothing."""
    if isinstance(part, ContextSourceRef):
        part = structs.replace(part, selector=UNSET)
    return changed(part, lambda field, value: value if field.holds in {"uri", "name"} else UNSET)


def unquoted(record: R, which: Callable[[Block | ContextSummary], bool], *, digests: bool) -> R:
    """Return a record that names what it quotes instead of saying it: an assembly its blocks, a summary its text.

    Without ``digests`` nobody can tell by trying what it was.
    """
    match record:
        case ContextSummary() if which(record):
            return structs.replace(record, **_by_name(record, record.summary_id, digests=digests))
        case ContextAssembly():
            blocks = tuple(
                structs.replace(block, **_by_name(block, f"{record.assembly_id}#{place}", digests=digests))
                if which(block)
                else block
                for place, block in enumerate(record.ordered_blocks)
            )
            return structs.replace(record, ordered_blocks=blocks)
        case _:
            return record


def _by_name(part: Block | ContextSummary, name: str, *, digests: bool) -> dict[str, Any]:
    """Return what makes a part name what it says."""
    if part.content is not UNSET:
        link = Link(kind="content", id=name[:_LONGEST_ID], digest=digest_of(part.content) if digests else UNSET)
        return {"content": UNSET, "content_ref": part.content_ref or link, "token_estimate": UNSET}
    if digests or not isinstance(part.content_ref, Link):
        return {}
    return {"content_ref": structs.replace(part.content_ref, digest=UNSET), "token_estimate": UNSET}


def _without_digests(part: RecordPart) -> dict[str, Any]:
    """Return what takes the digests away from a part whose words are not those they were taken of.

    What an item says is masked for itself, and then has a digest of its own.
    """
    said: dict[str, Any] = {field.name: UNSET for field in _fields(type(part)) if field.holds == "digest"}
    said |= {name: _no_digest(value) for name in ("metadata", "data") if (value := getattr(part, name, None))}
    ref = UNSET if isinstance(part, ContextItem) else getattr(part, "content_ref", UNSET)
    return {**said, "content_ref": structs.replace(ref, digest=UNSET)} if isinstance(ref, Link) else said


def _no_digest(value: Any) -> Any:  # noqa: ANN401 - JSON of any shape
    if isinstance(value, dict):
        return {name: _no_digest(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_no_digest(inner) for inner in value]
    return WITHHELD if isinstance(value, str) and _IS_DIGEST.match(value) else value


def _walk(
    field: Field,
    value: Any,  # noqa: ANN401 - JSON of any shape
    words: Callable[[Field, Any], Any],
    then: Callable[[RecordPart], dict[str, Any]] | None,
) -> Any:  # noqa: ANN401 - likewise
    if isinstance(value, RecordPart):
        return changed(value, words, then)
    if isinstance(value, tuple):
        walked = (_walk(field, inner, words, then) for inner in value)
        return tuple(inner for inner in walked if inner is not UNSET)
    return value if field.holds == "parts" else words(field, value)


@cache
def _fields(kind: type[RecordPart]) -> tuple[Field, ...]:
    """Return those fields of a type that can hold words."""
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)  # noqa: S101 - a part is a struct
    return tuple(found for field in info.fields if (found := _field(field)) is not None)


def _field(field: msgspec.inspect.Field) -> Field | None:
    types = list(_single(field.type))
    most = next((each.max_length for each in types if isinstance(each, msgspec.inspect.StrType)), None)
    held = {sort for each in types if (sort := _sort_of(each, field.name)) is not None}
    holds = next((sort for sort in _SORTS if sort in held), None)
    return None if holds is None else Field(field.name, holds, most, lambda: _empty(field, types))


def _single(kind: msgspec.inspect.Type) -> Iterator[msgspec.inspect.Type]:
    """Yield the types that one value of a field can have."""
    match kind:
        case msgspec.inspect.Metadata():
            yield from _single(kind.type)
        case msgspec.inspect.UnionType():
            for each in kind.types:
                yield from _single(each)
        case msgspec.inspect.VarTupleType():
            yield from _single(kind.item_type)
        case _:
            yield kind


def _sort_of(kind: msgspec.inspect.Type, name: str) -> Sort | None:
    match kind:
        case msgspec.inspect.StructType():
            return "parts"
        case msgspec.inspect.AnyType() | msgspec.inspect.DictType(value_type=msgspec.inspect.AnyType()):
            return "json"
        case msgspec.inspect.StrType(pattern=pattern) if pattern in {_URI, _DIGEST}:
            return "uri" if pattern == _URI else "digest"
        case msgspec.inspect.StrType(pattern=pattern, max_length=most):
            is_words = most != _LONGEST_ID and (pattern is None or most is not None)
            if is_words or name in _WORDS_LIKE_IDS:
                return "text"
            return "name" if name in _KINDS else None
        case _:
            return None


def _empty(field: msgspec.inspect.Field, types: list[msgspec.inspect.Type]) -> Any:  # noqa: ANN401 - JSON of any shape
    """Return what a field says that says nothing."""
    if field.default_factory is not NODEFAULT:
        return field.default_factory()
    if field.default is not NODEFAULT or not field.required:
        return UNSET if field.default is NODEFAULT else field.default
    return {} if any(isinstance(each, msgspec.inspect.DictType) for each in types) else WITHHELD
