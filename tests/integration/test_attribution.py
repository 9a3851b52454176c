"""Every view and every event that says who did something leads to the agent, and two orchestrators are told apart."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import inspect, json

from support.attribution import fields_that_say_who, named_agents
from support.bundles import entries, exported, imported
from support.world import refused
from weftline.app.registry import all_operations
from weftline.exchange.transfer.bundle_format import BundleWriter
from weftline.kernel.events import Event
from weftline.records.event_classes import CloudEvent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.world import Caller, World

pytestmark = [pytest.mark.req("WX-02"), pytest.mark.req("MW-08")]

BOARD = "board:s2"
TIME_OF_A_CHANGE = re.compile(r"(\w+_)?(at|timestamp)")
# Views without an agent, with the reason. Add a field that says who to any other view of a change.
WITHOUT_AGENT = {
    "CanaryStep": "a step of a job; its migration says who started it",
    "ContextSourceRef": "times of a source outside",
    "DeliveryInfo": "its event says who",
    "DomainEvaluation": "made by a job when documents have changed",
    "DerivedItem": "the item itself says who wrote it",
    "EntityInfo": "the last mention, by anyone",
    "EvaluationInfo": "made by a job when documents have changed",
    "InspectedMemory": "the answer says whose memory it is",
    "ListedGuardrail": "the time of its last hit, by anyone; its layer says who defined it",
    "ProxiedCallInfo": "the answer says whose calls it lists",
    "MemoryFound": "private memory of the caller",
    "MemoryInfo": "private memory of the caller",
    "MemorySet": "the caller did it",
    "MessageAdded": "the caller did it",
    "MissingRequested": "the caller did it",
    "OverviewEntry": "the answer says whose memory it is",
    "ReportedUsage": "its receipt says whose call it was",
    "TriedCall": "the answer names the agent whose calls are tried",
    "SessionArchivedAt": "the caller did it",
}


def parts_of(kind: inspect.Type) -> Iterator[inspect.Type]:
    for name in ("types", "item_types"):
        yield from getattr(kind, name, ())
    for name in ("item_type", "value_type"):
        part = getattr(kind, name, None)
        if isinstance(part, inspect.Type):
            yield part


def response_structs() -> dict[str, set[str]]:
    """Return the fields of every struct in the answers of all operations, by the name of the struct."""
    found: dict[str, set[str]] = {}

    def walk(kind: inspect.Type) -> None:
        if isinstance(kind, inspect.StructType):
            if kind.cls.__name__ in found:
                return
            found[kind.cls.__name__] = {field.name for field in kind.fields}
            for field in kind.fields:
                walk(field.type)
        for part in parts_of(kind):
            walk(part)

    for operation in all_operations():
        walk(inspect.type_info(operation.response))
    return found


def test_every_view_of_a_change_says_who_made_it() -> None:
    structs = response_structs()
    changes = {
        name: fields for name, fields in structs.items() if any(TIME_OF_A_CHANGE.fullmatch(field) for field in fields)
    }
    assert {"EntryRead", "CommitInfo", "MessageInfo", "AuditEntry", "ListedRecord", "ReviewInfo"} <= changes.keys()
    assert {name for name, fields in changes.items() if not fields_that_say_who(fields)} == WITHOUT_AGENT.keys()


def test_every_event_names_its_agent_in_both_formats() -> None:
    assert "agent_id" in {field.name for field in inspect.type_info(Event).fields}  # type: ignore[attr-defined]
    assert "agentid" in {field.name for field in inspect.type_info(CloudEvent).fields}  # type: ignore[attr-defined]


@pytest.fixture
async def peers(world: World) -> tuple[Caller, Caller]:
    """Return two orchestrators below the admin, in a session of the admin."""
    admin = await world.admin.create_session("s2")
    a, b = [await admin.create_agent(name, agent_type="planning", parent_id="admin", clearance=3) for name in "ab"]
    return a.in_session("s2"), b.in_session("s2")


async def agents_in(caller: Caller, operation: str, **raw: Any) -> set[str]:
    return {agent_id for _, agent_id in named_agents(await caller.call(operation, **raw))}


async def test_two_orchestrators_are_told_apart_in_every_view(peers: tuple[Caller, Caller], world: World) -> None:
    for name, caller in zip("ab", peers, strict=True):
        await caller.write(f"key_{name}")
        await caller.write(f"key_{name}", "more")
        await caller.snapshot(f"mark_{name}")
        await caller.say(f"from {name}")
        await caller.call("history.snapshot", context_id=BOARD, label=f"line_{name}")
        await caller.call("missing.report", session_id="s2", question=f"Who asked as {name}?")
    a, session = peers[0], {"session_id": "s2"}
    for operation, raw in (
        ("board.list_keys", session),
        ("board.read_batch", {**session, "keys": ["key_a", "key_b"]}),
        ("board.list_snapshots", session),
        ("message.list", session),
        ("message.search", {**session, "query": "from"}),
        ("history.log", {"context_id": BOARD}),
        ("history.blame", {"context_id": BOARD}),
        ("history.state", {"context_id": BOARD}),
        ("history.diff", {"context_id": BOARD, "from_version": "0"}),
        ("history.snapshots", {"context_id": BOARD}),
        ("missing.list", session),
    ):
        assert await agents_in(a, operation, **raw) == {"a", "b"}, operation
    for form in ("native", "cloudevents"):
        events = await a.events(session_id="s2", after=0, format=form)
        assert {agent_id for _, agent_id in named_agents(events)} == {"admin", "a", "b"}
    listed = await a.call("records.list", session_id="s2")
    assert {record["actor"] for record in listed["records"]} == {"human:admin", "orchestrator:a", "orchestrator:b"}
    for name in "ab":
        found = await a.call("records.list", session_id="s2", agent=name, types=["context_item"])
        assert {record["actor"] for record in found["records"]} == {f"orchestrator:{name}"}


@pytest.mark.both_databases
async def test_an_acl_admits_one_orchestrator_and_not_the_other(peers: tuple[Caller, Caller]) -> None:
    a, b = peers
    await a.write("plan", "of a", writable_by=["orchestrator:a"])
    await a.write("shared", "of both", writable_by=["orchestrator"])
    await a.write("secret", "of a", readable_by=["orchestrator:a"])
    with refused("PERMISSION_DENIED"):
        await b.write("plan", "of b")
    with refused("PERMISSION_DENIED"):
        await b.delete("plan")
    with refused("PERMISSION_DENIED"):
        await b.write("plan", "of b", writable_by=["*"])
    with refused("KEY_NOT_FOUND"):
        await b.read("secret")
    await b.write("shared", "of b")
    assert (await a.read("plan"))["written_by"] == "orchestrator:a"
    assert (await a.read("shared"))["written_by"] == "orchestrator:b"
    assert await b.keys() == ["plan", "shared"]
    subjects = [event["subject"] for event in (await b.events(session_id="s2", after=0))["events"]]
    assert "secret" not in subjects


@pytest.mark.both_databases
async def test_history_cannot_undo_what_only_one_orchestrator_may_write(peers: tuple[Caller, Caller]) -> None:
    a, b = peers
    await a.write("plan", "first", writable_by=["orchestrator:a"])
    await a.snapshot("mark")
    await a.write("plan", "second", writable_by=["orchestrator:a"])
    with refused("PERMISSION_DENIED"):
        await b.restore("mark")
    with refused("PERMISSION_DENIED"):
        await b.call("history.rollback", context_id=BOARD, target_version="1")
    assert await a.value("plan") == "second"


@pytest.mark.both_databases
async def test_a_tree_admits_an_agent_and_those_below_it(peers: tuple[Caller, Caller], world: World) -> None:
    a, b = peers
    child = (await world.admin.create_agent("a-child", parent_id="a")).in_session("s2")
    grandchild = (await world.admin.create_agent("a-grandchild", parent_id="a-child")).in_session("s2")
    other = (await world.admin.create_agent("b-child", parent_id="b")).in_session("s2")
    await a.write("ours", "x", readable_by=["tree:a"])
    for member in (a, child, grandchild):
        assert await member.value("ours") == "x"
        assert await member.keys() == ["ours"]
    for stranger in (b, other, world.admin.in_session("s2")):
        assert await stranger.keys() == []
    await a.write("below", "x", readable_by=["tree:a-child"])
    assert await a.keys() == ["ours"]
    assert await grandchild.keys() == ["below", "ours"]


def without_ids(bundle: bytes) -> bytes:
    """Return a bundle as it was exported when all orchestrators had one name."""
    file = io.BytesIO()
    writer = BundleWriter(file.write)
    for entry in entries(bundle):
        body = json.encode(entry).replace(b"orchestrator:planner", b"orchestrator")
        writer.add(json.decode(body, type=type(entry)))
    writer.seal()
    return file.getvalue()


async def test_a_bundle_from_before_orchestrators_had_ids_is_imported(world: World) -> None:
    await world.planner.write("goal", "ship", readable_by=["orchestrator", "human:*"])
    await world.planner.snapshot("mark")
    await imported(world.stranger, without_ids(await exported(world.admin)))
    assert (await world.stranger.read("goal"))["written_by"] == "orchestrator"
    assert (await world.stranger.inspect())["history_intact"]
    found = await world.stranger.call("records.list", session_id="s1", agent="orchestrator", types=["context_item"])
    assert [record["id"] for record in found["records"]] == ["board:s1/goal/1.1"]
