"""Tools over MCP: which are listed, their results and their errors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.json_values import JSON, VALUES, typed
from support.team import Board, call, refused, tools_of

if TYPE_CHECKING:
    from conftest import Connect
    from support.team import Team

READING = [
    "list_keys",
    "read",
    "read_batch",
    "read_history",
    "list_snapshots",
    "read_snapshot",
    "compare_snapshots",
]
MODERN = "2026-07-28"
SESSION_TOOLS = {"create_session", "get_session", "list_sessions", "archive_session", "delete_session"}
AGENT_TOOLS = {"create_agent", "update_agent", "create_api_key", "revoke_key"}
ADMIN_TOOLS = {"inspect_session", "get_audit_log", "define_conventions"}
ERROR_FIELDS = {
    "success",
    "error",
    "code",
    "severity",
    "recoverable",
    "suggestions",
    "context",
    "related_resources",
    "timestamp",
}


def actions_of(tool: Any) -> list[str]:
    return tool.input_schema["properties"]["action"]["enum"]


@pytest.mark.req("SC-01")
async def test_listed_tools_are_those_the_caller_may_call(connect: Connect) -> None:
    async with connect("planner", tools="full") as client:
        planner = await tools_of(client)
    async with connect("analysis", tools="full") as client:
        analysis = await tools_of(client)
    async with connect("reader", tools="full") as client:
        reader = await tools_of(client)
    async with connect("admin", tools="full") as client:
        admin = await tools_of(client)

    assert planner.keys() >= SESSION_TOOLS | AGENT_TOOLS
    assert not planner.keys() & ADMIN_TOOLS
    assert analysis.keys() & (SESSION_TOOLS | AGENT_TOOLS | ADMIN_TOOLS) == {"get_session"}
    assert "write" in actions_of(analysis["shared_context"])
    assert "restore_snapshot" not in actions_of(analysis["shared_context"])
    assert actions_of(reader["shared_context"]) == READING
    assert {"get_session", "list_sessions"} <= reader.keys()
    assert "create_session" not in reader
    assert admin.keys() > planner.keys()
    # Agents cannot change layers, so they are not told how.
    layers = [actions_of(shown["context_layers"]) for shown in (admin, planner, analysis)]
    assert layers == [["define", "show", "list"], ["show", "list"], ["show"]]
    assert not any("authenticate_agent" in shown for shown in (planner, analysis, reader, admin))


async def test_every_tool_describes_itself(web: Connect) -> None:
    async with web("admin", tools="full") as client:
        for tool in (await tools_of(client)).values():
            assert tool.description
            assert tool.input_schema["type"] == "object"
            assert tool.annotations is not None


@pytest.mark.req("SC-01")
async def test_unlisted_tools_are_refused(connect: Connect, session: str) -> None:
    async with connect("analysis") as client:
        for tool, arguments in {
            "create_session": {"purpose": "mine"},
            "delete_session": {"session_id": session},
            "create_agent": {"agent_id": "another"},
        }.items():
            assert (await refused(client, tool, **arguments))["code"] == "PERMISSION_DENIED"
        assert (await Board(client, session).refused("restore_snapshot", label="x"))["code"] == "PERMISSION_DENIED"
    async with connect("reader") as client:
        board = Board(client, session)
        assert (await board.refused("write", key="k", value="v"))["code"] == "PERMISSION_DENIED"
        assert (await board.refused("delete", key="k"))["code"] == "PERMISSION_DENIED"
        assert (await board("list_keys"))["keys"] == []


@pytest.mark.req("SC-03")
@pytest.mark.req("SC-04")
@pytest.mark.req("SC-17")
async def test_the_four_actions_answer_in_the_specified_shapes(connect: Connect, session: str) -> None:
    async with connect("analysis") as client:
        board = Board(client, session)
        written = await board("write", key="problem_summary", value="It broke on Tuesday.")
        at = written.pop("written_at")
        assert at.endswith("Z")
        assert written == {"key": "problem_summary", "version": 1, "written_by": "subagent:analysis"}
        assert await board("read", key="problem_summary") == {
            "key": "problem_summary",
            "value": "It broke on Tuesday.",
            "written_by": "subagent:analysis",
            "written_at": at,
            "version": 1,
        }
        listed = await board("list_keys")
        assert listed["keys"] == [
            {
                "key": "problem_summary",
                "written_by": "subagent:analysis",
                "written_at": at,
                "version": 1,
                "value_size_tokens": 5,
            }
        ]
        assert listed["metadata"]["total_size_tokens"] == 5
        assert (await board("write", key="problem_summary", value="It broke."))["version"] == 2
        assert await board("delete", key="problem_summary") == {"deleted": "problem_summary", "previous_version": 2}
        assert (await board("list_keys"))["keys"] == []


async def test_structured_and_text_content_are_equal(web: Connect, session: str) -> None:
    async with web("planner") as client:
        result = await call(client, "shared_context", action="list_keys", session_id=session)
    assert result.content[0].text.startswith('{"keys":[]')
    assert result.structured_content["keys"] == []


@pytest.mark.req("SC-17")
async def test_identity_comes_from_the_credential_and_not_from_the_request(web: Connect, session: str) -> None:
    async with web("planner") as client:
        board = Board(client, session)
        body = await board.refused("write", key="k", value="v", written_by="subagent:analysis")
        assert body["code"] == "INVALID_INPUT_FORMAT"
        assert "written_by" in body["error"]
        assert (await board("write", key="k", value="v"))["written_by"] == "orchestrator:planner"


@pytest.mark.req("WX-02")
async def test_a_key_of_one_orchestrator_is_closed_to_another(web: Connect, team: Team) -> None:
    a, b = [await asyncio.to_thread(team.new_agent, parent_id="admin") for _ in range(2)]
    session = await asyncio.to_thread(team.new_session, "admin")
    async with web(a) as client:
        written = await Board(client, session)("write", key="plan", value="v", writable_by=[f"orchestrator:{a}"])
        assert written["written_by"] == f"orchestrator:{a}"
    async with web(b) as client:
        board = Board(client, session)
        assert (await board.refused("write", key="plan", value="mine"))["code"] == "PERMISSION_DENIED"
        assert (await board("read", key="plan"))["written_by"] == f"orchestrator:{a}"
    path = f"/v1/sessions/{session}/context/plan"
    answer = await asyncio.to_thread(team.ask, "PUT", path, b, json={"value": "mine"})
    assert (answer.status_code, answer.json()["code"]) == (403, "PERMISSION_DENIED")
    answer = await asyncio.to_thread(team.ask, "PUT", path, a, json={"value": "again"})
    assert (answer.status_code, answer.json()["written_by"]) == (200, f"orchestrator:{a}")


@pytest.mark.req("SC-09")
@pytest.mark.req("MS-10")
async def test_refusals_are_tool_errors_with_the_error_body(web: Connect, session: str) -> None:
    async with web("planner") as client:
        board = Board(client, session)
        for code, body in {
            "KEY_NOT_FOUND": await board.refused("read", key="absent"),
            "INVALID_KEY": await board.refused("write", key="Not A Key", value="v"),
            "VALUE_TOO_LARGE": await board.refused("write", key="k", value="x" * 4_001),
            "SESSION_NOT_FOUND": await Board(client, "nowhere").refused("list_keys"),
            "UNKNOWN_OPERATION": await refused(client, "no_such_tool"),
            "INVALID_INPUT_FORMAT": await refused(client, "shared_context", session_id=session, action="dance"),
        }.items():
            assert body.keys() == ERROR_FIELDS
            assert body["code"] == code
            assert body["success"] is False
            assert body["suggestions"]
        await call(client, "archive_session", session_id=session)
        assert (await board.refused("write", key="k", value="v"))["code"] == "SESSION_ARCHIVED"


@pytest.mark.req("SC-05")
async def test_writing_to_a_full_board_is_refused(web: Connect) -> None:
    session = web.team.new_session(max_total_tokens=2, max_value_tokens=2)
    async with web("planner") as client:
        board = Board(client, session)
        await board("write", key="a", value="12345678")
        assert (await board.refused("write", key="b", value="1"))["code"] == "STORE_FULL"


async def test_a_connection_for_one_session_needs_no_session_id(connect: Connect, session: str) -> None:
    async with connect("analysis", session, tools="full") as client:
        for tool in (await tools_of(client)).values():
            # Memory is global unless a session id is given.
            assert "session_id" not in tool.input_schema["properties"] or tool.name.endswith("_memory")
            assert "session_id" not in tool.input_schema.get("required", ())
        board = Board(client, None)
        await board("write", key="goal", value="ship")
        assert (await board("read", key="goal"))["value"] == "ship"
        assert [str(r.uri) for r in (await client.list_resources()).resources] == [
            f"board://{session}",
            f"session://{session}",
            "agent://analysis/memory",
            "inbox://me",
        ]
        read = await call(client, "read_events", after=0)
        assert {event["session_id"] for event in read.structured_content["events"]} == {session}


async def test_a_connection_for_one_session_reaches_no_other(web: Connect, session: str) -> None:
    other = web.team.new_session()
    async with web("planner", session) as client:
        for tool, arguments in {
            "shared_context": {"action": "list_keys"},
            "read_events": {"after": 0},
            "get_session": {},
            "get_board_guidance": {},
        }.items():
            body = await refused(client, tool, session_id=other, **arguments)
            assert (body["code"], body["context"]["resource_id"]) == ("SESSION_NOT_FOUND", other)
        assert (await Board(client, session)("list_keys"))["keys"] == []
        body = await refused(client, "create_session", purpose="another")
        assert (body["code"], body["context"]["session_id"]) == ("BOUND_TO_SESSION", session)
        listed = await call(client, "list_sessions")
        assert [each["id"] for each in listed.structured_content["sessions"]] == [session]


async def test_a_connection_for_an_unknown_session_finds_nothing(web: Connect) -> None:
    async with web("analysis", "nowhere") as client:
        assert (await Board(client, None).refused("list_keys"))["code"] == "SESSION_NOT_FOUND"


@pytest.mark.req("CE-F23")
async def test_a_session_connection_needs_no_context_id_for_its_board(connect: Connect, session: str) -> None:
    async with connect("planner", session, tools="full") as client:
        board = Board(client, None)
        await board("write", key="goal", value="ship")
        tools = await tools_of(client)
        for tool in ("context_history", "rollback_context"):
            assert "is board, or board@BRANCH" in tools[tool].description
        log = (await call(client, "context_history", action="log", context_id="board")).structured_content
        assert (log["context_id"], log["commits"][0]["version"]) == (f"board:{session}", 1)
        await call(client, "context_history", action="branch", context_id="board", branch="try")
        await board("write", key="goal", value="ship on Friday", branch="try")
        merge = {"action": "merge", "context_id": "board", "from_context_id": "board@try"}
        assert (await call(client, "context_history", **merge)).structured_content["merged"] is True
        await call(client, "rollback_context", context_id="board", target_version="1")
        assert (await board("read", key="goal"))["value"] == "ship"


async def test_a_connection_for_one_session_sees_no_history_of_another(web: Connect, session: str) -> None:
    other = web.team.new_session()
    async with web("planner", tools="full") as client:
        await Board(client, other)("write", key="goal", value="ship")
        assert "board@BRANCH" not in (await tools_of(client))["context_history"].description
        body = await refused(client, "context_history", action="log", context_id="board")
        assert body["code"] in {"CONTEXT_NOT_FOUND", "INVALID_INPUT_FORMAT"}
    async with web("planner", session) as client:
        for arguments in (
            {"action": "log", "context_id": f"board:{other}"},
            {"action": "state", "context_id": f"board:{other}@try"},
            {"action": "diff", "context_id": "board", "from_version": "0", "other_context_id": f"board:{other}"},
            {"action": "log", "context_id": f"memory:planner:{other}"},
        ):
            body = await refused(client, "context_history", **arguments)
            assert (body["code"], body["context"]["resource_id"]) == ("SESSION_NOT_FOUND", other)


@pytest.mark.req("CE-U3")
@pytest.mark.req("CE-U4")
async def test_what_one_session_pushes_another_pulls(web: Connect, session: str) -> None:
    later = web.team.new_session()
    key = f"limit-{session}"
    async with web("planner", session) as client:
        pushed = await call(client, "push_context", knowledge=[{"key": key, "value": "at most 20 at once"}])
        version = pushed.structured_content["version"]
    async with web("planner", later) as client:
        pulled = (await call(client, "pull_context")).structured_content
        assert pulled["message"] == f"Context pulled: snapshot v0 -> v{version}"
        read = (await call(client, "read_context", key=key)).structured_content
        assert [entry["value"] for entry in read["entries"]] == ["at most 20 at once"]


async def test_the_instructions_name_existing_tools_only(web: Connect) -> None:
    async with web("admin", tools="full") as client:
        tools = await tools_of(client)
        named = {"shared_context", "push_context", "pull_context", "context_history", "set_memory", "add_message"}
        assert named <= tools.keys()
        # The stateless protocol version returns instructions on request.
        instructions = client.instructions or (await client.session.send_discover(MODERN))["instructions"]
        assert all(tool in instructions for tool in named)


@pytest.mark.req("SC-03")
@hypothesis.settings(
    max_examples=3, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture], deadline=None
)
@given(drawn=st.lists(JSON, max_size=10))
def test_any_board_value_is_read_as_it_was_written(connect: Connect, session: str, drawn: list[Any]) -> None:
    async def check() -> None:
        async with connect("planner") as client:
            board = Board(client, session)
            for value in (*VALUES, *drawn):
                await board("write", key="state", value=value)
                assert typed((await board("read", key="state"))["value"]) == typed(value)

    asyncio.run(check())
