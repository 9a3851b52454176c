"""Missing context: detected, requested in every form, resolved, and shown to its audience only."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from support.world import SESSION, Caller, outcome, refused
from weftline.app.dispatch import CallContext
from weftline.exchange.missing_context import MAX_OPEN_GAPS, answer_key, question_key
from weftline.kernel.correlation import Correlation
from weftline.records.model import RECORD_TYPES, MissingContext, Record
from weftline.records.sql import RecordStore
from weftline.sessions.events.model import EventFilter
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from support.world import World

pytestmark = pytest.mark.req("AC-10")

QUESTION = "Which region may customer data be stored in?"


async def report(caller: Caller, question: str = QUESTION, **what: Any) -> str:
    """Report a question and return its id."""
    answer = await caller.call("missing.report", session_id=caller.session, question=question, **what)
    return answer["missing_id"]


async def request(caller: Caller, missing_id: str, form: str, **how: Any) -> Any:
    return await caller.call("missing.request", missing_id=missing_id, form=form, **how)


async def resolve(caller: Caller, missing_id: str, *refs: Any, **how: Any) -> Any:
    return await caller.call("missing.resolve", missing_id=missing_id, resolution_refs=list(refs), **how)


async def listed(caller: Caller, **which: Any) -> list[dict[str, Any]]:
    return (await caller.call("missing.list", **{"session_id": caller.session, **which}))["missing"]


async def questions(caller: Caller, **which: Any) -> list[str]:
    return [gap["question"] for gap in await listed(caller, **which)]


async def find_by_id(caller: Caller, missing_id: str) -> dict[str, Any]:
    (found,) = [gap for gap in await listed(caller, status="all") if gap["missing_id"] == missing_id]
    return found


async def stored_record(world: World, record_type: str, record_id: str) -> Record:
    """Return a stored record, validated against its type."""
    found = await world.app.database.read(Scope(world.tenant), lambda tx: RecordStore(tx).find(record_type, record_id))
    assert found is not None
    return msgspec.json.decode(found.body, type=RECORD_TYPES[record_type])


async def missing_events(caller: Caller, *, after: int = 0) -> list[tuple[str, str]]:
    """Return step and id of the missing-context events a caller receives."""
    events = (await caller.events(after=after, session_id=caller.session, types=["context.missing.*"]))["events"]
    return [(event["type"].rpartition(".")[2], event["subject"]) for event in events]


# Reports.


async def test_a_question_is_reported_with_every_field(world: World) -> None:
    missing_id = await report(
        world.analysis,
        severity="blocking",
        needed_for="choosing a database",
        candidate_sources=[{"kind": "document", "uri": "https://example.com/policy", "hint": "the data policy"}],
        blocked_actions=["deploy", "write the schema"],
    )
    assert missing_id.startswith("missing_")
    gap = await find_by_id(world.planner, missing_id)
    assert (gap["question"], gap["severity"], gap["status"], gap["scope"]) == (
        QUESTION,
        "blocking",
        "detected",
        "session",
    )
    assert gap["reported_by"] == "subagent:analysis"
    assert (gap["needed_for"], gap["blocked_actions"]) == ("choosing a database", ["deploy", "write the schema"])
    assert gap["candidate_sources"][0]["uri"] == "https://example.com/policy"
    record = await stored_record(world, "missing_context", missing_id)
    assert isinstance(record, MissingContext)
    assert (record.status, record.resolution_refs) == ("detected", ())


async def test_omitted_fields_of_a_question_have_defaults(world: World) -> None:
    answer = await world.planner.call("missing.report", session_id=SESSION, question=QUESTION)
    assert (answer["severity"], answer["scope"], "already_open" in answer) == ("medium", "session", False)


async def test_a_question_has_the_task_of_its_call(world: World) -> None:
    context = CallContext(world.planner.credential, correlation=Correlation(task_id="task-7"))
    raw = {"session_id": SESSION, "question": QUESTION}
    answer = await world.app.call(world.app.registry["missing.report"], raw, context)
    assert answer.scope == "task"
    await report(world.planner, "Of no task?")
    assert await questions(world.planner, task_id="task-7") == [QUESTION]
    assert await questions(world.planner, task_id="task-8") == []


async def test_the_same_question_is_open_once(world: World) -> None:
    first = await report(world.planner, "Which  Region?", severity="low")
    again = await world.analysis.call("missing.report", session_id=SESSION, question=" which region? ")
    assert (again["missing_id"], again["already_open"], again["severity"]) == (first, True, "low")
    assert await missing_events(world.planner) == [("detected", first)]
    await resolve(world.planner, first, "board:s1/region/1.1")
    assert await report(world.planner, "Which region?") != first


async def test_the_same_question_in_another_session_is_another(world: World) -> None:
    first = await report(world.planner)
    other_session = await world.planner.create_session("s2")
    assert await report(other_session) != first


async def test_a_given_id_is_kept_and_unique(world: World) -> None:
    assert await report(world.planner, missing_id="missing_region") == "missing_region"
    assert await report(world.planner, missing_id="missing_region") == "missing_region"
    with refused("RECORD_EXISTS"):
        await report(world.planner, "Something else?", missing_id="missing_region")


async def test_empty_and_oversized_questions_are_refused(world: World) -> None:
    for question in ("", "  \n ", "x" * 2_001, "\ud800"):
        with refused("INVALID_INPUT_FORMAT"):
            await report(world.planner, question)
    for wrong in (
        {"severity": "terrible"},
        {"scope": "universe"},
        {"missing_id": "../x"},
        {"candidate_sources": [{"hint": "no kind"}]},
        {"candidate_sources": [{"kind": "x", "surprise": 1}]},
        {"blocked_actions": ["two\nlines"]},
    ):
        with refused("INVALID_INPUT_FORMAT"):
            await report(world.planner, **wrong)
    with refused("CONTENT_TOO_LARGE"):
        await report(world.planner, candidate_sources=[{"kind": "x", "hint": "x" * 2_000}] * 40)
    assert await listed(world.planner, status="all") == []


async def test_the_number_of_open_questions_of_a_session_is_limited(world: World) -> None:
    first = await report(world.planner)
    await world.sql(
        """
        INSERT INTO records (tenant, type, record_id, session_id, status, recorded_by, recorded_at, changed_at, seq,
                             readable_by, body)
        SELECT r.tenant, r.type, r.record_id || n.n, r.session_id, r.status, r.recorded_by, r.recorded_at, r.changed_at,
               r.seq, r.readable_by, r.body
        FROM records r, (SELECT a.n * 100 + b.n * 10 + c.n AS n FROM
            (SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6
             UNION SELECT 7 UNION SELECT 8 UNION SELECT 9) a,
            (SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6
             UNION SELECT 7 UNION SELECT 8 UNION SELECT 9) b,
            (SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6
             UNION SELECT 7 UNION SELECT 8 UNION SELECT 9) c) n
        WHERE r.record_id = $1 AND n.n < $2
        """,
        first,
        MAX_OPEN_GAPS - 1,
    )
    with refused("MISSING_CONTEXT_LIMIT"):
        await report(world.planner, "One too many?")
    assert await report(world.planner) in {gap["missing_id"] for gap in await listed(world.planner, limit=200)}


# Lists.


async def test_questions_are_sorted_by_severity_then_age(world: World) -> None:
    for question, severity in (("a?", "low"), ("b?", "blocking"), ("c?", "info"), ("d?", "high"), ("e?", "blocking")):
        await report(world.planner, question, severity=severity)
        world.clock.advance(seconds=1)
    assert await questions(world.analysis) == ["b?", "e?", "d?", "a?", "c?"]
    assert await questions(world.analysis, severity="high") == ["b?", "e?", "d?"]


async def test_pages_list_every_question_once(world: World) -> None:
    severities = ("low", "blocking", "info", "high", "medium", "blocking", "low")
    for number, severity in enumerate(severities):
        await report(world.planner, f"{number}?", severity=severity)
    whole = await questions(world.planner)
    paged: list[str] = []
    after: str | None = None
    while True:
        page = await world.planner.call("missing.list", session_id=SESSION, limit=3, after=after)
        paged += [gap["question"] for gap in page["missing"]]
        after = page.get("next_after")
        if after is None:
            break
        # A question resolved since still works as a cursor.
        await resolve(world.planner, after, "board:s1/x/1.1")
    assert paged == whole
    assert len(paged) == len(severities)
    with refused("INVALID_INPUT_FORMAT"):
        await listed(world.planner, after="missing_none")


async def test_a_list_shows_open_questions_by_default(world: World) -> None:
    ids = [await report(world.planner, question) for question in ("detected?", "requested?", "resolved?")]
    await request(world.planner, ids[1], "tool_invocation", tool="lookup")
    await resolve(world.planner, ids[2], "board:s1/x/1.1")
    assert set(await questions(world.planner)) == {"detected?", "requested?"}
    for status in ("detected", "requested", "resolved"):
        assert await questions(world.planner, status=status) == [f"{status}?"]
    assert len(await questions(world.planner, status="all")) == 3


async def test_without_a_session_questions_of_all_own_sessions_are_listed(world: World) -> None:
    await report(world.planner, "here?")
    await report(await world.planner.create_session("s2"), "there?")
    await report(await world.admin.create_session("s3", members=["human:*"]), "closed?")
    assert set(await questions(world.planner, session_id=None)) == {"here?", "there?"}
    assert set(await questions(world.admin, session_id=None)) == {"here?", "there?", "closed?"}
    with refused("PERMISSION_DENIED"):
        await listed(world.review, session_id=None)


async def test_get_session_counts_open_questions(world: World) -> None:
    async def shown() -> Any:
        return (await world.planner.call("session.get", session_id=SESSION)).get("open_missing_context")

    assert await shown() is None
    first, second = [await report(world.planner, question) for question in ("a?", "b?")]
    await request(world.planner, second, "tool_invocation", tool="lookup")
    assert await shown() == 2
    for missing_id in (first, second):
        await resolve(world.planner, missing_id, "board:s1/x/1.1")
    assert await shown() is None


# Access.


async def test_questions_of_a_session_are_visible_to_participants(world: World) -> None:
    closed = await world.planner.create_session("s2", members=["orchestrator", "subagent:analysis"])
    missing_id = await report(closed)
    assert await questions(world.analysis.in_session("s2")) == [QUESTION]
    with refused("SESSION_NOT_FOUND"):
        await listed(world.review.in_session("s2"))
    with refused("MISSING_CONTEXT_NOT_FOUND"):
        await resolve(world.review, missing_id, "x")
    with refused("MISSING_CONTEXT_NOT_FOUND"):
        await request(world.review, missing_id, "user_question")
    assert await missing_events(world.review.in_session(SESSION)) == []
    assert {entry["action"] for entry in await world.admin.audit(outcome="denied")} >= {
        "missing.resolve",
        "missing.request",
        "missing.list",
    }


async def test_an_unknown_id_and_a_hidden_one_give_the_same_error(world: World) -> None:
    missing_id = await report(await world.planner.create_session("s2", members=["orchestrator"]))
    words = []
    for wanted in (missing_id, "missing_none"):
        with refused("MISSING_CONTEXT_NOT_FOUND") as caught:
            await resolve(world.review, wanted, "x")
        words.append(caught.value.message.replace(wanted, "…"))
    assert words[0] == words[1]


async def test_a_question_is_shown_only_to_its_audience(world: World) -> None:
    missing_id = await report(world.planner)
    await world.sql("UPDATE records SET readable_by = $1 WHERE record_id = $2", '["orchestrator"]', missing_id)
    assert await questions(world.planner) == [QUESTION]
    assert await questions(world.review) == []
    assert "open_missing_context" not in await world.admin.call("session.get", session_id=SESSION)
    with refused("MISSING_CONTEXT_NOT_FOUND"):
        await resolve(world.review, missing_id, "x")
    assert await report(world.review) != missing_id
    # Requests do not reveal it either.
    with refused("INVALID_INPUT_FORMAT"):
        await request(world.planner, missing_id, "peer_task", agent_id="review-2")
    key = (await request(world.planner, missing_id, "user_question"))["key"]
    assert key not in await world.review.keys()
    selected = (await request(world.planner, missing_id, "retrieval"))["selection_id"]
    (row,) = await world.rows("SELECT readable_by FROM records WHERE record_id = $1", selected)
    assert row[0] == '["orchestrator"]'
    await world.review.write(answer_key(missing_id), "one who does not know of it")
    assert (await find_by_id(world.planner, missing_id))["status"] == "requested"
    await world.planner.delete(answer_key(missing_id))
    await resolve(world.planner, missing_id, answer="the north")
    assert answer_key(missing_id) not in await world.review.keys()


async def test_tenants_have_separate_questions(world: World) -> None:
    await world.stranger.create_session(SESSION)
    missing_id = await report(world.planner, missing_id="missing_region")
    assert await report(world.stranger, "Theirs?", missing_id="missing_region") == missing_id
    await resolve(world.stranger, missing_id, "board:s1/x/1.1")
    assert await questions(world.planner, session_id=None) == [QUESTION]
    assert await questions(world.stranger, status="all") == ["Theirs?"]


# Requests.


async def test_a_question_to_the_user_is_written_to_the_board(world: World) -> None:
    missing_id = await report(
        world.planner,
        needed_for="choosing a database",
        severity="high",
        blocked_actions=["deploy"],
        candidate_sources=[{"kind": "document", "hint": "the data policy"}],
    )
    asked = await request(world.planner, missing_id, "user_question", detail="EU or US")
    assert (asked["status"], asked["requested_from"], asked["key"]) == ("requested", "user", question_key(missing_id))
    assert asked["answer_key"] == answer_key(missing_id)
    assert (await world.review.value(asked["key"])).splitlines() == [
        QUESTION,
        "Severity: high",
        "Needed for: choosing a database",
        "Blocks: deploy",
        "Candidate sources: document (the data policy)",
        "Details: EU or US",
        f"Answer: write the key {answer_key(missing_id)}",
    ]
    record = await stored_record(world, "missing_context", missing_id)
    assert (record.status, record.requested_from) == ("requested", "user")


async def test_a_question_obeys_the_limits_of_the_board(world: World) -> None:
    small = await world.planner.create_session("s2", max_value_tokens=20)
    missing_id = await report(small, "word " * 300)
    with refused("VALUE_TOO_LARGE"):
        await request(small, missing_id, "user_question")
    assert (await listed(small))[0]["status"] == "detected"


async def test_a_question_is_written_to_the_main_line_despite_a_switch(world: World) -> None:
    missing_id = await report(world.planner)
    line = f"board:{SESSION}"
    await world.planner.call("history.branch", context_id=line, branch="try")
    await world.planner.call("history.switch", context_id=line, branch="try")
    asked = await request(world.planner, missing_id, "user_question")
    assert asked["key"] in await world.review.keys()
    # An answer on a branch resolves the question when merged.
    await world.planner.write(asked["answer_key"], "EU")
    assert (await find_by_id(world.planner, missing_id))["status"] == "requested"
    await world.planner.call("history.merge", context_id=line, from_context_id=f"{line}@try")
    assert (await find_by_id(world.planner, missing_id))["status"] == "resolved"


async def test_a_peer_task_is_a_message(world: World) -> None:
    missing_id = await report(world.planner, severity="high", blocked_actions=["deploy"])
    asked = await request(world.planner, missing_id, "peer_task", agent_id="review-2")
    (message,) = (await world.review.messages())["messages"]
    assert (message["id"], message["recipient_id"], message["message_type"]) == (
        asked["message_id"],
        "review-2",
        "task",
    )
    assert message["metadata"] == {"missing_id": missing_id, "severity": "high", "blocked_actions": ["deploy"]}
    assert message["content"].startswith(f"{QUESTION}\nSeverity: high\nBlocks: deploy\n")


async def test_a_peer_task_is_for_participants_only(world: World) -> None:
    closed = await world.planner.create_session("s2", members=["orchestrator", "subagent:analysis"])
    missing_id = await report(closed)
    await world.admin.create_agent("gone")
    await world.admin.call("agent.update", agent_id="gone", disabled=True)
    words = set()
    for peer in ("review-2", "nobody", "gone"):
        with refused("RECIPIENT_NOT_FOUND") as caught:
            await request(closed, missing_id, "peer_task", agent_id=peer)
        words.add(caught.value.message.replace(peer, "…"))
    assert len(words) == 1
    assert (await closed.messages())["messages"] == []
    await request(closed, missing_id, "peer_task", agent_id="analysis")


@pytest.mark.req("AC-06", part="selections of searches and of frameworks")
async def test_retrieval_finds_messages_and_records_omissions(world: World) -> None:
    near = await world.review.say("Customer data may be stored in the region Frankfurt only.")
    for name in ("Winifred", "Philippa", "Gwendolyn"):
        await world.review.say(f"A customer asked {name} about lunch.")
    await world.planner.say("Note to self: which region may customer data be stored in?", visibility="private")
    missing_id = await report(world.planner, candidate_sources=[{"kind": "document", "hint": "the policy"}])
    await request(world.planner, missing_id, "peer_task", agent_id="analysis")
    asked = await request(world.planner, missing_id, "retrieval")
    assert asked["requested_from"] == f"session:{SESSION}"
    selection = await stored_record(world, "context_selection", asked["selection_id"])
    assert (selection.surface_id, selection.query) == (f"session:{SESSION}", QUESTION)
    scores = selection.ranking_signals["score"]
    relevant = {item for item, score in scores.items() if score >= 60}
    assert selection.selected_item_refs[0] == f"message:{SESSION}/{near}"
    assert set(selection.selected_item_refs) == relevant
    assert {omitted.item_ref for omitted in selection.omitted_item_refs} == scores.keys() - relevant != set()
    assert {omitted.reason for omitted in selection.omitted_item_refs} == {"low_relevance"}
    # Neither the task with the same question nor messages only the planner may read.
    assert (
        set(selection.candidate_item_refs) == scores.keys() == {f"message:{SESSION}/{n}" for n in range(near, near + 4)}
    )
    sources = asked["candidate_sources"]
    assert [source.get("ref") for source in sources] == [None, *selection.selected_item_refs]
    assert sources[1]["uri"] == f"session://{SESSION}#message-{near}"


@pytest.mark.req("AC-07", part="record types and their fields; the budget of a search")
async def test_items_beyond_the_limit_are_omitted_by_the_budget(world: World) -> None:
    for number in range(12):
        await world.review.say(f"Customer data may be stored in region {number}.")
    missing_id = await report(world.planner)
    asked = await request(world.planner, missing_id, "retrieval")
    selection = await stored_record(world, "context_selection", asked["selection_id"])
    assert len(selection.selected_item_refs) == 10
    assert [omitted.reason for omitted in selection.omitted_item_refs] == ["budget"] * 2
    budget = await stored_record(world, "context_budget", str(selection.budget_ref))
    assert (budget.max_items, budget.actual_items) == (10, 10)
    types = [event["type"] for event in (await world.planner.events(session_id=SESSION))["events"]]
    assert types[-4:] == [
        "context.selection.started",
        "context.budget.applied",
        "context.selection.completed",
        "context.missing.requested",
    ]


async def test_repeated_retrieval_lists_items_once_and_may_find_nothing(world: World) -> None:
    missing_id = await report(world.planner)
    assert "candidate_sources" not in await request(world.planner, missing_id, "retrieval")
    await world.review.say("Customer data may be stored in the region Frankfurt only.")
    for _ in range(2):
        asked = await request(world.planner, missing_id, "retrieval")
        assert len(asked["candidate_sources"]) == 1
    gap = await find_by_id(world.planner, missing_id)
    assert [made["form"] for made in gap["requests"]] == ["retrieval"] * 3


async def test_tool_and_policy_requests_are_recorded(world: World) -> None:
    missing_id = await report(world.planner)
    tool = await request(world.planner, missing_id, "tool_invocation", tool="region_lookup", detail='{"customer": 7}')
    policy = await request(world.planner, missing_id, "policy_request", requested_from="data-protection")
    assert (tool["requested_from"], policy["requested_from"]) == ("region_lookup", "data-protection")
    gap = await find_by_id(world.planner, missing_id)
    assert [(made["form"], made.get("tool"), made.get("detail")) for made in gap["requests"]] == [
        ("tool_invocation", "region_lookup", '{"customer": 7}'),
        ("policy_request", None, None),
    ]
    assert (await stored_record(world, "missing_context", missing_id)).requested_from == "data-protection"


async def test_a_request_form_names_its_missing_fields(world: World) -> None:
    missing_id = await report(world.planner)
    for form, field in (("peer_task", "agent_id"), ("tool_invocation", "tool"), ("policy_request", "requested_from")):
        with refused("INVALID_INPUT_FORMAT") as caught:
            await request(world.planner, missing_id, form)
        assert caught.value.context["field"] == field
    with refused("INVALID_INPUT_FORMAT"):
        await request(world.planner, missing_id, "prayer")
    assert (await find_by_id(world.planner, missing_id))["status"] == "detected"


async def test_requests_expire(world: World) -> None:
    missing_id = await report(world.planner)
    for number in range(100):
        await request(world.planner, missing_id, "tool_invocation", tool=f"lookup{number}")
    with refused("MISSING_CONTEXT_LIMIT"):
        await request(world.planner, missing_id, "tool_invocation", tool="lookup100")


@pytest.mark.parametrize(
    ("form", "how"),
    [("user_question", {}), ("peer_task", {"agent_id": "analysis"}), ("tool_invocation", {"tool": "lookup"})],
)
async def test_concurrent_requests_are_sent_once(world: World, form: str, how: dict[str, str]) -> None:
    missing_id = await report(world.planner)
    asked = await asyncio.gather(*(request(world.planner, missing_id, form, **how) for _ in range(3)))
    assert sorted(each.get("already_requested", False) for each in asked) == [False, True, True]
    assert len({(each.get("key"), each.get("message_id"), each["requested_at"]) for each in asked}) == 1
    assert len((await find_by_id(world.planner, missing_id))["requests"]) == 1
    assert len(await world.planner.message_texts()) == (form == "peer_task")
    assert not (await request(world.planner, missing_id, form, **how, detail="urgent")).get("already_requested")


async def test_a_question_deleted_from_the_board_is_asked_again(world: World) -> None:
    missing_id = await report(world.planner)
    asked = await request(world.planner, missing_id, "user_question")
    await world.planner.delete(asked["key"])
    assert not (await request(world.planner, missing_id, "user_question")).get("already_requested")
    assert asked["key"] in await world.planner.keys()


async def test_a_resolved_question_is_not_requested(world: World) -> None:
    missing_id = await report(world.planner)
    await resolve(world.planner, missing_id, "board:s1/region/1.1")
    for form in ("user_question", "retrieval"):
        with refused("ALREADY_RESOLVED"):
            await request(world.planner, missing_id, form)


# Resolution.


async def test_any_participant_resolves_with_references(world: World) -> None:
    missing_id = await report(world.planner)
    refs = ["board:s1/region/1.1", "https://example.com/policy"]
    answer = await resolve(world.review, missing_id, *refs)
    assert (answer["status"], answer["resolution_refs"], answer["resolved_by"]) == (
        "resolved",
        refs,
        "subagent:review:review-2",
    )
    assert (await stored_record(world, "missing_context", missing_id)).status == "resolved"


async def test_a_text_answer_is_written_to_the_board(world: World) -> None:
    missing_id = await report(world.planner)
    answer = await resolve(world.review, missing_id, answer="Frankfurt only.")
    assert answer["resolution_refs"] == [f"board:{SESSION}/{answer_key(missing_id)}/1.1"]
    assert await world.planner.value(answer_key(missing_id)) == "Frankfurt only."
    assert await missing_events(world.planner) == [("detected", missing_id), ("resolved", missing_id)]
    again = await resolve(world.planner, missing_id, answer="Frankfurt only.")
    assert (again["already_resolved"], again["resolution_refs"]) == (True, answer["resolution_refs"])
    with refused("ALREADY_RESOLVED"):
        await resolve(world.planner, missing_id, answer="Or Dublin.")
    assert await world.planner.value(answer_key(missing_id)) == "Frankfurt only."


async def test_a_resolution_is_either_an_answer_or_references(world: World) -> None:
    missing_id = await report(world.planner)
    for how in ({"resolution_refs": []}, {"resolution_refs": ["x"], "answer": "y"}, {"answer": ""}):
        with refused("INVALID_INPUT_FORMAT"):
            await world.planner.call("missing.resolve", missing_id=missing_id, **how)
    with refused("INVALID_INPUT_FORMAT"):
        await resolve(world.planner, missing_id, "\ud800")


async def test_resolving_twice_with_the_same_references_is_idempotent(world: World) -> None:
    missing_id = await report(world.planner)
    await resolve(world.planner, missing_id, "a", "b")
    before = await world.last_event()
    assert (await resolve(world.review, missing_id, "b", "a"))["already_resolved"]
    assert await world.last_event() == before
    with refused("ALREADY_RESOLVED") as caught:
        await resolve(world.review, missing_id, "c")
    assert caught.value.context["resolution_refs"] == ["a", "b"]


async def test_one_of_two_concurrent_resolutions_wins(world: World) -> None:
    missing_id = await report(world.planner)
    others = [world.planner, world.review.at(await world.another_app())]
    ends = await asyncio.gather(
        *(outcome(resolve(caller, missing_id, ref)) for caller, ref in zip(others, "ab", strict=True))
    )
    assert sorted(ends) == ["ALREADY_RESOLVED", "ok"]
    winner = "ab"[ends.index("ok")]
    assert (await find_by_id(world.planner, missing_id))["resolution_refs"] == [winner]
    assert await missing_events(world.planner) == [("detected", missing_id), ("resolved", missing_id)]


async def test_a_question_reported_concurrently_is_opened_once(world: World) -> None:
    others = [world.planner, world.analysis, world.review.at(await world.another_app())]
    ids = await asyncio.gather(*(report(caller) for caller in others for _ in range(3)))
    assert len(set(ids)) == 1


async def test_writing_the_answers_key_resolves(world: World) -> None:
    missing_id = await report(world.planner, missing_id="Region-Of-Customers")
    asked = await request(world.planner, missing_id, "user_question")
    written = await world.admin.write(asked["answer_key"], "Frankfurt only.")
    gap = await find_by_id(world.planner, missing_id)
    assert (gap["status"], gap["resolved_by"]) == ("resolved", written["written_by"])
    assert gap["resolution_refs"] == [f"board:{SESSION}/{asked['answer_key']}/1.1"]
    # Later versions change nothing.
    await world.admin.write(asked["answer_key"], "Or Dublin.")
    assert (await missing_events(world.planner))[-1] == ("resolved", missing_id)
    assert len(await missing_events(world.planner)) == 3


async def test_an_answer_hidden_from_participants_does_not_resolve(world: World) -> None:
    missing_id = await report(world.planner)
    await world.review.write(answer_key(missing_id), "between us", readable_by=["subagent:review:*"])
    assert (await find_by_id(world.planner, missing_id))["status"] == "detected"
    await world.review.write("answer_to_something_else", "x")
    await resolve(world.review, missing_id, answer="between us")
    assert (await find_by_id(world.planner, missing_id))["status"] == "resolved"


async def test_a_reply_of_the_requested_peer_resolves(world: World) -> None:
    missing_id = await report(world.planner)
    task = (await request(world.planner, missing_id, "peer_task", agent_id="review-2"))["message_id"]
    await world.analysis.say("No idea.", parent_message_id=task)
    await world.review.say("Let me think.", parent_message_id=task, visibility="private")
    assert (await find_by_id(world.planner, missing_id))["status"] == "requested"
    number = await world.review.say("Frankfurt only.", parent_message_id=task)
    gap = await find_by_id(world.planner, missing_id)
    assert (gap["status"], gap["resolution_refs"]) == ("resolved", [f"message:{SESSION}/{number}"])
    await world.review.say("As before.", parent_message_id=task)
    assert [what for what, _ in await missing_events(world.planner)] == ["detected", "requested", "resolved"]


async def test_a_forged_task_does_not_resolve(world: World) -> None:
    missing_id = await report(world.planner)
    for metadata in ({"missing_id": missing_id}, {"missing_id": 5}, {"missing_id": "missing_none"}, None):
        task = await world.review.say("To myself", recipient_id="review-2", message_type="task", metadata=metadata)
        await world.review.say("Done", parent_message_id=task)
    other_session = await world.planner.create_session("s2")
    asked = (await request(world.planner, missing_id, "peer_task", agent_id="review-2"))["message_id"]
    assert asked == 9
    for _ in range(asked - 1):
        await other_session.say("filling up")
    task = await other_session.say(
        "The same number", recipient_id="review-2", message_type="task", metadata={"missing_id": missing_id}
    )
    await world.review.in_session("s2").say("Done", parent_message_id=task)
    assert (await find_by_id(world.planner, missing_id))["status"] == "requested"


# Lifetime.


async def test_questions_of_an_archived_session_are_read_only(world: World) -> None:
    missing_id = await report(world.planner)
    await world.planner.call("session.archive", session_id=SESSION)
    assert await questions(world.planner) == [QUESTION]
    for attempt in (
        report(world.planner, "More?"),
        request(world.planner, missing_id, "user_question"),
        resolve(world.planner, missing_id, "x"),
    ):
        with refused("SESSION_ARCHIVED"):
            await attempt


async def test_deleting_a_session_deletes_its_questions(world: World) -> None:
    missing_id = await report(world.planner)
    await world.planner.call("session.delete", session_id=SESSION)
    with refused("SESSION_NOT_FOUND"):
        await listed(world.planner)
    with refused("MISSING_CONTEXT_NOT_FOUND"):
        await resolve(world.planner, missing_id, "x")
    assert await questions(world.planner, session_id=None, status="all") == []


async def test_a_question_without_a_session_can_be_resolved(world: World) -> None:
    missing_id = await report(world.planner)
    await world.sql(
        "UPDATE records SET session_id = $1, readable_by = $2 WHERE record_id = $3",
        "",
        '["principal:planner"]',
        missing_id,
    )
    assert await questions(world.planner, session_id=None) == [QUESTION]
    assert await questions(world.admin, session_id=None) == []
    for form in ("user_question", "retrieval"):
        with refused("INVALID_INPUT_FORMAT"):
            await request(world.planner, missing_id, form)
    with refused("INVALID_INPUT_FORMAT"):
        await resolve(world.planner, missing_id, answer="words need a board")
    with refused("MISSING_CONTEXT_NOT_FOUND"):
        await resolve(world.admin, missing_id, "x")
    await request(world.planner, missing_id, "tool_invocation", tool="lookup")
    assert (await resolve(world.planner, missing_id, "x"))["status"] == "resolved"


async def test_questions_survive_a_restart(world: World) -> None:
    missing_id = await report(world.planner, severity="high")
    asked = await request(world.planner, missing_id, "user_question")
    before = await listed(world.planner)
    await world.close_app(world.app)
    planner = world.planner.at(await world.another_app())
    assert await listed(planner) == before
    await planner.write(asked["answer_key"], "Frankfurt only.")
    assert await listed(planner) == []


# Events.


@pytest.mark.req("AC-13")
@pytest.mark.req("AC-15", part="operations that exist")
async def test_each_step_is_published_without_the_question(world: World) -> None:
    interest = EventFilter(SESSION, types=("context.missing.*",))
    missing_id = await report(world.planner, severity="high")
    await request(world.planner, missing_id, "user_question")
    await world.review.write(answer_key(missing_id), "Frankfurt only.")
    seen: list[Any] = []
    async with aclosing(world.analysis.follow(interest, 0)) as pages:
        while len(seen) < 3:
            seen += (await anext(pages)).events
    assert [(event.type, event.subject, event.actor) for event in seen] == [
        ("context.missing.detected", missing_id, "orchestrator:planner"),
        ("context.missing.requested", missing_id, "orchestrator:planner"),
        ("context.missing.resolved", missing_id, "subagent:review:review-2"),
    ]
    assert [event.data for event in seen] == [
        {"record_type": "missing_context", "severity": "high", "status": event.type.rpartition(".")[2]}
        for event in seen
    ]


@pytest.mark.req("AC-15", part="operations that exist")
async def test_a_failed_request_is_rolled_back(world: World) -> None:
    missing_id = await report(world.planner)
    await world.admin.write(question_key(missing_id), "taken", writable_by=["human:*"])
    before = await world.last_event()
    with refused("PERMISSION_DENIED"):
        await request(world.planner, missing_id, "user_question")
    assert await world.last_event() == before
    assert "requests" not in await find_by_id(world.planner, missing_id)


async def test_a_reader_may_only_list(world: World) -> None:
    missing_id = await report(world.planner)
    reader = await world.planner.with_token("planner", "planning", requested_permissions=["read"])
    assert await questions(reader) == [QUESTION]
    for attempt in (
        report(reader, "More?"),
        request(reader, missing_id, "retrieval"),
        resolve(reader, missing_id, "x"),
    ):
        with refused("PERMISSION_DENIED"):
            await attempt
