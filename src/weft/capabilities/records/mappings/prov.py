"""W3C PROV: what things are called in a PROV-JSON document, and what they were made from, by and for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from weft.capabilities.records.mappings.natives import fitting, object_of
from weft.capabilities.records.refs import ProvMapping

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Mapping as Object

# Each relation of an entity: what PROV-JSON calls the entity in it, and the other side.
_RELATIONS = {
    "wasDerivedFrom": ("prov:generatedEntity", "prov:usedEntity"),
    "wasAttributedTo": ("prov:entity", "prov:agent"),
    "wasGeneratedBy": ("prov:entity", "prov:activity"),
}
_SORTS = ("entity", "activity", "agent")


def mappings_in(document: Object[str, Any]) -> dict[str, ProvMapping]:
    """Return what a document says of each thing it declares, by the thing's id there."""
    found: dict[str, ProvMapping] = {}
    for sort in _SORTS:
        for identity in object_of(document, sort):
            of_entity = {name: _others(document, name, identity) for name in _RELATIONS} if sort == "entity" else {}
            found[identity] = fitting(ProvMapping, **{sort: identity}, **of_entity)
    return found


def document_of(mappings: Iterable[ProvMapping], prefixes: Object[str, str]) -> dict[str, Any]:
    """Return a PROV-JSON document that says what these mappings do; every id needs its prefix."""
    document: dict[str, Any] = {"prefix": dict(prefixes)}
    for mapping in mappings:
        for sort, identity in _declared(mapping):
            document.setdefault(sort, {}).setdefault(identity, {})
        for name, relation in _related(mapping):
            known = document.setdefault(name, {})
            known[f"_:{name}{len(known) + 1}"] = relation
    return document


def _declared(mapping: ProvMapping) -> Iterator[tuple[str, str]]:
    for sort in _SORTS:
        identity = getattr(mapping, sort)
        if identity is not UNSET:
            yield sort, identity


def _related(mapping: ProvMapping) -> Iterator[tuple[str, dict[str, str]]]:
    others = {
        "wasDerivedFrom": mapping.was_derived_from,
        "wasAttributedTo": mapping.was_attributed_to,
        "wasGeneratedBy": mapping.was_generated_by,
    }
    if mapping.entity is not UNSET:
        for name, (itself, other) in _RELATIONS.items():
            yield from ((name, {itself: mapping.entity, other: identity}) for identity in others[name])


def _others(document: Object[str, Any], name: str, entity: str) -> tuple[str, ...]:
    itself, other = _RELATIONS[name]
    told = (relation for kept in object_of(document, name).values() for relation in _each(kept))
    return tuple(relation[other] for relation in told if relation.get(itself) == entity and other in relation)


def _each(kept: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - whatever a native object holds
    """Return what is said under one id: PROV-JSON has a list there if it is said several times."""
    return [each for each in (kept if isinstance(kept, list) else [kept]) if isinstance(each, dict)]
