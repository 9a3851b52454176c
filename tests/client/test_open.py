"""``Weftline.open``: Weftline in the same process."""

from __future__ import annotations

import asyncio
import secrets
import socket
from contextlib import aclosing
from pathlib import Path

import pytest

from support.databases import new_postgres_database
from weftline import Weftline
from weftline.app.tenants import TenantExists
from weftline.errors import (
    AuthenticationError,
    InvalidApiKey,
    InvalidInput,
    KeyNotFound,
    NotMember,
    PermissionDenied,
    RateLimited,
    SelfModification,
    SessionNotFound,
    SystemUnavailable,
    VersionConflict,
)
from weftline.sessions.model import SessionConfig


async def test_a_new_folder_can_be_used_at_once(tmp_path: Path) -> None:
    async with Weftline.open(tmp_path / "new" / "place") as weftline:
        session = await weftline.session.create("try it")
        written = await weftline.board.write(session.session_id, "goal", "ship")
        assert (written.version, written.written_by) == (1, "human:admin")
        assert await weftline.app.tenants.names() == ["default"]


@pytest.mark.req("CE-F31")
@pytest.mark.req("CE-U7")
async def test_an_agent_hands_over_only_the_system_prompt_that_is_registered(tmp_path: Path) -> None:
    async with Weftline.open(tmp_path) as weftline:
        await weftline.agent.create("planner")
        await weftline.session.create("try it", session_id="s", members=["planner"])
        planner = weftline.acting_as("planner")
        given = {"form": "openai_chat", "messages": [{"role": "system", "content": "Be brief."}]}
        with pytest.raises(SelfModification, match="only those above you"):
            await planner.context.assemble("s", "Go.", **given)
        with pytest.raises(SelfModification, match="only those above you") as caught:
            await planner.context.ingest("s", [{"event_id": "own", "role": "system", "content": "Be brief."}])
        assert "weftline.agent.define()" in caught.value.hint
        await weftline.agent.define("planner", system_prompt="Be brief.")
        prompt = await planner.context.assemble("s", "Go.", **given)
        assert str(prompt.body).count("Be brief.") == 1


@pytest.mark.req("MS-17")
async def test_whoever_holds_the_data_is_told_who_is_no_member_and_the_call_that_adds_it(tmp_path: Path) -> None:
    async with Weftline.open(tmp_path) as weftline:
        made = await weftline.agent.create("planner")
        session_id = (await weftline.session.create("try it")).session_id
        planner = weftline.acting_as("planner")
        with pytest.raises(NotMember, match="'planner' is not a member of the session") as caught:
            await planner.board.write(session_id, "goal", "ship")
        assert "weftline.session.add_members()" in caught.value.hint
        by_key = weftline.with_key(made.api_key)
        with pytest.raises(SessionNotFound) as hidden:
            await by_key.board.write(session_id, "goal", "ship")
        assert hidden.value.code == "SESSION_NOT_FOUND"
        await weftline.session.add_members(**caught.value.context["add"])
        assert (await planner.board.write(session_id, "goal", "ship")).version == 1


@pytest.mark.req("MS-17")
async def test_members_are_named_when_a_session_is_created(tmp_path: Path) -> None:
    async with Weftline.open(tmp_path) as weftline:
        agents = [weftline.acting_as((await weftline.agent.create(name)).agent_id) for name in ("planner", "critic")]
        for members in (["planner", "critic"], ["*"]):
            session_id = (await weftline.session.create("try it", members=members)).session_id
            written = [await agent.board.write(session_id, "goal", "ship") for agent in agents]
            assert [each.written_by for each in written] == ["orchestrator:planner", "orchestrator:critic"]


async def test_folder_file_and_environment_open_the_same_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Weftline.open(str(tmp_path)) as weftline:
        await weftline.session.create("try it", session_id="s")
    async with Weftline.open(tmp_path / "weftline.db") as weftline:
        assert (await weftline.session.get("s")).session.purpose == "try it"
    async with Weftline.open(f"sqlite://{tmp_path}/weftline.db") as weftline:
        assert (await weftline.session.get("s")).session.purpose == "try it"
    monkeypatch.setenv("WEFTLINE_DATA_DIR", str(tmp_path))
    async with Weftline.open() as weftline:
        assert (await weftline.session.get("s")).session.purpose == "try it"


async def test_an_explicit_folder_overrides_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFTLINE_DATABASE_URL", str(tmp_path / "other.db"))
    async with Weftline.open(tmp_path / "mine"):
        assert (tmp_path / "mine" / "weftline.db").exists()
    assert not (tmp_path / "other.db").exists()


async def test_postgres_is_opened_by_url(postgres: str) -> None:
    url = await new_postgres_database(postgres, f"weftline_open_{secrets.token_hex(3)}")
    async with Weftline.open(url) as weftline:
        await weftline.session.create("try it", session_id="s")
        assert (await weftline.board.write("s", "goal", "ship")).version == 1


