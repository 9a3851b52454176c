"""What stands around a passage: the chunks before and behind it in its document, the messages before and after it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from weft.capabilities.indexing.collections.model import SESSIONS, Chunk
from weft.capabilities.records.record_ids import MessageItemId
from weft.capabilities.search.context_renderer import strand_of
from weft.capabilities.search.items import text_of_message
from weft.capabilities.search.passages import ChunkPassage, not_redacted, read_chunks, visible_messages
from weft.kernel.tokens import approximate_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weft.capabilities.messages.model import Message
    from weft.capabilities.search.context_renderer import PassageRef
    from weft.capabilities.search.stores import SearchStores

# Stands for no chunk: what only stands around something was not looked for.
_NO_NUMBER = 0


class _Near(NamedTuple):
    """How far something stands from the best of what was found that it stands near to."""

    distance: int
    rank: int


async def strands_around(
    found: Sequence[ChunkPassage], reach: int, library: SearchStores, *, alone: int = 0
) -> list[PassageRef]:
    """Return what was found, best first, and what stands up to ``reach`` places before and behind each of it.

    The first ``alone`` of it come without what stands around them.
    """
    strands = [strand_of(passage, rank) for rank, passage in enumerate(found)]
    if reach:
        for rank, passage in enumerate(found):
            if passage.chunk.source == "document" and rank >= alone:
                strands += await _in_document(passage, rank, reach, library)
        strands += await _in_transcripts(found, reach, alone, library)
    return strands


async def _in_document(passage: ChunkPassage, rank: int, reach: int, library: SearchStores) -> list[PassageRef]:
    chunk = passage.chunk
    first, last = max(0, chunk.ordinal - reach), chunk.ordinal + reach
    chunks = await library.collections.stretch(chunk.collection, chunk.place, chunk.item, chunk.version, first, last)
    others = await read_chunks([each for each in chunks if each.ordinal != chunk.ordinal], library)
    return [strand_of(each, rank, abs(each.chunk.ordinal - chunk.ordinal)) for each in others.values()]


async def _in_transcripts(
    found: Sequence[ChunkPassage], reach: int, alone: int, library: SearchStores
) -> list[PassageRef]:
    strands = []
    for session_id, near in _wanted(found, reach, alone).items():
        messages = await visible_messages(session_id, near, library)
        passages = await not_redacted([_whole(session_id, message) for message in messages], library)
        for passage in passages:
            distance, rank = near[int(passage.chunk.item)]
            strands.append(strand_of(passage, rank, distance))
    return strands


def _wanted(found: Iterable[ChunkPassage], reach: int, alone: int) -> dict[str, dict[int, _Near]]:
    """Return for each session the numbers of messages that stand near what was found, and are not that themselves."""
    wanted: defaultdict[str, dict[int, _Near]] = defaultdict(dict)
    themselves: defaultdict[str, set[int]] = defaultdict(set)
    for rank, passage in enumerate(found):
        number = passage.message_id
        if number is None:
            continue
        themselves[passage.chunk.place].add(number)
        if rank < alone:
            continue
        near = wanted[passage.chunk.place]
        for other in range(max(1, number - reach), number + reach + 1):
            near[other] = min(near.get(other, _Near(reach, rank)), _Near(abs(other - number), rank))
    return {
        session_id: {number: each for number, each in near.items() if number not in themselves[session_id]}
        for session_id, near in wanted.items()
    }


def _whole(session_id: str, message: Message) -> ChunkPassage:
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
