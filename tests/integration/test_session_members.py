"""Members of sessions: who sees one, how that changes, and that nothing of a session reaches others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from test_bad_input import OPERATIONS, VALID

from support.world import SESSION, outcome, refused
from weftline.app.dispatch import CallContext, authorise
from weftline.kernel.errors import PermissionDenied, WeftlineError
from weftline.sessions.events.model import EventFilter
from weftline.transports.resources import parse_uri, read_resource

if TYPE_CHECKING:
    from support.world import Caller, World
    from weftline.kernel.identity import Actor

pytestmark = pytest.mark.req("WX-05")

MARK = "quokka"
TIMEOUT_SECONDS = 60
# Answers to a caller that is not a member, where they differ from SESSION_NOT_FOUND.
ANSWERS = {
    # An id in use cannot be used again; generated ids cannot be guessed.
    "session.create": "SESSION_EXISTS",
    # They say how tools are called on a connection to a session, whichever it is.
    "tools.describe": "ok",
}
# Lists that are filtered by one of these fields, and then empty.
EMPTY = {"history.reviews", "history.snapshots"}
# Fields that lead to a session by another id.
INDIRECT = {
    "compaction_id",
    "context_id",
    "from_context_id",
    "item_id",
    "receipt_id",
    "record_id",
    "missing_id",
    "review_id",
    "source_ref",
    "ref",
}
TAKING_A_SESSION = {name for name, each in OPERATIONS.items() if "session_id" in each.request.__struct_fields__}
OUTSIDE = {name for name, each in OPERATIONS.items() if INDIRECT & {*each.request.__struct_fields__}}


@pytest.fixture
async def mallory(world: World) -> Caller:
    """Return an orchestrator of the tenant with every clearance, and an agent below it."""
    mallory = await world.admin.create_agent("mallory", agent_type="planning", clearance=5)
    await world.admin.create_agent("helper", parent_id="mallory", agent_type="analysis")
    return mallory


@pytest.fixture
async def ids(world: World) -> dict[str, Any]:
    """Fill the session with everything it can hold; return the ids of what is in it."""
    planner, session = world.planner, {"session_id": SESSION}
    await planner.write("goal", f"{MARK} on the board")
    await planner.call("history.branch", context_id=f"board:{SESSION}", branch="try")
    await planner.write("goal", f"{MARK} on main")
    await planner.write("goal", f"{MARK} on a branch", branch="try")
    review = await planner.call("history.merge", context_id=f"board:{SESSION}", from_context_id=f"board:{SESSION}@try")
    await planner.snapshot(f"{MARK}_label")
    await planner.say(f"{MARK} by Ada Lovelace of Initech")
    await planner.say(f"{MARK} for analysis", recipient_id="analysis")
    await planner.call("pin.add", **session, key="goal")
    await planner.remember("note", f"{MARK} in memory", session_id=SESSION)
    await planner.call("context.ingest", **session, events=[{"event_id": "e1", "content": f"{MARK} in a window"}])
    await planner.call("window.checkpoint", **session, label=f"{MARK}_point")
    turns = [{"event_id": f"t{n}", "content": f"The {MARK} is in room {n}. " * 20} for n in range(30)]
    await planner.call("context.ingest", **session, events=turns)
    compaction = await planner.call("context.compact", **session, keep_recent=4, wait_seconds=60)
    prompt = await planner.call("context.assemble", **session, task_description=f"Find the {MARK}.")
    missing = await planner.call("missing.report", **session, question=f"Where is the {MARK}?")
    await planner.call("context.pull", **session)
    await planner.search(MARK, record=True)
    await world.index_sessions()
    return {
        "compaction_id": compaction["compaction_id"],
        "context_id": f"board:{SESSION}",
        "from_context_id": f"board:{SESSION}@try",
        "item_id": f"board:{SESSION}/goal/1.1",
        "receipt_id": prompt["receipt_id"],
        "record_id": f"message:{SESSION}/1",
        "missing_id": missing["missing_id"],
        "review_id": review["review_id"],
    }


def request(name: str, ids: dict[str, Any], session_id: str = SESSION) -> dict[str, Any]:
    """Return a valid request of an operation about what is in the session."""
    fields = OPERATIONS[name].request.__struct_fields__
    named = {"receipt_id", *VALID[name]}.intersection(fields)
    raw = {**VALID[name], **{field: value for field, value in ids.items() if field in named}}
    if "query" in fields:
        raw["query"] = MARK
    return {**raw, "session_id": session_id} if "session_id" in fields else raw


async def answer(caller: Caller, name: str, raw: dict[str, Any]) -> tuple[str, str]:
    """Return the code of an answer, and its whole text."""
    try:
        return "ok", msgspec.json.encode(await caller.call(name, **raw)).decode()
    except WeftlineError as error:
        return error.code, f"{error.message} {error.hint} {error.context}"


def may_call(name: str, actor: Actor) -> bool:
    try:
        authorise(OPERATIONS[name], actor)
    except PermissionDenied:
        return False
    return True


def test_every_exception_is_an_operation_on_sessions() -> None:
    assert ANSWERS.keys() <= TAKING_A_SESSION
    assert len(TAKING_A_SESSION) > 50
    assert {"history.log", "records.show", "receipt.show", "history.review", "missing.resolve"} <= OUTSIDE


@pytest.mark.parametrize("who", ["mallory", "helper"])
async def test_a_session_does_not_exist_for_those_who_are_not_members(
    world: World, mallory: Caller, ids: dict[str, Any], who: str
) -> None:
    """Every operation that takes a session id: a new one fails here until it is closed, or expected otherwise."""
    caller = mallory
    if who == "helper":
        key = await world.admin.call("key.create", agent_id="helper")
        caller = mallory.with_credential(key["api_key"])
    actor = await world.app.identify(CallContext(caller.credential))
    before = await world.last_event()
    for name in sorted(TAKING_A_SESSION):
        code, text = await answer(caller, name, request(name, ids))
        expected = ANSWERS.get(name, "SESSION_NOT_FOUND") if may_call(name, actor) else "PERMISSION_DENIED"
        assert code == expected, f"{name}: {code} {text}"
        assert MARK not in text, f"{name}: {text}"
        if code == "SESSION_NOT_FOUND":
            missing, same = await answer(caller, name, request(name, ids, "nowhere"))
            assert (missing, same.replace("nowhere", SESSION)) == (code, text), name
    assert await world.last_event() == before


async def test_no_id_of_a_thing_leads_into_a_session_of_others(
    world: World, mallory: Caller, ids: dict[str, Any]
) -> None:
    before = await world.last_event()
    for name in sorted(OUTSIDE - TAKING_A_SESSION):
        code, text = await answer(mallory, name, request(name, ids))
        assert code != "ok" or name in EMPTY, name
        assert MARK not in text, f"{name}: {text}"
    assert await world.last_event() == before


async def test_no_list_names_anything_of_a_session_of_others(
    world: World, mallory: Caller, ids: dict[str, Any]
) -> None:
    """Operations that need no session: what they return of all sessions is of the caller's own."""
    assert ids
    for name in sorted(OPERATIONS):
        raw = {**VALID[name]}
        if "session_id" in raw or OPERATIONS[name].effect.value != "read":
            continue
        if "query" in raw:
            raw["query"] = MARK
        code, text = await answer(mallory, name, raw)
        assert MARK not in text, f"{name}: {code} {text}"
        assert f'"{SESSION}"' not in text, f"{name}: {code} {text}"
    found = await mallory.call("search.query", query=MARK, low_confidence=True, explain=True)
    assert (found["results"], found["searched"]) == ([], 0)
    assert (await mallory.call("entity.list"))["entities"] == []
    assert (await mallory.call("session.list"))["sessions"] == []
    assert (await mallory.call("records.list"))["records"] == []
    assert [event["session_id"] for event in (await mallory.events())["events"] if event["session_id"]] == []
    assert (await world.planner.call("session.list"))["sessions"][0]["id"] == SESSION


