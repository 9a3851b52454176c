"""Source of the generated client modules: one method per operation, async and sync."""

from __future__ import annotations

import re
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from itertools import groupby
from keyword import iskeyword
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import FieldInfo

from weftline.kernel.operation import Operation

_HEADER = "# Written by scripts/generate.py from the operation registry; change the operations instead.\n"
# Types are imported for annotations only, so the clients return what the caller decoded.
_ANY_RETURN = '# mypy: disable-error-code="no-any-return"\n'
_INDENT = " " * 8
_DOC_WIDTH = 120 - len(_INDENT)


@dataclass(frozen=True, slots=True)
class Flavour:
    """Keywords in which the async and the blocking client differ."""

    prefix: str
    define: str
    wait: str
    summary: str


ASYNC = Flavour("", "async def", "await ", "Async method for each operation.")
SYNC = Flavour("Sync", "def", "", "Blocking method for each operation.")


def operations_module(operations: Sequence[Operation], flavour: Flavour) -> str:
    """Return the source of the module with one class for each operation group."""
    groups = {group: list(members) for group, members in groupby(sorted(operations, key=_group), key=_group)}
    names = _Names()
    classes = [_group_class(group, members, flavour, names) for group, members in groups.items()]
    parts = [
        f'{_HEADER}{_ANY_RETURN}"""{flavour.summary}"""\n\nfrom __future__ import annotations\n',
        f"from typing import TYPE_CHECKING\n\nfrom weftline.client._calling import {flavour.prefix}Caller, given\n",
        "if TYPE_CHECKING:",
        *(f"    {line}" for line in names.imports()),
        "\n",
        *classes,
        _all_groups(groups, flavour),
    ]
    return "\n".join(parts)


def sync_copy(source: str) -> str:
    """Return the blocking copy of an asyncio module."""
    for pattern, replacement in _SYNC_WORDS:
        source = re.sub(pattern, replacement, source)
    return "# Written by scripts/generate.py from _client.py; change that instead.\n" + source


