"""Every operation, error and public type by name: known without importing the modules that define them."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from weftline.kernel.data_files import JsonFile


class Parameter(TypedDict):
    """Parameter of a method; one without a default is required. Types are source code."""

    name: str
    type: str
    default: NotRequired[Any]
    keyword: NotRequired[bool]


class IndexedOperation(TypedDict):
    """An operation: where it is defined, its route, and its method in the Python clients."""

    module: str
    method: str
    path: str
    parameters: list[Parameter]
    response: str
    response_module: str
    doc: str


class IndexedError(TypedDict):
    """An error class; the base classes have no code."""

    module: str
    code: NotRequired[str]


operation_index = JsonFile("generated/operations.json", dict[str, IndexedOperation])
error_index = JsonFile("generated/errors.json", dict[str, IndexedError])
# The module of each type of weftline.types.
type_index = JsonFile("generated/types.json", dict[str, str])
