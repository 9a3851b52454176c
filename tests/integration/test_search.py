"""Search over everything a caller may see: documents, messages, boards and its own memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from support.world import SESSION, refused
from weftline.indexing.collections import DECISION, DIRECT_PRIOR, FACT, PRIORS, SOURCES
from weftline.kernel.ports import approximate_tokens

if TYPE_CHECKING:
    from support.world import Caller, World
    from weftline.testing.clock import FrozenClock

pytestmark = [
    pytest.mark.req("CE-F11", part="ranking by meaning, words and recency; widening at low confidence"),
    pytest.mark.req("CE-F41"),
]

# Relevance alone.
RELEVANCE_ONLY = {"recency_weight": 0, "importance_weight": 0}
# The signals that the prior of a kind multiplies.
MATCH = {"lexical", "lexical_around", "semantic", "semantic_around", "speaker", "entities"}
HANDBOOK = """# Handbook

## Leave

Everyone has thirty days of vacation a year. Ask your lead two weeks before you go.

## Travel

Trains are booked by the office. Flights need the approval of a director.

## Passwords

A password has at least sixteen characters and is kept in the vault, never in a chat.
"""


async def search(caller: Caller, query: str, **how: Any) -> Any:
    return await caller.call("search.query", query=query, **how)


async def texts(caller: Caller, query: str, **how: Any) -> list[str]:
    return [result["text"] for result in (await search(caller, query, **how))["results"]]


async def get_context(caller: Caller, **what: Any) -> Any:
    return await caller.call("search.get_context", **what)


async def similar(caller: Caller, **what: Any) -> Any:
    return await caller.call("search.find_similar", **what)


async def add_domain_with_document(world: World, text: str = HANDBOOK, domain: str = "handbook", **about: Any) -> None:
    """Index a document in a new domain."""
    await world.admin.call("knowledge.create_domain", domain=domain, chunking={"chunk_tokens": 32, "overlap_tokens": 8})
    await put(world, text, domain, **about)


async def put(world: World, text: str, domain: str = "handbook", document_id: str = "rules.md", **about: Any) -> None:
    await world.admin.call("knowledge.add_document", domain=domain, document_id=document_id, text=text, **about)
    await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")


async def test_conclusions_count_more_than_what_they_were_drawn_from(world: World) -> None:
    await add_domain_with_document(world, "The price cache keeps prices.")
    await world.planner.write("findings", "The price cache keeps prices too short.")
    said = {
        "decision": {"content": "The price cache goes back to minutes.", "category": "DECISION"},
        "fact": {"content": "The price cache keeps three seconds.", "category": "FACT"},
        "to a reader": {"content": "Could you look at the price cache?", "recipient_id": "planner"},
        "to everyone": {"content": "Somebody mentioned the price cache."},
    }
    for message in said.values():
        await world.analysis.say(**message)
    await world.index_sessions()
    found = await search(world.planner, "price cache", explain=True, low_confidence=True)
    share = {
        result["text"]: result["signals"].get("kind", 0)
        / sum(value for name, value in result["signals"].items() if name in MATCH)
        for result in found["results"]
    }
    assert share["The price cache keeps prices."] == share[said["to everyone"]["content"]] == 0
    assert share["The price cache keeps prices too short."] == pytest.approx(SOURCES["board"].prior, abs=0.01)
    assert share[said["decision"]["content"]] == pytest.approx(PRIORS[DECISION], abs=0.01)
    assert share[said["fact"]["content"]] == pytest.approx(PRIORS[FACT], abs=0.01)
    assert share[said["to a reader"]["content"]] == pytest.approx(DIRECT_PRIOR, abs=0.01)


async def test_a_conclusion_is_found_by_the_question_of_its_session(world: World) -> None:
    await world.planner.call("session.create", session_id="orders", purpose="Find out why orders became slow")
    await world.planner.in_session("orders").write("findings", "The release cut the cache from 300 s to 3 s.")
    await add_domain_with_document(world, "The order form has three pages. Orders are printed at noon.")
    await world.index_sessions()
    found = await search(world.planner, "why are orders slow")
    assert (found["results"][0]["source"], found["results"][0]["key"]) == ("board", "findings")


async def test_the_keys_of_a_board_support_each_other_within_what_the_reader_sees(world: World) -> None:
    await world.planner.write("problem", "Parcels reach the wrong chute.")
    await world.planner.write("cause", "Forty rows are missing since Monday.")
    await world.planner.write("suspicion", "Ann mixed up parcels and chutes.", readable_by=["principal:planner"])
    await world.index_sessions()

    async def support(caller: Caller) -> float:
        found = await search(
            caller, "parcels in the wrong chute", session_id=SESSION, explain=True, low_confidence=True
        )
        (signals,) = (each["signals"] for each in found["results"] if each.get("key") == "cause")
        assert signals["lexical"] == 0
        return signals["lexical_around"]

    before = await support(world.analysis)
    assert before > 0
    await world.planner.delete("suspicion")
    await world.index_sessions()
    assert await support(world.analysis) == before


async def test_one_search_covers_all_readable_sources(world: World) -> None:
    await add_domain_with_document(world)
    await world.planner.say("The password of the vault is rotated in May.")
    await world.planner.write("decision", "Passwords expire after ninety days.")
    await world.planner.remember("note", "Ask Dana which password manager is allowed.")
    await world.index_sessions()
    found = await search(world.planner, "password rules", low_confidence=True)
    assert {result["source"] for result in found["results"]} == {"document", "message", "board", "memory"}
    by_source = {result["source"]: result for result in found["results"]}
    assert by_source["document"]["document_id"] == "rules.md"
    assert by_source["document"]["domain"] == "handbook"
    assert (by_source["message"]["session_id"], by_source["message"]["message_id"]) == (SESSION, 1)
    assert by_source["message"]["speaker"] == "planner"
    assert (by_source["board"]["session_id"], by_source["board"]["key"]) == (SESSION, "decision")
    assert by_source["memory"]["key"] == "note"


@pytest.mark.req("CE-F12", part="scores from similarity, recency and importance")
async def test_every_result_explains_its_score(world: World) -> None:
    await add_domain_with_document(world)
    found = await search(world.planner, "How many days of vacation do I have?", explain=True)
    best = found["results"][0]
    assert "thirty days of vacation" in best["text"]
    assert 0 < best["score"] <= 1
    assert {"lexical", "semantic", "recency", "importance"} <= best["signals"].keys()
    assert found["model"]
    assert found["searched"] > 1


@pytest.mark.req("WX-06")
async def test_an_answer_without_explanation_has_nothing_but_results_and_confidence(world: World) -> None:
    await add_domain_with_document(world)
    await world.planner.say("Vacation is thirty days.")
    await world.index_sessions()
    found = await search(world.planner, "How many days of vacation do I have?")
    assert found.keys() == {"results", "confidence"}
    by_source = {result["source"]: result.keys() for result in found["results"]}
    common = {"source", "timestamp", "ref", "score", "text"}
    assert by_source == {
        "document": common | {"domain", "document_id", "title", "heading"},
        "message": common | {"session_id", "message_id", "speaker"},
    }


async def test_a_query_matches_by_meaning_without_common_words(world: World) -> None:
    await add_domain_with_document(world)
    found = await search(world.planner, "holiday entitlement", low_confidence=True, explain=True)
    best = found["results"][0]
    assert "vacation" in best["text"]
    assert best["signals"]["semantic"] > 0


async def test_a_result_refers_to_the_exact_passage(world: World) -> None:
    await add_domain_with_document(world)
    best = (await search(world.planner, "thirty days of vacation", explain=True))["results"][0]
    place = best["source_ref"]["selector"]
    read = await world.planner.call(
        "knowledge.read_document", domain="handbook", document_id="rules.md", start=place["start"], end=place["end"]
    )
    assert read["text"] == best["text"]


@pytest.mark.parametrize("source", ["document", "message", "board", "memory"])
async def test_a_reference_resolves_to_the_found_text(world: World, source: str) -> None:
    text = "The vault is in Zurich; ask Dana before you open it."
    await add_domain_with_document(world, text)
    await world.planner.say(text)
    await world.planner.write("vault", text)
    await world.planner.remember("vault", text)
    await world.index_sessions()
    best = (await search(world.planner, "vault in Zurich", sources=[source], explain=True))["results"][0]
    for named in ({"source_ref": best["source_ref"]}, {"source_id": best["ref"]}):
        resolved = await world.planner.call("records.resolve", **named)
        assert (resolved["outcome"], resolved["text"]) == ("exact", best["text"])
    shown = await world.planner.call("records.show", record_id=best["ref"])
    assert (shown["type"], shown["id"], shown["content"]) == ("context_source_ref", best["ref"], best["text"])
    assert shown["record"] == best["source_ref"]


async def test_a_handle_opens_only_what_the_caller_may_read(world: World) -> None:
    await world.planner.remember("falcon", "The falcon is remembered.")
    other = await world.planner.create_session("other")
    await other.say("The falcon is elsewhere.")
    await world.index_sessions()
    found = (await search(world.planner, "falcon", low_confidence=True))["results"]
    mine, elsewhere = (next(r["ref"] for r in found if r["source"] == source) for source in ("memory", "message"))
    for ref in (mine, "memory/999999", "domain:none/1", "memory/x", "memory/\uff11", "memory/01"):
        for call in ({"record_id": ref}, {"source_id": ref}):
            with refused("RECORD_NOT_FOUND"):
                await world.analysis.call("records.show" if "record_id" in call else "records.resolve", **call)
    assert (await world.planner.call("records.show", record_id=elsewhere))["content"] == "The falcon is elsewhere."
    with refused("RECORD_NOT_FOUND"):
        await world.planner.call("records.show", record_id=elsewhere, session_id=SESSION)


@pytest.mark.req("WX-06")
@pytest.mark.req("CE-E", part="a search without results")
async def test_a_search_without_relevant_results_says_so_and_is_logged(world: World, clock: FrozenClock) -> None:
    await world.planner.say("The first message.")
    clock.advance(seconds=60)
    await world.planner.say("The latest message.")
    await world.index_sessions()
    found = await search(world.planner, "xylophone quartz", min_score=1.0, **RELEVANCE_ONLY)
    assert (found["results"], found["unsure"]) == ([], True)
    assert found["hint"] == "Perhaps not answered here: try other words, or low_confidence: true."
    events = [event for event in (await world.planner.events())["events"] if event["type"] == "search.low_relevance"]
    assert len(events) == 1
    assert "xylophone" not in str(events[0])
    context = await get_context(world.planner, query="xylophone quartz", min_score=1.0, **RELEVANCE_ONLY)
    assert (context["unsure"], context["context"], context["citations"]) == (True, "", [])
    other = await world.admin.create_agent("other", agent_type="planning")
    assert not [e for e in (await other.events())["events"] if e["type"] == "search.low_relevance"]
    assert [e for e in (await world.admin.events())["events"] if e["type"] == "search.low_relevance"]


async def test_an_empty_index_returns_no_results(world: World) -> None:
    found = await search(world.planner, "anything at all", explain=True)
    assert (found["results"], found["searched"], found["unsure"], found["confidence"]) == ([], 0, True, 0.0)


@pytest.mark.req("CE-F12", part="pinned chunks come with every result")
async def test_pinned_items_come_with_every_answer(world: World) -> None:
    await add_domain_with_document(world, "Never call customers after eight.", pinned=True)
    for number in range(5):
        await world.planner.say(f"The train number {number} leaves at noon.")
    await world.index_sessions()
    for query in ("when does the train leave?", "may I call a customer?", "zzz"):
        found = await search(world.planner, query, top_k=2)
        assert [each["text"] for each in found["pinned"]] == ["Never call customers after eight."]
        assert len(found["results"]) <= 2
        assert not any("customers" in each["text"] for each in found["results"])


@pytest.mark.req("CE-F12", part="pinned chunks come with every result")
async def test_pinned_messages_are_only_in_searches_of_their_session(world: World) -> None:
    await add_domain_with_document(world, "Vacation is thirty days a year. Ask your lead two weeks before.")
    low = await world.admin.create_agent("low", agent_type="x", clearance=1)
    lure = await low.create_session("lure", members=["*"])
    for number in range(20):
        await lure.say(f"Number {number}: " + "lorem ipsum dolor " * 20, metadata={"pinned": True})
    await world.index_sessions()
    for caller in (world.planner, world.admin):
        found = await search(caller, "how many vacation days", top_k=1)
        assert "pinned" not in found
        context = await caller.call("search.get_context", query="how many vacation days", max_tokens=600)
        assert context["context"].startswith("[1] handbook")
    named = await search(world.planner, "how many vacation days", session_id="lure")
    assert {result["message_id"] for result in named["pinned"]} == set(range(1, 21))


@pytest.mark.req("CE-F12", part="pinned chunks come with every result")
async def test_all_pinned_items_are_in_a_context_or_it_is_refused(world: World) -> None:
    await add_domain_with_document(world, "Vacation is thirty days a year. Ask your lead two weeks before.")
    for number in range(10):
        await world.planner.say(f"Number {number}: " + "lorem ipsum dolor " * 20, metadata={"pinned": True})
    await world.index_sessions()
    asked = {"query": "how many vacation days", "session_id": SESSION}
    context = (await world.planner.call("search.get_context", **asked, max_tokens=2_500))["context"]
    assert "Vacation is thirty days" in context
    assert all(f"Number {number}:" in context for number in range(10))
    with refused("CONTEXT_OVER_BUDGET") as caught:
        await world.planner.call("search.get_context", **asked, max_tokens=600)
    assert caught.value.context["needed_tokens"] > 600
    assert set(caught.value.context["pins"]) == {f"message:{SESSION}/{number}" for number in range(1, 11)}


@pytest.mark.req("CE-F12", part="pinned chunks come with every result")
@pytest.mark.req("CE-T", part="all limits of what exists")
async def test_pins_come_in_addition_to_the_results_of_the_plan(world: World) -> None:
    await add_domain_with_document(world, "Where the canteen is.")
    rules = [
        {"document_id": f"rule{each}", "text": f"Rule {each} is about falcon{each}.", "pinned": True}
        for each in range(30)
    ]
    others = [{"document_id": f"note{each}", "text": f"Note {each} is about a falcon."} for each in range(8)]
    await world.admin.call("knowledge.add_documents", domain="handbook", documents=[*rules, *others])
    await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    found = await search(world.planner, "falcon29", top_k=1)
    assert found["pinned"][0]["document_id"] == "rule29"
    assert (len(found["pinned"]), len(found["results"]) <= 1) == (30, True)
    await world.app.tenants.set_plan(world.tenant, "free")
    found = await search(world.planner, "note about a falcon", low_confidence=True)
    assert (len(found["pinned"]), len(found["results"])) == (30, 5)


@pytest.mark.parametrize(
    ("filters", "sources"),
    [
        ({"domain": "handbook"}, {"document"}),
        ({"domains": ["handbook"]}, {"document"}),
        ({"session_id": SESSION}, {"document", "message", "board", "memory"}),
        ({"session_id": SESSION, "domain": "handbook"}, {"document"}),
        ({"domain": "handbook", "sources": ["document", "board"]}, {"document", "board"}),
        ({"sources": ["board"]}, {"board"}),
        ({"sources": ["message", "memory"]}, {"message", "memory"}),
        ({"metadata": {"team": "blue"}}, {"document"}),
        ({"metadata": {"team": "red"}}, set()),
        ({"types": ["text/markdown"]}, {"document"}),
        ({"types": ["application/pdf"]}, set()),
        ({"until": "2000-01-01"}, set()),
    ],
)
async def test_filters_limit_the_sources(world: World, filters: dict[str, Any], sources: set[str]) -> None:
    await add_domain_with_document(world, metadata={"team": "blue"}, media_type="text/markdown")
    await world.planner.say("A password is never read aloud.")
    await world.planner.write("secrets", "Every password is in the vault.")
    await world.planner.remember("secrets", "My password hint is a song.")
    await world.index_sessions()
    found = (await search(world.planner, "password", low_confidence=True, **filters))["results"]
    assert {result["source"] for result in found} == sources


async def test_a_session_filter_excludes_other_sessions(world: World) -> None:
    other = await world.planner.create_session("other")
    for where in (world.planner, other):
        await where.say(f"The falcon sits in {where.session}.")
        await where.write("falcon", f"The falcon is written down in {where.session}.")
        await where.remember("falcon", f"The falcon is remembered in {where.session}.", session_id=where.session)
    await world.planner.remember("falcon", "The falcon is remembered for good.")
    await world.index_sessions()
    everything = await search(world.planner, "falcon", low_confidence=True)
    assert len(everything["results"]) == 7
    in_session = await search(world.planner, "falcon", low_confidence=True, session_id=SESSION)
    assert len(in_session["results"]) == 4
    assert [each.get("session_id") for each in in_session["results"] if each["source"] != "memory"] == [None] * 2
    explained = await search(world.planner, "falcon", low_confidence=True, session_id=SESSION, explain=True)
    assert {each.get("session_id") for each in explained["results"]} == {SESSION, None}
    assert "other" not in str(in_session)
    hidden = next(result for result in everything["results"] if result.get("session_id") == "other")
    with refused("CHUNK_NOT_FOUND"):
        await get_context(world.planner, ref=hidden["ref"], session_id=SESSION)


async def test_a_time_range_limits_the_results(world: World, clock: FrozenClock) -> None:
    await world.planner.say("The release is in May.")
    clock.advance(days=3)
    between = clock.now().isoformat()
    clock.advance(days=3)
    await world.planner.say("The release is in June.")
    await world.index_sessions()
    assert await texts(world.planner, "release", since=between, low_confidence=True) == ["The release is in June."]
    assert await texts(world.planner, "release", until=between, low_confidence=True) == ["The release is in May."]


@pytest.mark.req("CE-F40")
async def test_a_domain_needs_clearance_and_membership(world: World) -> None:
    await world.admin.call("knowledge.create_domain", domain="board-room", clearance=3)
    await world.admin.call("knowledge.create_domain", domain="for-review", agents=["subagent:review:*"])
    await put(world, "The merger is called Falcon.", "board-room")
    await put(world, "The merger is reviewed by Falconers.", "for-review")
    assert await texts(world.planner, "merger", low_confidence=True) == ["The merger is called Falcon."]
    assert await texts(world.review, "merger", low_confidence=True) == ["The merger is reviewed by Falconers."]
    assert await texts(world.analysis, "merger", low_confidence=True) == []
    for domain in ("board-room", "no-such-domain"):
        with refused("DOMAIN_NOT_FOUND") as caught:
            await search(world.analysis, "merger", domain=domain)
        assert caught.value.message == f"There is no domain '{domain}'."


async def test_revoked_access_takes_effect_at_once(world: World) -> None:
    await add_domain_with_document(world)
    assert await texts(world.analysis, "vacation")
    await world.admin.call("knowledge.update_domain", domain="handbook", clearance=5)
    assert await texts(world.analysis, "vacation") == []


async def test_deleted_and_overwritten_items_are_not_found_before_indexing(world: World) -> None:
    await add_domain_with_document(world, "The old rule is tea.")
    await world.planner.write("drink", "We drink tea.")
    await world.planner.remember("drink", "I like tea.")
    await world.index_sessions()
    assert len(await texts(world.planner, "tea", low_confidence=True)) == 3
    await world.planner.write("drink", "We drink coffee.")
    await world.planner.forget("drink")
    await world.admin.call("knowledge.delete_document", domain="handbook", document_id="rules.md")
    assert await texts(world.planner, "tea", low_confidence=True) == []
    await world.index_sessions()
    assert await texts(world.planner, "coffee", low_confidence=True) == ["We drink coffee."]


async def test_deleted_results_are_replaced_by_the_next_best(world: World) -> None:
    for number in range(6):
        await world.planner.write(f"key{number}", f"Tea is served at {number} o'clock.")
    await world.index_sessions()
    for number in range(3):
        await world.planner.delete(f"key{number}")
    assert len(await texts(world.planner, "when is tea served", top_k=3, low_confidence=True)) == 3


async def test_when_all_relevant_items_are_deleted_nothing_is_found(world: World) -> None:
    await world.planner.write("drink", "We drink tea in the garden.")
    await world.planner.say("The train leaves at noon.")
    await world.index_sessions()
    await world.planner.delete("drink")
    found = await search(world.planner, "drink tea in the garden", min_score=1.0, top_k=1, **RELEVANCE_ONLY)
    assert (found["unsure"], found["results"]) == (True, [])


@pytest.mark.req("CE-O", part="tunable similarity threshold")
async def test_min_score_of_a_call_overrides_that_of_its_agent_and_the_default(world: World) -> None:
    await world.planner.write("drink", "We drink tea in the garden.")
    await world.index_sessions()

    async def min_score(**how: Any) -> float:
        found = await search(world.planner, "Where do we drink tea?", explain=True, **how)
        assert all(result["score"] >= found["min_score"] for result in found["results"])
        return float(found["min_score"])

    assert await min_score() == pytest.approx(0.7)
    updated = await world.admin.call("agent.update", agent_id="planner", min_score=0.0)
    assert (updated["min_score"], await min_score(), await min_score(min_score=0.2)) == (0.0, 0.0, 0.2)
    kept = await world.admin.call("agent.update", agent_id="planner", clearance=2)
    assert kept["min_score"] == 0.0
    born = await world.admin.call("agent.create", agent_id="strict", min_score=1.0)
    assert born["min_score"] == 1.0
    with refused("SELF_MODIFICATION"):
        await world.planner.call("agent.update", agent_id="planner", min_score=1.0)


@pytest.mark.req("CE-O", part="tunable similarity threshold")
async def test_min_score_of_an_agent_applies_to_search_and_get_context(world: World) -> None:
    await world.planner.write("drink", "We drink tea in the garden.")
    await world.planner.say("The train leaves at noon.")
    await world.index_sessions()
    question = "We drink tea in the garden at noon, or not?"
    found = await texts(world.planner, question, **RELEVANCE_ONLY)
    await world.admin.call("agent.update", agent_id="planner", min_score=1.0)
    strict = await search(world.planner, question, **RELEVANCE_ONLY)
    assert (found[0], strict["unsure"], strict["results"]) == ("We drink tea in the garden.", True, [])
    assert (await get_context(world.planner, query=question, **RELEVANCE_ONLY))["context"] == ""


async def test_filters_use_the_old_version_until_the_new_one_is_indexed(world: World) -> None:
    async def found(**filters: Any) -> list[tuple[str, str]]:
        results = (await search(world.planner, "gate", domain="handbook", low_confidence=True, **filters))["results"]
        return [(result["title"], result["text"]) for result in results]

    old, new = ("First", "The gate is at the north."), ("Second", "<p>The gate is at the south.</p>")
    await add_domain_with_document(world, old[1], title=old[0], metadata={"status": "internal"})
    await world.admin.call(
        "knowledge.add_document",
        domain="handbook",
        document_id="rules.md",
        text=new[1],
        title=new[0],
        media_type="text/html",
        metadata={"status": "public"},
    )
    assert await found() == await found(metadata={"status": "internal"}) == [old]
    assert await found(types=["text/markdown"]) == [old]
    assert await found(metadata={"status": "public"}) == await found(types=["text/html"]) == []
    read = await world.planner.call("knowledge.read_document", domain="handbook", document_id="rules.md")
    assert (read["title"], read["media_type"], read["text"]) == (old[0], "text/markdown", old[1])
    # Readers see no text of a version that has not been checked yet, not even its title.
    for caller, title in ((world.planner, old[0]), (world.admin, new[0])):
        shown = await caller.call("knowledge.get_document", domain="handbook", document_id="rules.md")
        assert (shown["title"], shown["media_type"]) == (title, "text/html")
    await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    assert await found(metadata={"status": "public"}) == await found(types=["text/html"])
    assert [title for title, _ in await found()] == [new[0]]
    assert await found(metadata={"status": "internal"}) == await found(types=["text/markdown"]) == []


async def test_the_old_version_is_found_until_the_new_one_is_indexed(world: World) -> None:
    await add_domain_with_document(world, "The gate is at the north.")
    await world.admin.call(
        "knowledge.add_document", domain="handbook", document_id="rules.md", text="The gate is at the south."
    )
    found = await search(world.planner, "gate", low_confidence=True)
    assert ([r["text"] for r in found["results"]], found["pending"]) == (
        ["The gate is at the north."],
        {"documents": 1},
    )
    await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    assert await texts(world.planner, "gate", low_confidence=True) == ["The gate is at the south."]


async def test_messages_are_found_by_their_audience_only(world: World) -> None:
    await world.planner.say("Only I know that the falcon flies.", visibility="private")
    await world.review.say("Reviewers know that the falcon rests.", visibility="agent_only")
    await world.index_sessions()
    assert await texts(world.planner, "falcon", low_confidence=True) == ["Only I know that the falcon flies."]
    assert await texts(world.review, "falcon", session_id=SESSION, low_confidence=True) == [
        "Reviewers know that the falcon rests."
    ]
    assert await texts(world.analysis, "falcon", session_id=SESSION, low_confidence=True) == []
    await world.admin.call("message.set_visibility", session_id=SESSION, message_id=1, visibility="public")
    await world.index_sessions()
    assert await texts(world.analysis, "falcon", session_id=SESSION, low_confidence=True) == [
        "Only I know that the falcon flies."
    ]


async def test_sessions_boards_and_memories_of_others_are_not_searched(world: World) -> None:
    closed = await world.planner.create_session("closed", members=["orchestrator"])
    await closed.say("The falcon is in the closed session.")
    await world.planner.write("falcon", "The falcon is on a closed key.", readable_by=["orchestrator"])
    await world.planner.remember("falcon", "The falcon is remembered.")
    await world.index_sessions()
    assert len(await texts(world.planner, "falcon", low_confidence=True)) == 3
    found = await search(world.analysis, "falcon", low_confidence=True, explain=True)
    assert (found["results"], found["searched"]) == ([], 0)
    with refused("SESSION_NOT_FOUND"):
        await search(world.analysis, "falcon", session_id="closed")


async def test_redacted_items_are_not_found_by_their_text(world: World) -> None:
    await world.planner.write("pin", "The pin of the safe is 4711.")
    number = await world.planner.say("The pin of the door is 0815.")
    await world.index_sessions()
    assert len(await texts(world.planner, "pin", low_confidence=True)) == 2
    for item in (f"board:{SESSION}/pin/1.1", f"message:{SESSION}/{number}"):
        await world.planner.call("records.redact", item_id=item, state="removed", reason="a secret")
    assert await texts(world.planner, "pin", low_confidence=True) == []


@pytest.mark.req("CE-T", part="all limits of what exists")
async def test_the_plan_limits_the_number_of_results(world: World) -> None:
    for number in range(12):
        await world.planner.write(f"key{number}", f"Tea is served at {number} o'clock.")
    await world.index_sessions()
    assert len(await texts(world.planner, "tea", low_confidence=True, top_k=12)) == 12
    await world.app.tenants.set_plan(world.tenant, "free")
    assert len(await texts(world.planner, "tea", low_confidence=True, top_k=12)) == 5


async def test_context_is_one_text_with_citations_within_the_token_limit(world: World) -> None:
    await add_domain_with_document(world)
    answer = await get_context(world.planner, query="How many days of vacation do I have?", max_tokens=160)
    assert "thirty days of vacation" in answer["context"]
    assert answer["tokens"] <= 160
    assert answer["context"].startswith("[1] handbook > Handbook")
    first = answer["citations"][0]
    assert first == {"number": 1, "ref": first["ref"]}
    assert (await world.planner.call("records.show", record_id=first["ref"]))["content"] in answer["context"]
    explained = await get_context(world.planner, query="How many days of vacation do I have?", explain=True)
    first = explained["citations"][0]
    assert first["label"].startswith("handbook > Handbook")
    assert first["source_refs"][0]["uri"] == "knowledge://handbook/rules.md?version=1"
    assert 0 < first["score"] <= 1


async def test_a_message_is_shown_with_its_neighbours(world: World) -> None:
    for text in ("Where do we meet?", "In the tower at noon.", "Who brings the falcon?", "Dana does.", "Good."):
        await world.planner.say(text)
    await world.review.say("Only for reviewers.", visibility="agent_only")
    await world.index_sessions()
    answer = await get_context(world.planner, query="Who brings the falcon?", min_score=0.9, explain=True)
    assert "planner: Who brings the falcon?\nplanner: Dana does." in answer["context"]
    assert "Only for reviewers" not in answer["context"]
    uris = [each["uri"] for each in answer["citations"][0]["source_refs"]]
    assert uris == [f"message:{SESSION}/{number}" for number in range(1, 6)]


async def test_the_neighbours_of_a_chunk_can_be_requested(world: World) -> None:
    await add_domain_with_document(world)
    best = (await search(world.planner, "flights need approval"))["results"][0]
    around = await get_context(world.planner, ref=best["ref"], max_tokens=1000)
    assert "thirty days of vacation" in around["context"]
    assert "sixteen characters" in around["context"]
    assert "complete" not in around


@pytest.mark.req("WX-06")
@pytest.mark.parametrize("tokens", [128, 129, 150, 256, 333, 1000])
@pytest.mark.parametrize("how", [{}, {"explain": True}, {"record": True, "session_id": SESSION}], ids=str)
async def test_an_answer_never_exceeds_max_tokens(world: World, tokens: int, how: dict[str, Any]) -> None:
    await add_domain_with_document(world, HANDBOOK + "word " * 500)
    await world.planner.say("Vacation is for everyone. " * 50)
    for number in range(20):
        await world.planner.say(f'Line {number}: "quotes"\nand breaks, about vacation.')
    await world.index_sessions()
    for query in ("vacation", "word", "nothing of the kind"):
        answer = await get_context(world.planner, query=query, max_tokens=tokens, min_score=0.0, **how)
        assert approximate_tokens(msgspec.json.encode(answer).decode()) <= answer["tokens"] <= tokens
        assert answer["context"] or how or query == "nothing of the kind"


async def test_similar_chunks_exclude_the_chunk_itself(world: World) -> None:
    await world.planner.write("cat", "A cat sleeps on the sofa.")
    await world.planner.write("kitten", "A kitten naps on the couch.")
    await world.planner.write("tax", "Income tax is due in April.")
    await world.index_sessions()
    cat = next(
        r for r in (await search(world.planner, "cat sofa", low_confidence=True))["results"] if r["key"] == "cat"
    )
    alike = await similar(world.planner, ref=cat["ref"])
    assert [result["key"] for result in alike["results"]] == ["kitten", "tax"]
    by_text = await similar(world.planner, text="A cat sleeps on the sofa.", top_k=1)
    assert by_text["results"][0]["key"] == "cat"


async def test_an_unreadable_chunk_is_not_found(world: World) -> None:
    await world.planner.remember("falcon", "The falcon is remembered.")
    await world.index_sessions()
    mine = (await search(world.planner, "falcon"))["results"][0]["ref"]
    for ref in (mine, "memory/999999", "domain:none/1"):
        with refused("CHUNK_NOT_FOUND"):
            await similar(world.analysis, ref=ref)
        with refused("CHUNK_NOT_FOUND"):
            await get_context(world.analysis, ref=ref)
    for ref in ("nonsense", "memory/-1", "memory/\uff11"):
        with refused("INVALID_INPUT_FORMAT"):
            await similar(world.analysis, ref=ref)


async def test_a_search_can_be_recorded(world: World) -> None:
    await world.planner.write("goal", "Ship on Friday.")
    await world.index_sessions()
    found = await search(world.planner, "when do we ship", record=True, session_id=SESSION)
    shown = await world.planner.call(
        "records.show", record_id=found["selection_id"], type="context_selection", session_id=SESSION
    )
    assert shown["record"]["selected_item_refs"] == [f"board:{SESSION}/goal/1.1"]
    with refused("RECORD_NOT_FOUND"):
        await world.analysis.call("records.show", record_id=found["selection_id"], type="context_selection")


async def test_empty_and_oversized_queries_are_refused(world: World) -> None:
    for call, wrong in (
        ("search.query", {"query": "   "}),
        ("search.query", {"query": "x", "domain": "a", "domains": ["b"]}),
        ("search.query", {"query": "x", "since": "2026-01-02", "until": "2026-01-01"}),
        ("search.get_context", {}),
        ("search.get_context", {"query": "x", "ref": "sessions/1"}),
        ("search.find_similar", {}),
        ("search.find_similar", {"text": "x", "ref": "sessions/1"}),
    ):
        with refused("INVALID_INPUT_FORMAT"):
            await world.planner.call(call, **wrong)
