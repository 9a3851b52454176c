"""Hypothesis strategies that build valid records from their types."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec.inspect as kinds
from hypothesis import strategies as st

from weftline.kernel.fields import MAX_INT
from weftline.records.model import RECORD_TYPES
from weftline.records.vocabulary import Ordered, RequiresAny

if TYPE_CHECKING:
    from collections.abc import Callable

    from weftline.records.model import Record
    from weftline.records.refs import RecordPart

_TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
_ZONES = st.integers(-18 * 60, 18 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
_TIMES = st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1), timezones=st.just(UTC) | _ZONES)  # noqa: DTZ001
_SCALARS = st.none() | st.booleans() | st.integers(-MAX_INT, MAX_INT) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    _SCALARS | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)


@cache
def records(record_type: str) -> st.SearchStrategy[Record]:
    return _parts(RECORD_TYPES[record_type])


@cache
def _parts(part_type: type[RecordPart]) -> st.SearchStrategy[Any]:
    fields = kinds.type_info(part_type).fields  # type: ignore[attr-defined]
    strategies = {field.name: _values(field.type) for field in fields}
    required = {field.name for field in fields if field.required}

    @st.composite
    def part(draw: st.DrawFn) -> RecordPart:
        names = draw(st.sets(st.sampled_from(sorted(strategies)), max_size=5)) | required
        values = {name: draw(strategies[name]) for name in sorted(names)}
        for rule in part_type.constraints:
            values |= _fulfil(rule, values, strategies, draw)
        return part_type(**values)

    return part()


def _texts(kind: kinds.StrType) -> st.SearchStrategy[str]:
    if kind.pattern is None:
        return st.text(st.characters(codec="utf-8"), min_size=kind.min_length or 0, max_size=12)
    matching = st.from_regex(kind.pattern, alphabet=st.characters(codec="utf-8"))
    return matching.filter(lambda text: len(text) <= (kind.max_length or MAX_INT))


_STRATEGIES: dict[type[kinds.Type], Callable[[Any], st.SearchStrategy[Any]]] = {
    kinds.Metadata: lambda kind: _values(kind.type),
    kinds.StructType: lambda kind: _parts(kind.cls),
    kinds.UnionType: lambda kind: st.one_of(*map(_values, kind.types)),
    kinds.VarTupleType: lambda kind: st.lists(_values(kind.item_type), min_size=kind.min_length or 0, max_size=3).map(
        tuple
    ),
    kinds.DictType: lambda kind: st.dictionaries(_TEXT, _values(kind.value_type), max_size=2),
    kinds.LiteralType: lambda kind: st.sampled_from(kind.values),
    kinds.StrType: _texts,
    kinds.IntType: lambda kind: st.integers(-MAX_INT if kind.ge is None else kind.ge, kind.le or MAX_INT),
    kinds.FloatType: lambda kind: st.floats(min_value=kind.ge, allow_nan=False, allow_infinity=False),
    kinds.BoolType: lambda _: st.booleans(),
    kinds.DateTimeType: lambda _: _TIMES,
    kinds.AnyType: lambda _: JSON,
}


def _values(kind: kinds.Type) -> st.SearchStrategy[Any]:
    return _STRATEGIES[type(kind)](kind)


def _fulfil(
    rule: RequiresAny | Ordered, values: dict[str, Any], strategies: dict[str, st.SearchStrategy[Any]], draw: st.DrawFn
) -> dict[str, Any]:
    """Return the values to add or change so that a constraint holds."""
    if isinstance(rule, Ordered):
        ordered = sorted(values[name] for name in (rule.first, rule.second) if name in values)
        return dict(zip((rule.first, rule.second), ordered, strict=True)) if len(ordered) == 2 else {}
    applies = rule.field is None or values.get(rule.field) in rule.values
    if not applies or any(values.get(name, ()) != () for name in rule.any_of):
        return {}
    name = draw(st.sampled_from(rule.any_of))
    return {name: draw(strategies[name].filter(lambda value: value != ()))}