async def test_resources_of_a_session_do_not_exist_for_others(world: World, mallory: Caller) -> None:
    await world.planner.write("goal", MARK)
    for uri in (f"board://{SESSION}", f"board://{SESSION}/goal", f"board://{SESSION}/g*", f"session://{SESSION}"):
        reading = read_resource(world.app, parse_uri(uri), CallContext(mallory.credential))
        assert await outcome(reading) == "SESSION_NOT_FOUND"


@pytest.mark.parametrize(
    ("members", "sees"),
    [
        (None, {"analysis", "review-2"}),
        ([], set()),
        (["*"], {"analysis", "review-2", "mallory", "helper", "dana"}),
        (["mallory"], {"mallory"}),
        (["principal:mallory"], {"mallory"}),
        (["tree:mallory"], {"mallory", "helper"}),
        (["tree:dana"], {"dana", "mallory", "helper"}),
        (["user:dana"], {"dana", "mallory", "helper", "review-2"}),
        (["orchestrator"], {"mallory"}),
        (["orchestrator:mallory"], {"mallory"}),
        (["orchestrator:*"], {"mallory"}),
        (["subagent:*"], {"analysis", "review-2", "helper"}),
        (["subagent:review:*"], {"review-2"}),
        (["subagent:analysis"], {"analysis", "helper"}),
        (["human:*", "review-2"], {"dana", "review-2"}),
        (["team:crew"], {"review-2", "dana"}),
    ],
)
async def test_members_are_named_by_id_team_tree_user_or_pattern(
    world: World, members: list[str] | None, sees: set[str]
) -> None:
    admin = world.admin
    callers = {"analysis": world.analysis, "review-2": world.review}
    callers["dana"] = await admin.create_agent("dana", kind="human")
    callers["mallory"] = await admin.create_agent("mallory", agent_type="planning", parent_id="dana")
    callers["helper"] = await admin.create_agent("helper", parent_id="mallory", agent_type="analysis")
    await admin.call("team.create", team="crew")
    for each in ("planner", "review-2", "dana"):
        await admin.call("team.add_member", team="crew", agent_id=each)
    await world.planner.create_session("s2", members=members)
    codes = {name: await outcome(caller.in_session("s2").keys()) for name, caller in callers.items()}
    assert {name for name, code in codes.items() if code == "ok"} == sees
    assert {code for code in codes.values() if code != "ok"} <= {"SESSION_NOT_FOUND"}
    assert await outcome(world.planner.in_session("s2").keys()) == "ok"
    listing = {name for name in ("dana", "mallory") if (await callers[name].call("session.list"))["sessions"]}
    assert listing == sees & {"dana", "mallory"}


