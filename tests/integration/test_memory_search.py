"""Persistent memory is found by searches: what a read without a session shows, and nothing else."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

from support.contexts import artifact, knowledge_entry, pull, push, version_of
from support.indexed_items import indexed_texts, use_scripted_embeddings
from support.teams import create_team, remove_member
from support.world import SESSION, refused
from weftline.history.object_storage import ObjectStorageUnavailable
from weftline.storage.migrations.runner import known_migrations

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = [pytest.mark.req("CE-F3"), pytest.mark.req("CE-F11")]
FACT = "The billing service rejects more than 30 calls a minute."


@pytest.fixture(autouse=True)
def _embeddings(world: World) -> None:
    use_scripted_embeddings(world)


async def learn(agent: Caller, key: str, value: Any, **fields: Any) -> Any:
    """Push one entry."""
    return await push(agent, knowledge_entry(key, value, **fields), if_version=await version_of(agent))


async def search(agent: Caller, query: str, **options: Any) -> list[dict[str, Any]]:
    found = await agent.call("search.query", query=query, sources=["memory"], low_confidence=True, **options)
    return found["results"]


async def texts(agent: Caller, query: str, **options: Any) -> list[str]:
    return sorted(result["text"] for result in await search(agent, query, **options))


async def memory_index(world: World) -> dict[str, list[str]]:
    """Return the indexed entries of the planner's persistent memory, by item."""
    await world.index_sessions()
    found = await indexed_texts(world, "memory")
    prefix = "context:planner:"
    return {place.removeprefix(prefix): text for place, text in found.items() if place.startswith(prefix)}


async def test_a_pushed_fact_is_found_with_its_type(world: World) -> None:
    await learn(world.planner, "billing/limit", FACT)
    await world.index_sessions()
    (result,) = await search(world.planner, "billing calls a minute")
    assert (result["source"], result["key"], result["memory_type"]) == ("memory", "billing/limit", "learned_knowledge")
    assert result["text"] == FACT
    assert result["key"] == "billing/limit"
    assert "owner" not in result
    assert "workflow_id" not in result
    assert await search(world.analysis, "billing calls a minute") == []


async def test_every_memory_type_is_found_and_private_memory_as_before(world: World) -> None:
    await push(
        world.planner,
        knowledge_entry("a", "apricot learned"),
        knowledge_entry("b", "apricot preferred", memory_type="team_preferences"),
        knowledge_entry("c", "apricot said", memory_type="conversation_context", workflow_id="w1"),
        artifact("d", "apricot made"),
        if_version=0,
    )
    await world.planner.remember("e", "apricot remembered")
    await world.index_sessions()
    found = {result["key"]: result for result in await search(world.planner, "apricot")}
    assert {key: result.get("memory_type") for key, result in found.items()} == {
        "a": "learned_knowledge",
        "b": "team_preferences",
        "c": "conversation_context",
        "d": "work_artifacts",
        "e": None,
    }
    assert found["c"]["workflow_id"] == "w1"


async def test_json_is_indexed_as_readable_text(world: World) -> None:
    limits = {"billing": {"calls": 30, "per": "minute"}, "owners": ["ada", {"name": "grace"}], "strict": True}
    await learn(world.planner, "limits", limits)
    assert await memory_index(world) == {
        "learned_knowledge/limits": [
            "billing:\n  calls: 30\n  per: minute\nowners:\n  - ada\n  -\n    name: grace\nstrict: true"
        ]
    }


async def test_a_long_value_is_found_by_its_parts_and_a_binary_one_by_its_key(world: World) -> None:
    long = "\n\n".join(f"Paragraph {number} is about topic{number}." for number in range(3_000))
    await learn(world.planner, "long", long)
    png = base64.b64encode(bytes(range(256))).decode()
    binary = {"key": "billing-diagram", "base64": png, "media_type": "image/png"}
    note = {"key": "note", "base64": base64.b64encode(b"a marmalade note").decode(), "media_type": "text/plain"}
    await push(world.planner, binary, note, if_version=1)
    found = await memory_index(world)
    assert len(found["learned_knowledge/long"]) > 10
    assert found["learned_knowledge/billing-diagram"] == ["billing-diagram"]
    result, *_ = await search(world.planner, "topic2345", top_k=1)
    assert "topic2345" in result["text"]
    assert [each["key"] for each in await search(world.planner, "marmalade")] == ["note"]


