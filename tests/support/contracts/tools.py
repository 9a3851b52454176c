"""The contracts of ToolStore, StepStore and SelectionStore."""

from __future__ import annotations

from msgspec import structs

from support.contracts.stores import ContractStores
from weftline.prompts.tools.model import RecordedSelection, RegisteredTool, RegistrySize, StepDefinition

SCHEMA = {"type": "object", "properties": {"path": {"type": "string", "description": "Größe"}}}
OWN = RegisteredTool("planner", "files.read", "Reads", SCHEMA, ("read a file",), "files", 20, 90, "planner", 5)
SHARED = structs.replace(OWN, owner="", description="The tenant's", tokens=7)
FOREIGN = structs.replace(OWN, owner="other", name="files.write")
STEP = StepDefinition("planner", "review", "Reads only", ("files.read", "search"), "planner", 5)


class ToolStoreContract:
    """Tools belong to the tenant or to a principal."""

    async def test_of_one_name_the_tenants_comes_first(self, stores: ContractStores) -> None:
        await stores.tools.put(OWN)
        assert await stores.tools.find({"", "planner"}, ["files.read", "missing"]) == [OWN]
        await stores.tools.put(SHARED)
        assert await stores.tools.find({"", "planner"}, ["files.read"]) == [SHARED]
        assert await stores.tools.find({"planner"}, ["files.read"]) == [OWN]
        assert await stores.tools.find({"other"}, ["files.read"]) == []

    async def test_a_page_has_each_name_once_in_order(self, stores: ContractStores) -> None:
        made = [structs.replace(OWN, name=name) for name in ("b", "B", "a_1", "a.2")]
        for tool in (*made, OWN, SHARED, FOREIGN):
            await stores.tools.put(tool)
        names = ["B", "a.2", "a_1", "b", "files.read"]
        found = await stores.tools.page({"", "planner"}, "", 10)
        assert [tool.name for tool in found] == names
        assert found[-1] == SHARED
        assert [tool.name for tool in await stores.tools.page({"", "planner"}, "a.2", 2)] == ["a_1", "b"]

    async def test_sizes_add_up(self, stores: ContractStores) -> None:
        assert await stores.tools.size(None) == RegistrySize()
        for tool in (OWN, FOREIGN, structs.replace(OWN, name="x", tokens=1, bytes=2)):
            await stores.tools.put(tool)
        assert await stores.tools.size(None) == RegistrySize(3, 41, 182)
        assert await stores.tools.size({"", "planner"}) == RegistrySize(2, 21, 92)
        assert await stores.tools.size({"planner"}, ["x", "missing"]) == RegistrySize(1, 1, 2)

    async def test_a_tool_is_replaced_and_removed(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await stores.tools.put(OWN)
        changed = structs.replace(OWN, description="Changed", server="disk", tokens=3, registered_at=9)
        await stores.tools.put(changed)
        assert await stores.tools.find({"planner"}, ["files.read"]) == [changed]
        assert await stores.tools.names_of("planner", "disk") == ["files.read"]
        assert await stores.tools.names_of("planner", "files") == []
        assert await elsewhere.tools.find({"planner"}, ["files.read"]) == []
        assert not await elsewhere.tools.remove("planner", "files.read")
        assert not await stores.tools.remove("", "files.read")
        assert await stores.tools.remove("planner", "files.read")
        assert await stores.tools.size(None) == RegistrySize()


class StepStoreContract:
    """Steps belong to the tenant or to a principal."""

    async def test_steps_are_found_by_owner(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await stores.steps.put(STEP)
        await stores.steps.put(structs.replace(STEP, name="Plan"))
        shared = structs.replace(STEP, owner="", tools=("search",))
        assert [step.name for step in await stores.steps.visible({"planner"})] == ["Plan", "review"]
        await stores.steps.put(shared)
        assert await stores.steps.visible({"", "planner"}) == [structs.replace(STEP, name="Plan"), shared]
        assert await stores.access.step_tools("review", {"planner"}) == frozenset({"search"})
        assert await stores.access.step_tools("Plan", {"planner"}) == frozenset({"files.read", "search"})
        assert await stores.access.step_tools("Plan", {"other"}) is None
        assert await elsewhere.access.step_tools("review", {"planner"}) is None
        steps = [("planner", "review"), ("planner", "Plan"), ("", "review")]
        assert await stores.steps.count() == len(steps)
        assert await stores.steps.remove("", "review")
        assert not await stores.steps.remove("", "review")
        assert await stores.access.step_tools("review", {"planner"}) == frozenset({"files.read", "search"})


class SelectionStoreContract:
    """Each agent has one selection in each session, and one outside of sessions."""

    async def test_the_last_selection_counts(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        first = RecordedSelection("digest", "", ("a", "b"), ("c",))
        second = RecordedSelection("other", "review", ("b",), ())
        await stores.selections.put("s1", "planner", first, 5)
        await stores.selections.put("", "planner", second, 5)
        assert await stores.selections.find("s1", "planner") == first
        await stores.selections.put("s1", "planner", second, 6)
        assert await stores.selections.find("s1", "planner") == second
        assert await stores.selections.find("s1", "other") is None
        assert await elsewhere.selections.find("", "planner") is None
