"""Hidden content does not change a single byte of a search response.

Two tenants have the same agent with the same content. In one of them there is nothing else. In the other, a second
agent has nearly the same content in private, and so has a third tenant. Each query is sent to both: results, scores,
counts, confidence and errors must be equal.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.database_choice import KINDS
from support.databases import new_postgres_database
from support.full_run import examples
from support.world import Caller, World
from weftline.app.dispatch import CallContext
from weftline.indexing.sql import CollectionStore
from weftline.kernel.errors import WeftlineError
from weftline.settings import Settings
from weftline.storage.sql.database import Scope
from weftline.testing.clock import FrozenClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [
    pytest.mark.both_databases,
    pytest.mark.req("CE-F42"),
    pytest.mark.req("CE-F40"),
    pytest.mark.req("CE-E", part="cross-tenant queries"),
    pytest.mark.req("CE-F2"),
]

OWN = (
    "The falcon project ships on Friday from the harbour.",
    "Dana signs the contract with the shipping company in Oslo.",
    "Every invoice above five thousand needs two signatures.",
    "The database of the falcon project is PostgreSQL.",
)
MARK = "zanzibar"
HIDDEN = tuple(f"{text[:-1]} {MARK}." for text in OWN)
STEMS = (
    "falcon project",
    "who signs the contract?",
    "invoice signatures",
    MARK,
    f"falcon {MARK}",
    "database",
    "harbour",
)
SYNTAX = (
    "' OR 1=1 --",
    '" OR "a"="a',
    "falcon' UNION SELECT text FROM chunks --",
    "falcon AND NOT project OR NEAR(zanzibar harbour)",
    "falcon*",
    "{tenant} $1 %s ?",
    "tenant:other domain:vault falcon",
    "zanzibar:* & !falcon | <->",
    '{"match_all": {}}',
    "\\x00 %00 \u0000",
)
NAMES = st.sampled_from(["open", "vault", "theirs", "nowhere"])
SESSIONS = st.sampled_from(["shared", "closed", "theirs", "nowhere"])
FILTERS = st.fixed_dictionaries(
    {},
    optional={
        "domain": NAMES,
        "session_id": SESSIONS,
        "sources": st.lists(
            st.sampled_from(["document", "message", "board", "memory"]), min_size=1, max_size=4, unique=True
        ),
        "metadata": st.sampled_from([{"team": "blue"}, {"team": "hidden"}, {"secret": True}]),
        "types": st.sampled_from([["text/plain"], ["text/markdown"], ["application/x-zanzibar"]]),
        "since": st.sampled_from(["2000-01-01", "2099-01-01"]),
        "until": st.sampled_from(["2000-01-01", "2099-01-01"]),
        "entities": st.sampled_from([["dana"], ["person:"], ["person:dana", "falcon"], [MARK], [f"file:{MARK}"]]),
    },
)
ENTITIES = st.fixed_dictionaries(
    {},
    optional={
        "domain": NAMES,
        "session_id": SESSIONS,
        "type": st.sampled_from(["person", "agent", "project"]),
        "query": st.sampled_from(["dana", "an", MARK]),
        "limit": st.sampled_from([1, 50]),
    },
)
QUERIES = st.one_of(st.sampled_from([*OWN, *HIDDEN, *STEMS, *SYNTAX]), st.text(min_size=1, max_size=60))
WEIGHTS = st.fixed_dictionaries({}, optional={"min_score": st.sampled_from([0.0, 0.3, 0.7, 1.0])})
TOP = st.sampled_from([1, 3, 10, 100])


@dataclass(slots=True)
class Sides:
    """The same agent in two tenants, one with hidden content of others; ``chunk_ids`` of every tenant."""

    alone: Caller
    with_hidden: Caller
    stranger: Caller
    chunk_ids: list[str] = field(default_factory=list)


async def add_texts(caller: Caller, session: str, texts: tuple[str, ...], **options: Any) -> None:
    """Add texts as messages, board entries and memory."""
    in_session = caller.in_session(session)
    for number, text in enumerate(texts):
        await in_session.say(text, **options)
        reader = {"readable_by": ["human:nobody", "principal:other"]} if options else {}
        await in_session.write(f"key_{secrets.token_hex(4) if options else number}", text, **reader)
        await in_session.remember(f"memory_{number}", text)


async def document(admin: Caller, domain: str, texts: tuple[str, ...], **about: Any) -> None:
    """Index texts one by one, so that their chunks get the same numbers in every tenant."""
    for number, text in enumerate(texts):
        await admin.call("knowledge.add_document", domain=domain, document_id=f"{number}.md", text=text, **about)
        await admin.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")


async def index_all(world: World) -> None:
    await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    await world.index_sessions()


async def tenant_with_agent(world: World, name: str) -> tuple[Caller, Caller]:
    """Return the admin and an agent of a new tenant with the standard content."""
    made = await world.app.tenants.create(f"{name}{secrets.token_hex(4)}")
    admin = Caller(world.app, made.admin_key)
    agent = await admin.create_agent("agent", agent_type="planning", clearance=2)
    await admin.create_agent("other", agent_type="other", clearance=4)
    await agent.create_session("shared", members=["*"])
    await admin.call("knowledge.create_domain", domain="open")
    await document(admin, "open", OWN, metadata={"team": "blue"})
    await index_all(world)
    await add_texts(agent, "shared", OWN)
    await index_all(world)
    return admin, agent


async def add_hidden_content(world: World, admin: Caller) -> None:
    """Add hidden, nearly equal content of another agent."""
    answer = await admin.call("key.create", agent_id="other")
    other = admin.with_credential(answer["api_key"])
    await other.create_session("closed", members=["principal:other"])
    await admin.call("knowledge.create_domain", domain="vault", clearance=4)
    await document(admin, "vault", HIDDEN, metadata={"team": "hidden", "secret": True}, pinned=True)
    await add_texts(other, "shared", HIDDEN, visibility="private")
    await add_texts(other, "closed", HIDDEN)
    await index_all(world)


async def fill_other_tenant(world: World) -> None:
    """Add nearly equal content to another tenant, under the same and other names."""
    for domain in ("open", "theirs"):
        await world.stranger.call("knowledge.create_domain", domain=domain)
        await document(world.stranger, domain, HIDDEN, metadata={"team": "blue"}, pinned=True)
    for session in ("shared", "theirs"):
        await world.stranger.create_session(session)
        await add_texts(world.stranger, session, HIDDEN)
    await index_all(world)


async def all_chunk_ids(world: World, tenant_of: Caller) -> list[str]:
    tenant = (await world.app.identify(CallContext(tenant_of.credential))).tenant

    async def read(transaction: Any) -> list[str]:
        collections = CollectionStore(transaction)
        found = []
        for collection in await collections.names():
            found += [
                f"{collection}/{each.number}" for each in await collections.chunks_after(collection, 0, 1000, None)
            ]
        return found

    return await world.app.database.read(Scope(tenant), read)


@pytest.fixture(scope="module", params=KINDS)
def searched_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the URL of a database that all of these tests search and none changes."""
    if request.param == "postgres":
        server = request.getfixturevalue("postgres")
        return asyncio.run(new_postgres_database(server, f"weftline_searched_{secrets.token_hex(4)}"))
    return str(shutil.copy(request.getfixturevalue("empty_file"), tmp_path_factory.mktemp("searched") / "weftline.db"))


