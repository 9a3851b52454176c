"""JSON Schemas of requests and responses, as every face shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from weft.kernel.operation import Operation

ACTION = "action"
# What a definition says besides what it accepts.
_REMARKS = ("description", "default", "examples")
_BOUNDS: dict[str, Callable[[int, int], int]] = {
    **dict.fromkeys(("minimum", "minLength", "minItems", "minProperties"), min),
    **dict.fromkeys(("maximum", "maxLength", "maxItems", "maxProperties"), max),
}


def schemas_of(types: Iterable[type], ref_template: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return a schema for each type, and the named parts they refer to."""
    schemas, parts = msgspec.json.schema_components(types, ref_template=ref_template)
    return [_portable(schema) for schema in schemas], {name: _portable(part) for name, part in parts.items()}


def standalone(of: type) -> dict[str, Any]:
    """Return one schema that carries everything it refers to."""
    (schema,), parts = schemas_of([of], "#/$defs/{name}")
    name = schema["$ref"].rpartition("/")[2]
    top: dict[str, Any] = parts.pop(name)
    used = {part: body for part, body in parts.items() if f"#/$defs/{part}" in str([top, parts])}
    return {**top, "$defs": used} if used else top


def tool_schema(operations: Sequence[Operation], *, without: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return what a tool takes: an operation's request, or several told apart by ``action``.

    Models do best with one flat object, and some providers refuse anything else at the top, so the requests behind
    a tool are merged: a field accepts what any of its actions accepts, and says what it is for each of them.
    ``without`` names fields the caller need not give.
    """
    if operations[0].action is None:
        return _less(standalone(operations[0].request), without)
    schemas = {str(operation.action): standalone(operation.request) for operation in operations}
    fields = dict.fromkeys(name for schema in schemas.values() for name in schema["properties"])
    action = {
        "type": "string",
        "enum": list(schemas),
        "description": " ".join(f"{operation.action}: {operation.summary}" for operation in operations),
    }
    always = set.intersection(*(set(schema.get("required", ())) for schema in schemas.values()))
    defs = {name: part for schema in schemas.values() for name, part in schema.get("$defs", {}).items()}
    merged = {
        "type": "object",
        "properties": {ACTION: action, **{name: _shared(name, schemas) for name in fields}},
        "required": sorted({ACTION, *always}),
        "additionalProperties": False,
        **({"$defs": defs} if defs else {}),
    }
    return _less(merged, without)


def _shared(name: str, schemas: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return one definition of a field for all actions that have it."""
    users = {action: schema["properties"][name] for action, schema in schemas.items() if name in schema["properties"]}
    required = [action for action in users if name in schemas[action].get("required", ())]
    remarks = [_meaning(users)]
    if len(users) < len(schemas):
        remarks.append(f"(For {_listed(users, schemas)}.)")
    if required and len(required) < len(schemas):
        remarks.append("(Required.)" if len(required) == len(users) else f"(Required for {_listed(required, users)}.)")
    return {**_widest(list(users.values())), "description": " ".join(filter(None, remarks))}


def _meaning(users: Mapping[str, dict[str, Any]]) -> str:
    """Return what a field is: what it is to most actions, and then what it is to the others."""
    meanings: dict[str, list[str]] = {}
    for action, field in users.items():
        meanings.setdefault(_description(field), []).append(action)
    most, *others = sorted(meanings, key=lambda meaning: -len(meanings[meaning]))
    return " ".join([most, *(f"{', '.join(meanings[meaning])}: {meaning}" for meaning in others)])


def _listed(some: Collection[str], every: Collection[str]) -> str:
    """Name actions, or those that are left out where that is shorter."""
    others = [action for action in every if action not in some]
    return ", ".join(some) if len(some) <= len(others) + 1 else f"all but {', '.join(others)}"


def _description(field: dict[str, Any]) -> str:
    """Return what a field says of itself, or else what the one thing it may be says."""
    inner = [alternative.get("description", "") for alternative in field.get("anyOf", ())]
    return str(field.get("description") or next(filter(None, inner), ""))


def _widest(definitions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a definition that accepts whatever one of these accepts; a default stays where all have the same."""
    first = definitions[0]
    if all(definition == first for definition in definitions):
        return first
    alternatives: list[dict[str, Any]] = []
    for definition in definitions:
        for alternative in definition.get("anyOf", [definition]):
            _add_alternative(alternatives, {key: part for key, part in alternative.items() if key not in _REMARKS})
    agreed = "default" in first and all(
        definition.get("default", ...) == first["default"] for definition in definitions
    )
    accepted = alternatives[0] if len(alternatives) == 1 else {"anyOf": alternatives}
    return {**accepted, "default": first["default"]} if agreed else accepted


def _add_alternative(alternatives: list[dict[str, Any]], another: dict[str, Any]) -> None:
    """Add what else is accepted; where only bounds differ, the wider ones hold."""
    for place, known in enumerate(alternatives):
        if _unbounded(known) == _unbounded(another):
            bounds = {
                bound: wider(known[bound], another[bound])
                for bound, wider in _BOUNDS.items()
                if bound in known and bound in another
            }
            alternatives[place] = {**_unbounded(known), **bounds}
            return
    alternatives.append(another)


def _unbounded(definition: dict[str, Any]) -> dict[str, Any]:
    return {key: part for key, part in definition.items() if key not in _BOUNDS}


def _less(schema: dict[str, Any], without: frozenset[str]) -> dict[str, Any]:
    properties = {name: field for name, field in schema.get("properties", {}).items() if name not in without}
    required = [name for name in schema.get("required", []) if name not in without]
    return {**schema, "properties": properties, "required": required}


def _portable(schema: Any) -> Any:  # noqa: ANN401 - any part of a JSON Schema
    r"""Rewrite what only Python understands: \Z, which unlike $ in Python never allows a trailing newline."""
    if isinstance(schema, dict):
        return {key: _portable(value) for key, value in schema.items()}
    if isinstance(schema, list):
        return [_portable(value) for value in schema]
    return schema.replace("\\Z", "$") if isinstance(schema, str) and schema.endswith("\\Z") else schema