async def test_overwritten_and_removed_entries_are_not_found(world: World) -> None:
    await push(world.planner, knowledge_entry("a", "old apricot"), knowledge_entry("b", "bare apricot"), if_version=0)
    await world.index_sessions()
    await push(world.planner, knowledge_entry("a", "new apricot"), if_version=1, remove=[{"key": "b"}])
    # The index is outdated, the answer is not.
    assert await texts(world.planner, "apricot") == []
    assert await memory_index(world) == {"learned_knowledge/a": ["new apricot"]}
    assert await texts(world.planner, "apricot") == ["new apricot"]


async def test_entries_beyond_retention_leave_search_and_index(world: World) -> None:
    await push(world.planner, artifact("report", "apricot report"), knowledge_entry("k", "apricot kept"), if_version=0)
    await world.index_sessions()
    world.clock.advance(seconds=91 * 86_400)
    assert await texts(world.planner, "apricot") == ["apricot kept"]
    await pull(world.planner)
    assert await memory_index(world) == {"learned_knowledge/k": ["apricot kept"]}


async def test_an_entry_that_is_renewed_stays_found(world: World) -> None:
    await push(world.planner, artifact("report", "apricot report"), if_version=0)
    await world.index_sessions()
    await push(world.planner, artifact("report", "apricot report"), if_version=1)
    await world.index_sessions()
    assert await texts(world.planner, "apricot") == ["apricot report"]


async def test_the_index_follows_a_rollback(world: World) -> None:
    await learn(world.planner, "a", "apricot first")
    await learn(world.planner, "a", "apricot second")
    await learn(world.planner, "b", "apricot added")
    assert len(await memory_index(world)) == 2
    await world.admin.call("history.rollback", context_id="context:planner", target_version="1")
    assert await memory_index(world) == {"learned_knowledge/a": ["apricot first"]}
    assert await texts(world.planner, "apricot") == ["apricot first"]


async def test_the_index_follows_the_branch_that_the_agent_has_checked_out(world: World) -> None:
    planner = world.planner
    await push(planner, knowledge_entry("a", "apricot main"), knowledge_entry("b", "apricot both"), if_version=0)
    await planner.call("history.branch", context_id="context:planner", branch="try")
    await push(planner, knowledge_entry("a", "apricot branch"), if_version=1, branch="try")
    assert await memory_index(world) == {
        "learned_knowledge/a": ["apricot main"],
        "learned_knowledge/b": ["apricot both"],
    }
    await planner.call("history.switch", context_id="context:planner", branch="try")
    # Only what both branches share, until the index has followed.
    assert await texts(planner, "apricot") == ["apricot both"]
    await world.index_sessions()
    assert await texts(planner, "apricot") == ["apricot both", "apricot branch"]
    await planner.call("history.switch", context_id="context:planner", branch="main")
    await planner.call("history.merge", context_id="context:planner", from_context_id="context:planner@try")
    await world.index_sessions()
    assert await texts(planner, "apricot") == ["apricot both", "apricot branch"]


async def test_nothing_is_found_on_a_branch_that_was_deleted(world: World) -> None:
    planner = world.planner
    await learn(planner, "a", "apricot main")
    await planner.call("history.branch", context_id="context:planner", branch="try")
    await planner.call("history.switch", context_id="context:planner", branch="try")
    await planner.call("history.delete_branch", context_id="context:planner", branch="try")
    assert await memory_index(world) == {}
    assert await texts(planner, "apricot") == []
    with refused("BRANCH_NOT_FOUND"):
        await planner.call("context.read")
    await planner.call("history.switch", context_id="context:planner", branch="main")
    await world.index_sessions()
    assert await texts(planner, "apricot") == ["apricot main"]


async def test_a_redacted_entry_is_not_found(world: World) -> None:
    await learn(world.planner, "a", "apricot secret")
    await world.index_sessions()
    item_id = "context:planner:learned_knowledge/a/1.1"
    await world.planner.call("records.redact", item_id=item_id, state="removed", reason="wrong")
    assert await indexed_texts(world, "memory") == {}
    assert await texts(world.planner, "apricot") == []
    await world.index_sessions()
    assert await indexed_texts(world, "memory") == {}


async def test_copied_memory_is_found_by_its_new_owner(world: World) -> None:
    await learn(world.planner, "a", "apricot copied")
    await world.admin.call("context.copy", agent_id="analysis", from_agent_id="planner")
    await world.index_sessions()
    assert await texts(world.analysis, "apricot") == ["apricot copied"]