@pytest.mark.req("MS-02")
async def test_members_see_the_members_also_sub_agents(world: World, mallory: Caller) -> None:
    await world.planner.admit("mallory")
    for caller in (world.planner, world.analysis, mallory):
        session = (await caller.call("session.get", session_id=SESSION))["session"]
        assert (session["created_by"], session["members"]) == ("planner", ["tree:planner", "mallory"])
    await world.planner.call("session.remove_members", session_id=SESSION, members=["tree:planner"])
    assert await outcome(world.analysis.call("session.get", session_id=SESSION)) == "SESSION_NOT_FOUND"


async def test_entries_that_do_not_exist_are_refused_with_suggestions(world: World, mallory: Caller) -> None:
    await world.admin.call("team.create", team="secret-team")
    for entry, code in {
        "analysys": "AGENT_NOT_FOUND",
        "tree:nobody": "AGENT_NOT_FOUND",
        "user:analysis": "AGENT_NOT_FOUND",
        "team:secret-team": "TEAM_NOT_FOUND",
        "team:none": "TEAM_NOT_FOUND",
        "clearance:1": "INVALID_INPUT_FORMAT",
        "permission:read": "INVALID_INPUT_FORMAT",
        "type:analysis": "INVALID_INPUT_FORMAT",
        "sub*": "INVALID_INPUT_FORMAT",
        "team:*": "INVALID_INPUT_FORMAT",
        "subagent:*:x": "INVALID_INPUT_FORMAT",
        "**": "INVALID_INPUT_FORMAT",
        "human:": "INVALID_INPUT_FORMAT",
    }.items():
        assert await outcome(world.planner.admit(entry)) == code, entry
        assert await outcome(world.planner.create_session("s2", members=[entry])) == code, entry
    with refused("AGENT_NOT_FOUND") as caught:
        await world.planner.admit("analysys")
    assert caught.value.context["available_alternatives"] == ["analysis"]
    with refused("AGENT_NOT_FOUND") as caught:
        await mallory.call("session.create", purpose="x", members=["analysys"])
    assert caught.value.context["available_alternatives"] == []


async def test_only_the_creator_those_above_it_and_admins_change_members(world: World, mallory: Caller) -> None:
    boss = await world.admin.create_agent("boss", kind="human")
    lead = await world.admin.create_agent("lead", parent_id="boss")
    await lead.create_session("s2", members=["mallory"])
    for caller, code in (
        (mallory, "PERMISSION_DENIED"),
        (world.planner, "SESSION_NOT_FOUND"),
        (boss, "ok"),
        (lead, "ok"),
    ):
        for verb in ("add", "remove"):
            call = caller.call(f"session.{verb}_members", session_id="s2", members=["planner"])
            assert await outcome(call) == code, verb
    assert await outcome(mallory.call("session.delete", session_id="s2", force=True)) == "PERMISSION_DENIED"
    with refused("INVALID_INPUT_FORMAT"):
        await lead.call("session.remove_members", session_id="s2", members=["lead"])
    assert await outcome(boss.in_session("s2").keys()) == "NOT_A_MEMBER"
    await boss.call("session.add_members", session_id="s2", members=["boss"])
    assert await boss.in_session("s2").keys() == []
    actions = [row["action"] for row in await world.admin.audit()]
    assert {"session.add_members", "session.remove_members"} <= {*actions}