_SYNC_WORDS = (
    (r"\bfrom weftline\.client\._operations\b", "from weftline.client._sync_operations"),
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


def _group(operation: Operation) -> str:
    return operation.group


class _Names:
    """Names that the module imports."""

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


def routes_module(operations: Sequence[Operation]) -> str:
    """Return the source of the table of the route and the response type of each operation."""
    routes = {op.name: (op.route.method, _typed_path(op)) for op in operations}
    responses = {op.name: (op.response.__module__, op.response.__name__) for op in operations}
    return (
        f'{_HEADER}"""Route and response type of each operation; types are named, not imported."""\n\n'
        "from __future__ import annotations\n\n"
        f"ROUTES: dict[str, tuple[str, str]] = {routes!r}\n\n"
        f"RESPONSES: dict[str, tuple[str, str]] = {responses!r}\n"
    )


def _typed_path(operation: Operation) -> str:
    """Return a route's path with ``:int`` on parameters that may be numbers."""
    hints = get_type_hints(operation.request)
    numbers = {name for name, hint in hints.items() if hint is int or int in get_args(hint)}
    return re.sub(r"\{(\w+)\}", lambda part: f"{{{part[1]}{':int' * (part[1] in numbers)}}}", operation.route.path)


def _all_groups(groups: Mapping[str, object], flavour: Flavour) -> str:
    lines = [f"        self.{group} = {flavour.prefix}{_class_name(group)}(caller)" for group in groups]
    return (
        f'class {flavour.prefix}Operations:\n    """All operations, by group."""\n\n'
        f"    def __init__(self, caller: {flavour.prefix}Caller) -> None:\n        self._caller = caller\n"
        + "\n".join(lines)
        + "\n"
    )


def _class_name(group: str) -> str:
    return "".join(part.title() for part in group.split("_")) + "Operations"


def _group_class(group: str, operations: Sequence[Operation], flavour: Flavour, names: _Names) -> str:
    title = group.replace("_", " ")
    return (
        f'class {flavour.prefix}{_class_name(group)}:\n    """The {title} operations."""\n\n'
        '    __slots__ = ("_caller",)\n\n'
        f"    def __init__(self, caller: {flavour.prefix}Caller) -> None:\n        self._caller = caller\n\n"
        + "\n\n".join(_method(operation, flavour, names) for operation in operations)
        + "\n\n"
    )


def _method(operation: Operation, flavour: Flavour, names: _Names) -> str:
    fields = msgspec.structs.fields(operation.request)
    hints = get_type_hints(operation.request)
    # A field of type Any accepts any JSON value.
    kinds = {field.name: hints[field.name] for field in fields}
    accepted = {name: "object" if hint is Any else annotation(hint, names) for name, hint in kinds.items()}
    required = {field.name: f"{field.name}: {accepted[field.name]}" for field in fields if field.required}
    # A bare True or False is unreadable, so booleans are keyword-only.
    placed = [text for name, text in required.items() if kinds[name] is not bool]
    named = [text for name, text in required.items() if kinds[name] is bool] + [
        _optional(field, accepted[field.name]) for field in fields if not field.required
    ]
    parameters = ", ".join(["self", *placed, *(["*", *named] if named else [])])
    response = names.use(operation.response)
    docstring = _docstring(operation.help)
    return (
        f"    {flavour.define} {method_name(operation)}({parameters}) -> {response}:\n"
        f'        """{docstring}"""\n'
        f'        return {flavour.wait}self._caller.call("{operation.name}", {_arguments(fields)})'
    )


def _optional(field: FieldInfo, accepted: str) -> str:
    default = default_of(field)
    may_be_none = accepted == "object" or "None" in accepted.split(" | ")
    return f"{field.name}: {accepted}{' | None' if default is None and not may_be_none else ''} = {default!r}"


def method_name(operation: Operation) -> str:
    """Return the method name; a Python keyword gets a trailing underscore."""
    return f"{operation.verb}_" if iskeyword(operation.verb) else operation.verb


def _docstring(text: str) -> str:
    """Return an operation's help as a wrapped docstring."""
    summary, *paragraphs = [textwrap.fill(" ".join(part.split()), _DOC_WIDTH) for part in text.split("\n\n")]
    whole = "\n\n".join([summary, *paragraphs]) + ("\n" if paragraphs else "")
    return textwrap.indent(whole, _INDENT).lstrip() + (_INDENT if paragraphs else "")


def _arguments(fields: Sequence[FieldInfo]) -> str:
    always = [f'"{field.name}": {field.name}' for field in fields if field.required or default_of(field) is not None]
    unless_none = [f"{field.name}={field.name}" for field in fields if not field.required and default_of(field) is None]
    if not always and unless_none:
        return f"given({', '.join(unless_none)})"
    return "{" + ", ".join([*always, *([f"**given({', '.join(unless_none)})"] if unless_none else [])]) + "}"


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


def types_module(operations: Sequence[Operation]) -> str:
    """Return the source of weftline.types: all types of requests and responses."""
    given = {part for operation in operations for part in _structs(operation.request)} - {o.request for o in operations}
    answered = {part for operation in operations for part in _structs(operation.response)}
    public = sorted(given | answered, key=lambda part: part.__name__)
    imports = "\n".join(f"from {part.__module__} import {part.__name__}" for part in public)
    names = ", ".join(f'"{part.__name__}"' for part in public)
    return (
        f'{_HEADER}"""Types of the parameters and results of all operations."""\n\n{imports}\n\n__all__ = [{names}]\n'
    )


def _structs(hint: Any) -> Iterator[type[msgspec.Struct]]:  # noqa: ANN401 - types are values of many kinds
    """Yield every struct that a type contains."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
        hints = get_type_hints(hint)
        for field in hint.__struct_fields__:
            yield from _structs(hints[field])
    for argument in get_args(hint):
        yield from _structs(argument)


def client_files(operations: Sequence[Operation], root: Path) -> dict[str, str]:
    """Return the source of every generated client module by path."""
    folder = "src/weftline/client"
    return {
        f"{folder}/_operations.py": operations_module(operations, ASYNC),
        f"{folder}/_sync_operations.py": operations_module(operations, SYNC),
        f"{folder}/_routes.py": routes_module(operations),
        "src/weftline/types.py": types_module(operations),
        f"{folder}/_sync_client.py": sync_copy((root / folder / "_client.py").read_text("utf-8")),
    }