async def test_a_search_in_a_session_finds_persistent_memory(world: World) -> None:
    other = await world.planner.create_session("other")
    await other.remember("there", "apricot of another session", session_id="other")
    await world.planner.remember("here", "apricot of this session", session_id=SESSION)
    await learn(world.planner, "a", "apricot pushed")
    await world.index_sessions()
    found = await texts(world.planner, "apricot", session_id=SESSION)
    assert found == ["apricot of this session", "apricot pushed"]


async def test_a_ref_to_an_entry_resolves_to_its_passage(world: World) -> None:
    long = {"notes": [f"Paragraph {number} is about topic{number}." for number in range(900)]}
    await learn(world.planner, "long", long)
    await world.index_sessions()
    result, *_ = await search(world.planner, "topic345", top_k=1, explain=True)
    resolved = await world.planner.call("records.resolve", source_id=result["ref"])
    assert resolved["outcome"] == "exact", resolved
    assert resolved["text"] == result["text"]
    assert (await world.planner.call("records.resolve", source_id=result["ref"]))["text"] == result["text"]


async def test_pending_counts_pushes_of_memory_that_the_caller_may_read(world: World) -> None:
    await learn(world.planner, "a", FACT)
    found = await world.planner.call("search.query", query="x", sources=["memory"])
    assert found["pending"]["events"] == 1
    found = await world.analysis.call("search.query", query="x", sources=["memory"])
    assert "pending" not in found


async def test_members_find_the_memory_of_their_team_and_nobody_else(world: World) -> None:
    await create_team(world.admin, "research", "analysis", "review-2")
    tone = knowledge_entry("tone", "apricot tone", memory_type="team_preferences")
    await push(world.analysis, tone, owner="team:research", if_version=0)
    await world.index_sessions()
    for member in (world.analysis, world.review):
        (result,) = await search(member, "apricot")
        assert (result["owner"], result["memory_type"]) == ("team:research", "team_preferences")
    assert await search(world.planner, "apricot") == []
    assert await search(world.admin, "apricot") == []
    await remove_member(world.admin, "review-2")
    assert await search(world.review, "apricot") == []
    assert await texts(world.analysis, "apricot") == ["apricot tone"]
    await world.admin.call("team.delete", team="research", force=True)
    assert await search(world.analysis, "apricot") == []
    await world.index_sessions()
    assert await indexed_texts(world, "memory") == {}


async def test_a_member_on_a_branch_of_shared_memory_finds_what_it_reads(world: World) -> None:
    await create_team(world.admin, "research", "analysis", "review-2")
    shared = {"owner": "team:research"}
    await push(
        world.analysis,
        knowledge_entry("a", "apricot main"),
        knowledge_entry("b", "apricot both"),
        if_version=0,
        **shared,
    )
    await world.index_sessions()
    await world.analysis.call("history.branch", context_id="team:research", branch="try")
    await world.analysis.call("history.switch", context_id="team:research", branch="try")
    await push(world.analysis, knowledge_entry("a", "apricot branch"), if_version=1, **shared)
    await world.index_sessions()
    assert await texts(world.analysis, "apricot") == ["apricot both"]
    assert await texts(world.review, "apricot") == ["apricot both", "apricot main"]


async def test_agents_find_the_memory_of_the_user_they_serve(world: World) -> None:
    await world.admin.call("agent.create", agent_id="ada", kind="human")
    helper = await world.admin.create_agent("helper", parent_id="ada")
    await push(helper, knowledge_entry("food", "apricot jam"), owner="user:ada", if_version=0)
    await world.index_sessions()
    (result,) = await search(helper, "apricot")
    assert result["owner"] == "user:ada"
    assert await search(world.planner, "apricot") == []


async def test_existing_memory_is_indexed_after_an_upgrade_and_by_a_reindex(world: World) -> None:
    await push(
        world.planner, *(knowledge_entry(f"k{number}", f"apricot {number}") for number in range(70)), if_version=0
    )
    await learn(world.analysis, "a", "apricot of analysis")
    await world.index_sessions()
    complete = await indexed_texts(world, "memory")
    assert len(complete) == 71
    # As it was before persistent memory was indexed: the log has been read, and the push was deleted with its session.
    await world.sql("DELETE FROM chunks WHERE tenant = $1", world.tenant)
    await world.sql("DELETE FROM events WHERE tenant = $1 AND type = 'context.pushed'", world.tenant)
    (upgrade,) = [each.sql for each in known_migrations() if each.name == "0021_memory_search"]
    await world.sql(upgrade[upgrade.index("INSERT") :].rstrip(";\n"))
    await world.index_sessions()
    assert await indexed_texts(world, "memory") == complete
    numbers = await world.rows("SELECT number FROM chunks WHERE tenant = $1", world.tenant)
    await world.admin.call("knowledge.reindex_all")
    await world.index_sessions()
    assert await indexed_texts(world, "memory") == complete
    assert not {row[0] for row in numbers} & {
        row[0] for row in await world.rows("SELECT number FROM chunks WHERE tenant = $1", world.tenant)
    }
    assert (await world.admin.call("knowledge.show_reindexing"))["events"] is None


