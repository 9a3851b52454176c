"""Operations as methods, made from the operation index: async, or blocking."""

from __future__ import annotations

from functools import cache
from itertools import groupby
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, Protocol

from weftline.kernel.data_files import operation_index

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weftline.kernel.data_files import IndexedOperation, Parameter

_MODULE = "weftline.client._operations"


class Caller(Protocol):
    """Sends calls over HTTP, or to an App in this process."""

    async def call(self, operation: str, arguments: dict[str, Any], /) -> Any:  # noqa: ANN401 - the operation's response
        """Call an operation and return its typed response; raise its WeftlineError."""
        ...


class SyncCaller(Protocol):
    """Sends calls and blocks until each is answered."""

    def call(self, operation: str, arguments: dict[str, Any], /) -> Any:  # noqa: ANN401 - the operation's response
        """Call an operation and return its typed response; raise its WeftlineError."""
        ...


def given(**optional: Any) -> dict[str, Any]:  # noqa: ANN401 - arguments of any operation
    """Return the arguments that are not None; for the others the operation uses its default."""
    return {name: value for name, value in optional.items() if value is not None}


class OperationGroup:
    """The operations of one group."""

    __slots__ = ("_caller",)

    def __init__(self, caller: Caller | SyncCaller) -> None:
        self._caller = caller


@cache
def operation_groups(*, blocking: bool) -> dict[str, type[OperationGroup]]:
    """Return a class for each group of operations."""
    by_group = groupby(sorted(operation_index(), key=group_of), group_of)
    return {group: _group_class(group, list(names), blocking=blocking) for group, names in by_group}


def group_of(operation: str) -> str:
    return operation.partition(".")[0]


def class_name(group: str) -> str:
    return "".join(part.title() for part in group.split("_")) + "Operations"


def method_name(operation: str) -> str:
    """Return the method name of an operation; a Python keyword gets a trailing underscore."""
    verb = operation.partition(".")[2]
    return f"{verb}_" if iskeyword(verb) else verb


def _group_class(group: str, names: list[str], *, blocking: bool) -> type[OperationGroup]:
    methods = {method_name(name): _Method(name, blocking=blocking) for name in names}
    about = {"__doc__": f"The {group.replace('_', ' ')} operations.", "__module__": _MODULE, "__slots__": ()}
    return type(f"{'Sync' * blocking}{class_name(group)}", (OperationGroup,), {**about, **methods})


class _Method:
    """Stands in a class for the method of an operation until it is first used: most programs use few of them."""

    def __init__(self, operation: str, *, blocking: bool) -> None:
        self._operation, self._blocking = operation, blocking

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, group: object, kind: type) -> Any:  # noqa: ANN401 - a method, or its function
        method = _compile(self._operation, f"{self._owner.__name__}.{self._name}", blocking=self._blocking)
        setattr(self._owner, self._name, method)
        return method.__get__(group, kind)


def _compile(name: str, qualified_name: str, *, blocking: bool) -> Callable[..., Any]:
    """Return the function of an operation.

    It is compiled from its parameters, as ``dataclasses`` does, so that Python itself checks arguments, says what is
    wrong with them, and describes the function to ``inspect`` and editors.
    """
    operation = operation_index()[name]
    define, wait = ("def", "") if blocking else ("async def", "await ")
    header = f"{define} method({parameters_source(operation)}) -> {operation['response']}:"
    source = f"{header}\n    return {wait}self._caller.call({name!r}, {_arguments(operation)})"
    names: dict[str, Any] = {"given": given, "__name__": _MODULE}
    exec(compile(source, f"<{qualified_name}>", "exec"), names)  # noqa: S102 - source from the product's own index
    method: Callable[..., Any] = names["method"]
    method.__name__, method.__qualname__, method.__doc__ = (
        qualified_name.rpartition(".")[2],
        qualified_name,
        operation["doc"],
    )
    return method


def parameters_source(operation: IndexedOperation) -> str:
    """Return the parameters of a method as source code."""
    return ", ".join(("self", *_parameters(operation["parameters"])))


def _parameters(parameters: list[Parameter]) -> Iterator[str]:
    by_keyword = False
    for parameter in parameters:
        if parameter.get("keyword") and not by_keyword:
            by_keyword = True
            yield "*"
        yield f"{parameter['name']}: {parameter['type']}" + (
            f" = {_default(parameter)!r}" if "default" in parameter else ""
        )


def _arguments(operation: IndexedOperation) -> str:
    """Return the source of the arguments of a call: None of an optional parameter leaves it to the operation."""
    may_lack = [each["name"] for each in operation["parameters"] if "default" in each and each["default"] is None]
    always = [f"{each['name']!r}: {each['name']}" for each in operation["parameters"] if each["name"] not in may_lack]
    optional = [f"**given({', '.join(f'{name}={name}' for name in may_lack)})"] if may_lack else []
    return "{" + ", ".join([*always, *optional]) + "}"


def _default(parameter: Parameter) -> object:
    default = parameter.get("default")
    return tuple(default) if isinstance(default, list) else default
