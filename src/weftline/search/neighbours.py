"""Surroundings of a passage: neighbouring chunks of its document, or turns of its conversation."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from weftline.history.item_ids import MessageItemId
from weftline.indexing.collections import SOURCES, Chunk
from weftline.kernel.ports import approximate_tokens
from weftline.search.items import (
    events_by_number,
    is_searchable,
    live_events,
    speaker_of_event,
    text_of_event,
    text_of_message,
)
from weftline.search.passages import ChunkPassage, not_redacted, of_event, read_chunks, visible_messages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

    from weftline.indexing.collections import Source
    from weftline.search.persistent_memory import SearchStores
    from weftline.sessions.messages.model import Message

# Number of passages that are not search results.
_NO_NUMBER = 0
_MAX_EVENT_TOKENS = 1_000


class TextLine(NamedTuple):
    """A sequence that passages belong to: a document, a transcript or a value."""

    collection: str
    place: str
    item: str


class PassageRef(NamedTuple):
    """A passage with its position in its line. ``distance``: places to the nearest result, 0 for a result."""

    line: TextLine
    position: tuple[int, int]
    passage: ChunkPassage
    rank: int
    distance: int = 0


class _Position(NamedTuple):
    """The place of a chunk in a version of its item."""

    collection: str
    place: str
    item: str
    version: int
    ordinal: int


class _Proximity(NamedTuple):
    """Distance of a message or chunk to the nearest result, of several the best-ranked."""

    distance: int
    rank: int


def passage_ref(passage: ChunkPassage, rank: int, distance: int = 0) -> PassageRef:
    """Return a passage with its position in its line."""
    chunk = passage.chunk
    if SOURCES[chunk.source].is_spoken:
        return PassageRef(
            TextLine(chunk.collection, chunk.place, ""), (int(chunk.item), chunk.ordinal), passage, rank, distance
        )
    return PassageRef(TextLine(chunk.collection, chunk.place, chunk.item), (chunk.ordinal, 0), passage, rank, distance)


async def with_surroundings(
    results: Sequence[ChunkPassage], reach: int, stores: SearchStores, *, alone: int = 0
) -> list[PassageRef]:
    """Return results, best first, each with the passages up to ``reach`` places before and after it.

    The first ``alone`` results get no surroundings.
    """
    refs = [passage_ref(passage, rank) for rank, passage in enumerate(results)]
    if reach:
        refs += await _in_documents(results, reach, alone, stores)
        refs += await _in_transcripts(results, reach, alone, stores)
    return refs


async def _in_documents(
    results: Sequence[ChunkPassage], reach: int, alone: int, stores: SearchStores
) -> list[PassageRef]:
    nearby = _nearby_chunks(results, reach, alone)
    passages = await _passages_at(nearby, stores)
    return [
        passage_ref(passages[position], rank, distance)
        for position, (distance, rank) in nearby.items()
        if position in passages
    ]


def _nearby_chunks(results: Iterable[ChunkPassage], reach: int, alone: int) -> dict[_Position, _Proximity]:
    """Return the positions near results in documents that are not results themselves."""
    nearby: dict[_Position, _Proximity] = {}
    own: set[_Position] = set()
    for rank, passage in enumerate(results):
        chunk = passage.chunk
        if chunk.source != "document":
            continue
        own.add(_position(chunk, chunk.ordinal))
        if rank < alone:
            continue
        for ordinal in range(max(0, chunk.ordinal - reach), chunk.ordinal + reach + 1):
            position, near = _position(chunk, ordinal), _Proximity(abs(ordinal - chunk.ordinal), rank)
            nearby[position] = min(nearby.get(position, near), near)
    return {position: near for position, near in nearby.items() if position not in own}


def _position(chunk: Chunk, ordinal: int) -> _Position:
    return _Position(chunk.collection, chunk.place, chunk.item, chunk.version, ordinal)


async def _passages_at(positions: Iterable[_Position], stores: SearchStores) -> dict[_Position, ChunkPassage]:
    """Return the readable passages at positions of documents."""
    by_place: defaultdict[tuple[str, str], list[tuple[str, int, int]]] = defaultdict(list)
    for position in sorted(positions):
        by_place[position[:2]].append(position[2:])
    chunks = [
        chunk
        for (collection, place), batch in by_place.items()
        for chunk in await stores.collections.chunks_at(collection, place, batch)
    ]
    found = (await read_chunks(chunks, stores)).values()
    return {_position(each.chunk, each.chunk.ordinal): each for each in found}


async def _in_transcripts(
    results: Sequence[ChunkPassage], reach: int, alone: int, stores: SearchStores
) -> list[PassageRef]:
    refs = []
    for (source, place), nearby in _nearby_turns(results, reach, alone).items():
        passages = await _TURNS[source](place, nearby, stores)
        for passage in await not_redacted(passages, stores):
            distance, rank = nearby[int(passage.chunk.item)]
            refs.append(passage_ref(passage, rank, distance))
    return refs


def _nearby_turns(
    results: Iterable[ChunkPassage], reach: int, alone: int
) -> dict[tuple[Source, str], dict[int, _Proximity]]:
    """Return, for each source and place, the turns near results that are not results themselves."""
    nearby: defaultdict[tuple[Source, str], dict[int, _Proximity]] = defaultdict(dict)
    own: defaultdict[tuple[Source, str], set[int]] = defaultdict(set)
    for rank, passage in enumerate(results):
        if not SOURCES[passage.chunk.source].is_spoken:
            continue
        line, number = (passage.chunk.source, passage.chunk.place), int(passage.chunk.item)
        own[line].add(number)
        if rank < alone:
            continue
        for neighbour in range(max(1, number - reach), number + reach + 1):
            nearby[line][neighbour] = min(
                nearby[line].get(neighbour, _Proximity(reach, rank)), _Proximity(abs(neighbour - number), rank)
            )
    return {
        line: {number: each for number, each in turns.items() if number not in own[line]}
        for line, turns in nearby.items()
    }


async def _messages(session_id: str, numbers: Collection[int], stores: SearchStores) -> list[ChunkPassage]:
    return [_message_passage(session_id, each) for each in await visible_messages(session_id, numbers, stores)]


async def _events(place: str, numbers: Collection[int], stores: SearchStores) -> list[ChunkPassage]:
    events = events_by_number(await live_events(place, stores))
    found = [event for number in sorted(numbers) if (event := events.get(number)) is not None]
    return [
        of_event(
            place, event, _turn("event", place, event.number, text_of_event(event), event.time, speaker_of_event(event))
        )
        for event in found
        # Long tool outputs would crowd out the results.
        if is_searchable(event) and event.tokens <= _MAX_EVENT_TOKENS
    ]


_TURNS: dict[str, Callable[[str, Collection[int], SearchStores], Awaitable[list[ChunkPassage]]]] = {
    "message": _messages,
    "event": _events,
}


def _turn(source: Source, place: str, number: int, text: str, timestamp: int, speaker: str) -> Chunk:
    """Return a whole turn of a conversation as a chunk."""
    return Chunk(
        collection=SOURCES[source].collection or "",
        number=_NO_NUMBER,
        source=source,
        place=place,
        item=str(number),
        ordinal=0,
        start=0,
        end=len(text),
        terms="",
        digest=b"",
        tokens=approximate_tokens(text),
        timestamp=timestamp,
        speaker=speaker,
        text=text,
    )


def _message_passage(session_id: str, message: Message) -> ChunkPassage:
    """Return a whole message as a passage."""
    text = text_of_message(message)
    return ChunkPassage(
        chunk=_turn("message", session_id, message.message_id, text, message.sent_at, message.sender),
        text=text,
        title="",
        uri=str(MessageItemId(session_id, message.message_id)),
        message_id=message.message_id,
        session_id=session_id,
    )
