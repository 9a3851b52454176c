"""A session imported again is opened under a new id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.bundles import entries, exported, imported, items, records, texts
from support.records import AT, all_records, item
from support.world import SESSION, Caller, refused
from weftline.exchange.transfer.bundle_format import BundleSession, BundleSnapshot

if TYPE_CHECKING:
    from support.world import World

pytestmark = pytest.mark.req("AC-14")

BOARD = f"board:{SESSION}"


@pytest.fixture
def importer(world: World) -> Caller:
    """Return the admin of the tenant that imports bundles."""
    return world.stranger


async def fill_session(world: World) -> None:
    planner = world.planner
    await planner.write("goal", "ship", step="plan")
    await planner.write("goal", "ship on Friday")
    await planner.write("about", BOARD)
    await planner.snapshot("mark")
    await planner.say("hello")
    await planner.call("history.branch", context_id=BOARD, branch="try")
    await planner.write("goal", "wait", branch="try")
    await planner.call("missing.report", session_id=SESSION, question="When?", missing_id="when")
    assembly = {"schema_version": "0.1.0", "created_at": AT, "assembly_id": "goal", "target": "m"}
    block = {"item_refs": [f"{BOARD}/goal/1.2", "note", {"kind": "item", "id": "note"}]}
    made = [item("note", f"see {BOARD}"), {**assembly, "ordered_blocks": [block]}]
    await planner.call("records.add", session_id=SESSION, records=made)


def texts_by_key(bundle: bytes) -> dict[str, str]:
    """Return the texts of a bundle's items by id, without the session id."""
    return {name.partition("/")[2] or name.partition("@")[0]: text for name, text in texts(bundle).items()}


async def test_importing_an_existing_session_is_refused_with_a_hint(world: World, importer: Caller) -> None:
    await fill_session(world)
    bundle = await exported(world.admin)
    await imported(importer, bundle)
    with refused("SESSION_EXISTS") as caught:
        await imported(importer, await exported(world.admin))
    assert "--as-session" in caught.value.hint
    assert "session_id" in caught.value.hint


@pytest.mark.parametrize("what", [{}, {"scope": "handoff", "recipient": "closer"}])
async def test_a_session_is_imported_under_a_new_id_with_all_its_references(
    world: World, importer: Caller, what: dict[str, Any]
) -> None:
    await fill_session(world)
    await imported(importer, await exported(world.admin, **what))
    await world.planner.write("goal", "ship on Monday")
    await world.planner.call("missing.resolve", missing_id="when", answer="Soon.")
    second = await exported(world.admin, **what)
    result = await imported(importer, second, session_id="again")
    assert result.session_id == "again"
    renamed = importer.in_session("again")
    assert (await renamed.value("goal"), await importer.value("goal")) == ("ship on Monday", "ship on Friday")
    assert await renamed.value("about") == BOARD
    assert await renamed.message_texts() == ["hello"]
    assert (await importer.call("history.verify", context_id="board:again", deep=True))["intact"]
    gaps = [await importer.call("missing.list", session_id=session, status="all") for session in (SESSION, "again")]
    assert [(gap["missing"][0]["missing_id"], gap["missing"][0]["status"]) for gap in gaps] == [
        ("when", "detected"),
        ("when@again", "resolved"),
    ]
    bundle = await exported(renamed)
    assert texts_by_key(bundle).items() >= {k: v for k, v in texts_by_key(second).items() if "@" not in k}.items()
    shown = records(bundle)["context_assembly", "goal@again"]["ordered_blocks"][0]["item_refs"]
    assert shown == ["board:again/goal/1.2", "note@again", {"kind": "item", "id": "note@again"}]
    assert items(bundle)["note@again"]["content"] == f"see {BOARD}"
    assert f"session:{SESSION}" not in str(records(bundle, "context_surface", "context_envelope").keys())


async def test_events_name_the_new_session(world: World, importer: Caller) -> None:
    await fill_session(world)
    bundle = await exported(world.admin)
    await imported(importer, bundle)
    await imported(importer, bundle, session_id="again")
    entries_of = [await all_records(importer, session_id=session) for session in (SESSION, "again")]
    first, again = [{(each["type"], each["id"].split("@")[0]) for each in listed} for listed in entries_of]
    renamed = {(kind, name.replace(f":{SESSION}", ":again")) for kind, name in first}
    assert {name for name in renamed if name[0] == "context_item"} == {n for n in again if n[0] == "context_item"}
    events = (await importer.events(session_id="again"))["events"]
    assert {event["subject"] for event in events if event["type"].startswith("session.")} == {"again"}
    one, other = [
        [entry for entry in entries(await exported(importer.in_session(session))) if isinstance(entry, BundleSnapshot)]
        for session in (SESSION, "again")
    ]
    assert one == other


async def test_importing_a_bundle_twice_under_a_new_id_changes_nothing(world: World, importer: Caller) -> None:
    await fill_session(world)
    bundle = await exported(world.admin)
    await imported(importer, bundle, session_id="again")
    assert (await imported(importer, bundle, session_id="again")).unchanged
    with refused("SESSION_NOT_FOUND"):
        await importer.list()


async def test_a_returned_handoff_is_imported_next_to_its_original(world: World, importer: Caller) -> None:
    await fill_session(world)
    await imported(importer, await exported(world.planner, scope="handoff", recipient="closer"))
    await importer.write("goal", "shipped")
    back = await exported(importer, scope="handoff", recipient="planner")
    assert entries(back)[1].session_id == SESSION
    await imported(world.admin, back, session_id="back")
    assert await world.planner.in_session("back").value("goal") == "shipped"
    assert await world.planner.value("goal") == "ship on Friday"


async def test_only_a_session_can_be_imported_under_a_new_id(world: World, importer: Caller) -> None:
    turn = await exported(world.planner, scope="turn", turn_id="t1")
    assert not [entry for entry in entries(turn) if isinstance(entry, BundleSession)]
    with refused("INVALID_INPUT_FORMAT"):
        await imported(importer, turn, session_id="again")
    for name in ("all", "no name"):
        with refused("INVALID_INPUT_FORMAT"):
            await imported(importer, await exported(world.planner), session_id=name)
