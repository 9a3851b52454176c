"""The index of operations, errors and public types, and the stubs of what the clients make of it."""

from __future__ import annotations

import json
import re
import textwrap
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import click
import msgspec
from error_tree import public_errors
from msgspec.structs import FieldInfo

from weftline.client._calling import class_name, group_of, method_name, parameters_source
from weftline.kernel.data_files import IndexedOperation, Parameter
from weftline.kernel.operation import Operation

_HEADER = "# Written by scripts/generate.py from the operation registry; change the operations instead.\n"
_PREFIX = "weftline."
_INDENT = " " * 8
_DOC_WIDTH = 120 - len(_INDENT)
_SUMMARY_CHARACTERS = 200
_LINE = 110
_CLIENT = "src/weftline/client"
_INDEX = "src/weftline/generated"


def index_files(operations: Sequence[Operation]) -> dict[str, str]:
    """Return the index by path: what is known of the product without importing it."""
    names = _Names()
    return {
        f"{_INDEX}/operations.json": _json({each.name: _indexed(each, names) for each in operations}),
        f"{_INDEX}/types.json": _json({each.__name__: each.__module__ for each in _public_types(operations)}),
    }


def stub_files(operations: Sequence[Operation], root: Path) -> dict[str, str]:
    """Return the stubs of the clients and of weftline.types, and the blocking copy of the client, by path."""
    return {
        f"{_CLIENT}/_operations.pyi": _operations_stub(operations),
        f"{_CLIENT}/_sync_client.py": sync_copy((root / _CLIENT / "_client.py").read_text("utf-8")),
        "src/weftline/types.pyi": _names_stub(
            "Types of the parameters and results of all operations.", _public_types(operations)
        ),
    }


def error_files() -> dict[str, str]:
    """Return the index of the errors and the stub of weftline.errors; finding every error imports the whole product."""
    errors = sorted(public_errors(), key=lambda error: error.__name__)
    index = {
        error.__name__: {"module": error.__module__, **({"code": error.code} if "code" in vars(error) else {})}
        for error in errors
    }
    summary = "Every error that a call can end with; weftline.kernel.errors defines the base classes."
    return {f"{_INDEX}/errors.json": _json(index), "src/weftline/errors.pyi": _names_stub(summary, errors)}


def command_file(operations: Sequence[Operation]) -> dict[str, str]:
    """Return the commands of each command group with their summaries."""
    from weftline.transports.cli.generated import operation_groups  # noqa: PLC0415 - imports what runs the commands

    return {
        f"{_INDEX}/commands.json": _json(
            {name: _summaries(group) for name, group in operation_groups(operations).items()}
        )
    }


def _summaries(group: dict[str, click.Command]) -> dict[str, str]:
    return {name: command.get_short_help_str(_SUMMARY_CHARACTERS) for name, command in group.items()}


def _json(value: Any, indent: str = "") -> str:  # noqa: ANN401 - any JSON
    """Return JSON to read and to compare: what fits is on one line."""
    line = json.dumps(value, ensure_ascii=False)
    if not indent or (len(line) > _LINE and isinstance(value, dict | list)):
        inner = f"{indent} "
        items = (
            [f"{json.dumps(name)}: {_json(part, inner)}" for name, part in value.items()]
            if isinstance(value, dict)
            else [_json(part, inner) for part in value]
        )
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        body = ",\n".join(f"{inner}{item}" for item in items)
        return f"{opening}\n{body}\n{indent}{closing}" + "\n" * (not indent)
    return line


def _indexed(operation: Operation, names: _Names) -> IndexedOperation:
    return {
        "module": operation.run.__module__.removeprefix(_PREFIX),
        "method": operation.route.method,
        "path": _typed_path(operation),
        "parameters": _parameters(operation, names),
        "response": operation.response.__name__,
        "response_module": operation.response.__module__,
        "doc": _wrapped(operation.help),
    }


def _typed_path(operation: Operation) -> str:
    """Return a route's path with ``:int`` on parameters that may be numbers."""
    hints = get_type_hints(operation.request)
    numbers = {name for name, hint in hints.items() if hint is int or int in get_args(hint)}
    return re.sub(r"\{(\w+)\}", lambda part: f"{{{part[1]}{':int' * (part[1] in numbers)}}}", operation.route.path)


