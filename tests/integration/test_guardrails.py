"""Guardrails prohibit calls: by layer, action, scope and condition, from the next call on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.world import outcome, refused

if TYPE_CHECKING:
    from support.world import Caller, World

NO_DELETE = {"name": "no-delete", "prohibited_action": ["board.delete"], "message": "Ask before you delete."}


async def define(caller: Caller, *guardrails: dict[str, Any], layer: str = "tenant") -> dict[str, Any]:
    return await caller.call("layer.define", layer=layer, guardrails=[*guardrails])


async def write(caller: Caller, key: str = "goal", value: Any = "ship") -> dict[str, Any]:
    return await caller.call("board.write", session_id=caller.session, key=key, value=value)


@pytest.mark.req("CE-F35")
@pytest.mark.req("CE-F36")
async def test_a_rule_prohibits_an_action_and_everything_else_is_allowed(world: World) -> None:
    await write(world.planner)
    await define(world.admin, NO_DELETE)
    with refused("GUARDRAIL_VIOLATION") as error:
        await world.planner.call("board.delete", session_id=world.planner.session, key="goal")
    assert error.value.message == (
        "The guardrail 'no-delete' of the tenant prohibits board.delete: Ask before you delete."
    )
    assert error.value.context == {
        "guardrail": "no-delete",
        "level": 2,
        "layer": "tenant",
        "operation": "board.delete",
    }
    await write(world.planner, value="later")
    await define(world.admin)
    assert await outcome(world.planner.call("board.delete", session_id=world.planner.session, key="goal")) == "ok"