@pytest.fixture(scope="module")
async def sides(searched_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Sides]:
    folder = str(tmp_path_factory.mktemp("sides"))
    limits = Settings(database_url=searched_url, data_dir=folder, rate_limits="off", session_indexing="off")
    world = World(searched_url, FrozenClock(), limits)
    await world.open()
    try:
        yield await set_up(world)
    finally:
        await world.close()


async def set_up(world: World) -> Sides:
    _, alone = await tenant_with_agent(world, "alone")
    admin, with_hidden = await tenant_with_agent(world, "shared")
    await add_hidden_content(world, admin)
    await fill_other_tenant(world)
    named = {
        *await all_chunk_ids(world, alone),
        *await all_chunk_ids(world, with_hidden),
        *await all_chunk_ids(world, world.stranger),
    }
    return Sides(alone, with_hidden, world.stranger, sorted(named))


async def answer_bytes(caller: Caller, operation: str, **what: Any) -> tuple[bytes, Any]:
    """Return an answer or error as bytes, without its duration."""
    try:
        answer = await caller.call(operation, **what)
    except WeftlineError as error:
        body = error.body("")
        return msgspec.json.encode([type(error).__name__, body]), body
    answer.pop("took_ms", None)
    return msgspec.json.encode(answer), answer


async def same_answer_on_both_sides(sides: Sides, operation: str, **what: Any) -> Any:
    alone, _ = await answer_bytes(sides.alone, operation, **what)
    with_hidden, answer = await answer_bytes(sides.with_hidden, operation, **what)
    assert with_hidden == alone
    # The request itself may contain the word, and an error may quote a requested name.
    assert MARK not in str(answer) or MARK in str(what)
    return answer


