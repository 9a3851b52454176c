"""Source of the TypeScript client's types and routes, from the OpenAPI document.

openapi-typescript would need node wherever generated files are checked, and describes routes, not operations.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, get_args, get_type_hints

import msgspec
from error_tree import KINDS, all_errors, kind_of

from weftline.app.registry import all_operations
from weftline.kernel.errors import ErrorBody
from weftline.kernel.operation import Operation
from weftline.transports.http.openapi import openapi_document

PATH = "clients/typescript/src/generated.ts"
_HEADER = "// Written by scripts/generate.py from the OpenAPI document; change the operations instead.\n"
_IMPORT = 'import type { CallOptions } from "./client.js";\n'
# Any other value is unknown, so that callers say what they expect.
_SCALARS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
_NO_VALUE = object()
_WIDTH = 120

Schema = dict[str, Any]


def typescript_files() -> dict[str, str]:
    """Return the source of the generated module by path."""
    operations = list(all_operations())
    document = json.loads(json.dumps(openapi_document(all_operations())))
    calls = {_name(call): (route, call) for route, call in _calls(document)}
    routes = {operation.name: f"{operation.route.method} {operation.route.path}" for operation in operations}
    present = _present_fields(operations)
    parts = [
        _HEADER + _IMPORT,
        *(_named_type(name, schema, present.get(name, set())) for name, schema in _used(document).items()),
        *(_parameters(name, call) for name, (_, call) in calls.items()),
        _operations(calls),
        _errors(),
        _routes({name: routes.get(name, route) for name, (route, _) in calls.items()}),
    ]
    return {PATH: "\n".join(parts)}


def _calls(document: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield the route and the description of every operation, by name."""
    found = [
        (f"{method.upper()} {path}", {**call, "parameters": [*item.get("parameters", ()), *call.get("parameters", ())]})
        for path, item in document["paths"].items()
        for method, call in item.items()
        if method != "parameters"
    ]
    yield from sorted(found, key=lambda each: _name(each[1]))


def _name(call: Schema) -> str:
    group: str = call["tags"][0]
    return f"{group}.{call['operationId'].removeprefix(f'{group}_')}"


def _used(document: Schema) -> dict[str, Schema]:
    """Return the schemas that operations refer to; one schema may be there for another one only."""
    schemas: dict[str, Schema] = document["components"]["schemas"]
    found: dict[str, Schema] = {}
    waiting = set(_references(document["paths"]))
    while waiting:
        name = waiting.pop()
        found[name] = schemas[name]
        waiting |= set(_references(schemas[name])) - found.keys()
    return dict(sorted(found.items()))


def _references(part: Any) -> Iterator[str]:  # noqa: ANN401 - any part of a document
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str) and part["$ref"].startswith("#/components/"):
            yield _referred(part)
        part = list(part.values())
    if isinstance(part, list):
        for inner in part:
            yield from _references(inner)


def _referred(schema: Schema) -> str:
    return str(schema["$ref"].rpartition("/")[2])


def _present_fields(operations: Sequence[Operation]) -> dict[str, set[str]]:
    """Return the fields that answers always have, also those with a default, by the name of their type."""
    sent = {part for operation in operations for part in _structs(operation.request)}
    answered = {part for operation in operations for part in _structs(operation.response)} | {ErrorBody}
    return {
        part.__name__: {name for name, hint in get_type_hints(part).items() if msgspec.UnsetType not in get_args(hint)}
        for part in answered - sent
        if not part.__struct_config__.omit_defaults
    }


def _structs(hint: Any, found: set[Any] | None = None) -> set[type[msgspec.Struct]]:  # noqa: ANN401 - types are values of many kinds
    """Return every struct that a type contains."""
    found = set() if found is None else found
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct) and hint not in found:
        found.add(hint)
        for inner in get_type_hints(hint).values():
            _structs(inner, found)
    for argument in get_args(hint):
        _structs(argument, found)
    return found


def _named_type(name: str, schema: Schema, present: set[str]) -> str:
    comment = _comment(schema.get("description", ""))
    if "properties" not in schema:
        return f"{comment}export type {name} = {_type(schema)};"
    return f"{comment}export interface {name} {{\n{_fields(schema, present)}}}"


def _parameters(name: str, call: Schema) -> str:
    """Return the type of what a caller passes: path, query and body are one object."""
    body = call.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    places = {field["name"]: {"description": field["description"], **field["schema"]} for field in call["parameters"]}
    required = [field["name"] for field in call["parameters"] if field["required"]]
    schema = {
        "properties": {**places, **body.get("properties", {})},
        "required": [*required, *body.get("required", ())],
    }
    return f"export interface {_parameters_name(name)} {{\n{_fields(schema)}}}"


def _parameters_name(name: str) -> str:
    return "".join(part.title() for part in re.split(r"[._]", name)) + "Params"