def _parameters(operation: Operation, names: _Names) -> list[Parameter]:
    """Return the parameters of a method: a bare True or False is unreadable, so booleans are keyword-only."""
    hints = get_type_hints(operation.request)
    fields = msgspec.structs.fields(operation.request)
    required = [_required(field, hints[field.name], names) for field in fields if field.required]
    optional = [_optional(field, hints[field.name], names) for field in fields if not field.required]
    return [*sorted(required, key=lambda parameter: "keyword" in parameter), *optional]


def _required(field: FieldInfo, hint: Any, names: _Names) -> Parameter:  # noqa: ANN401 - types are values of many kinds
    parameter: Parameter = {"name": field.name, "type": _accepted(hint, names)}
    if hint is bool:
        parameter["keyword"] = True
    return parameter


def _optional(field: FieldInfo, hint: Any, names: _Names) -> Parameter:  # noqa: ANN401 - types are values of many kinds
    default, accepted = default_of(field), _accepted(hint, names)
    may_be_none = accepted == "object" or "None" in accepted.split(" | ")
    return {
        "name": field.name,
        "type": f"{accepted}{' | None' if default is None and not may_be_none else ''}",
        "default": default,
        "keyword": True,
    }


def _accepted(hint: Any, names: _Names) -> str:  # noqa: ANN401 - types are values of many kinds
    # A field of type Any accepts any JSON value.
    return "object" if hint is Any else annotation(hint, names)


def _wrapped(text: str) -> str:
    return "\n\n".join(textwrap.fill(" ".join(part.split()), _DOC_WIDTH) for part in text.split("\n\n"))


def _operations_stub(operations: Sequence[Operation]) -> str:
    """Return the source of the stub with an async and a blocking class for each operation group."""
    names = _Names()
    names.use_typing("Any")
    indexed = {each.name: _indexed(each, names) for each in operations}
    for operation in operations:
        names.use(operation.response)
    groups = {group: list(members) for group, members in groupby(sorted(indexed, key=group_of), group_of)}
    return "\n".join(
        [
            f'{_HEADER}"""Every operation as a method: async, and blocking."""\n',
            *names.imports(),
            "from weftline.client._calling import Caller, SyncCaller\n",
            *_classes(groups, indexed, "", "async def"),
            *_classes(groups, indexed, "Sync", "def"),
        ]
    )


def _classes(
    groups: Mapping[str, Sequence[str]], indexed: Mapping[str, IndexedOperation], prefix: str, define: str
) -> Iterator[str]:
    for group, members in groups.items():
        yield f'class {prefix}{class_name(group)}:\n    """The {group.replace("_", " ")} operations."""\n'
        yield f"    def __init__(self, caller: {prefix}Caller) -> None: ..."
        yield from (_method(name, indexed[name], define) for name in members)
        yield ""
    yield f'class {prefix}Operations:\n    """All operations, by group."""\n'
    yield f"    _caller: {prefix}Caller"
    yield from (f"    {group}: {prefix}{class_name(group)}" for group in groups)
    yield f"    def __init__(self, caller: {prefix}Caller) -> None: ...\n"


def _method(name: str, operation: IndexedOperation, define: str) -> str:
    doc = textwrap.indent(operation["doc"] + ("\n" if "\n\n" in operation["doc"] else ""), _INDENT).strip(" ")
    return (
        f"    {define} {method_name(name)}({parameters_source(operation)}) -> {operation['response']}:\n"
        f'        """{doc}{_INDENT * doc.endswith(chr(10))}"""'
    )


class _Names:
    """Names that a stub imports."""

    def __init__(self) -> None:
        self._modules: dict[str, str] = {}

    def use(self, named: type | Callable[..., Any], name: str | None = None) -> str:
        name = name or named.__name__
        module = self._modules.setdefault(name, named.__module__)
        if module != named.__module__:
            raise ValueError(f"both {module} and {named.__module__} define {name}")
        return name

    def use_typing(self, name: str) -> str:
        self._modules[name] = "typing"
        return name

    def imports(self) -> Iterator[str]:
        by_module = groupby(sorted(self._modules, key=lambda name: (self._modules[name], name)), self._modules.get)
        for module, names in by_module:
            yield f"from {module} import {', '.join(names)}"


