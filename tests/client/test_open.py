"""``Weft.open``: Weft in the same process."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import aclosing
from pathlib import Path

import pytest

from support.databases import new_postgres_database
from weft import Weft
from weft.app.tenants import TenantExists
from weft.capabilities.sessions.model import SessionConfig
from weft.errors import (
    AuthenticationError,
    InvalidApiKey,
    InvalidInput,
    KeyNotFound,
    PermissionDenied,
    RateLimited,
    SelfModification,
    SessionNotFound,
    VersionConflict,
)


async def test_a_new_folder_can_be_used_at_once(tmp_path: Path) -> None:
    async with Weft.open(tmp_path / "new" / "place") as weft:
        session = await weft.session.create("try it")
        written = await weft.board.write(session.session_id, "goal", "ship")
        assert (written.version, written.written_by) == (1, "human:admin")
        assert await weft.app.tenants.names() == ["default"]


@pytest.mark.req("CE-F31")
@pytest.mark.req("CE-U7")
async def test_an_agent_hands_over_only_the_system_prompt_that_is_registered(tmp_path: Path) -> None:
    async with Weft.open(tmp_path) as weft:
        await weft.agent.create("planner")
        await weft.session.create("try it", session_id="s", members=["planner"])
        planner = weft.acting_as("planner")
        given = {"form": "openai_chat", "messages": [{"role": "system", "content": "Be brief."}]}
        with pytest.raises(SelfModification, match="only those above you"):
            await planner.context.assemble("s", "Go.", **given)
        with pytest.raises(SelfModification, match="only those above you") as caught:
            await planner.context.ingest("s", [{"event_id": "own", "role": "system", "content": "Be brief."}])
        assert "weft.agent.define()" in caught.value.hint
        await weft.agent.define("planner", system_prompt="Be brief.")
        prompt = await planner.context.assemble("s", "Go.", **given)
        assert str(prompt.body).count("Be brief.") == 1


async def test_folder_file_and_environment_open_the_same_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Weft.open(str(tmp_path)) as weft:
        await weft.session.create("try it", session_id="s")
    async with Weft.open(tmp_path / "weft.db") as weft:
        assert (await weft.session.get("s")).session.purpose == "try it"
    async with Weft.open(f"sqlite://{tmp_path}/weft.db") as weft:
        assert (await weft.session.get("s")).session.purpose == "try it"
    monkeypatch.setenv("WEFT_DATA_DIR", str(tmp_path))
    async with Weft.open() as weft:
        assert (await weft.session.get("s")).session.purpose == "try it"


async def test_an_explicit_folder_overrides_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_DATABASE_URL", str(tmp_path / "other.db"))
    async with Weft.open(tmp_path / "mine"):
        assert (tmp_path / "mine" / "weft.db").exists()
    assert not (tmp_path / "other.db").exists()


async def test_postgres_is_opened_by_url(postgres: str) -> None:
    url = await new_postgres_database(postgres, f"weft_open_{secrets.token_hex(3)}")
    async with Weft.open(url) as weft:
        await weft.session.create("try it", session_id="s")
        assert (await weft.board.write("s", "goal", "ship")).version == 1


async def test_other_principals_of_the_tenant_can_be_used(tmp_path: Path) -> None:
    async with Weft.open(tmp_path) as weft:
        await weft.session.create("try it", session_id="s", members=["*"])
        await weft.agent.create("planner")
        await weft.agent.create("analysis", parent_id="planner")
        assert (await weft.acting_as("planner").board.write("s", "a", "x")).written_by == "orchestrator:planner"
        assert (await weft.acting_as("analysis").board.write("s", "b", "x")).written_by == "subagent:analysis"
        with pytest.raises(PermissionDenied):
            await weft.acting_as("analysis").session.create("not mine to make")
        with pytest.raises(AuthenticationError, match="nobody"):
            await weft.acting_as("nobody").session.list()


async def test_an_api_key_selects_the_principal(tmp_path: Path) -> None:
    async with Weft.open(tmp_path) as weft:
        await weft.session.create("try it", session_id="s", members=["*"])
        made = await weft.agent.create("planner")
        planner = weft.with_key(made.api_key)
        assert (await planner.board.write("s", "goal", "ship")).written_by == "orchestrator:planner"
        assert made.api_key not in repr(planner)
        with pytest.raises(InvalidApiKey):
            await weft.with_key(made.api_key + "x").session.list()
        with pytest.raises(TypeError, match="owner of that key only"):
            planner.acting_as("admin")


async def test_tenants_are_isolated(tmp_path: Path) -> None:
    async with Weft.open(tmp_path) as weft:
        await weft.session.create("try it", session_id="s")
        await weft.app.tenants.create("acme")
        with pytest.raises(TenantExists):
            await weft.app.tenants.create("acme")
    async with Weft.open(tmp_path, tenant="acme") as acme:
        with pytest.raises(SessionNotFound):
            await acme.session.get("s")


async def test_errors_are_the_ones_the_clients_raise(tmp_path: Path) -> None:
    async with Weft.open(tmp_path) as weft:
        await weft.session.create("try it", session_id="s")
        await weft.board.write("s", "goal", "ship")
        with pytest.raises(KeyNotFound) as missing:
            await weft.board.read("s", "goat")
        assert missing.value.context["available_alternatives"] == ["goal"]
        with pytest.raises(VersionConflict) as conflict:
            await weft.board.write("s", "goal", "sink", if_version=7)
        assert conflict.value.context["current_version"] == 1


async def test_structs_are_validated_as_over_http(tmp_path: Path) -> None:
    async with Weft.open(tmp_path) as weft:
        with pytest.raises(InvalidInput, match="max_value_tokens"):
            await weft.session.create("try it", config=SessionConfig(max_value_tokens=-1))


async def test_rate_limits_are_off_in_process_by_default(tmp_path: Path) -> None:
    async with Weft.open(tmp_path) as weft:
        for _ in range(150):  # the class allows 100 a minute over the wire
            with pytest.raises(SessionNotFound):
                await weft.board.check("s")
    async with Weft.open(tmp_path, rate_limits="session=2/minute") as weft:
        await weft.session.list()
        await weft.session.list()
        with pytest.raises(RateLimited):
            await weft.session.list()


async def test_following_starts_with_new_events(tmp_path: Path) -> None:
    async with Weft.open(tmp_path) as weft:
        await weft.session.create("try it", session_id="s")
        async with aclosing(weft.follow("s", ["goal"])) as events:
            first = asyncio.create_task(anext(events))
            while not weft.app.feed._tails:  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.01)
            await weft.board.write("s", "other", "x")
            await weft.board.write("s", "goal", "ship")
            event = await asyncio.wait_for(first, 60)
        assert (event.type, event.subject, event.data["version"]) == ("board.written", "goal", 1)


async def test_following_starts_after_a_given_event(tmp_path: Path) -> None:
    async with Weft.open(tmp_path) as weft:
        await weft.session.create("try it", session_id="s")
        await weft.board.write("s", "goal", "ship")
        async with aclosing(weft.follow(after=0)) as events:
            assert [(await anext(events)).type, (await anext(events)).type] == ["session.created", "board.written"]


@pytest.mark.parametrize("what", [{"keys": "goal"}, {"keys": ["Not A Key"]}, {"after": -1}])
async def test_following_with_invalid_arguments_is_refused(tmp_path: Path, what: dict[str, object]) -> None:
    async with Weft.open(tmp_path) as weft, aclosing(weft.follow(**what)) as events:
        with pytest.raises(InvalidInput):
            await anext(events)


async def test_events_of_other_processes_are_delivered_once(tmp_path: Path) -> None:
    async with Weft.open(tmp_path) as reader, Weft.open(tmp_path) as writer:
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
    async with Weft.open(tmp_path) as weft:
        session = (await weft.session.create("try it")).session_id
        await weft.message.add(session, "the build is green", metadata={"by": "ci"})
        page = await weft.message.list(session)
        page.messages[0].metadata["by"] = "somebody else"
        page.messages.clear()
        found = await weft.message.search(session, "build")
        found.results.clear()
        (message,) = (await weft.message.list(session)).messages
        assert message.metadata == {"by": "ci"}
        again = await weft.message.search(session, "build")
        assert (again.cache_hit, len(again.results)) == (True, 1)
