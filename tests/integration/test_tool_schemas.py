"""A tool's schema accepts what one of its actions accepts, and lists what each requires."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator
from test_bad_input import VALID

from weftline.app.registry import all_operations
from weftline.app.tools.toolbox import WEFTLINE_TOOLS, grouped_help
from weftline.kernel.schema import ACTION, standalone, tool_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.world import World
    from weftline.kernel.operation import Operation

TOOLS = all_operations().tools()
SHARED = {tool: operations for tool, operations in TOOLS.items() if operations[0].action is not None}


@cache
def validator(tool: str) -> Draft202012Validator:
    return Draft202012Validator(tool_schema(TOOLS[tool]))


def schema_errors(operation: Operation, request: dict[str, Any]) -> list[str]:
    """Return the errors of a request against the schema of the operation's tool."""
    action = {} if operation.action is None else {ACTION: operation.action}
    return [error.message for error in validator(operation.tool).iter_errors({**action, **request})]


def boundary_values(definition: dict[str, Any]) -> list[Any]:
    """Return the boundary values of a field's own definition."""
    alternatives = definition.get("anyOf", [definition])
    numbers = [part[bound] for part in alternatives for bound in ("minimum", "maximum") if bound in part]
    chosen = [value for part in alternatives for value in part.get("enum", ())]
    longest = ["x" * part["maxLength"] for part in alternatives if "maxLength" in part and "pattern" not in part]
    nothing = [None] if {"type": "null"} in alternatives else []
    return [*numbers, *chosen, *longest, *nothing]


def test_a_tool_accepts_every_request_of_its_operations(subtests: pytest.Subtests) -> None:
    for operation in all_operations():
        with subtests.test(operation.name):
            assert schema_errors(operation, VALID[operation.name]) == []
            for name, definition in standalone(operation.request)["properties"].items():
                for value in boundary_values(definition):
                    assert schema_errors(operation, {**VALID[operation.name], name: value}) == [], (name, value)


def test_every_tool_of_several_operations_has_a_description() -> None:
    assert {*grouped_help(), WEFTLINE_TOOLS} == SHARED.keys()


def test_a_shared_field_lists_the_actions_that_accept_and_require_it(subtests: pytest.Subtests) -> None:
    for tool, operations in SHARED.items():
        with subtests.test(tool):
            expect_shared_fields_list_their_actions(operations)


def expect_shared_fields_list_their_actions(operations: Sequence[Operation]) -> None:
    schema = tool_schema(operations)
    for operation in operations:
        required = standalone(operation.request).get("required", ())
        for name in operation.request.__struct_fields__:
            description = schema["properties"][name]["description"]
            users = [o for o in operations if name in o.request.__struct_fields__]
            assert "(For " in description or users == operations, name
            is_required = "(Required" in description or name in schema["required"]
            assert is_required or name not in required, name


def test_the_merged_schema_describes_differences_between_actions() -> None:
    properties = tool_schema(SHARED["context_history"])["properties"]
    assert "(Required for diff.)" in properties["from_version"]["description"]
    assert "bisect: A version without the text." in properties["from_version"]["description"]
    assert properties["limit"]["maximum"] == 1_000
    assert {"type": "null"} in properties["context_id"]["anyOf"]
    assert "merge: Context that receives the changes." in properties["context_id"]["description"]


async def test_the_cursor_of_each_listing_fits_the_tool_that_gave_it(world: World) -> None:
    for number in range(3):
        session = f"page-{number}"
        await world.admin.call("session.create", purpose="x", session_id=session)
        await world.admin.call("history.set_retention", subject=f"board:{session}", versions=1)
        for value in ("soon to be pruned", "x"):
            await world.admin.call("board.write", session_id=session, key="goal", value=value)
        await world.admin.call("history.snapshot", context_id=f"board:{session}", label="mark")
        await world.admin.call("history.branch", context_id=f"board:{session}", branch="try")
        for branch, value in (("main", "ours"), ("try", "theirs")):
            await world.admin.call("board.write", session_id=session, key="goal", value=value, branch=branch)
        line = f"board:{session}"
        await world.admin.call("history.merge", context_id=line, from_context_id=f"{line}@try")
        await world.admin.call("history.prune", context_id=line)
    operations = all_operations()
    for name in ("history.snapshots", "history.reviews", "history.prune_log", "session.list"):
        page = await world.admin.call(name, limit=1)
        assert page["next_cursor"], name
        assert schema_errors(operations[name], {"cursor": page["next_cursor"], "limit": 1}) == []