async def test_a_large_push_is_indexed_in_several_rounds(world: World) -> None:
    entries = [knowledge_entry(f"k{number}", "apricot " * 900 + str(number)) for number in range(100)]
    await push(world.planner, *entries, if_version=0)
    assert len(await memory_index(world)) == 100


async def test_a_value_that_cannot_be_fetched_holds_nothing_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await push(world.planner, artifact("lost", "apricot lost"), knowledge_entry("kept", "apricot kept"), if_version=0)

    async def unavailable(*_: Any) -> bytes:
        raise ObjectStorageUnavailable

    monkeypatch.setattr(world.app.session_indexing._objects, "fetch", unavailable)
    for _ in range(3):
        await world.index_sessions()
    assert await memory_index(world) == {"learned_knowledge/kept": ["apricot kept"]}


async def keys(agent: Caller, **options: Any) -> list[str]:
    found = await agent.call("search.query", query="billing calls a minute", low_confidence=True, **options)
    return sorted(result["key"] for result in found["results"])


async def test_a_prefix_limits_a_search_to_keys_of_memory_and_of_the_sessions_board(world: World) -> None:
    await learn(world.planner, "billing/limit", FACT)
    await learn(world.planner, "mail/limit", "The mail service rejects more than 90 calls a minute.")
    for key in ("billing/draft", "notes"):
        await world.planner.call("memory.set", key=key, value=f"Private: {FACT}")
        await world.planner.call("memory.set", key=f"{key}/here", value=f"Here: {FACT}", session_id=SESSION)
    for key in ("billing_rule", "other"):
        await world.planner.call("board.write", session_id=SESSION, key=key, value=f"Shared: {FACT}")
    await world.planner.call("message.add", session_id=SESSION, content=f"billing: {FACT}")
    await world.index_sessions()
    everywhere = ["billing/draft", "billing/draft/here", "billing/limit"]
    assert await keys(world.planner, prefix="billing") == everywhere
    assert await keys(world.planner, prefix="billing", session_id=SESSION) == [*everywhere, "billing_rule"]
    assert await keys(world.planner, prefix="billing", session_id=SESSION, sources=["board"]) == ["billing_rule"]
    assert await keys(world.planner, prefix="nothing") == []
    for only in ({"sources": ["board"]}, {"sources": ["document"]}, {"domains": ["handbook"]}):
        with refused("INVALID_INPUT_FORMAT"):
            await keys(world.planner, prefix="billing", **only)


async def test_an_owner_limits_a_search_to_one_memory(world: World) -> None:
    await create_team(world.admin, "research", "planner")
    await learn(world.planner, "own", FACT)
    await push(world.planner, knowledge_entry("shared", f"Team: {FACT}"), owner="team:research", if_version=0)
    await world.planner.call("memory.set", key="private", value=f"Private: {FACT}")
    await world.planner.call("board.write", session_id=SESSION, key="board", value=f"Shared: {FACT}")
    await world.index_sessions()
    assert await keys(world.planner, owner="planner") == ["own", "private"]
    assert await keys(world.planner, owner="team:research") == ["shared"]
    assert await keys(world.planner, owner="team:research", prefix="o") == []
    for owner, error in (("team:other", "TEAM_NOT_FOUND"), ("analysis", "AGENT_NOT_FOUND")):
        with refused(error):
            await keys(world.planner, owner=owner)


async def test_a_prefix_and_an_owner_hold_for_what_a_session_has_pulled(world: World) -> None:
    await learn(world.planner, "billing/limit", FACT)
    await learn(world.planner, "mail/limit", f"Mail: {FACT}")
    await pull(world.planner)
    await learn(world.planner, "billing/limit", f"Later: {FACT}")
    await learn(world.planner, "mail/limit", f"Later, mail: {FACT}")
    await world.index_sessions()
    inside = {"session_id": SESSION, "owner": "planner"}
    assert await texts(world.planner, "billing calls a minute", prefix="billing", **inside) == [FACT]
