"""JSON Schemas of requests and responses, as every face shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weft.kernel.operation import Operation

ACTION = "action"


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
    a tool are merged; each field says which actions it belongs to. ``without`` names fields the caller need not give.
    """
    if operations[0].action is None:
        schema = standalone(operations[0].request)
        return _less(schema, without)
    properties: dict[str, Any] = {
        ACTION: {
            "type": "string",
            "enum": [operation.action for operation in operations],
            "description": " ".join(f"{operation.action}: {operation.summary}" for operation in operations),
        }
    }
    required = {ACTION}
    defs: dict[str, Any] = {}
    schemas = [standalone(operation.request) for operation in operations]
    for schema in schemas:
        defs |= schema.get("$defs", {})
        for name, field in schema["properties"].items():
            if name not in properties:
                properties[name] = {**field, "description": _for_actions(name, field, operations)}
    if all("session_id" in schema.get("required", ()) for schema in schemas):
        required.add("session_id")
    merged = {
        "type": "object",
        "properties": properties,
        "required": sorted(required),
        "additionalProperties": False,
        **({"$defs": defs} if defs else {}),
    }
    return _less(merged, without)


def _for_actions(name: str, field: dict[str, Any], operations: Sequence[Operation]) -> str:
    users = [str(o.action) for o in operations if name in o.request.__struct_fields__]
    description = str(field.get("description", ""))
    return description if len(users) == len(operations) else f"{description} (For {', '.join(users)}.)"


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
