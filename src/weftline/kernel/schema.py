"""JSON Schemas of requests and responses."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from weftline.kernel.operation import Operation

ACTION = "action"
# Keywords that do not constrain values.
_ANNOTATIONS = ("description", "default", "examples")
_BOUNDS: dict[str, Callable[[int, int], int]] = {
    **dict.fromkeys(("minimum", "minLength", "minItems", "minProperties"), min),
    **dict.fromkeys(("maximum", "maxLength", "maxItems", "maxProperties"), max),
}


def schemas_of(types: Iterable[type], ref_template: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return a schema for each type, and the definitions they refer to."""
    schemas, parts = msgspec.json.schema_components(types, ref_template=ref_template)
    return [_portable(schema) for schema in schemas], {name: _portable(part) for name, part in parts.items()}


@cache
def standalone(of: type) -> dict[str, Any]:
    """Return a schema that includes its definitions. The result is cached: do not modify it."""
    (schema,), parts = schemas_of([of], "#/$defs/{name}")
    name = schema["$ref"].rpartition("/")[2]
    top: dict[str, Any] = parts.pop(name)
    used = {part: body for part, body in parts.items() if f"#/$defs/{part}" in str([top, parts])}
    return {**top, "$defs": used} if used else top


def request_schema(operation: Operation, *, without: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return the schema of an operation's request; ``without`` names fields to leave out."""
    return _without(standalone(operation.request), without)


def tool_schema(operations: Sequence[Operation], *, without: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return the input schema of a tool: that of its operation, or of several that differ by ``action``.

    Some providers accept only one flat object at the top level, and models do best with it. So the requests of all
    actions are merged: a field accepts what any action accepts, and its description covers each of them.
    ``without`` names fields to leave out.
    """
    if operations[0].action is None:
        return request_schema(operations[0], without=without)
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
        "properties": {ACTION: action, **{name: _merged_field(name, schemas) for name in fields}},
        "required": sorted({ACTION, *always}),
        "additionalProperties": False,
        **({"$defs": defs} if defs else {}),
    }
    return _without(merged, without)


def _merged_field(name: str, schemas: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return one definition of a field, for all actions that have it."""
    users = {action: schema["properties"][name] for action, schema in schemas.items() if name in schema["properties"]}
    required = [action for action in users if name in schemas[action].get("required", ())]
    remarks = [_descriptions(users)]
    if len(users) < len(schemas):
        remarks.append(f"(For {_list_actions(users, schemas)}.)")
    if required and len(required) < len(schemas):
        remarks.append(
            "(Required.)" if len(required) == len(users) else f"(Required for {_list_actions(required, users)}.)"
        )
    return {**_union(list(users.values())), "description": " ".join(filter(None, remarks))}


def _descriptions(users: Mapping[str, dict[str, Any]]) -> str:
    """Return the description that most actions share, then those of the others."""
    meanings: dict[str, list[str]] = {}
    for action, field in users.items():
        meanings.setdefault(_description(field), []).append(action)
    most, *others = sorted(meanings, key=lambda meaning: -len(meanings[meaning]))
    return " ".join([most, *(f"{', '.join(meanings[meaning])}: {meaning}" for meaning in others)])


def _list_actions(some: Collection[str], every: Collection[str]) -> str:
    """List actions, or the exceptions where that is shorter."""
    others = [action for action in every if action not in some]
    return ", ".join(some) if len(some) <= len(others) + 1 else f"all but {', '.join(others)}"


def _description(field: dict[str, Any]) -> str:
    """Return the description of a field, or of its first alternative that has one."""
    inner = [alternative.get("description", "") for alternative in field.get("anyOf", ())]
    return str(field.get("description") or next(filter(None, inner), ""))


def _union(definitions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a definition that accepts what any of these accepts; with their default if all have the same."""
    first = definitions[0]
    if all(definition == first for definition in definitions):
        return first
    alternatives: list[dict[str, Any]] = []
    for definition in definitions:
        for alternative in definition.get("anyOf", [definition]):
            _add_alternative(alternatives, {key: part for key, part in alternative.items() if key not in _ANNOTATIONS})
    agreed = "default" in first and all(
        definition.get("default", ...) == first["default"] for definition in definitions
    )
    accepted = alternatives[0] if len(alternatives) == 1 else {"anyOf": alternatives}
    return {**accepted, "default": first["default"]} if agreed else accepted


def _add_alternative(alternatives: list[dict[str, Any]], another: dict[str, Any]) -> None:
    """Add an alternative; if it differs only in bounds from a known one, widen those."""
    for place, known in enumerate(alternatives):
        if _without_bounds(known) == _without_bounds(another):
            bounds = {
                bound: wider(known[bound], another[bound])
                for bound, wider in _BOUNDS.items()
                if bound in known and bound in another
            }
            alternatives[place] = {**_without_bounds(known), **bounds}
            return
    alternatives.append(another)


def _without_bounds(definition: dict[str, Any]) -> dict[str, Any]:
    return {key: part for key, part in definition.items() if key not in _BOUNDS}


def _without(schema: dict[str, Any], without: frozenset[str]) -> dict[str, Any]:
    properties = {name: field for name, field in schema.get("properties", {}).items() if name not in without}
    required = [name for name in schema.get("required", []) if name not in without]
    return {**schema, "properties": properties, "required": required}


def _portable(schema: Any) -> Any:  # noqa: ANN401 - any part of a JSON Schema
    r"""Replace \Z, which only Python knows, with $. In Python $ would also match before a trailing newline."""
    if isinstance(schema, dict):
        return {key: _portable(value) for key, value in schema.items()}
    if isinstance(schema, list):
        return [_portable(value) for value in schema]
    return schema.replace("\\Z", "$") if isinstance(schema, str) and schema.endswith("\\Z") else schema
