"""Reference pages generated from the registry, the error tree and the settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import groupby
from typing import Any

import msgspec
from command_line_page import command_line_page
from error_tree import all_errors, kind_of

from weftline.client._calling import method_name
from weftline.kernel.errors import (
    AuthenticationError,
    InternalError,
    InvalidInput,
    PermissionDenied,
    RateLimited,
    SystemUnavailable,
    WeftlineError,
    shown_path,
)
from weftline.kernel.fields import MAX_INT
from weftline.kernel.operation import Audience, Operation, Response
from weftline.kernel.schema import schemas_of
from weftline.settings import DEFAULT_RATES, Settings
from weftline.transports.cli.command_names import command_name

Schema = Mapping[str, Any]

_NOTE = "<!-- Written by scripts/generate.py; run it again rather than editing this page. -->\n"
_AUDIENCES = {
    Audience.EVERYONE: "every principal with the permission",
    Audience.NOT_SUBAGENTS: "orchestrators and humans; sub-agents are refused",
    Audience.HUMANS: "humans; agents are refused",
    Audience.ANONYMOUS: "anyone: the request itself carries the credential",
}
_ANY_CALL = (InvalidInput, AuthenticationError, PermissionDenied, RateLimited, SystemUnavailable, InternalError)
_CLIENT_SETTINGS = (
    (
        "WEFTLINE_URL",
        "",
        "URL of the server to call; without it, clients call http://127.0.0.1:8787 and commands use the data folder.",
    ),
    ("WEFTLINE_API_KEY", "none", "API key or token of the clients and the command line."),
    ("WEFTLINE_SESSION", "none", "Session that commands act in when none is named."),
    ("WEFTLINE_TURN", "none", "Turn that what commands do is part of, by its id."),
    ("WEFTLINE_TASK", "none", "Task that what commands do is part of, by its id."),
    ("WEFTLINE_HOOKS_DIR", "~/.weftline/hooks", "Folder of the socket and the log of the hooks of coding agents."),
    ("WEFTLINE_HOOKS_SECONDS", "0.25", "Time that a hook of a coding agent waits at most."),
)
_PARAMETER_HEAD = ("type", "required or default", "range", "meaning")
_FIELD_HEAD = ("field", "type", "left out")
_RANGES = (
    ("minimum", "maximum", ""),
    ("exclusiveMinimum", "exclusiveMaximum", " exclusive"),
    ("minLength", "maxLength", " characters"),
    ("minItems", "maxItems", " items"),
)


def reference_pages(operations: Sequence[Operation]) -> dict[str, str]:
    """Return the text of every page by path."""
    return {
        **operation_pages(operations),
        "docs/reference/errors.md": errors_page(operations),
        "docs/reference/settings.md": settings_page(),
        "docs/reference/command-line.md": _NOTE + "\n" + command_line_page(operations),
    }


def operation_pages(operations: Sequence[Operation]) -> dict[str, str]:
    """Return an index of all operations, a page for each group of them, and one of the shapes that they share."""
    parts, folder = Parts(operations), "docs/reference/operations"
    shapes = [_NOTE, "# Shared shapes", "", "Types of fields of several operations.", *parts.shared()]
    pages = {f"{folder}.md": _operations_index(operations), f"{folder}/shapes.md": "\n".join(shapes) + "\n"}
    for group, members in groupby(sorted(operations, key=lambda op: op.group), key=lambda op: op.group):
        lines = [_NOTE, f"# Operations: {group}"]
        for operation in members:
            lines += ["", *_operation(operation, parts)]
        pages[f"{folder}/{_page_of(group)}"] = "\n".join(lines) + "\n"
    return pages


def _page_of(group: str) -> str:
    return f"{group.replace('_', '-')}.md"


def _link_to(operation: Operation) -> str:
    """Return a link to an operation from a page of the reference."""
    return f"[`{operation.name}`](operations/{_page_of(operation.group)}#{_anchor(operation.name)})"


def _operations_index(operations: Sequence[Operation]) -> str:
    lines = [
        _NOTE,
        "# Operations",
        "",
        "Each operation is defined once for every interface: an MCP tool, a REST route, a command and a Python",
        "method, with the same fields, the same answer and the same errors. `Client`, `SyncClient` and `Weftline.open`",
        "share the method names; fields that are not required are keyword arguments.",
        "",
        f"Besides the errors that its page names, any call can end with {_codes(_ANY_CALL)}.",
    ]
    for group, members in groupby(sorted(operations, key=lambda op: op.group), key=lambda op: op.group):
        rows = [(_link_to(operation), operation.summary) for operation in members]
        lines += ["", f"## {group}", "", *_table(("operation", "what it does"), rows)]
    return "\n".join(lines) + "\n"


def errors_page(operations: Sequence[Operation]) -> str:
    lines = [
        _NOTE,
        "# Errors",
        "",
        "Every interface reports errors in one format:",
        "",
        *_table(("field", "type", "meaning"), _error_fields()),
        "",
        "Python raises the class named here, from `weftline.errors`. Its kind decides how each interface answers:",
        "the HTTP status, the exit code of a command, and which base class catches it.",
    ]
    for error in all_errors():
        lines += ["", *_error(error, operations)]
    return "\n".join(lines) + "\n"


def settings_page() -> str:
    rows = [
        (f"`{item.metadata['env']}`", f"`{item.name}`", _default(item.default), item.metadata["meaning"])
        for item in fields(Settings)
    ]
    rates = [(f"`{rate_class}`", f"`{rate}`") for rate_class, rate in DEFAULT_RATES.items()]
    clients = [(f"`{env}`", f"`{default}`", meaning) for env, default, meaning in _CLIENT_SETTINGS]
    lines = [
        _NOTE,
        "# Settings",
        "",
        "A server reads its settings from the environment; `Weftline.open` takes the same ones as keyword arguments. A",
        "variable with the suffix `_FILE`, such as `WEFTLINE_DATABASE_URL_FILE`, names a file with the value instead.",
        "",
        *_table(("variable", "keyword", "default", "meaning"), rows),
        "",
        "## Rate limits",
        "",
        "Calls are limited for each agent and class. `WEFTLINE_RATE_LIMITS` overrides these defaults.",
        "`Weftline.open` sets no limits unless the setting is given: its caller has access to the database anyway.",
        "",
        *_table(("class", "default"), rates),
        "",
        "## Clients",
        "",
        *_table(("variable", "default", "meaning"), clients),
    ]
    return "\n".join(lines) + "\n"


class Parts:
    """The schemas of all operations, and the named types they refer to."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        types = list(dict.fromkeys(kind for op in operations for kind in (op.request, op.response)))
        schemas, self._named = schemas_of(types, "{name}")
        self._tops = {kind: str(schema["$ref"]) for kind, schema in zip(types, schemas, strict=True)}

    def of(self, kind: type) -> Schema:
        found: Schema = self._named[self._tops[kind]]
        return found

    def shared(self) -> Iterator[str]:
        """Yield a section for each type that another one refers to."""
        nested = set(_references(list(self._named.values())))
        for name, schema in sorted(self._named.items()):
            if name not in nested:
                continue
            yield from ("", f"## {name}", "", str(schema.get("description", "")), "")
            yield from self._shape(name, schema) if "properties" in schema else (f"Value: {_type(schema)}.",)

    def _shape(self, name: str, schema: Schema) -> Iterator[str]:
        answered = {kind.__name__: kind for kind in _below(Response)}
        if name in answered:
            return _table(_FIELD_HEAD, _fields(schema, answered[name]))
        return _table(("field", *_PARAMETER_HEAD), _parameters(schema))