PROPERTY = settings(max_examples=examples(30), deadline=None)


@PROPERTY
@given(query=QUERIES, filters=FILTERS, weights=WEIGHTS, top_k=TOP)
async def test_a_search_reveals_nothing_hidden(
    sides: Sides, query: str, filters: dict[str, Any], weights: dict[str, Any], top_k: int
) -> None:
    for options in ({"explain": True}, {"low_confidence": True}):
        what = {"query": query, "top_k": top_k, **filters, **weights, **options}
        answer = await same_answer_on_both_sides(sides, "search.query", **what)
        for result in answer.get("results", ()) if isinstance(answer, dict) else ():
            assert result["text"] in OWN


@PROPERTY
@given(query=QUERIES, filters=FILTERS, weights=WEIGHTS, tokens=st.sampled_from([128, 160, 300, 5000]))
async def test_get_context_reveals_nothing_hidden(
    sides: Sides, query: str, filters: dict[str, Any], weights: dict[str, Any], tokens: int
) -> None:
    what = {"query": query, "max_tokens": tokens, **filters, **weights}
    answer = await same_answer_on_both_sides(sides, "search.get_context", **what)
    if isinstance(answer, dict):
        assert MARK not in str(answer)


@PROPERTY
@given(text=QUERIES, filters=FILTERS, top_k=TOP)
async def test_find_similar_reveals_nothing_hidden(
    sides: Sides, text: str, filters: dict[str, Any], top_k: int
) -> None:
    answer = await same_answer_on_both_sides(sides, "search.find_similar", text=text, top_k=top_k, **filters)
    if isinstance(answer, dict):
        assert MARK not in str(answer)


@PROPERTY
@given(which=ENTITIES)
async def test_a_list_of_entities_reveals_nothing_hidden(sides: Sides, which: dict[str, Any]) -> None:
    await same_answer_on_both_sides(sides, "entity.list", **which)


@PROPERTY
@given(data=st.data(), filters=FILTERS)
async def test_the_id_of_a_hidden_chunk_gives_no_access(sides: Sides, data: Any, filters: dict[str, Any]) -> None:
    chunk_id = data.draw(st.sampled_from([*sides.chunk_ids, "sessions/0", "domain:/1", "memory/1e3", "a/b/c"]))
    for operation in ("search.find_similar", "search.get_context"):
        await same_answer_on_both_sides(sides, operation, ref=chunk_id, **filters)
    for operation, name in (("records.show", "record_id"), ("records.resolve", "source_id")):
        await same_answer_on_both_sides(sides, operation, **{name: chunk_id})


async def test_other_agents_find_the_hidden_content(sides: Sides) -> None:
    """Shows that the comparisons above are not equal for lack of hidden content."""
    own = await sides.with_hidden.call("search.query", query=MARK, low_confidence=True, explain=True, top_k=100)
    theirs = await sides.stranger.call("search.query", query=MARK, low_confidence=True, explain=True, top_k=100)
    assert MARK not in str(own["results"])
    assert len([result for result in theirs["results"] if MARK in result["text"]]) > len(OWN)
    assert len(sides.chunk_ids) > own["searched"]


async def test_a_hidden_domain_and_an_unknown_one_give_the_same_error(sides: Sides) -> None:
    refusals = [
        (await answer_bytes(sides.with_hidden, "search.query", query="falcon", domain=domain))[0].replace(
            domain.encode(), b""
        )
        for domain in ("vault", "nowhere")
    ]
    assert refusals[0] == refusals[1]
    assert b"DOMAIN_NOT_FOUND" in refusals[0]