def _fields(schema: Schema, present: AbstractSet[str] = frozenset()) -> str:
    """Return the fields of a type; those without a description share lines."""
    required = {*schema.get("required", ()), *present}
    lines = [""]
    for name, field in schema["properties"].items():
        text = f"{_key(name)}{'' if name in required else '?'}: {_type(field)};"
        comment = _comment(_with_default(field))
        if comment:
            lines += [comment.strip() + " " + text, ""]
        elif lines[-1] and len(lines[-1]) + len(text) < _WIDTH:
            lines[-1] += f" {text}"
        else:
            lines.append(text)
    return "".join(f"  {line}\n" for line in lines if line)


def _with_default(field: Schema) -> str:
    default = field.get("default", _NO_VALUE)
    shown = "" if default in (_NO_VALUE, None, [], {}) else f" Default: {json.dumps(default, ensure_ascii=False)}."
    text: str = field.get("description", "")
    return f"{text}{shown}".strip() if text else ""


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_$][\w$]*", name) else json.dumps(name)


def _type(schema: Schema) -> str:
    """Return the type of a schema."""
    if isinstance(schema.get("$ref"), str):
        return _referred(schema)
    if "const" in schema or "enum" in schema:
        return " | ".join(json.dumps(value, ensure_ascii=False) for value in schema.get("enum", [schema.get("const")]))
    if "anyOf" in schema:
        kinds = list(dict.fromkeys(_type(part) for part in schema["anyOf"]))
        # Any JSON value, spelled out.
        return "unknown" if {"unknown[]", "Record<string, unknown>"} <= set(kinds) else " | ".join(kinds)
    kind = schema.get("type")
    if kind == "array":
        return _array(schema)
    return _object(schema) if kind == "object" else _SCALARS.get(str(kind), "unknown")


def _array(schema: Schema) -> str:
    if "prefixItems" in schema:
        return f"[{', '.join(_type(part) for part in schema['prefixItems'])}]"
    inner = _type(schema.get("items", {}))
    return f"({inner})[]" if " | " in inner else f"{inner}[]"


def _object(schema: Schema) -> str:
    if "properties" in schema:
        return "{ " + " ".join(f"{_key(name)}: {_type(part)};" for name, part in schema["properties"].items()) + " }"
    values = schema.get("additionalProperties")
    return f"Record<string, {_type(values) if isinstance(values, dict) else 'unknown'}>"


def _operations(calls: dict[str, tuple[str, Schema]]) -> str:
    """Return the interface of all operations, by group."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name, (_, call) in calls.items():
        group, _, verb = name.partition(".")
        given = f"params{'' if _is_needed(call) else '?'}: {_parameters_name(name)}"
        groups[group].append(
            f"{_comment(_help(call), '    ')}    {verb}({given}, options?: CallOptions): Promise<{_answer(call)}>;\n"
        )
    body = "".join(f"  {group}: {{\n{''.join(methods)}  }};\n" for group, methods in groups.items())
    return f"/** Every operation, by group. */\nexport interface Operations {{\n{body}}}"


def _is_needed(call: Schema) -> bool:
    return any(field["required"] for field in call["parameters"]) or call.get("requestBody", {}).get("required", False)


def _help(call: Schema) -> str:
    text = call.get("description", call["summary"])
    codes = [
        code
        for status, answer in call["responses"].items()
        if status in {"404", "409"}
        for code in answer["description"].split(", ")
    ]
    return f"{text}\n\nErrors: {', '.join(codes)}." if codes else text


def _answer(call: Schema) -> str:
    content = next(answer for status, answer in call["responses"].items() if status.startswith("2"))["content"]
    return _type(next(iter(content.values()))["schema"])


def _comment(text: str, indent: str = "") -> str:
    """Return a doc comment; reStructuredText's code becomes that of Markdown."""
    lines = [line.strip() for line in text.replace("``", "`").replace("*/", "*\\/").strip().splitlines()]
    if not lines:
        return ""
    if len(lines) == 1:
        return f"{indent}/** {lines[0]} */\n"
    return f"{indent}/**\n" + "".join(f"{indent} * {line}".rstrip() + "\n" for line in lines) + f"{indent} */\n"


def _errors() -> str:
    """Return the codes of each kind of error; codes of the base class are of none."""
    codes: dict[str, list[str]] = {kind.__name__: [] for kind in KINDS}
    for error in all_errors():
        codes.setdefault(kind_of(error).__name__, []).append(error.code)
    lines = "".join(f"  {kind}: {json.dumps(sorted(set(found)))},\n" for kind, found in codes.items())
    return f"/** The codes of each kind of error. */\nexport const CODES = {{\n{lines}}} as const;"


def _routes(routes: dict[str, str]) -> str:
    """Return the route of each operation; a path parameter may contain slashes where it says so."""
    shown = {name: route.replace(":int}", "}") for name, route in routes.items()}
    lines = "".join(f"  {json.dumps(name)}: {json.dumps(route)},\n" for name, route in shown.items())
    return f"export const ROUTES: Readonly<Record<string, string>> = {{\n{lines}}};\n"