async def test_changes_say_what_changed_and_who_is_still_a_member(world: World, mallory: Caller) -> None:
    assert mallory
    added = await world.planner.admit("mallory", "analysis", "mallory", "planner", "tree:planner")
    assert (added["added"], added["members"]) == (["mallory", "analysis"], ["tree:planner", "mallory", "analysis"])
    start = await world.last_event()
    assert (await world.planner.admit("mallory"))["added"] == []
    assert await world.last_event() == start
    removed = await world.planner.call(
        "session.remove_members", session_id=SESSION, members=["analysis", "mallory", "nobody"]
    )
    assert (removed["removed"], removed["members"]) == (["mallory", "analysis"], ["tree:planner"])
    assert removed["still_members"] == {"analysis": "tree:planner"}
    (event,) = (await world.planner.events(after=start))["events"]
    assert (event["type"], event["data"]) == (
        "session.members_changed",
        {"added": [], "removed": ["mallory", "analysis"]},
    )


@pytest.mark.req("MS-17")
async def test_only_those_who_may_know_are_told_that_they_are_no_member(world: World, mallory: Caller) -> None:
    """A human above the creator manages its sessions; others cannot tell a closed session from none."""
    dana = await world.admin.create_agent("dana", kind="human")
    lead = await world.admin.create_agent("lead", parent_id="dana", agent_type="planning")
    await lead.create_session("s2")
    with refused("NOT_A_MEMBER") as caught:
        await dana.in_session("s2").write("goal")
    assert caught.value.context["created_by"] == "lead"
    added = await dana.call("session.add_members", **caught.value.context["add"])
    assert added["added"] == ["dana"]
    await dana.in_session("s2").write("goal")
    for session in ("s2", "s3"):
        with refused("SESSION_NOT_FOUND"):
            await mallory.in_session(session).write("goal")


async def test_a_session_has_at_most_a_hundred_entries(world: World) -> None:
    await world.planner.create_session("s2", members=[f"human:h{number}" for number in range(100)])
    with refused("TOO_MANY_MEMBERS"):
        await world.planner.in_session("s2").admit("analysis")


async def test_removed_members_lose_everything_at_once_and_added_ones_see_the_history(
    world: World, mallory: Caller, ids: dict[str, Any]
) -> None:
    assert ids
    second = mallory.at(await world.another_app())

    async def sees(caller: Caller) -> tuple[bool, ...]:
        events = [each["type"] for each in (await caller.events())["events"] if each["session_id"] == SESSION]
        found = await caller.call("search.query", query=MARK, low_confidence=True, session_id=None)
        return (
            await outcome(caller.keys()) == "ok",
            "message.added" in events,
            bool(found["results"]),
            bool((await caller.call("session.list"))["sessions"]),
            bool((await caller.call("entity.list"))["entities"]),
            bool((await caller.call("records.list"))["records"]),
        )

    for _ in range(2):
        for caller in (mallory, second):
            assert await sees(caller) == (False,) * 6
        await world.planner.admit("mallory")
        for caller in (mallory, second):
            assert await sees(caller) == (True,) * 6
        await world.planner.call("session.remove_members", session_id=SESSION, members=["mallory"])


async def test_open_streams_follow_the_members(world: World, mallory: Caller) -> None:
    await world.planner.admit("mallory")
    start = await world.last_event()
    one, every = mallory.follow(EventFilter(SESSION), start), mallory.follow(EventFilter(), start)

    async def subjects(pages: Any, stop: str) -> list[str]:
        seen: list[str] = []
        async with asyncio.timeout(TIMEOUT_SECONDS):
            async for page in pages:
                seen += [event.subject for event in page.events]
                if stop in seen:
                    return seen
        return seen

    await world.planner.write("before")
    assert await subjects(one, "before") == ["before"]
    assert await subjects(every, "before") == ["before"]
    ending = asyncio.create_task(subjects(one, "after"))
    await asyncio.sleep(0.05)
    await world.planner.call("session.remove_members", session_id=SESSION, members=["mallory"])
    with refused("SESSION_NOT_FOUND"):
        await asyncio.wait_for(ending, TIMEOUT_SECONDS)
    await world.planner.write("after")
    own = await mallory.create_session("own")
    await own.write("mine")
    assert await subjects(every, "mine") == ["own", "mine"]
    await world.planner.admit("mallory")
    again = [event["subject"] for event in (await mallory.events(after=start, session_id=SESSION))["events"]]
    assert again == ["before", SESSION, "after", SESSION]


