"""Valid example arguments for every operation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from weftline.kernel.data_files import JsonFile

if TYPE_CHECKING:
    from weftline.kernel.identity import Actor
    from weftline.kernel.operation import Operation

_ABOUT_CALLER = frozenset({"memory.overview"})


class _Examples(TypedDict):
    """Values of fields, and arguments that an operation requires although no single field is required."""

    fields: dict[str, Any]
    operations: dict[str, dict[str, Any]]


_examples = JsonFile("insight/guidance/examples.json", _Examples)


def example_request(operation: Operation, actor: Actor) -> dict[str, Any]:
    """Return the required arguments of the operation's tool with example values."""
    required = [field.name for field in msgspec.structs.fields(operation.request) if field.required]
    arguments = {name: _examples()["fields"][name] for name in required}
    arguments |= _examples()["operations"].get(operation.name, {})
    if operation.name in _ABOUT_CALLER:
        arguments["agent_id"] = actor.principal_id
    return {"action": operation.action, **arguments} if operation.action else arguments
