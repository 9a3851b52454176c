"""Click parameters generated from the fields of a request: names, types, ranges, defaults and help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
import msgspec
from msgspec.inspect import (
    AnyType,
    BoolType,
    CollectionType,
    DateTimeType,
    DictType,
    EnumType,
    Field,
    FloatType,
    IntType,
    LiteralType,
    Metadata,
    NoneType,
    StrType,
    StructType,
    Type,
    UnionType,
    type_info,
)

from weftline.kernel.fields import MAX_INT
from weftline.kernel.operation import Effect, SessionUse
from weftline.transports.cli.text_params import Secret, TemplateFile, Text, Url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weftline.kernel.operation import Operation


# Optional fields that are also accepted as arguments, as in ``weftline history show LINE 12``.
_ALSO_POSITIONAL = frozenset({"version", "from_version", "to_version"})
# Correlation ids have the same options on every command.
_CORRELATION_OPTIONS = {"turn_id": "--turn", "task_id": "--task", "tool_call_id": "--tool-call"}
# Instead of the id of a receipt.
LATEST = "latest"
# Shorter flags that people try first.
_SHORTER = {"recipient_id": "--to", "top_k": "--limit", "token_budget": "--budget"}
# Operations that search all sessions: WEFTLINE_SESSION does not narrow them.
_ALL_SESSIONS = frozenset(
    {
        "search.query",
        "search.get_context",
        "search.find_similar",
        "entity.list",
        "message.inbox",
        "agent.list",
        "usage.report",
        "usage.export",
    }
)
# Likewise, of one operation each.
_POSITIONAL_FIELDS = frozenset(
    {
        ("advise.try", "recommendation_id"),
        ("history.switch", "branch"),
        ("context.read", "key"),
        ("search.get_context", "query"),
        ("search.find_similar", "ref"),
    }
)


# Fields of requests that are secrets.
_SECRETS = frozenset({"api_key", "secret"})


class Json(Text):
    """JSON as text, from standard input or a file."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        if not isinstance(value, str):
            return value
        try:
            return msgspec.json.decode(super().convert(value, param, ctx))
        except (msgspec.DecodeError, RecursionError) as error:
            self.fail(f"is not JSON: {_reason(error)}.", param, ctx)


def _reason(error: Exception) -> str:
    return str(error).removeprefix("JSON is malformed: ")


class JsonList(Json):
    """JSON array; a single object is taken as an array of one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        decoded = super().convert(value, param, ctx)
        return [decoded] if isinstance(decoded, dict) else decoded


class AnyValue(Json):
    """JSON, or plain text unless it starts like a JSON object, array or string."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        text = Text.convert(self, value, param, ctx)
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            if text.lstrip()[:1] in {"{", "[", '"'}:
                self.fail(f"is not JSON: {_reason(error)}.", param, ctx)
            return text


class TextOrJson(Text):
    """Text, or a JSON object or array; what only begins like one is text.

    ``any_json``: also the other JSON. A number is text unless JSON writes it so: 1.10 and 1e3 come back as they are.
    """

    def __init__(self, *, any_json: bool = False) -> None:
        self._any_json = any_json

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        text = super().convert(value, param, ctx)
        if not self._any_json and text.lstrip()[:1] not in {"{", "["}:
            return text
        try:
            decoded = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return text
        is_altered = isinstance(decoded, float | int) and msgspec.json.encode(decoded).decode() != text.strip()
        return text if is_altered else decoded


@dataclass(frozen=True, slots=True)
class _FieldType:
    """Type of a field without Annotated, Optional and list, whether it is a list, and whether text or JSON."""

    type: Type
    description: str
    many: bool = False
    or_json: bool = False
    any_json: bool = False


def parameters(operation: Operation) -> Iterator[click.Parameter]:
    """Yield a parameter for each field of the operation's request."""
    info = type_info(operation.request)
    fields = info.fields if isinstance(info, StructType) else ()
    for field in fields:
        yield _parameter(operation, field)
    # Optional arguments come after the required ones.
    for field in fields:
        if not field.required and _is_positional(operation, field.name):
            yield _optional_argument(field.name)


def given(ctx: click.Context, operation: Operation) -> dict[str, Any]:
    """Return the request fields set on the command line or by the environment; others keep the operation's default."""
    fields = {
        name: ctx.params[name]
        for name in operation.request.__struct_fields__
        if ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT
    }
    for name in operation.request.__struct_fields__:
        argument = ctx.params.get(_argument_name(name))
        if argument is not None and name in fields:
            raise click.UsageError(f"{name} is given twice: as an argument and as an option.", ctx)
        if argument is not None:
            fields[name] = argument
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}


def _is_positional(operation: Operation, name: str) -> bool:
    return name in _ALSO_POSITIONAL or (operation.name, name) in _POSITIONAL_FIELDS


def _optional_argument(name: str) -> click.Argument:
    same = f"Same as --{name.replace('_', '-')}."
    return click.Argument([_argument_name(name)], metavar=f"[{name.upper()}]", required=False, type=Text(), help=same)


def _argument_name(name: str) -> str:
    """Return the parameter name of a field given as an optional argument."""
    return f"argument_{name}"


