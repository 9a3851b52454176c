"""Every operation can be held: its request and its answer are the same after they were stored."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from msgspec import inspect

from weftline.app.held_calls import rebuild_error, stored_error
from weftline.app.registry import all_operations
from weftline.insight.guidance import example_request
from weftline.kernel.errors import InternalError, NotFound
from weftline.kernel.identity import system_actor
from weftline.kernel.operation import Audience
from weftline.safety.approvals.model import digest_of
from weftline.state.board.model import KeyNotFound

if TYPE_CHECKING:
    from collections.abc import Iterator


ACTOR = system_actor("home")
# A call without a credential has no caller to wait for its answer.
OPERATIONS = [operation for operation in all_operations() if operation.audience is not Audience.ANONYMOUS]


def test_a_stored_request_is_the_same() -> None:
    for operation in OPERATIONS:
        example = {name: value for name, value in example_request(operation, ACTOR).items() if name != "action"}
        request = operation.parse(example)
        again = operation.parse(msgspec.json.decode(msgspec.json.encode(request)))
        assert msgspec.json.encode(again) == msgspec.json.encode(request), operation.name
        assert digest_of(operation, again) == digest_of(operation, request), operation.name


def test_a_stored_answer_can_be_read() -> None:
    for operation in OPERATIONS:
        opaque = [kind for kind in parts(inspect.type_info(operation.response), set()) if is_opaque(kind)]
        assert opaque == [], operation.name


def parts(kind: inspect.Type, seen: set[Any]) -> Iterator[inspect.Type]:
    yield kind
    nested: list[Any] = [*getattr(kind, "types", ()), *getattr(kind, "item_types", ())]
    nested += [getattr(kind, name, None) for name in ("item_type", "value_type")]
    if isinstance(kind, inspect.StructType) and kind.cls not in seen:
        seen.add(kind.cls)
        nested += [field.type for field in kind.fields]
    for each in nested:
        if isinstance(each, inspect.Type):
            yield from parts(each, seen)


def is_opaque(kind: inspect.Type) -> bool:
    return isinstance(kind, inspect.RawType | inspect.CustomType)


def test_the_digest_does_not_depend_on_the_order_of_objects() -> None:
    operation = all_operations()["memory.set"]
    requests = [
        operation.parse({"key": "k", "value": value}) for value in ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1})
    ]
    same, reordered, other = (digest_of(operation, request) for request in requests)
    assert same == reordered != other
    assert digest_of(all_operations()["memory.get"], requests[0]) != same


def test_a_stored_error_is_the_same_error() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    raised = KeyNotFound("There is no key 'a'.", hint="Write it with `board.write`.", key="a", at=at, odd=1 + 2j)
    rebuilt = rebuild_error(stored_error(raised))
    assert type(rebuilt) is KeyNotFound
    assert isinstance(rebuilt, NotFound)
    assert (rebuilt.code, rebuilt.message, rebuilt.hint) == (raised.code, raised.message, raised.hint)
    assert rebuilt.context == {"key": "a", "at": "2026-01-01T00:00:00Z", "odd": "(1+2j)"}
    assert rebuilt.http_status == 404


@pytest.mark.parametrize("kind", ["weftline.gone:Gone", "weftline.kernel.errors:Gone", "os:system"])
def test_the_error_of_a_class_that_is_gone_keeps_its_code(kind: str) -> None:
    stored = msgspec.structs.replace(stored_error(KeyNotFound("No key.")), kind=kind)
    rebuilt = rebuild_error(stored)
    assert type(rebuilt) is InternalError
    assert (rebuilt.code, rebuilt.message) == ("KEY_NOT_FOUND", "No key.")