def _references(schema: object) -> Iterator[str]:
    """Yield the names that a schema refers to, at any depth."""
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        yield from _references(list(schema.values()))
    elif isinstance(schema, list):
        for part in schema:
            yield from _references(part)


def _operation(operation: Operation, parts: Parts) -> Iterator[str]:
    request, response = parts.of(operation.request), parts.of(operation.response)
    yield from (f"## {operation.name}", "", operation.help, "")
    yield from _table(("interface", "call"), _interfaces(operation))
    yield ""
    yield from _table(("rule", "value"), _rules(operation))
    if request.get("properties"):
        yield ""
        yield from _table(("parameter", *_PARAMETER_HEAD), _parameters(request))
    yield from ("", f"Returns `{operation.response.__name__}`: {response.get('description', '')}", "")
    yield from _table(_FIELD_HEAD, _fields(response, operation.response))
    if operation.errors:
        yield from ("", f"Errors: {_codes(operation.errors, '../')}.")


def _interfaces(operation: Operation) -> list[tuple[str, str]]:
    tool = f"`{operation.tool}`" + (f", action `{operation.action}`" if operation.action else "")
    command = f"weftline {command_name(operation.name)}"
    required = [field.name for field in msgspec.structs.fields(operation.request) if field.required]
    return [
        ("MCP", f"tool {tool}"),
        ("REST", f"`{operation.route.method} {shown_path(operation.route.path)}` → {operation.route.status}"),
        ("command", f"`{command}`"),
        ("Python", f"`await weftline.{operation.group}.{method_name(operation.name)}({', '.join(required)})`"),
    ]


