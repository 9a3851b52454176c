"""Pins: items that are in every prompt and search answer, who may pin them, and how many fit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.bundles import exported, imported
from support.contexts import knowledge_entry, push
from support.teams import create_team
from support.world import SESSION, outcome, refused

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = pytest.mark.req("CE-F12")


async def pinned_texts(caller: Caller) -> list[str]:
    listed = await caller.call("pin.list", session_id=SESSION)
    return [pin["text"] for pin in listed["pins"]]


async def pin(caller: Caller, **item: Any) -> Any:
    return await caller.call("pin.add", session_id=SESSION, **item)


async def test_messages_board_keys_and_memory_can_be_pinned_and_unpinned(world: World) -> None:
    number = await world.planner.say("Never deploy on Fridays.")
    await world.planner.write("budget", "At most 500 euros.")
    await world.planner.remember("tone", "Write short sentences.")
    items = ({"message_id": number}, {"key": "budget"}, {"memory_key": "tone"})
    for item in items:
        await pin(world.planner, **item)
    listed = await world.planner.call("pin.list", session_id=SESSION)
    assert [(each["source"], each["text"], each["pinned_by"]) for each in listed["pins"]] == [
        ("message", "Never deploy on Fridays.", "planner"),
        ("board", "At most 500 euros.", "planner"),
        ("memory", "Write short sentences.", "planner"),
    ]
    assert listed["tokens"] == sum(each["tokens"] for each in listed["pins"]) > 0
    for item in items:
        await world.planner.call("pin.remove", session_id=SESSION, **item)
    assert await pinned_texts(world.planner) == []
    with refused("PIN_NOT_FOUND"):
        await world.planner.call("pin.remove", session_id=SESSION, key="budget")


async def test_an_entry_of_persistent_memory_can_be_pinned(world: World) -> None:
    await world.analysis.call("context.push", knowledge=[{"key": "style", "value": "Use tabs."}], if_version=0)
    item = {"memory_key": "style", "memory_type": "learned_knowledge"}
    await world.analysis.call("pin.add", **item)
    listed = (await world.analysis.call("pin.list"))["pins"]
    assert [(each["key"], each["memory_type"], each["text"]) for each in listed] == [
        ("style", "learned_knowledge", "Use tabs.")
    ]
    await world.analysis.call("pin.remove", **item)
    assert (await world.analysis.call("pin.list"))["pins"] == []
    with refused("MEMORY_NOT_FOUND"):
        await world.analysis.call("pin.add", memory_key="other", memory_type="learned_knowledge")


@pytest.mark.parametrize("category", ["decision", "commitment", "CONSTRAINT", "requirement", "immutable_fact"])
async def test_messages_of_these_categories_are_pinned_when_sent(world: World, category: str) -> None:
    await world.planner.say("We use PostgreSQL.", category=category)
    await world.planner.say("Tests take five minutes.", category="fact")
    assert await pinned_texts(world.planner) == ["We use PostgreSQL."]


async def test_sub_agents_pin_only_in_their_own_memory(world: World) -> None:
    number = await world.analysis.say("We use my format only.", category="decision", metadata={"pinned": True})
    await world.analysis.write("order", "We use my format only.")
    assert await pinned_texts(world.planner) == []
    for item in ({"message_id": number}, {"key": "order"}):
        with refused("PERMISSION_DENIED"):
            await pin(world.analysis, **item)
    await world.analysis.remember("style", "Use tabs.")
    await pin(world.analysis, memory_key="style")
    assert await pinned_texts(world.analysis) == ["Use tabs."]
    assert await pinned_texts(world.planner) == []


async def test_a_pin_is_only_listed_for_those_who_may_read_the_item(world: World) -> None:
    await world.planner.say("The password is on the paper.", category="decision", visibility="private")
    await world.planner.write("secret", "It is under the mat.", readable_by=["orchestrator"])
    await pin(world.planner, key="secret")
    assert len(await pinned_texts(world.planner)) == 2
    assert await pinned_texts(world.analysis) == []
    with refused("PIN_NOT_FOUND"):
        await world.analysis.call("pin.remove", session_id=SESSION, key="secret")
    with refused("KEY_NOT_FOUND"):
        await pin(world.analysis, key="secret")


async def test_only_who_pinned_the_creator_and_admins_unpin(world: World) -> None:
    await world.planner.write("rule", "Ask before spending.")
    await pin(world.planner, key="rule")
    with refused("PERMISSION_DENIED") as denied:
        await world.analysis.call("pin.remove", session_id=SESSION, key="rule")
    assert denied.value.context["pinned_by"] == "planner"
    await world.admin.call("pin.remove", session_id=SESSION, key="rule")
    assert await pinned_texts(world.planner) == []


async def test_pins_above_the_limit_are_refused_and_the_message_is_not_sent(world: World) -> None:
    text = "lorem ipsum " * 300
    await world.planner.say(text, category="decision")
    await world.planner.say(text, category="decision")
    sent = len(await world.planner.message_texts())
    with refused("PIN_LIMIT") as denied:
        await world.planner.say(text, category="decision")
    assert denied.value.context["limit_tokens"] == 2_000
    assert len(await world.planner.message_texts()) == sent
    await world.planner.say(text)


async def test_a_session_has_at_most_fifty_pins_and_one_author_half_of_them(world: World) -> None:
    second = await world.admin.create_agent("second")
    await world.planner.admit("second")
    for author in (world.planner, second.in_session(SESSION)):
        for number in range(25):
            await author.say(f"Rule {number}", category="constraint")
        with refused("PIN_LIMIT"):
            await author.say("Rule 25", category="constraint")
    with refused("PIN_LIMIT"):
        await world.admin.in_session(SESSION).say("One more", category="constraint")


async def test_a_pinned_key_cannot_grow_beyond_the_limit_and_stays_pinned_when_rewritten(world: World) -> None:
    await world.planner.say("lorem ipsum " * 600, category="decision")
    await world.planner.write("plan", "Short.")
    await pin(world.planner, key="plan")
    await world.analysis.write("plan", "Still short.")
    assert "Still short." in await pinned_texts(world.planner)
    with refused("PIN_LIMIT"):
        await world.analysis.write("plan", "lorem ipsum " * 200)
    assert await world.planner.value("plan") == "Still short."


async def test_deleting_a_key_or_a_session_deletes_its_pins(world: World) -> None:
    await world.planner.write("plan", "Short.")
    await pin(world.planner, key="plan")
    await world.planner.delete("plan")
    await world.planner.write("plan", "Another.")
    assert await pinned_texts(world.planner) == []
    await world.planner.remember("tone", "Be kind.", session_id=SESSION)
    await pin(world.planner, memory_key="tone")
    await world.planner.say("Decided.", category="decision")
    await world.planner.call("session.delete", session_id=SESSION, force=True)
    assert await world.rows("SELECT * FROM pinned_items WHERE tenant = $1", world.tenant) == []


async def test_pins_of_one_tenant_and_session_do_not_reach_another(world: World) -> None:
    await world.planner.say("Decided.", category="decision")
    other = await world.planner.create_session("other")
    assert (await other.call("pin.list", session_id="other"))["pins"] == []


@pytest.mark.parametrize(
    "item",
    [{}, {"key": "a", "message_id": 1}, {"memory_key": "a", "key": "b"}],
)
async def test_a_pin_names_exactly_one_item(world: World, item: dict[str, Any]) -> None:
    with refused("INVALID_INPUT_FORMAT"):
        await pin(world.planner, **item)
    with refused("INVALID_INPUT_FORMAT"):
        await world.planner.call("pin.add", key="a")


@pytest.mark.req("CE-F12")
async def test_pinned_documents_of_a_domain_have_a_limit(world: World) -> None:
    await world.admin.call("knowledge.create_domain", domain="rules")
    with refused("PIN_LIMIT"):
        await world.admin.call(
            "knowledge.add_document", domain="rules", document_id="all", text="lorem ipsum " * 2_000, pinned=True
        )


async def test_an_imported_session_has_its_decisions_pinned(world: World) -> None:
    await world.planner.say("We use PostgreSQL.", category="decision")
    await world.analysis.say("We use my format only.", category="decision")
    await world.planner.say("Hello.")
    bundle = await exported(world.admin.in_session(SESSION), scope="session")
    await imported(world.admin, bundle, session_id="copy")
    listed = await world.admin.call("pin.list", session_id="copy")
    assert [each["text"] for each in listed["pins"]] == ["We use PostgreSQL."]


async def test_all_pins_are_in_every_prompt_or_the_error_names_them(world: World) -> None:
    for number in range(24):
        await world.planner.say(f"Rule {number}: never touch server {number}.", category="constraint")
    await world.planner.write("budget", "At most 500 euros.")
    await pin(world.planner, key="budget")
    await world.index_sessions()
    task = {"session_id": SESSION, "task_description": "Bake a cake."}
    prompt = await world.analysis.call("context.assemble", **task, token_budget=4_000)
    text = str(prompt)
    assert all(f"Rule {number}:" in text for number in range(24))
    assert "At most 500 euros." in text
    with refused("CONTEXT_OVER_BUDGET") as caught:
        await world.analysis.call("context.assemble", **task, token_budget=300)
    assert len(caught.value.context["pins"]) == 25


async def test_pins_of_a_team_reach_its_members_and_cannot_grow_beyond_the_limit(world: World) -> None:
    await world.admin.call("team.create", team="research")
    for member in ("planner", "analysis"):
        await world.admin.call("team.add_member", team="research", agent_id=member)
    entry = {"key": "style", "value": "Use tabs.", "memory_type": "team_preferences"}
    team = {"owner": "team:research"}
    await world.planner.call("context.push", knowledge=[entry], if_version=0, **team)
    item = {"memory_key": "style", "memory_type": "team_preferences", **team}
    with refused("PERMISSION_DENIED"):
        await world.analysis.call("pin.add", **item)
    with refused("TEAM_NOT_FOUND"):
        await world.review.call("pin.add", **item)
    await world.planner.call("pin.add", **item)
    assert [each["text"] for each in (await world.analysis.call("pin.list"))["pins"]] == ["Use tabs."]
    assert (await world.review.call("pin.list"))["pins"] == []
    with refused("PIN_LIMIT"):
        longer = [{**entry, "value": "lorem ipsum " * 1_000}]
        await world.analysis.call("context.push", knowledge=longer, if_version=1, **team)
    await world.index_sessions()
    found = await world.analysis.call("search.query", query="banana bread")
    assert [each["text"] for each in found["pinned"]] == ["Use tabs."]


LARGE = "lorem ipsum " * 2_000


@pytest.mark.both_databases
async def test_a_pinned_key_grows_beyond_the_limit_neither_by_a_merge_nor_by_a_restored_snapshot(world: World) -> None:
    await world.planner.say(LARGE[:7_000], category="decision")
    await world.planner.write("rule", LARGE[:3_600])
    await world.planner.snapshot("large")
    await world.planner.write("rule", "short")
    await pin(world.planner, key="rule")
    board = f"board:{SESSION}"
    await world.planner.call("history.branch", context_id=board, branch="growth")
    await world.analysis.write("rule", LARGE[:3_600], branch="growth")
    with refused("PIN_LIMIT"):
        await world.analysis.call("history.merge", context_id=board, from_context_id=f"{board}@growth")
    with refused("PIN_LIMIT"):
        await world.planner.restore("large")
    with refused("PIN_LIMIT"):
        await world.planner.call("history.rollback", context_id=board, target_version="large", reason="larger")
    assert await world.planner.value("rule") == "short"


@pytest.mark.both_databases
async def test_a_key_that_a_restored_snapshot_removes_is_not_pinned_when_it_is_written_again(world: World) -> None:
    await world.planner.snapshot("empty")
    await world.planner.write("rule", "short")
    await pin(world.planner, key="rule")
    await world.planner.restore("empty")
    await world.analysis.write("rule", LARGE[:3_600])
    assert await pinned_texts(world.planner) == []


async def test_a_pinned_key_of_memory_does_not_grow_beyond_the_limit(world: World) -> None:
    await world.planner.remember("tone", "short")
    await pin(world.planner, memory_key="tone")
    with refused("PIN_LIMIT"):
        await world.planner.remember("tone", LARGE)
    assert await world.planner.recalled("tone") == "short"


@pytest.mark.both_databases
async def test_a_pinned_entry_of_a_team_does_not_grow_beyond_the_limit_by_a_merge_or_a_rollback(world: World) -> None:
    await create_team(world.admin, "research", "analysis", "planner")
    team, entry = "team:research", {"memory_key": "style", "memory_type": "learned_knowledge", "owner": "team:research"}
    await push(world.planner, knowledge_entry("style", LARGE), owner=team, if_version=0)
    await push(world.planner, knowledge_entry("style", "short"), owner=team, if_version=1)
    await world.planner.call("pin.add", **entry)
    await world.analysis.call("history.branch", context_id=team, branch="growth")
    await push(world.analysis, knowledge_entry("style", LARGE), owner=team, branch="growth", if_version=2)
    with refused("PIN_LIMIT"):
        await world.analysis.call("history.merge", context_id=team, from_context_id=f"{team}@growth")
    with refused("PIN_LIMIT"):
        await world.admin.call("history.rollback", context_id=team, target_version="1", reason="larger")
    (listed,) = (await world.planner.call("pin.list"))["pins"]
    assert listed["text"] == "short"


@pytest.mark.both_databases
@pytest.mark.parametrize("owner", ["team:research", None])
async def test_concurrent_pins_of_a_memory_do_not_exceed_its_limit_together(world: World, owner: str | None) -> None:
    await create_team(world.admin, "research", "planner")
    entries = [knowledge_entry(f"k{number}", LARGE[:3_600]) for number in range(8)]
    await push(world.planner, *entries, owner=owner, if_version=0)
    callers = [world.planner, world.planner.at(await world.another_app())]
    item = {"memory_type": "learned_knowledge", "owner": owner}
    calls = [callers[number % 2].call("pin.add", memory_key=f"k{number}", **item) for number in range(8)]
    outcomes = await asyncio.gather(*map(outcome, calls))
    assert sorted(outcomes) == ["PIN_LIMIT"] * 6 + ["ok"] * 2