def _parameter(operation: Operation, field: Field) -> click.Parameter:
    shape = _field_type(field.type)
    if field.name == "session_id" and operation.group != "session":
        return click.Option(
            ["--session", "-s", "session_id"],
            envvar="WEFTLINE_SESSION" if _uses_current_session(operation) else None,
            show_envvar=True,
            required=field.required,
            type=Text(),
            help=shape.description,
        )
    if field.name in _CORRELATION_OPTIONS:
        return click.Option([_CORRELATION_OPTIONS[field.name], field.name], type=Text(), help=_help(shape))
    if field.required:
        count = -1 if shape.many else 1
        kind = _field_click_type(field.name, shape)
        remark = f" {LATEST}: your newest." if field.name == "receipt_id" else ""
        # `weftline session get` alone shows the session that WEFTLINE_SESSION names.
        variable = "WEFTLINE_SESSION" if field.name == "session_id" and operation.effect is Effect.READ else None
        return click.Argument(
            [field.name], nargs=count, required=True, type=kind, envvar=variable, help=_help(shape) + remark
        )
    return _option(field, shape)


def _uses_current_session(operation: Operation) -> bool:
    """Return whether WEFTLINE_SESSION is the default of session_id."""
    return operation.session is SessionUse.WORKS_IN and operation.name not in _ALL_SESSIONS


def _option(field: Field, shape: _FieldType) -> click.Option:
    name = field.name.replace("_", "-")
    default = None if field.default is msgspec.NODEFAULT else field.default
    if isinstance(shape.type, BoolType):
        flag = f"--{name}" if default is False else f"--{name}/--no-{name}"
        return click.Option([flag, field.name], is_flag=True, default=default, help=_help(shape))
    shorter = [_SHORTER[field.name]] if field.name in _SHORTER else []
    return click.Option(
        [f"--{name}", *shorter, field.name],
        type=_field_click_type(field.name, shape),
        multiple=shape.many,
        default=default,
        show_default=default not in (None, ""),
        help=_help(shape),
    )


def _field_type(kind: Type, description: str = "") -> _FieldType:
    or_json = any_json = False
    while isinstance(kind, Metadata | UnionType):
        if isinstance(kind, Metadata):
            description = description or (kind.extra_json_schema or {}).get("description", "")
            kind = kind.type
        else:
            choices = [choice for choice in kind.types if not isinstance(choice, NoneType)]
            texts = [choice for choice in choices if isinstance(_bare(choice), StrType)]
            if len(choices) > 1 and not texts:
                break
            # If the field accepts text, everything typed is text, but for objects of any form, or any JSON.
            or_json = bool(texts) and any(isinstance(_bare(choice), DictType) for choice in choices)
            any_json = or_json and any(isinstance(_bare(choice), FloatType) for choice in choices)
            kind = (texts or choices)[0]
    if isinstance(kind, CollectionType):
        item = _field_type(kind.item_type)
        if not isinstance(_click_type(item), Json) and not item.many:
            return _FieldType(item.type, description or item.description, many=True)
    return _FieldType(kind, description, or_json=or_json, any_json=any_json)


def _bare(kind: Type) -> Type:
    return _bare(kind.type) if isinstance(kind, Metadata) else kind


def _field_click_type(name: str, shape: _FieldType) -> click.ParamType[Any]:
    if name in _SECRETS:
        return Secret()
    if name == "template":
        return TemplateFile()
    return Url() if name == "url" else _click_type(shape)


def _click_type(shape: _FieldType) -> click.ParamType[Any]:
    match shape.type:
        case StrType() | DateTimeType():
            return TextOrJson(any_json=shape.any_json) if shape.or_json else Text()
        case LiteralType() | EnumType():
            return click.Choice(_choices(shape.type))
        case IntType():
            return click.IntRange(**_range(shape.type))
        case FloatType():
            return click.FloatRange(**_range(shape.type))
        case BoolType():
            return click.BOOL
        case _:
            return _json_type(shape.type)


def _json_type(kind: Type) -> Json:
    if isinstance(kind, AnyType) or _words(kind):
        return AnyValue()
    return JsonList() if isinstance(kind, CollectionType) else Json()


def _words(kind: Type) -> list[str]:
    """Return the words that a field accepts instead of JSON."""
    choices = kind.types if isinstance(kind, UnionType) else ()
    return [str(value) for choice in choices if isinstance(choice, LiteralType) for value in choice.values]


def _choices(kind: LiteralType | EnumType) -> list[str | int]:
    """Return the values with their types, so that 30 becomes a number where numbers are listed."""
    values = kind.values if isinstance(kind, LiteralType) else [member.value for member in kind.cls]
    return [value for value in values if value is not None]


def _range(kind: IntType | FloatType) -> dict[str, Any]:
    highest = kind.le if kind.lt is None else kind.lt
    return {
        "min": kind.ge if kind.gt is None else kind.gt,
        "min_open": kind.gt is not None,
        "max": None if highest is not None and highest >= MAX_INT else highest,
        "max_open": kind.lt is not None,
    }


def _help(shape: _FieldType) -> str:
    """Return the field's description, with the input format if it is not obvious."""
    remarks = [shape.description]
    if shape.many:
        remarks.append("Repeatable.")
    if isinstance(shape.type, StructType):
        remarks.append(f"An object with any of: {', '.join(field.name for field in shape.type.fields)}.")
    elif isinstance(shape.type, CollectionType):
        item = _field_type(shape.type.item_type).type
        if isinstance(item, StructType):
            remarks.append(f"A list of objects with: {', '.join(field.name for field in item.fields)}.")
    if isinstance(shape.type, AnyType) or shape.or_json:
        remarks.append("Given as JSON, plain text, @FILE or -.")
    elif _words(shape.type):
        remarks.append(f"Given as {', '.join(_words(shape.type))}, JSON, @FILE or -.")
    elif isinstance(_click_type(shape), Json):
        remarks.append("Given as JSON, @FILE or -.")
    return " ".join(filter(None, remarks))