def _rules(operation: Operation) -> list[tuple[str, str]]:
    permission = f"`{operation.permission}`" if operation.permission else "none"
    return [
        ("permission", permission),
        ("for", _AUDIENCES[operation.audience]),
        ("rate class", f"`{operation.rate}`"),
        ("audit log", "always" if operation.audited else "denials only"),
    ]


def _parameters(schema: Schema) -> Iterator[tuple[str, ...]]:
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        need = "required" if name in required else _default(field.get("default"))
        yield f"`{name}`", _type(field), need, _range(field), _meaning(field)


def _fields(schema: Schema, kind: type[Response] | None) -> Iterator[tuple[str, ...]]:
    omits = kind is not None and kind.__struct_config__.omit_defaults
    for name, field in schema["properties"].items():
        always = not omits or name in schema.get("required", ())
        yield f"`{name}`", _type(field), "never" if always else f"when `{_json(field.get('default'))}`"


def _type(field: Schema) -> str:
    if "$ref" in field:
        return f"[{field['$ref']}](shapes.md#{_anchor(field['$ref'])})"
    if "anyOf" in field:
        return " or ".join(_type(choice) for choice in field["anyOf"])
    if "enum" in field:
        return " or ".join(f"`{_json(value)}`" for value in field["enum"])
    if field.get("type") == "array":
        return f"array of {_type(field.get('items') or field.get('prefixItems', [{}])[0])}"
    return str(field.get("format") or field.get("type", "any"))


def _range(field: Schema) -> str:
    found = [_between(field.get(low), field.get(high), unit) for low, high, unit in _RANGES]
    pattern = f"`{field['pattern']}`" if "pattern" in field else ""
    nested = [*field.get("anyOf", ()), *([field["items"]] if isinstance(field.get("items"), dict) else [])]
    return ", ".join(dict.fromkeys(filter(None, [*found, pattern, *map(_range, nested)])))


def _between(low: float | None, high: float | None, unit: str) -> str:
    # The largest whole number of JSON is a limit of the format, not of the operation.
    high = None if high == MAX_INT else high
    if low is not None and high is not None:
        return f"{low} to {high}{unit}"
    if low is not None:
        return f"from {low}{unit}"
    return "" if high is None else f"up to {high}{unit}"


def _meaning(field: Schema) -> str:
    nested = (str(choice.get("description", "")) for choice in field.get("anyOf", ()))
    return str(field.get("description") or next(filter(None, nested), ""))


def _error_fields() -> list[tuple[str, str, str]]:
    return [
        ("`success`", "`false`", "Always there."),
        ("`error`", "string", "What happened, in a sentence."),
        ("`code`", "string", "The stable name below."),
        ("`severity`", '`"warning"`, `"error"`, `"critical"`', "How bad it is."),
        ("`recoverable`", "boolean", "Whether the caller can do something about it."),
        ("`suggestions`", "array of string", "What to do next."),
        ("`context`", "object", "The facts: ids, limits, versions."),
        ("`related_resources`", "array of string", "Tools worth calling."),
        ("`timestamp`", "date-time", "When."),
    ]


def _error(error: type[WeftlineError], operations: Sequence[Operation]) -> Iterator[str]:
    raised_by = [_link_to(operation) for operation in operations if error in operation.errors]
    recoverable = "the caller can act on it" if error.recoverable else "the caller can do nothing about it"
    yield from (f"## {error.code}", "", (error.__doc__ or "").strip().partition("\n")[0], "")
    rows = [
        ("class", f"`{error.__name__}`"),
        ("kind", f"`{kind_of(error).__name__}`"),
        ("HTTP status", str(error.http_status)),
        ("severity", f"{error.severity}; {recoverable}"),
        ("what to do", error.hint),
    ]
    yield from _table(("", ""), [*rows, *([("raised by", ", ".join(raised_by))] if raised_by else [])])


def _below(kind: type[Response]) -> Iterator[type[Response]]:
    for response in kind.__subclasses__():
        yield response
        yield from _below(response)


def _codes(errors: Sequence[type[WeftlineError]], folder: str = "") -> str:
    codes = dict.fromkeys(error.code for error in errors)
    return ", ".join(f"[`{code}`]({folder}errors.md#{_anchor(code)})" for code in codes)


def _default(value: object) -> str:
    return "none" if value is None else f"`{_json(value)}`" if value != "" else "empty"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _table(head: Sequence[str], rows: Iterator[tuple[str, ...]] | Sequence[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        cells = [cell.replace("|", r"\|") for cell in row]
        yield f"| {' | '.join(cells)} |"
