"""The contract of WindowStore."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from support.contracts.stores import ContractStores
from weftline.history.model import Tag
from weftline.windows.model import Category, WindowRoute, WindowSettings

SESSION = "s1"


def window(agent_id: str, **settings: Any) -> WindowSettings:
    return WindowSettings(**{"session_id": SESSION, "agent_id": agent_id, "created_at": 1, "updated_at": 1, **settings})


def route(agent_id: str, category: Category = Category.CONTEXT, **target: str) -> WindowRoute:
    return WindowRoute(session_id=SESSION, agent_id=agent_id, category=category, **target)


class WindowStoreContract:
    """Windows of sessions, and routes between them."""

    async def test_a_window_is_stored_with_all_its_settings(self, stores: ContractStores) -> None:
        full = window(
            "planner",
            model="m",
            model_max_tokens=8_000,
            shared_cw_max_tokens=4_000,
            reserved_tokens=0,
            shares={Category.DIALOG: 0.5},
            parent_id="root",
            shares_with="other",
            compaction_threshold=0.75,
            autosave=False,
        )
        assert await stores.windows.add(full)
        assert await stores.windows.find(SESSION, "planner") == full
        assert not await stores.windows.add(window("planner"))
        changed = structs.replace(full, model=None, shares=None, shares_with=None, autosave=True, updated_at=2)
        await stores.windows.update(changed)
        assert await stores.windows.find(SESSION, "planner") == changed

    async def test_windows_are_found_by_session_sharers_and_parent(self, stores: ContractStores) -> None:
        for each in (window("a"), window("b", shares_with="a"), window("c", parent_id="a")):
            await stores.windows.add(each)
        await stores.windows.add(window("a", session_id="s2"))
        assert [each.agent_id for each in await stores.windows.of_session(SESSION, "", 9)] == ["a", "b", "c"]
        assert [each.agent_id for each in await stores.windows.of_session(SESSION, "a", 1)] == ["b"]
        assert [each.agent_id for each in await stores.windows.sharing(SESSION, "a")] == ["a", "b"]
        assert [each.agent_id for each in await stores.windows.children(SESSION, "a")] == ["c"]

    async def test_a_window_is_unsaved_from_its_first_change_until_it_is_saved(self, stores: ContractStores) -> None:
        busy, quiet = window("busy"), window("quiet", autosave=False)
        for each in (busy, quiet):
            await stores.windows.add(each)
            await stores.windows.advance(structs.replace(each, last_number=3, stored_bytes=70), 10)
            await stores.windows.advance(structs.replace(each, last_number=5, stored_bytes=90), 20)
        found = await stores.windows.unsaved(10, 9)
        assert [(each.agent_id, each.last_number, each.stored_bytes, each.unsaved_since) for each in found] == [
            ("busy", 5, 90, 10)
        ]
        assert await stores.windows.unsaved(9, 9) == []
        await stores.windows.saved(SESSION, "busy")
        assert await stores.windows.unsaved(99, 9) == []

    async def test_switching_autosave_off_leaves_nothing_to_save(self, stores: ContractStores) -> None:
        await stores.windows.add(window("a"))
        await stores.windows.advance(window("a", last_number=1), 10)
        await stores.windows.update(window("a", autosave=False))
        assert await stores.windows.unsaved(99, 9) == []

    async def test_labels_of_windows_and_their_branches_are_in_one_index(self, stores: ContractStores) -> None:
        for agent, at in (("a", 5), ("b", 7)):
            await stores.windows.add(window(agent))
            await stores.lines.create(f"window:{SESSION}:{agent}")
            await stores.lines.tag(f"window:{SESSION}:{agent}", Tag("start", 0, "planner", at))
        await stores.lines.create("window:s2:a")
        await stores.lines.tag("window:s2:a", Tag("other", 0, "planner", 9))
        found = await stores.windows.checkpoints(SESSION)
        assert [(each.agent_id, each.label, each.created_at) for each in found] == [
            ("b", "start", 7),
            ("a", "start", 5),
        ]

    async def test_routes_are_found_from_both_ends(self, stores: ContractStores) -> None:
        to_b, to_type = route("a", to_agent="b"), route("a", Category.ERROR, to_type="review")
        assert await stores.windows.add_route(to_b)
        assert not await stores.windows.add_route(to_b)
        await stores.windows.add_route(to_type)
        assert await stores.windows.routes_from(SESSION, "a") == [to_b, to_type]
        assert await stores.windows.routes_to(SESSION, "b", "worker", ()) == [to_b]
        assert await stores.windows.routes_to(SESSION, "c", "review", ()) == [to_type]
        assert await stores.windows.routes_to(SESSION, "a", "review", ()) == []
        to_team = route("a", to_team="review")
        await stores.windows.add_route(to_team)
        assert await stores.windows.routes_to(SESSION, "c", "worker", ()) == []
        assert await stores.windows.routes_to(SESSION, "c", "worker", {"ops"}) == []
        assert await stores.windows.routes_to(SESSION, "c", "worker", {"ops", "review"}) == [to_team]
        assert await stores.windows.remove_route(to_team)
        assert await stores.windows.routes_from(SESSION, "a") == [to_b, to_type]
        assert await stores.windows.remove_route(to_b)
        assert not await stores.windows.remove_route(to_b)
        assert await stores.windows.routes_to(SESSION, "b", "worker", ()) == []

    async def test_a_deleted_window_takes_its_routes_along(self, stores: ContractStores) -> None:
        await stores.windows.add(window("a"))
        await stores.windows.add_route(route("a", to_agent="b"))
        await stores.windows.add_route(route("c", to_agent="a"))
        await stores.windows.delete(SESSION, "a")
        assert await stores.windows.find(SESSION, "a") is None
        assert await stores.windows.routes_from(SESSION, "a") == await stores.windows.routes_from(SESSION, "c") == []

    async def test_another_tenant_sees_nothing(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await stores.windows.add(window("a"))
        await stores.windows.add_route(route("a", to_agent="b"))
        assert await elsewhere.windows.find(SESSION, "a") is None
        assert await elsewhere.windows.of_session(SESSION, "", 9) == []
        assert await elsewhere.windows.routes_to(SESSION, "b", "worker", ()) == []
