"""Every operation by every kind of caller, as the real dispatcher answers: operation_matrix.txt says what is expected.

A new operation fails here until somebody has decided who may call it and has added its line to the table; the failure
prints the line as it would be. Calls are undone, so all of them see the same tenant.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from test_bad_input import OPERATIONS, VALID

from support.red_team import EVERYTHING
from support.undone import undo_writes
from support.world import SESSION, Caller
from weftline.app.dispatch import CallContext
from weftline.kernel.errors import NotFound, WeftlineError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from support.world import World
    from weftline.settings import Settings

pytestmark = [pytest.mark.req("CE-F34"), pytest.mark.req("CE-V", part="isolation")]
WIDTH = 8
TABLE = Path(__file__).with_name("operation_matrix.txt")
# How the table writes the codes of denials.
SHORT = {
    "PERMISSION_DENIED": "no",
    "SELF_MODIFICATION": "self",
    "AUTHENTICATION_ERROR": "who",
    "INVALID_API_KEY": "key",
    "SESSION_TERMINATED": "ended",
    "TOOL_NOT_IN_STEP": "step",
}
# What a request of test_bad_input lacks to reach its access checks.
REQUESTS: dict[str, dict[str, Any]] = {
    "agent.update": {"agent_id": "analysis", "clearance": 1},
    "agent.define": {"agent_id": "analysis", "role": "x"},
    "key.create": {"agent_id": "analysis"},
    "key.list": {"agent_id": "analysis"},
    "agent.create": {"agent_id": "new", "agent_type": "new"},
    "window.restore": {"all_agents": True},
}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, rate_limits="off")


@pytest.fixture
async def callers(world: World) -> dict[str, Caller]:
    """Return a caller of each kind, in the order of the table's columns.

    anon: no credential. sub: a sub-agent, member of the session. step: the same under a key bound to a step of a task.
    ended: a sub-agent whose session a rule has ended. orch: the orchestrator that created the session. outside: an
    orchestrator that is no member. human1, human3, human5: members with that clearance, who read and write. chief: an
    agent with every permission and clearance. admin: a human admin. foreign: the admin of another tenant. off: a
    disabled agent.
    """
    admin, planner = world.admin, world.planner
    people = {
        f"human{level}": await admin.create_agent(f"human{level}", kind="human", clearance=level) for level in (1, 3, 5)
    }
    outsider = await admin.create_agent("mallory", agent_type="planning", clearance=3)
    await admin.create_agent("pawn", parent_id="mallory")
    chief = await admin.create_agent("chief", clearance=5, permissions=EVERYTHING)
    await admin.create_agent("page", parent_id="chief")
    await planner.admit(*people, "chief")
    await planner.write("goal", "ship")
    await planner.snapshot("mark")
    await planner.say("ship it")
    await planner.remember("goal", 1)
    await planner.call("history.branch", context_id=f"board:{SESSION}", branch="try")
    await planner.call("context.ingest", session_id=SESSION, events=[{"event_id": "e1", "content": "hello"}])
    await planner.call("window.checkpoint", session_id=SESSION, label="before")
    await planner.call("context.push", knowledge=[{"key": "goal", "value": 1}], if_version=0)
    await admin.call("team.create", team="research")
    await admin.call("knowledge.create_domain", domain="handbook")
    await admin.call("knowledge.add_document", domain="handbook", document_id="a.md", text="# A")
    await admin.call("policy.set", name="outside", definition={})
    disabled = await admin.create_agent("retired")
    await admin.call("agent.update", agent_id="retired", disabled=True)
    ended = await admin.create_agent("ended", parent_id="planner", agent_type="ended")
    await world.app.termination.end_session(await world.app.identify(CallContext(ended.credential)), SESSION, "a test")
    await admin.call("step.define", name="reading", tools=["shared_context.read"])
    stepping = await admin.call("key.create", agent_id="analysis", step="reading")
    return {
        "anon": replace_credential(planner, None),
        "sub": world.analysis,
        "step": planner.with_credential(stepping["api_key"]),
        "ended": ended,
        "orch": planner,
        "outside": outsider,
        **people,
        "chief": chief,
        "admin": admin,
        "foreign": world.stranger,
        "off": disabled,
    }


def replace_credential(caller: Caller, credential: Any) -> Caller:
    return Caller(caller.app, credential, caller.session)


@pytest.fixture
def undone(world: World, callers: dict[str, Caller], monkeypatch: pytest.MonkeyPatch) -> World:
    """Return a world in which every write is rolled back after it was made."""
    del callers
    undo_writes(world, monkeypatch)
    return world


async def answer(caller: Caller, name: str) -> str:
    """Return how an operation answers a caller, as the table writes it."""
    raw = {**VALID[name], **REQUESTS.get(name, {})}
    try:
        await caller.app.call(OPERATIONS[name], raw, CallContext(caller.credential))
    except WeftlineError as error:
        if isinstance(error, NotFound):
            return "hidden" if error.denial else "-"
        return SHORT.get(error.code, error.code) if error.denial or error.violation else "ok"
    return "ok"


def expected() -> dict[str, list[str]]:
    """Return the table: the answers of each operation, by the columns of its first line."""
    lines = [line.split() for line in TABLE.read_text().splitlines() if line and not line.startswith("#")]
    return {name: answers for name, *answers in lines}


def line(name: str, answers: Iterable[str]) -> str:
    return f"{name:<34}" + "".join(f"{each:<{WIDTH}}" for each in answers).rstrip()


async def test_every_operation_answers_every_caller_as_declared(undone: World, callers: dict[str, Caller]) -> None:
    del undone
    table, wrong = expected(), []
    for name in sorted(OPERATIONS):
        answers = [await answer(caller, name) for caller in callers.values()]
        if table.get(name) != answers:
            wrong.append(line(name, answers))
    assert not wrong, "expected otherwise, or not declared:\n" + "\n".join(wrong)


def test_the_table_has_no_operation_that_is_gone() -> None:
    assert expected().keys() <= OPERATIONS.keys()
