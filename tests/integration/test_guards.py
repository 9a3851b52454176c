"""Guards: rules beside permissions, asked before anything is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.world import refused
from weft.capabilities.board.operations import WriteEntry
from weft.capabilities.events.model import EventFilter
from weft.capabilities.events.operations import ReadEvents
from weft.kernel.errors import PermissionDenied

if TYPE_CHECKING:
    from support.world import World
    from weft.kernel.identity import Actor
    from weft.kernel.operation import Operation, Request


async def test_a_guard_sees_who_asks_for_what_as_the_operation_will(world: World) -> None:
    seen: list[tuple[str, str, Request]] = []

    def guard(actor: Actor, operation: Operation, request: Request) -> None:
        seen.append((actor.participant, operation.name, request))

    world.app.guards.append(guard)
    await world.analysis.write("goal", "ship")
    await anext(world.review.follow(EventFilter("s1", ("goal",)), 0))
    with refused("INVALID_INPUT_FORMAT"):
        await world.analysis.write("goal", if_version="one")
    with refused("PERMISSION_DENIED"):
        await world.analysis.audit()
    assert seen == [
        ("subagent:analysis", "board.write", WriteEntry(session_id="s1", key="goal", value="ship")),
        ("subagent:review:review-2", "events.read", ReadEvents(session_id="s1", keys=("goal",), after=0)),
    ]


@pytest.mark.req("MS-13")
async def test_what_a_guard_refuses_is_not_done_and_is_on_record(world: World) -> None:
    def guard(actor: Actor, operation: Operation, request: Request) -> None:
        if isinstance(request, WriteEntry) and actor.is_subagent and request.key == "goal":
            raise PermissionDenied("Goals are set by the orchestrator.")

    world.app.guards.append(guard)
    with refused("PERMISSION_DENIED"):
        await world.analysis.write("goal")
    await world.analysis.write("finding")
    assert await world.planner.keys() == ["finding"]
    denied = [(row["action"], row["principal_id"], row["detail"]) for row in await world.admin.audit(outcome="denied")]
    reason = "Goals are set by the orchestrator."
    assert denied == [("board.write", "analysis", {"code": "PERMISSION_DENIED", "reason": reason})]
