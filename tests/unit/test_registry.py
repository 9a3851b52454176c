"""Every registered operation is complete, so that every interface can be generated from it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from weftline.app.app import App
from weftline.app.registry import all_operations
from weftline.kernel.identity import Permission
from weftline.kernel.operation import Audience, Effect, Registry
from weftline.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

REGISTRY = all_operations()


def test_every_dependency_of_every_operation_is_provided(tmp_path: Path) -> None:
    container = App(Settings(data_dir=str(tmp_path)))._container
    for operation in REGISTRY:
        preparation = operation.prepare.needs if operation.prepare is not None else ()
        for need in (*operation.needs, *preparation):
            assert container.source(need)


def test_requests_and_responses_have_types_that_compile(subtests: pytest.Subtests) -> None:
    for operation in REGISTRY:
        with subtests.test(operation.name):
            for kind in (operation.request, operation.response):
                msgspec.json.Decoder(kind)
                msgspec.json.schema(kind)


def test_every_field_of_a_request_is_described(subtests: pytest.Subtests) -> None:
    for operation in REGISTRY:
        with subtests.test(operation.name):
            schema = msgspec.json.schema(operation.request)
            for definition in schema["$defs"].values():
                for name, field in definition.get("properties", {}).items():
                    assert _described(field, schema["$defs"]), f"{definition['title']}.{name}"


def _described(field: dict[str, Any], definitions: dict[str, Any]) -> bool:
    if "$ref" in field:
        return "description" in definitions[field["$ref"].rpartition("/")[2]]
    return "description" in field or any(_described(part, definitions) for part in field.get("anyOf", []))


def test_every_operation_has_a_summary_and_docstrings(subtests: pytest.Subtests) -> None:
    for operation in REGISTRY:
        with subtests.test(operation.name):
            assert operation.summary[0].isupper()
            assert operation.summary.endswith(".")
            assert operation.request.__doc__
            assert operation.response.__doc__


def test_every_part_of_a_path_is_a_field_of_the_request(subtests: pytest.Subtests) -> None:
    for operation in REGISTRY:
        with subtests.test(operation.name):
            assert set(re.findall(r"{(\w+)", operation.route.path)) <= set(operation.request.__struct_fields__)


def test_routes_and_tool_actions_are_unique() -> None:
    routes = [(operation.route.method, re.sub(r"{.*?}", "{}", operation.route.path)) for operation in REGISTRY]
    actions = [(operation.tool, operation.action) for operation in REGISTRY]
    assert len(set(routes)) == len(routes)
    assert len(set(actions)) == len(actions)


def test_the_operations_of_one_tool_have_actions() -> None:
    for operations in REGISTRY.tools().values():
        assert len(operations) == 1 or all(operation.action for operation in operations)


@pytest.mark.req("SC-03")
@pytest.mark.req("SC-12")
@pytest.mark.req("SC-13")
def test_the_specified_board_actions_belong_to_one_tool() -> None:
    actions = {operation.action for operation in REGISTRY.tools()["shared_context"]}
    assert {"list_keys", "read", "write", "delete", "read_history", "read_batch", "snapshot"} <= actions


@pytest.mark.req("SC-01")
def test_sub_agents_may_only_read_the_sessions_they_are_members_of() -> None:
    closed = {Audience.NOT_SUBAGENTS, Audience.HUMANS}
    shown = {o.name for o in REGISTRY if o.group == "session" and o.audience not in closed}
    assert shown == {"session.get", "session.overview"}


def test_every_write_needs_a_permission_or_affects_the_caller_only() -> None:
    open_to_all = {o.name for o in REGISTRY if o.effect is Effect.WRITE and o.permission is None}
    # Checked by their own rule: admins, and orchestrators for the agents below them.
    managing = {"agent.create", "agent.update", "key.create", "key.revoke"}
    assert open_to_all - managing == {"token.issue", "token.refresh", "token.revoke", "key.rotate", "context.pull"}
    readers_can = {o.name for o in REGISTRY if o.effect is Effect.WRITE and o.permission is Permission.READ}
    assert readers_can == set()


def test_two_operations_cannot_share_a_name() -> None:
    registry = Registry()
    registry.add(REGISTRY["board.read"])
    with pytest.raises(ValueError, match=r"board\.read"):
        registry.add(REGISTRY["board.read"])
