"""Surroundings of a passage: neighbouring chunks of its document, or messages of its session."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from weft.capabilities.indexing.collections.model import SESSIONS, Chunk
from weft.capabilities.records.record_ids import MessageItemId
from weft.capabilities.search.items import text_of_message
from weft.capabilities.search.passages import ChunkPassage, not_redacted, read_chunks, visible_messages
from weft.kernel.tokens import approximate_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weft.capabilities.messages.model import Message
    from weft.capabilities.search.stores import SearchStores

# Number of passages that are not search results.
_NO_NUMBER = 0


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


class _Proximity(NamedTuple):
    """Distance of a message to the best-ranked result near it."""

    distance: int
    rank: int


def passage_ref(passage: ChunkPassage, rank: int, distance: int = 0) -> PassageRef:
    """Return a passage with its position in its line."""
    chunk = passage.chunk
    if chunk.source == "message":
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
    nearby: list[tuple[int, int, Chunk]] = []
    for rank, passage in enumerate(results):
        chunk = passage.chunk
        if chunk.source != "document" or rank < alone:
            continue
        first, last = max(0, chunk.ordinal - reach), chunk.ordinal + reach
        found = await stores.collections.chunk_range(
            chunk.collection, chunk.place, chunk.item, chunk.version, first, last
        )
        nearby += [(rank, abs(each.ordinal - chunk.ordinal), each) for each in found if each.ordinal != chunk.ordinal]
    passages = await read_chunks(list({each.chunk_id: each for *_, each in nearby}.values()), stores)
    return [
        passage_ref(passages[each.chunk_id], rank, distance)
        for rank, distance, each in nearby
        if each.chunk_id in passages
    ]


async def _in_transcripts(
    results: Sequence[ChunkPassage], reach: int, alone: int, stores: SearchStores
) -> list[PassageRef]:
    refs = []
    for session_id, of_session in _nearby_messages(results, reach, alone).items():
        messages = await visible_messages(session_id, of_session, stores)
        passages = await not_redacted([_message_passage(session_id, message) for message in messages], stores)
        for passage in passages:
            distance, rank = of_session[int(passage.chunk.item)]
            refs.append(passage_ref(passage, rank, distance))
    return refs


def _nearby_messages(results: Iterable[ChunkPassage], reach: int, alone: int) -> dict[str, dict[int, _Proximity]]:
    """Return, for each session, the messages near results that are not results themselves."""
    nearby: defaultdict[str, dict[int, _Proximity]] = defaultdict(dict)
    own: defaultdict[str, set[int]] = defaultdict(set)
    for rank, passage in enumerate(results):
        number = passage.message_id
        if number is None:
            continue
        own[passage.chunk.place].add(number)
        if rank < alone:
            continue
        of_session = nearby[passage.chunk.place]
        for neighbour in range(max(1, number - reach), number + reach + 1):
            of_session[neighbour] = min(
                of_session.get(neighbour, _Proximity(reach, rank)), _Proximity(abs(neighbour - number), rank)
            )
    return {
        session_id: {number: each for number, each in of_session.items() if number not in own[session_id]}
        for session_id, of_session in nearby.items()
    }


def _message_passage(session_id: str, message: Message) -> ChunkPassage:
    """Return a whole message as a passage."""
    text = text_of_message(message)
    chunk = Chunk(
        collection=SESSIONS,
        number=_NO_NUMBER,
        source="message",
        place=session_id,
        item=str(message.message_id),
        ordinal=0,
        start=0,
        end=len(text),
        terms="",
        digest=b"",
        tokens=approximate_tokens(text),
        timestamp=message.sent_at,
        speaker=message.sender,
        text=text,
    )
    return ChunkPassage(
        chunk=chunk,
        text=text,
        title="",
        uri=str(MessageItemId(session_id, message.message_id)),
        message_id=message.message_id,
        session_id=session_id,
    )