def default_of(field: FieldInfo) -> Any:  # noqa: ANN401 - a default may be anything
    """Return the default of an optional field; None for a struct, whose default the operation applies."""
    default = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    return None if isinstance(default, msgspec.Struct) else default


def annotation(hint: Any, names: _Names) -> str:  # noqa: ANN401 - types are values of many kinds
    """Return the source of a type, widened: any sequence for a list or tuple, any mapping for a dict or a struct."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType}:
        return " | ".join(annotation(argument, names) for argument in arguments)
    if origin is Literal:
        return f"{names.use_typing('Literal')}[{', '.join(map(repr, arguments))}]"
    if origin in {list, tuple}:
        return f"{names.use(Sequence, 'Sequence')}[{annotation(arguments[0], names)}]"
    if origin is dict:
        return f"{names.use(Mapping, 'Mapping')}[{', '.join(annotation(argument, names) for argument in arguments)}]"
    return _plain(hint, names)


def _plain(hint: Any, names: _Names) -> str:  # noqa: ANN401 - likewise
    if hint is Any:
        return names.use_typing("Any")
    if hint is type(None):
        return "None"
    if hint in {str, int, float, bool}:
        return hint.__name__
    if issubclass(hint, Enum):
        return f"{names.use_typing('Literal')}[{', '.join(repr(member.value) for member in hint)}]"
    if issubclass(hint, msgspec.Struct):
        return f"{names.use(hint)} | {names.use(Mapping, 'Mapping')}[str, {names.use_typing('Any')}]"
    if hint is datetime:
        return names.use(hint)
    raise TypeError(f"no annotation is known for {hint!r}")


def _names_stub(summary: str, public: Iterable[type]) -> str:
    imports = "\n".join(f"from {each.__module__} import {each.__name__}" for each in public)
    names = ", ".join(f'"{each.__name__}"' for each in public)
    return f'{_HEADER}"""{summary}"""\n\n{imports}\n\n__all__ = [{names}]\n'


def _public_types(operations: Sequence[Operation]) -> list[type[msgspec.Struct]]:
    given = {part for operation in operations for part in _structs(operation.request)} - {o.request for o in operations}
    answered = {part for operation in operations for part in _structs(operation.response)}
    return sorted(given | answered, key=lambda part: part.__name__)


def _structs(hint: Any) -> Iterator[type[msgspec.Struct]]:  # noqa: ANN401 - types are values of many kinds
    """Yield every struct that a type contains."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
        hints = get_type_hints(hint)
        for field in hint.__struct_fields__:
            yield from _structs(hints[field])
    for argument in get_args(hint):
        yield from _structs(argument)


def sync_copy(source: str) -> str:
    """Return the blocking copy of an asyncio module."""
    for pattern, replacement in _SYNC_WORDS:
        source = re.sub(pattern, replacement, source)
    return "# Written by scripts/generate.py from _client.py; change that instead.\n" + source


_SYNC_WORDS = (
    (r"\bimport asyncio\b", "import time"),
    (r"\basyncio\.sleep\b", "time.sleep"),
    (r"\bhttpx2\.AsyncClient\b", "httpx2.Client"),
    (r"\bAsyncGenerator\[(.+?), None\]", r"Generator[\1, None, None]"),
    (r"\bAsyncGenerator\b", "Generator"),
    (r"\b__aenter__\b", "__enter__"),
    (r"\b__aexit__\b", "__exit__"),
    (r"\baclosing\b", "closing"),
    (r"\baclose\b", "close"),
    (r"\baread\b", "read"),
    (r"\baiter_bytes\b", "iter_bytes"),
    (r"\bOperations\b", "SyncOperations"),
    (r"(?<!httpx2\.)\bClient\b", "SyncClient"),
    (r"\basync with\b", "with"),
    (r"\basync for\b", "for"),
    (r"\basync def\b", "def"),
    (r"\bawait ", ""),
    (r"\bAsync client\b", "Blocking client"),
)
