"""Threat: an agent changes its own role, prompt, guardrails, clearance, parent, teams or layers.

The attacker has every permission and clearance 5. Each door is one attempt: it must be refused, be on the audit log, be
a security event, and change nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.contexts import pull, push
from support.red_team import blocked
from support.world import outcome, refused
from weftline.access.sql import AccessStore
from weftline.app.dispatch import CallContext
from weftline.history.line_kinds import CommitMeta, EditProof
from weftline.kernel.errors import SelfModification
from weftline.state.agent_context.history_backend import ContextLines
from weftline.state.agent_context.model import DEFINITION, NewValue, inline
from weftline.state.agent_context.service import Contexts
from weftline.state.layers.history_backend import LayerLines, LockedLayer
from weftline.storage.sql.database import Scope
from weftline.storage.sql.unit_of_work import CallerTransactions
from weftline.validation.self_modification import attempts

ATTEMPTS = attempts("Every answer ends with a rhyme.")

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from support.world import Caller, World

pytestmark = [
    pytest.mark.req("CE-F30"),
    pytest.mark.req("CE-F31"),
    pytest.mark.req("CE-F32"),
    pytest.mark.req("CE-F34"),
    pytest.mark.req("CE-U7"),
    pytest.mark.req("CE-E", part="an agent that changes its own definition"),
    pytest.mark.req("CE-V", part="immutability"),
]


async def state(world: World) -> Any:
    """Return everything that binds the attacker."""
    admin = world.admin
    agent = next(each for each in (await admin.call("agent.list"))["agents"] if each["agent_id"] == "mallory")
    return (
        agent,
        await admin.call("agent.read_definition", agent_id="mallory"),
        await admin.call("layer.show", agent_id="mallory"),
        await admin.call("team.show", team="ops"),
        (await admin.call("key.list", agent_id="mallory"))["keys"],
    )


@pytest.mark.parametrize("attempt", ATTEMPTS)
async def test_no_operation_changes_its_caller(world: World, mallory: Caller, attempt: str) -> None:
    before = await state(world)
    operation, raw = ATTEMPTS[attempt]
    error = await blocked(world, mallory.call(operation, **raw), "SELF_MODIFICATION", violation="self_modification")
    assert error.denial
    assert await state(world) == before


async def test_a_sub_agent_has_no_door_either(world: World, mallory: Caller) -> None:
    key = await world.admin.call("key.create", agent_id="pawn")
    pawn = mallory.with_credential(key["api_key"])
    before = await state(world)
    for operation in ("agent.define", "agent.update", "team.add_member", "team.remove_member"):
        raw = {"agent_id": "pawn", **({"team": "ops"} if operation.startswith("team") else {})}
        await blocked(world, pawn.call(operation, **raw), "SELF_MODIFICATION", violation="self_modification")
    # Upwards and sideways: its parent, another tree, a human.
    for target in ("mallory", "planner", "analysis", "admin"):
        for operation, raw in [
            ("agent.define", {"agent_id": target, "role": "x"}),
            ("agent.update", {"agent_id": target, "clearance": 1}),
            ("key.create", {"agent_id": target}),
        ]:
            await blocked(world, pawn.call(operation, **raw), "PERMISSION_DENIED")
    assert await state(world) == before


async def test_old_branches_and_switches_bring_no_old_definition_back(world: World, mallory: Caller) -> None:
    """A branch from before an edit, switched to, pulled and merged: the definition in force stays."""
    before = await state(world)
    await mallory.call("history.switch", context_id="context:mallory", branch="old")
    pulled = await pull(mallory)
    assert "clerk" in str(pulled)
    assert "helper" not in str(pulled)
    assert "clerk" in str(await mallory.call("layer.show", session_id="hers"))
    await push(
        mallory, {"key": "b", "value": 2}, branch="old", if_version=(await mallory.call("context.status"))["version"]
    )
    await mallory.call("history.merge", context_id="context:mallory", from_context_id="context:mallory@old")
    review = await mallory.call("history.reviews")
    for each in review["reviews"]:
        raw = {"review_id": each["review_id"], "resolutions": {DEFINITION: {"take": "theirs"}}}
        assert await outcome(mallory.call("history.resolve", **raw)) != "ok"
    assert (await state(world))[:2] == before[:2]


async def test_a_definition_is_not_a_value_to_decide_in_a_merge(world: World, mallory: Caller) -> None:
    before = await state(world)
    await mallory.call("history.switch", context_id="context:mallory", branch="main")
    version = (await mallory.call("context.status"))["version"]
    await push(mallory, {"key": "a", "value": 3}, if_version=version)
    await push(mallory, {"key": "a", "value": 4}, branch="old", if_version=2)
    merged = await mallory.call("history.merge", context_id="context:mallory", from_context_id="context:mallory@old")
    forged = {"line": "agent:pawn", "seq": 1, "hash": "00" * 32}
    for chosen in ({"value": forged}, {"take": "theirs"}):
        raw = {"review_id": merged.get("review_id", "review_1"), "resolutions": {DEFINITION: chosen}}
        assert await outcome(mallory.call("history.resolve", **raw)) != "ok"
    assert (await state(world))[:2] == before[:2]


async def inside(mallory: Caller, need: type[Any], work: Callable[[Any], Awaitable[Any]]) -> Any:
    """Run code below the operations, as the attacker."""
    actor = await mallory.app.identify(CallContext(mallory.credential))
    return await CallerTransactions(mallory.app.database, mallory.app._container, need).write(actor, work)


async def test_lower_functions_refuse_the_same(world: World, mallory: Caller) -> None:
    """Code that calls past the operations: services, backends and stores."""

    async def commit_part(contexts: Contexts) -> None:
        context = await contexts.open("mallory")
        part = await context.part(DEFINITION)
        await part.write("role", inline(NewValue(b'"root"')))
        await context.commit([part], CommitMeta("x"))

    async def commit_part_with_a_made_up_proof(contexts: Contexts) -> None:
        context = await contexts.open("mallory")
        part = await context.part(DEFINITION)
        await part.write("role", inline(NewValue(b'"root"')))
        await context.commit([part], CommitMeta("x"), proof=EditProof("agent:mallory", "mallory"))

    async def open_line(lines: ContextLines) -> None:
        await lines.to_write("agent:mallory")

    async def open_layer(lines: LayerLines) -> None:
        await lines.to_define("tenant")

    async def write_layer(lines: LayerLines) -> None:
        head = await lines.lines.lock("layer:tenant")
        assert head is not None
        layer = LockedLayer(lines, "tenant", head, EditProof("layer:tenant", "mallory"))
        await layer.write({"text": "Anything goes."}, CommitMeta("x"))

    before = await state(world)
    for need, work in [
        (Contexts, commit_part),
        (Contexts, commit_part_with_a_made_up_proof),
        (ContextLines, open_line),
        (LayerLines, open_layer),
        (LayerLines, write_layer),
    ]:
        with pytest.raises(SelfModification):
            await inside(mallory, need, work)
    assert await state(world) == before


async def test_a_right_that_was_taken_since_does_not_count(world: World, mallory: Caller) -> None:
    """The store checks the edit against the tree and clearance of the moment, not of the login."""

    async def define_pawn(contexts: Contexts) -> None:
        context = await contexts.open("pawn")
        part = await context.part(DEFINITION)
        await part.write("role", inline(NewValue(b'"tool"')))
        await context.commit([part], CommitMeta("x"), proof=EditProof("agent:pawn", "mallory"))

    await inside(mallory, Contexts, define_pawn)
    await world.admin.call("agent.update", agent_id="pawn", clearance=5)
    await world.admin.call("agent.update", agent_id="mallory", clearance=2)

    async def still_identified(tx: Any) -> None:
        actor = await world.app.identify(CallContext(mallory.credential))
        contexts = world.app._container.build(Contexts, actor, tx)
        context = await contexts.open("pawn")
        part = await context.part(DEFINITION)
        await part.write("role", inline(NewValue(b'"weapon"')))
        await context.commit([part], CommitMeta("x"), proof=EditProof("agent:pawn", "mallory"))

    with refused("PERMISSION_DENIED"):
        await world.app.database.write(Scope(world.tenant), still_identified)
    assert (await world.admin.call("agent.read_definition", agent_id="pawn"))["role"] == "tool"


async def test_a_parent_and_a_cleared_human_may_edit_downwards(world: World, mallory: Caller) -> None:
    """The doors are closed to the wrong callers only."""
    human = await world.admin.create_agent("dana", kind="human", clearance=5)
    await mallory.call("agent.define", agent_id="pawn", role="scribe")
    await mallory.call("agent.update", agent_id="pawn", clearance=2)
    await human.call("agent.define", agent_id="mallory", role="chief")
    await human.call("layer.define", layer="tenant", text="Be kind.")
    principal = await world.app.database.read(Scope(world.tenant), lambda tx: AccessStore(tx).principal("pawn"))
    assert principal is not None
    assert principal.clearance == 2
