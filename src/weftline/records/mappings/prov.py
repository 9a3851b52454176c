"""W3C PROV: ids and relations in a PROV-JSON document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from weftline.records.mappings.natives import build_part, object_of
from weftline.records.refs import ProvMapping

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Mapping as Object

# Relations of an entity: the PROV-JSON keys of the entity and of the other side.
_RELATIONS = {
    "wasDerivedFrom": ("prov:generatedEntity", "prov:usedEntity"),
    "wasAttributedTo": ("prov:entity", "prov:agent"),
    "wasGeneratedBy": ("prov:entity", "prov:activity"),
}
_KINDS = ("entity", "activity", "agent")


def mappings_in(document: Object[str, Any]) -> dict[str, ProvMapping]:
    """Return the mapping of every element that a document declares, by its id."""
    found: dict[str, ProvMapping] = {}
    for kind in _KINDS:
        for identity in object_of(document, kind):
            of_entity = {name: _others(document, name, identity) for name in _RELATIONS} if kind == "entity" else {}
            found[identity] = build_part(ProvMapping, **{kind: identity}, **of_entity)
    return found


def document_of(mappings: Iterable[ProvMapping], prefixes: Object[str, str]) -> dict[str, Any]:
    """Return a PROV-JSON document with the elements of the mappings; ``prefixes`` must cover every id."""
    document: dict[str, Any] = {"prefix": dict(prefixes)}
    for mapping in mappings:
        for kind, identity in _declared(mapping):
            document.setdefault(kind, {}).setdefault(identity, {})
        for name, relation in _related(mapping):
            known = document.setdefault(name, {})
            known[f"_:{name}{len(known) + 1}"] = relation
    return document


def _declared(mapping: ProvMapping) -> Iterator[tuple[str, str]]:
    for kind in _KINDS:
        identity = getattr(mapping, kind)
        if identity is not UNSET:
            yield kind, identity


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
    relations = (relation for value in object_of(document, name).values() for relation in _as_list(value))
    return tuple(relation[other] for relation in relations if relation.get(itself) == entity and other in relation)


def _as_list(value: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - a field of a native object
    """Return the objects under one id: PROV-JSON has an object or a list of them there."""
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict)]
