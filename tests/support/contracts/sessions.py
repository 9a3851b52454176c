"""The contract of SessionStore."""

from __future__ import annotations

from msgspec import structs

from support.contracts.stores import ContractStores
from weftline.history.model import EMPTY, Author, Commit, Point
from weftline.kernel.events import EventType, NewEvent
from weftline.sessions.erasure import SessionContent
from weftline.sessions.model import Session, SessionConfig
from weftline.sessions.sql import SessionCursor


def session(session_id: str, created_at: int = 1) -> Session:
    config = SessionConfig(keep_versions=7)
    whats = {"nested": ["é", None]}
    members = ("subagent:*", "human:dana")
    return Session(session_id, "a purpose", whats, config, "planner", created_at, created_at, None, members=members)


class SessionStoreContract:
    """Sessions are stored unchanged and listed newest first."""

    async def test_a_session_is_returned_unchanged(self, stores: ContractStores) -> None:
        assert await stores.sessions.add(session("s1"))
        assert await stores.sessions.find("s1") == session("s1")
        assert await stores.sessions.find("s2") is None

    async def test_an_id_is_unique(self, stores: ContractStores) -> None:
        assert await stores.sessions.add(session("s1"))
        assert not await stores.sessions.add(session("s1", created_at=2))
        found = await stores.sessions.find("s1")
        assert found is not None
        assert found.created_at == 1

    async def test_sessions_are_listed_newest_first_from_a_position(self, stores: ContractStores) -> None:
        for session_id, created_at in (("a", 1), ("b", 2), ("c", 2), ("d", 3)):
            await stores.sessions.add(session(session_id, created_at))
        everything = await stores.sessions.newest(None, 10, archived=False)
        assert [found.session_id for found in everything] == ["d", "c", "b", "a"]
        page = await stores.sessions.newest(SessionCursor(2, "c"), 1, archived=False)
        assert [found.session_id for found in page] == ["b"]

    async def test_several_sessions_are_found_at_once(self, stores: ContractStores) -> None:
        for session_id in ("s1", "s2", "s3"):
            await stores.sessions.add(session(session_id))
        found = await stores.sessions.find_several(["s3", "s1", "s1", "none"])
        assert sorted(each.session_id for each in found) == ["s1", "s3"]
        assert await stores.sessions.find("s1") in found

    async def test_the_sessions_of_a_member_are_listed_without_those_of_others(self, stores: ContractStores) -> None:
        for number in range(30):
            others = Session(f"x{number}", "theirs", {}, SessionConfig(), "mallory", 2, 2, None)
            await stores.sessions.add(others)
        for session_id, created_at in (("a", 1), ("b", 2), ("c", 3)):
            await stores.sessions.add(session(session_id, created_at))
        patterns = {"*", "human:dana", "subagent:*", *(f"team:{number}" for number in range(40))}

        async def listed(before: SessionCursor | None = None, limit: int = 9, *, archived: bool = False) -> list[str]:
            page = await stores.sessions.newest(before, limit, archived=archived, patterns=patterns)
            return [found.session_id for found in page]

        assert await listed() == ["c", "b", "a"]
        assert await listed(limit=2) == ["c", "b"]
        assert await listed(SessionCursor(2, "b")) == ["a"]
        await stores.sessions.archive("b", 9)
        assert await listed() == ["c", "a"]
        assert await listed(archived=True) == ["c", "b", "a"]
        found = await stores.sessions.find("a")
        assert found is not None
        await stores.sessions.set_members(structs.replace(found, members=("team:99",)))
        assert await listed() == ["c"]
        await stores.sessions.erase("c")
        assert await listed() == []

    async def test_what_a_session_contains_is_counted_by_principal(self, stores: ContractStores) -> None:
        await stores.sessions.add(session("s1"))
        await stores.lines.create("board:s1")
        head = await stores.lines.lock("board:s1")
        assert head is not None
        commit = Commit("board:s1", 1, Author("orchestrator:planner", "planner"), 7, "write", None, ())
        await stores.lines.append(head, commit, weight=0, next_expiry_at=None)
        assert list(await stores.sessions.content(session("s1"))) == [SessionContent("writes", "planner", 1)]

    async def test_a_session_knows_whether_a_key_had_an_acl(self, stores: ContractStores) -> None:
        await stores.sessions.add(session("s1"))
        await stores.sessions.add(session("s2"))
        await stores.sessions.note_key_acls("s1")
        assert [await stores.sessions.has_key_acls(name) for name in ("s1", "s2")] == [True, False]

    async def test_each_session_is_listed_with_its_audience(self, stores: ContractStores) -> None:
        await stores.sessions.add(session("s1"))
        await stores.sessions.add(Session("s2", "open", {}, SessionConfig(), "ada", 1, 1, None, members=("*",)))
        assert await stores.sessions.audiences("", 10) == [
            ("s1", ("principal:planner", "subagent:*", "human:dana")),
            ("s2", ("principal:ada", "*")),
        ]
        assert [name for name, _ in await stores.sessions.audiences("", 1)] == ["s1"]
        assert [name for name, _ in await stores.sessions.audiences("s1", 10)] == ["s2"]

    async def test_sessions_created_changed_or_deleted_after_an_event_are_listed(self, stores: ContractStores) -> None:
        before = await stores.events.last_seq()
        await stores.sessions.add(session("s1"))
        await stores.sessions.add(session("s4"))
        events: tuple[tuple[EventType, str], ...] = (
            ("session.created", "s1"),
            ("session.archived", "s2"),
            ("session.created", "s3"),
            ("session.members_changed", "s4"),
            ("session.deleted", "s3"),
        )
        for event_type, session_id in events:
            await stores.outbox.publish(
                NewEvent(type=event_type, session_id=session_id, subject=session_id, actor="planner")
            )
        changed = await stores.sessions.audiences_changed(before)
        audience = ("principal:planner", "subagent:*", "human:dana")
        assert sorted(changed) == [("s1", audience), ("s3", None), ("s4", audience)]
        assert list(await stores.sessions.audiences_changed(await stores.events.last_seq())) == []

    async def test_archived_sessions_are_listed_only_if_asked_for(self, stores: ContractStores) -> None:
        await stores.sessions.add(session("s1"))
        await stores.sessions.archive("s1", 9)
        found = await stores.sessions.find("s1")
        assert found is not None
        assert (found.archived_at, found.updated_at) == (9, 9)
        assert await stores.sessions.newest(None, 10, archived=False) == []
        assert len(await stores.sessions.newest(None, 10, archived=True)) == 1

    async def test_an_erased_session_is_gone(self, stores: ContractStores) -> None:
        await stores.sessions.add(session("s1"))
        await stores.sessions.erase("s1")
        assert await stores.sessions.find("s1") is None
        assert await stores.sessions.add(session("s1"))

    async def test_the_branches_of_a_board_belong_to_its_session(self, stores: ContractStores) -> None:
        await stores.sessions.add(session("s1"))
        await stores.lines.create("board:s1")
        for name in ("b", "a"):
            await stores.lines.branch(f"board:s1@{name}", Point("board:s1", 0, EMPTY), weight=0, next_expiry_at=None)
        assert list(await stores.sessions.branches(session("s1"))) == []
        await stores.sessions.add_branches("s1", 2)
        found = await stores.sessions.find("s1")
        assert found is not None
        assert found.branches == 2
        assert list(await stores.sessions.branches(found)) == ["a", "b"]
        assert list(await stores.sessions.lines("s1")) == ["board:s1", "board:s1@a", "board:s1@b"]

    async def test_commits_on_branches_are_activity_of_the_session(self, stores: ContractStores) -> None:
        await stores.sessions.add(session("s1"))
        await stores.lines.create("board:s1")
        await stores.lines.branch("board:s1@a", Point("board:s1", 0, EMPTY), weight=0, next_expiry_at=None)
        await stores.sessions.add_branches("s1", 1)
        found = await stores.sessions.find("s1")
        assert found is not None
        assert await stores.sessions.last_activity(found) == 1
        head = await stores.lines.lock("board:s1@a")
        assert head is not None
        commit = Commit("board:s1@a", 1, Author("orchestrator", "planner"), 7, "write", None, ())
        await stores.lines.append(head, commit, weight=0, next_expiry_at=None)
        assert await stores.sessions.last_activity(found) == 7

    async def test_tenants_have_their_own_sessions(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await stores.sessions.add(session("s1"))
        assert await elsewhere.sessions.find("s1") is None
        assert await elsewhere.sessions.add(session("s1"))
        await elsewhere.sessions.erase("s1")
        assert await stores.sessions.find("s1") is not None
