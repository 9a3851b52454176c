"""OpenAPI 3.1 document of the registry."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from weftline import __version__
from weftline.kernel.errors import (
    AuthenticationError,
    ErrorBody,
    InvalidInput,
    NotFound,
    PermissionDenied,
    RateLimited,
    WeftlineError,
    shown_path,
)
from weftline.kernel.operation import Audience
from weftline.kernel.schema import schemas_of
from weftline.transports.http.schemas import schema_paths

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weftline.kernel.operation import Operation, Registry

_REFERENCE = "#/components/schemas/{name}"
_IN_PATH = re.compile(r"{(\w+)")


def openapi_document(registry: Registry) -> dict[str, Any]:
    """Describe every route with its parameters, responses and errors."""
    operations = list(registry)
    types = [kind for operation in operations for kind in (operation.request, operation.response)]
    _, parts = schemas_of([*types, ErrorBody], _REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(shown_path(operation.route.path), {})[operation.route.method.lower()] = _describe(
            operation, parts
        )
    paths |= schema_paths(_refusal(NotFound.code, parts))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Weftline",
            "version": __version__,
            "summary": "The context layer for multi-agent systems.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": _referenced(parts, operations),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "API key, or a token issued for one."}
            },
        },
        "security": [{"bearer": []}],
    }


def _describe(operation: Operation, parts: dict[str, Any]) -> dict[str, Any]:
    request = parts[_name_of(operation.request, parts)]
    in_path = _IN_PATH.findall(operation.route.path)
    others = {name: field for name, field in request.get("properties", {}).items() if name not in in_path}
    required = set(request.get("required", ()))
    described: dict[str, Any] = {
        "operationId": operation.name.replace(".", "_"),
        "tags": [operation.group],
        "summary": operation.summary,
        "description": operation.help,
        "parameters": [_parameter(name, request["properties"][name], "path", required=True) for name in in_path],
        "responses": _responses(operation, parts),
    }
    if operation.audience is Audience.ANONYMOUS:
        described["security"] = []
    if operation.route.method in {"GET", "DELETE"}:
        described["parameters"] += [
            _parameter(name, field, "query", required=name in required) for name, field in others.items()
        ]
    elif others:
        schema = {
            "type": "object",
            "properties": others,
            "required": [name for name in others if name in required],
            "additionalProperties": False,
        }
        described["requestBody"] = {
            "required": bool(schema["required"]),
            "content": {"application/json": {"schema": schema}},
        }
    return described


def _parameter(name: str, field: dict[str, Any], place: str, *, required: bool) -> dict[str, Any]:
    description = field.get("description", "")
    return {"name": name, "in": place, "required": required, "description": description, "schema": field}


def _responses(operation: Operation, parts: dict[str, Any]) -> dict[str, Any]:
    refusals: set[type[WeftlineError]] = {*operation.errors, InvalidInput, RateLimited}
    if operation.audience is not Audience.ANONYMOUS:
        refusals |= {AuthenticationError, PermissionDenied}
    by_status: dict[str, list[str]] = {}
    for error in sorted(refusals, key=lambda error: error.code):
        by_status.setdefault(str(error.http_status), []).append(error.code)
    success = {
        "description": (operation.response.__doc__ or "").strip(),
        "content": {"application/json": {"schema": _reference(operation.response, parts)}},
    }
    return {
        str(operation.route.status): success,
        **{status: _refusal(", ".join(codes), parts) for status, codes in sorted(by_status.items())},
        "default": _refusal("Any other error, in the same format.", parts),
    }


def _refusal(description: str, parts: dict[str, Any]) -> dict[str, Any]:
    return {
        "description": description,
        "content": {"application/json": {"schema": _reference(ErrorBody, parts)}},
    }


def _reference(kind: type, parts: dict[str, Any]) -> dict[str, str]:
    return {"$ref": _REFERENCE.format(name=_name_of(kind, parts))}


def _name_of(kind: type, parts: dict[str, Any]) -> str:
    qualified = f"{kind.__module__}.{kind.__name__}".replace(".", "_")
    return kind.__name__ if kind.__name__ in parts else qualified


def _referenced(parts: dict[str, Any], operations: Iterable[Operation]) -> dict[str, Any]:
    """Remove request schemas: routes list their fields as parameters and bodies."""
    requests = {_name_of(operation.request, parts) for operation in operations}
    return {name: part for name, part in parts.items() if name not in requests}
