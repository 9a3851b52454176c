"""Hashes of commits cover a random salt, which a bundle contains only together with the whole commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from support.bundles import entries, exported, imported
from support.world import SESSION, refused
from weftline.exchange.transfer.bundle_format import BundleRecord
from weftline.history.lines import LineStore
from weftline.history.model import EMPTY
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from support.world import Caller, World
    from weftline.kernel.transaction import Transaction

pytestmark = [pytest.mark.both_databases, pytest.mark.req("SC-08")]
BOARD = f"board:{SESSION}"
HIDDEN = ["orchestrator"]


async def log(caller: Caller, context_id: str = BOARD) -> list[Any]:
    """Return the commits of a line, oldest first."""
    return (await caller.call("history.log", context_id=context_id, limit=100))["commits"][::-1]


async def hashes(caller: Caller, context_id: str = BOARD) -> list[str]:
    return [commit["hash"] for commit in await log(caller, context_id)]


async def verified(caller: Caller, context_id: str = BOARD) -> bool:
    return (await caller.call("history.verify", context_id=context_id))["intact"]


async def remove_salts(world: World, line_id: str) -> list[str]:
    """Make a line as earlier versions of Weftline wrote it, and return the hashes of its commits, oldest first."""

    async def rewrite(tx: Transaction) -> list[bytes]:
        lines, chain = LineStore(tx), [EMPTY]
        for stored in reversed(await lines.log(line_id, 100, 100)):
            commit = msgspec.structs.replace(stored.commit, salt=None)
            chain.append(commit.hash_after(chain[-1], weight=await lines.weight_at(line_id, commit.seq)))
            await tx.run(
                "UPDATE commits SET salt = NULL, hash = $1 WHERE tenant = $2 AND line_id = $3 AND seq = $4",
                chain[-1],
                tx.tenant,
                line_id,
                commit.seq,
            )
        await tx.run("UPDATE lines SET head = $1 WHERE tenant = $2 AND line_id = $3", chain[-1], tx.tenant, line_id)
        await tx.run("UPDATE tags SET hash = NULL WHERE tenant = $1 AND line_id = $2", tx.tenant, line_id)
        return chain[1:]

    found = await world.app.database.write(Scope(world.tenant), rewrite)
    return [each.hex() for each in found]


def salted_versions(bundle: bytes) -> dict[str, bool]:
    """Return the exported versions of the board, each with whether its entry has a salt."""
    found = {}
    for entry in entries(bundle):
        if isinstance(entry, BundleRecord) and entry.type == "context_item":
            name = msgspec.json.decode(entry.record)["item_id"]
            if name.startswith(f"{BOARD}/"):
                found[name.removeprefix(f"{BOARD}/")] = isinstance(entry.salt, str)
    return found


async def test_equal_commits_have_different_hashes(world: World) -> None:
    other = await world.planner.create_session("s2")
    for caller in (world.planner, other):
        await caller.write("goal", "ship")
    assert await hashes(world.planner) != await hashes(other, "board:s2")


async def test_a_chain_without_salts_stays_valid_and_grows_with_salts(world: World) -> None:
    planner = world.planner
    await planner.write("goal", "ship")
    await planner.write("pin", "4821", readable_by=HIDDEN)
    await planner.call("history.branch", context_id=BOARD, branch="old")
    old = await remove_salts(world, BOARD)
    await world.sql("UPDATE lines SET head = $1 WHERE line_id = $2", bytes.fromhex(old[1]), f"{BOARD}@old")
    assert await verified(planner)
    await planner.write("goal", "ship on Friday")
    await planner.call("board.write", session_id=SESSION, key="goal", value="ship on Monday", branch="old")
    for line in (BOARD, f"{BOARD}@old"):
        assert await verified(planner, line)
        assert [bool(each) for each in await hashes(planner, line)] == [False, False, True]


async def test_hashes_without_salt_are_neither_shown_nor_found_on_a_board(world: World) -> None:
    planner, ann = world.planner, await world.admin.create_agent("ann", kind="human", clearance=3)
    await planner.admit("ann")
    await planner.write("pin", "4821", readable_by=HIDDEN)
    await planner.write("goal", "ship")
    await planner.snapshot("mark")
    await planner.call("history.branch", context_id=BOARD, branch="old")
    old = await remove_salts(world, BOARD)
    await world.sql("UPDATE lines SET head = $1 WHERE line_id = $2", bytes.fromhex(old[1]), f"{BOARD}@old")
    shown = [
        await ann.call("history.log", context_id=BOARD),
        await ann.call("history.show", context_id=BOARD, version="2"),
        await ann.call("history.state", context_id=BOARD),
        await ann.call("history.branches", context_id=BOARD),
        await ann.call("history.snapshot", context_id=BOARD, label="another"),
        await ann.call("history.delete_branch", context_id=BOARD, branch="old"),
    ]
    assert not [each for each in old if each in str(shown)]
    for name in (old[0], old[1][:8]):
        with refused("VERSION_NOT_FOUND"):
            await ann.call("history.show", context_id=BOARD, version=name)
    await planner.write("goal", "ship on Friday")
    new = (await hashes(ann))[-1]
    found = await ann.call("history.show", context_id=BOARD, version=new[:8])
    assert (found["commit"]["hash"], found["parent"]) == (new, "")


async def test_readers_of_a_whole_line_still_see_its_hashes_without_salt(world: World) -> None:
    await world.planner.call("context.push", knowledge=[{"key": "goal", "value": 1}], if_version=0)
    line = "context:planner:learned_knowledge"
    (old,) = await remove_salts(world, line)
    assert await hashes(world.planner, line) == [old]
    assert (await world.planner.call("history.show", context_id=line, version=old[:8]))["commit"]["version"] == 1


async def test_a_bundle_of_a_whole_board_keeps_its_hashes(world: World) -> None:
    planner = world.planner
    await planner.write("goal", "ship", reason="kick-off", step="plan")
    await planner.write("plan", "one", readable_by=HIDDEN)
    await planner.snapshot("mark")
    await planner.write("goal", "ship on Friday")
    await planner.delete("plan")
    await planner.restore("mark")
    bundle = await exported(planner)
    await imported(world.stranger, bundle, session_id="copy")
    assert await hashes(world.stranger, "board:copy") == await hashes(planner)
    assert await verified(world.stranger, "board:copy")


async def test_salts_are_exported_only_with_the_whole_commit(world: World) -> None:
    planner = world.planner
    await planner.write("goal", "ship")
    await planner.write("pin", "4821", readable_by=HIDDEN)
    await planner.snapshot("mark")
    await planner.write("goal", "wait")
    await planner.write("pin", "1734", readable_by=HIDDEN)
    await planner.restore("mark")
    of_reader, of_others = salted_versions(await exported(planner)), salted_versions(await exported(world.analysis))
    assert of_others == {"goal/1.1": True, "goal/1.2": True, "goal/1.3": False}
    # One commit restores both keys; its salt is exported once, with the last of them.
    assert of_reader == {
        "goal/1.1": True,
        "goal/1.2": True,
        "goal/1.3": False,
        "pin/1.1": True,
        "pin/1.2": True,
        "pin/1.3": True,
    }


async def test_salts_are_not_exported_with_changed_or_missing_contents(world: World) -> None:
    await world.planner.write("access", "password: hunter2-very-long-Secret")
    await world.planner.write("goal", "ship")
    masked = await exported(world.planner, policy="standard")
    assert salted_versions(masked) == {"access/1.1": False, "goal/1.1": True}
    await world.admin.call("policy.set", name="default", definition={"content": "reference", "who": ["*"]})
    assert not any(salted_versions(await exported(world.planner)).values())


async def test_an_import_without_salts_gets_new_ones(world: World) -> None:
    await world.planner.write("goal", "ship")
    await remove_salts(world, BOARD)
    bundle = await exported(world.planner)
    assert salted_versions(bundle) == {"goal/1.1": False}
    await imported(world.stranger, bundle, session_id="copy")
    assert all(await hashes(world.stranger, "board:copy"))
    assert await verified(world.stranger, "board:copy")
