"""Message search: fuzzy, by sender and by time range."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from support.world import refused
from weftline.app.caches import Cache
from weftline.sessions.messages import search as searching
from weftline.sessions.messages.fuzzy_ranking import METADATA_CHARACTERS, MessageIndex
from weftline.sessions.messages.search import Snippets
from weftline.sessions.messages.transcript import Transcripts
from weftline.sessions.model import SessionNotFound

if TYPE_CHECKING:
    from support.world import World
    from weftline.sessions.messages.fuzzy_ranking import MessageHit
    from weftline.testing.clock import FrozenClock


@pytest.mark.req("MS-05")
async def test_a_search_returns_every_field(world: World) -> None:
    text = "I've completed the database schema design. Ready for review."
    await world.planner.say(text, metadata={"component": "database"})
    await world.planner.say("Lunch is at noon.")
    answer = await world.review.search("database schema design", fuzzy_threshold=70.0, limit=5)
    (result,) = answer["results"]
    assert set(answer) == {
        "success",
        "results",
        "query",
        "threshold",
        "search_scope",
        "message_count",
        "search_time_ms",
        "performance_note",
        "cache_hit",
        "searched_count",
    }
    assert (answer["query"], answer["threshold"], answer["search_scope"]) == ("database schema design", 70.0, "all")
    assert (answer["message_count"], answer["searched_count"], answer["cache_hit"]) == (1, 2, False)
    assert answer["search_time_ms"] > 0
    assert set(result) == {"message", "score", "match_preview", "relevance", "matched_by"}
    assert result["message"]["content"] == text
    assert result["message"]["metadata"] == {"component": "database"}
    assert (result["score"], result["relevance"], result["matched_by"]) == (100.0, "high", "words")
    assert result["match_preview"] == text


@pytest.mark.req("MS-05")
async def test_misspelt_words_are_found(world: World) -> None:
    await world.planner.say("The authentication middleware rejects expired certificates.")
    await world.planner.say("Deployment is planned for Thursday.")
    answer = await world.review.search("authentcation midleware")
    assert [result["message"]["id"] for result in answer["results"]] == [1]
    assert answer["results"][0]["matched_by"] == "fuzzy"


@pytest.mark.req("MS-05")
async def test_a_question_finds_the_message_that_answers_it(world: World) -> None:
    for text in (
        "Good morning everyone, let us begin.",
        "We will store the invoices in PostgreSQL because of row-level security.",
        "The frontend team is waiting for the new icons.",
        "I moved the retrospective to Friday afternoon.",
        "Invoices arrive by mail as well.",
    ):
        await world.planner.say(text)
    found = await world.review.found("Which database did we choose for storing invoices, and why?")
    assert found[0] == "We will store the invoices in PostgreSQL because of row-level security."


@pytest.mark.req("MS-05")
async def test_the_oldest_of_many_messages_is_found(world: World) -> None:
    await world.planner.say("The quokka enclosure opens at nine.")
    await asyncio.gather(*(world.analysis.say(f"routine report number {number}") for number in range(1_500)))
    assert await world.review.found("quokka") == ["The quokka enclosure opens at nine."]
    assert (await world.review.search("quokka enclosure"))["searched_count"] == 1_501


@pytest.mark.req("MS-05")
async def test_equal_texts_are_separate_results_newest_first(world: World) -> None:
    for _ in range(3):
        await world.planner.say("The build is green.")
    answer = await world.review.search("build green")
    assert [result["message"]["id"] for result in answer["results"]] == [3, 2, 1]


@pytest.mark.req("MS-05")
async def test_metadata_is_searched_by_default(world: World) -> None:
    await world.planner.say("Done.", metadata={"component": "payments", "tags": ["billing"]})
    assert await world.review.found("payments") == ["Done."]
    assert await world.review.found("payments", search_metadata=False) == []


@pytest.mark.req("MS-05")
async def test_a_scope_limits_the_search(world: World) -> None:
    await world.planner.say("rollout in public")
    await world.planner.say("rollout in private", visibility="private")
    await world.planner.say("rollout among us", visibility="agent_only")
    assert set(await world.planner.found("rollout")) == {
        "rollout in public",
        "rollout in private",
        "rollout among us",
    }
    assert await world.planner.found("rollout", search_scope="public") == ["rollout in public"]
    assert await world.planner.found("rollout", search_scope="private") == ["rollout in private"]
    assert await world.review.found("rollout", search_scope="private") == []


@pytest.mark.req("MS-05")
async def test_threshold_and_limit_apply(world: World) -> None:
    for number in range(30):
        await world.planner.say(f"release {'candidate' if number % 2 else 'plan'} {number}")
    for threshold in (0, 40, 60, 90, 100):
        answer = await world.review.search("release candidate 7", fuzzy_threshold=threshold, limit=5)
        assert len(answer["results"]) <= 5
        assert all(threshold <= result["score"] <= 100 for result in answer["results"])
        for result in answer["results"]:
            score = result["score"]
            assert result["relevance"] == ("high" if score >= 80 else "medium" if score >= 60 else "low")
    assert (await world.review.search("release candidate 7"))["results"][0]["message"]["content"].endswith(" 7")


@pytest.mark.req("MS-05")
@pytest.mark.parametrize(
    "bad",
    [
        {"query": ""},
        {"query": "   "},
        {"query": "x" * 501},
        {"fuzzy_threshold": 101},
        {"fuzzy_threshold": -1},
        {"limit": 0},
        {"limit": 101},
        {"search_scope": "everything"},
    ],
    ids=str,
)
async def test_an_invalid_search_is_refused(world: World, bad: dict[str, object]) -> None:
    with refused("INVALID_INPUT_FORMAT"):
        await world.review.call("message.search", **{"session_id": "s1", "query": "x", **bad})


@pytest.mark.req("MS-05")
@pytest.mark.parametrize("query", ["???", "👩‍👩‍👧", "%_'\"; --", "\x00", "的", "a" * 500])
async def test_unusual_queries_are_answered(world: World, query: str) -> None:
    await world.planner.say("plain words")
    assert (await world.review.search(query))["success"]


@pytest.mark.req("MS-05")
@pytest.mark.req("MS-15")
async def test_a_repeated_search_is_cached_until_a_change(world: World) -> None:
    number = await world.planner.say("the incident began at dawn")

    async def hit() -> tuple[bool, list[str]]:
        answer = await world.review.search("incident")
        return answer["cache_hit"], [result["message"]["content"] for result in answer["results"]]

    assert await hit() == (False, ["the incident began at dawn"])
    assert await hit() == (True, ["the incident began at dawn"])
    await world.analysis.say("the incident is over")
    assert (await hit())[0] is False
    assert len((await hit())[1]) == 2
    await world.admin.call("message.set_visibility", session_id="s1", message_id=number, visibility="private")
    assert await hit() == (False, ["the incident is over"])


@pytest.mark.req("MS-15")
async def test_a_cached_search_expires(world: World, clock: FrozenClock) -> None:
    await world.planner.say("the incident began at dawn")
    await world.review.search("incident")
    assert (await world.review.search("incident"))["cache_hit"]
    clock.advance(minutes=10)
    assert not (await world.review.search("incident"))["cache_hit"]


@pytest.mark.req("MS-15")
async def test_private_messages_of_others_do_not_change_scores(world: World) -> None:
    await world.planner.say("the incident began at dawn")
    await world.planner.say("coffee is ready")
    before = (await world.review.search("incident report"))["results"]
    for _ in range(5):
        await world.planner.say("incident report", visibility="private")
    answer = await world.review.search("incident report")
    assert answer["results"] == before
    assert answer["cache_hit"]


@pytest.mark.req("MS-15")
async def test_a_cache_hit_does_not_reveal_searches_of_others(world: World) -> None:
    await world.planner.say("the incident began at dawn")
    assert not (await world.review.search("incident"))["cache_hit"]
    assert not (await world.analysis.search("incident"))["cache_hit"]
    assert (await world.analysis.search("incident"))["cache_hit"]


class ThreadedWork:
    """Amounts of work, and the threads that did it."""

    def __init__(self) -> None:
        self.amounts: list[int] = []
        self._threads: set[str] = set()

    def record(self, amount: int) -> None:
        self.amounts.append(amount)
        self._threads.add(threading.current_thread().name.rpartition("_")[0])

    @property
    def is_off_the_event_loop(self) -> bool:
        return self._threads == {"weftline-searching"}


@pytest.fixture
def indexed(monkeypatch: pytest.MonkeyPatch) -> ThreadedWork:
    """Record the characters of each message that is indexed."""
    work, add = ThreadedWork(), MessageIndex.add

    def record_call(index: MessageIndex, message_id: int, text: str, metadata: str) -> None:
        work.record(len(text) + len(metadata))
        add(index, message_id, text, metadata)

    monkeypatch.setattr(MessageIndex, "add", record_call)
    return work


@pytest.mark.req("MS-05")
@pytest.mark.parametrize(
    ("content", "metadata"),
    [("word " * 2_000, {}), ("x", {"k": ["abcdef"] * 7_000}), ("short", {})],
    ids=["long", "metadata", "short"],
)
async def test_a_transcript_is_indexed_off_the_event_loop(
    world: World, indexed: ThreadedWork, content: str, metadata: dict[str, object]
) -> None:
    for _ in range(30):
        await world.planner.say(content, metadata=metadata)
    await world.review.search("nothing of that")
    assert indexed.is_off_the_event_loop
    assert len(indexed.amounts) == 30
    assert max(indexed.amounts) <= 10_000 + METADATA_CHARACTERS


@pytest.mark.req("MS-05")
async def test_a_transaction_reads_a_slice_by_characters(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    slices: list[int] = []
    catch_up = searching._catch_up

    def record_call(update: searching._IndexUpdate) -> None:
        slices.append(len(update.missing))
        catch_up(update)

    monkeypatch.setattr(searching, "_catch_up", record_call)
    for _ in range(12):
        await world.planner.say("x", metadata={"k": "y" * 60_000})
    await world.review.search("nothing")
    assert slices == [2] * 6


@pytest.mark.req("MS-05")
async def test_snippets_are_cut_off_the_event_loop(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(25):
        await world.planner.say(f"turbine {number} " + "filler words " * 300)
    work, of = ThreadedWork(), Snippets.of

    def record_call(previews: Snippets, content: str) -> str:
        work.record(1)
        return of(previews, content)

    monkeypatch.setattr(Snippets, "of", record_call)
    answer = await world.review.search("turbine", limit=100)
    assert answer["message_count"] == sum(work.amounts) == 25
    assert work.is_off_the_event_loop


@pytest.mark.req("MS-05")
async def test_an_index_of_any_size_is_built_once(
    world: World, indexed: ThreadedWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MessageIndex, "weight", property(lambda _: 10**12))
    for number in range(20):
        await world.planner.say(f"report {number}")
    for query in ("report", "another", "and another"):
        assert (await world.review.search(query))["searched_count"] == 20
    assert len(indexed.amounts) == 20


@pytest.mark.req("MS-15")
@pytest.mark.parametrize("query", ["report", "xylophone"])
async def test_access_is_checked_again_after_the_search(
    world: World, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    await world.planner.say("a report")
    hits = searching._hits

    def lose_access(*given: Any) -> list[MessageHit]:
        monkeypatch.setattr(Transcripts, "to_read", refuse)
        return hits(*given)

    async def refuse(*_: object) -> None:
        raise SessionNotFound("There is no session 's1'.")

    monkeypatch.setattr(searching, "_hits", lose_access)
    with refused("SESSION_NOT_FOUND"):
        await world.review.search(query)


@pytest.mark.req("MS-15")
async def test_an_answer_without_results_counts_toward_the_cache_size(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights: list[int] = []
    put = Cache.put

    def record_call(cache: Cache[Any], key: Any, value: Any, weight: int = 1) -> None:
        if cache.name == "search_answers":
            weights.append(weight)
        put(cache, key, value, weight)

    monkeypatch.setattr(Cache, "put", record_call)
    await world.review.search("x" * 400)
    assert weights[0] > 400


@pytest.mark.req("MS-05")
async def test_concurrent_searches_index_each_message_once(world: World, indexed: ThreadedWork) -> None:
    for number in range(30):
        await world.planner.say(f"report {number} " + "filler " * 500)
    answers = await asyncio.gather(*(world.review.search(f"report {number}") for number in range(5)))
    assert [answer["results"][0]["message"]["id"] for answer in answers] == [1, 2, 3, 4, 5]
    assert len(indexed.amounts) == 30


async def test_concurrent_searches_during_writes(world: World) -> None:
    async def write(writer: int) -> None:
        for number in range(15):
            await world.analysis.say(f"note {writer} {number} about turbines")

    async def search() -> int:
        return max([(await world.review.search("turbines", limit=100))["searched_count"] for _ in range(10)])

    await asyncio.gather(*(write(writer) for writer in range(4)), *(search() for _ in range(4)))
    answer = await world.review.search("turbines", limit=100)
    assert answer["message_count"] == 60
    assert len({result["message"]["id"] for result in answer["results"]}) == 60


@pytest.mark.req("MS-06")
async def test_messages_of_a_sender_are_listed_newest_first(world: World) -> None:
    for number in range(25):
        await world.planner.say(f"p{number}")
        await world.review.say(f"r{number}")
    answer = await world.analysis.call("message.search_by_sender", session_id="s1", sender="planner")
    assert [m["content"] for m in answer["messages"]] == [f"p{number}" for number in range(24, 4, -1)]
    assert (answer["sender"], answer["count"], answer["has_more"]) == ("planner", 20, True)
    rest = await world.analysis.call("message.search_by_sender", session_id="s1", sender="planner", offset=20)
    assert [m["content"] for m in rest["messages"]] == ["p4", "p3", "p2", "p1", "p0"]
    nobody = await world.analysis.call("message.search_by_sender", session_id="s1", sender="nobody' OR 1=1")
    assert (nobody["messages"], nobody["count"]) == ([], 0)


@pytest.mark.req("MS-06")
async def test_a_time_range_is_the_same_in_every_time_zone(world: World, clock: FrozenClock) -> None:
    for number in range(4):
        await world.planner.say(f"m{number}")
        clock.advance(minutes=30)

    async def found(start: str, end: str) -> list[str]:
        answer = await world.review.call("message.search_by_timerange", session_id="s1", start_time=start, end_time=end)
        assert answer["count"] == len(answer["messages"])
        return [message["content"] for message in answer["messages"]]

    assert await found("2026-02-20T14:30:00Z", "2026-02-20T15:30:00Z") == ["m0", "m1", "m2"]
    assert await found("2026-02-20T16:30:00+02:00", "2026-02-20T10:00:00-05:00") == ["m0", "m1"]
    assert await found("2026-02-20T16:30:00 02:00", "2026-02-20T15:00:00") == ["m0", "m1"]
    assert await found("2026-02-20 15:00:00.000001", "2026-02-20T15:30:00") == ["m2"]
    assert await found("2026-02-20", "2026-02-20") == ["m0", "m1", "m2", "m3"]
    assert await found("2026-02-21", "2026-02-22") == []


@pytest.mark.req("MS-06")
async def test_a_time_range_is_returned_in_utc(world: World) -> None:
    span = {"start_time": "2025-01-15T11:00:00+01:00", "end_time": "2025-01-15T11:00:00Z"}
    answer = await world.review.call("message.search_by_timerange", session_id="s1", **span)
    assert answer["timerange"] == {"start": "2025-01-15T10:00:00Z", "end": "2025-01-15T11:00:00Z"}


@pytest.mark.req("MS-06")
@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("2026-02-21", "2026-02-20"),
        ("yesterday", "2026-02-20"),
        ("2026-02-30T00:00:00Z", "2026-03-01"),
        ("2026-02-20", "0001-01-01T00:00:00+14:00"),
        ("2026-02-20", ""),
    ],
)
async def test_an_invalid_time_range_is_refused(world: World, start: str, end: str) -> None:
    with refused("INVALID_INPUT_FORMAT"):
        await world.review.call("message.search_by_timerange", session_id="s1", start_time=start, end_time=end)


@pytest.mark.req("MS-05")
async def test_the_name_of_a_sender_is_not_content(world: World) -> None:
    await world.planner.say("the harbour closes at nine")
    await world.analysis.say("ask the planner about the tides")
    assert await world.analysis.found("planner", fuzzy_threshold=60) == ["ask the planner about the tides"]
    assert await world.analysis.found("analysis", fuzzy_threshold=60) == []


@pytest.mark.req("MS-05")
async def test_a_message_without_text_is_no_hit(world: World) -> None:
    await world.planner.say(" ", metadata={"topic": "tides"})
    await world.planner.say("high water at noon", metadata={"topic": "tides"})
    await world.planner.say("\n")
    assert await world.analysis.found("tides") == ["high water at noon"]
    assert await world.analysis.found("planner", fuzzy_threshold=0) == []