async def test_a_database_that_does_not_answer_is_unavailable(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    for url in (f"postgresql://u@127.0.0.1:{port}/nobody", f"postgresql://u@/nobody?host={tmp_path}&port=1"):
        with pytest.raises(SystemUnavailable, match="unreachable"):
            async with Weftline.open(url, data_dir=tmp_path):
                raise AssertionError("it cannot be opened")


async def test_other_principals_of_the_tenant_can_be_used(tmp_path: Path) -> None:
    async with Weftline.open(tmp_path) as weftline:
        await weftline.session.create("try it", session_id="s", members=["*"])
        await weftline.agent.create("planner")
        await weftline.agent.create("analysis", parent_id="planner")
        assert (await weftline.acting_as("planner").board.write("s", "a", "x")).written_by == "orchestrator:planner"
        assert (await weftline.acting_as("analysis").board.write("s", "b", "x")).written_by == "subagent:analysis"
        with pytest.raises(PermissionDenied):
            await weftline.acting_as("analysis").session.create("not mine to make")
        with pytest.raises(AuthenticationError, match="nobody"):
            await weftline.acting_as("nobody").session.list()


async def test_an_api_key_selects_the_principal(tmp_path: Path) -> None:
    async with Weftline.open(tmp_path) as weftline:
        await weftline.session.create("try it", session_id="s", members=["*"])
        made = await weftline.agent.create("planner")
        planner = weftline.with_key(made.api_key)
        assert (await planner.board.write("s", "goal", "ship")).written_by == "orchestrator:planner"
        assert made.api_key not in repr(planner)
        with pytest.raises(InvalidApiKey):
            await weftline.with_key(made.api_key + "x").session.list()
        with pytest.raises(TypeError, match="owner of that key only"):
            planner.acting_as("admin")


async def test_tenants_are_isolated(tmp_path: Path) -> None:
    async with Weftline.open(tmp_path) as weftline:
        await weftline.session.create("try it", session_id="s")
        await weftline.app.tenants.create("acme")
        with pytest.raises(TenantExists):
            await weftline.app.tenants.create("acme")
    async with Weftline.open(tmp_path, tenant="acme") as acme:
        with pytest.raises(SessionNotFound):
            await acme.session.get("s")


async def test_errors_are_the_ones_the_clients_raise(tmp_path: Path) -> None:
    async with Weftline.open(tmp_path) as weftline:
        await weftline.session.create("try it", session_id="s")
        await weftline.board.write("s", "goal", "ship")
        with pytest.raises(KeyNotFound) as missing:
            await weftline.board.read("s", "goat")
        assert missing.value.context["available_alternatives"] == ["goal"]
        with pytest.raises(VersionConflict) as conflict:
            await weftline.board.write("s", "goal", "sink", if_version=7)
        assert conflict.value.context["current_version"] == 1


async def test_structs_are_validated_as_over_http(tmp_path: Path) -> None:
    async with Weftline.open(tmp_path) as weftline:
        with pytest.raises(InvalidInput, match="max_value_tokens"):
            await weftline.session.create("try it", config=SessionConfig(max_value_tokens=-1))


async def test_rate_limits_are_off_in_process_by_default(tmp_path: Path) -> None:
    async with Weftline.open(tmp_path) as weftline:
        for _ in range(150):  # the class allows 100 a minute over the wire
            with pytest.raises(SessionNotFound):
                await weftline.board.check("s")
    async with Weftline.open(tmp_path, rate_limits="session=2/minute") as weftline:
        await weftline.session.list()
        await weftline.session.list()
        with pytest.raises(RateLimited):
            await weftline.session.list()


async def test_following_starts_with_new_events(tmp_path: Path) -> None:
    async with Weftline.open(tmp_path) as weftline:
        await weftline.session.create("try it", session_id="s")
        async with aclosing(weftline.follow("s", ["goal"])) as events:
            first = asyncio.create_task(anext(events))
            while not weftline.app.feed._tails:  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.01)
            await weftline.board.write("s", "other", "x")
            await weftline.board.write("s", "goal", "ship")
            event = await asyncio.wait_for(first, 60)
        assert (event.type, event.subject, event.data["version"]) == ("board.written", "goal", 1)


async def test_following_starts_after_a_given_event(tmp_path: Path) -> None:
    async with Weftline.open(tmp_path) as weftline:
        await weftline.session.create("try it", session_id="s")
        await weftline.board.write("s", "goal", "ship")
        async with aclosing(weftline.follow(after=0)) as events:
            assert [(await anext(events)).type, (await anext(events)).type] == ["session.created", "board.written"]


@pytest.mark.parametrize("what", [{"keys": "goal"}, {"keys": ["Not A Key"]}, {"after": -1}])
async def test_following_with_invalid_arguments_is_refused(tmp_path: Path, what: dict[str, object]) -> None:
    async with Weftline.open(tmp_path) as weftline, aclosing(weftline.follow(**what)) as events:
        with pytest.raises(InvalidInput):
            await anext(events)


async def test_events_of_other_processes_are_delivered_once(tmp_path: Path) -> None:
    async with Weftline.open(tmp_path) as reader, Weftline.open(tmp_path) as writer:
        await writer.session.create("try it", session_id="s")
        await asyncio.sleep(0.25)
        await reader.events.read(after=0)
        await asyncio.sleep(0.25)  # the reader has read all events so far
        await writer.board.write("s", "goal", "ship")
        first = await reader.events.read(after=0)
        rest = await reader.events.read(after=first.next_after, wait_seconds=1)
        assert [event.seq for event in [*first.events, *rest.events]] == [1, 2]


@pytest.mark.req("MS-15")
async def test_changing_a_response_does_not_affect_others(tmp_path: Path) -> None:
    async with Weftline.open(tmp_path) as weftline:
        session = (await weftline.session.create("try it")).session_id
        await weftline.message.add(session, "the build is green", metadata={"by": "ci"})
        page = await weftline.message.list(session)
        page.messages[0].metadata["by"] = "somebody else"
        page.messages.clear()
        found = await weftline.message.search(session, "build")
        found.results.clear()
        (message,) = (await weftline.message.list(session)).messages
        assert message.metadata == {"by": "ci"}
        again = await weftline.message.search(session, "build")
        assert (again.cache_hit, len(again.results)) == (True, 1)