async def test_a_long_poll_ends_when_its_caller_is_removed(world: World, mallory: Caller) -> None:
    await world.planner.admit("mallory")
    waiting = asyncio.create_task(
        mallory.events(session_id=SESSION, after=await world.last_event(), wait_seconds=TIMEOUT_SECONDS)
    )
    await asyncio.sleep(0.05)
    await world.planner.call("session.remove_members", session_id=SESSION, members=["mallory"])
    with refused("SESSION_NOT_FOUND"):
        await asyncio.wait_for(waiting, TIMEOUT_SECONDS)


async def test_the_deletion_of_a_session_is_told_to_its_last_members_only(world: World, mallory: Caller) -> None:
    await world.planner.create_session("s2", members=["mallory"])
    start = await world.last_event()
    await world.planner.call("session.delete", session_id="s2")
    for caller, told in ((mallory, ["session.deleted"]), (world.planner, ["session.deleted"])):
        assert [each["type"] for each in (await caller.events(after=start))["events"]] == told
    other = await world.admin.create_agent("other")
    await other.create_session("s2")
    assert [each["type"] for each in (await other.events(after=start))["events"]] == ["session.created"]


async def test_sessions_of_a_neighbour_hide_none_of_ones_own(world: World, mallory: Caller) -> None:
    for name in range(60):
        await mallory.create_session(f"x{name}", members=["subagent:other"])
    page = await world.planner.call("session.list", limit=5)
    assert ([each["id"] for each in page["sessions"]], page["has_more"]) == ([SESSION], False)
    with refused("SESSION_NOT_FOUND") as caught:
        await world.planner.in_session("s2").keys()
    assert caught.value.context["available_alternatives"] == [SESSION]
    seen, cursor = [], None
    while True:
        page = await mallory.call("session.list", limit=7, cursor=cursor)
        seen += [each["id"] for each in page["sessions"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert sorted(seen) == sorted(f"x{name}" for name in range(60))


async def test_hints_say_who_can_add_one(world: World, mallory: Caller) -> None:
    with refused("SESSION_NOT_FOUND") as caught:
        await mallory.keys()
    assert "add_members" in caught.value.hint
    await world.planner.create_session("s2", members=[])
    with refused("SESSION_NOT_FOUND") as caught:
        await world.analysis.in_session("s2").keys()
    assert "list" not in caught.value.hint
    assert "the agent that started you" in caught.value.hint


@pytest.mark.req("MW-12")
async def test_deleting_names_who_depends_on_a_session_and_what_is_removed(world: World, ids: dict[str, Any]) -> None:
    assert ids
    await world.analysis.say("mine")
    await world.analysis.write("verdict", "ok")
    await world.review.remember("note", 1, session_id=SESSION)
    with refused("SESSION_IN_USE") as caught:
        await world.planner.call("session.delete", session_id=SESSION)
    assert caught.value.context["dependents"] == [
        {"agent_id": "analysis", "messages": 1, "writes": 1},
        {"agent_id": "review-2", "memories": 1},
    ]
    with refused("SESSION_IN_USE") as caught:
        await world.admin.call("session.delete", session_id=SESSION)
    planner = next(each for each in caught.value.context["dependents"] if each["agent_id"] == "planner")
    assert planner == {
        "agent_id": "planner",
        "memories": 1,
        "messages": 2,
        "pins": 1,
        "windows": 1,
        "reviews": 1,
        "snapshots": 1,
        "writes": 3,
    }
    assert await world.planner.message_texts()
    deleted = await world.planner.call("session.delete", session_id=SESSION, force=True)
    assert {kind: deleted["removed"][kind] for kind in ("messages", "keys", "branches", "memories", "windows")} == {
        "messages": 3,
        "keys": 2,
        "branches": 1,
        "memories": 2,
        "windows": 1,
    }
    (entry,) = [
        row for row in await world.admin.audit() if row["action"] == "session.delete" and row["outcome"] == "done"
    ]
    assert entry["detail"]["removed"]["messages"] == 3


@pytest.mark.req("MW-12")
async def test_a_webhook_on_a_session_depends_on_it(world: World) -> None:
    await world.admin.call("webhook.create", url="https://receiver.invalid/hook", session_id=SESSION)
    with refused("SESSION_IN_USE") as caught:
        await world.planner.call("session.delete", session_id=SESSION)
    assert caught.value.context["dependents"] == [{"agent_id": "admin", "webhooks": 1}]
    assert (await world.admin.call("session.delete", session_id=SESSION))["removed"] == {}
