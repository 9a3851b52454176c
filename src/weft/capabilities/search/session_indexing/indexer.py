"""Going through the log: which items may stand otherwise in their collections than they should, a few at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import structs

from weft.capabilities.events.model import EventStore
from weft.capabilities.indexing.collections.model import LOCK_ORDER, NewChunk
from weft.capabilities.indexing.collections.store import CollectionStore
from weft.capabilities.messages.model import TranscriptRange
from weft.capabilities.search.items import item_of_key
from weft.capabilities.search.session_indexing.cursor import (
    IMPORTED,
    IndexCursor,
    IndexItem,
    ReindexRange,
    Sweep,
    subject_of,
)
from weft.capabilities.search.session_indexing.item_text import ItemText, ItemTexts

if TYPE_CHECKING:
    from weft.capabilities.indexing.collections.model import Chunk
    from weft.kernel.events import StoredEvent

EVENTS_AT_ONCE = 500
# About so many texts are embedded and written together.
TEXTS_AT_ONCE = 32
_CHARACTERS_OF_A_TEXT = 1_000


class ItemChange(NamedTuple):
    """An item that stands otherwise than it should: what it says now, and the chunks that are to go.

    ``stands`` if these say what it says now, and are only to be put there anew.
    """

    subject: IndexItem
    said: ItemText | None
    outdated: Sequence[int]
    stands: bool = False

    @property
    def texts(self) -> int:
        """Return about how many texts are to be embedded for it."""
        return 0 if self.said is None else 1 + len(self.said.text) // _CHARACTERS_OF_A_TEXT


class IndexingRound(NamedTuple):
    """What there is to do next, and where that ends. ``more`` if there is something behind it already."""

    changes: Sequence[ItemChange]
    reached: IndexCursor
    more: bool


class Written(NamedTuple):
    """A change with the chunks that are to come, each with its vector of every model in use."""

    change: ItemChange
    chunks: Sequence[NewChunk]
    vectors: Mapping[str, Sequence[bytes]]

    @property
    def outdated(self) -> Sequence[int]:
        """Return the chunks that are to go. Those that say what is so stay if none could be made anew."""
        return [] if self.change.stands and not self.chunks else self.change.outdated


class Indexer(msgspec.Struct, frozen=True):
    """Everything that following the log needs, gathered for one transaction."""

    events: EventStore
    collections: CollectionStore
    contents: ItemTexts

    async def look(self, position: IndexCursor) -> IndexingRound:
        """Return what is to be done next for what happened behind a position."""
        recorded = await self.events.after(position.seq, None, EVENTS_AT_ONCE)
        # Events may be gone with their session, so the last one that is left may not be the last one there was.
        return await self._through(position, recorded, end=await self.events.last_seq())

    async def look_back(self, position: IndexCursor) -> IndexingRound:
        """Return what is to be done next for what happened ahead of a position: what happened last comes first."""
        return await self._through(position, await self.events.before(position.seq, EVENTS_AT_ONCE), end=0)

    async def put(self, written: Sequence[Written]) -> None:
        """Put items in their collections as they are to stand, unless they have changed meanwhile.

        What has changed comes again with the event that says so. What was deleted with its session does not: so its
        collection is locked before anything is looked at, by whoever deletes a session too.
        """
        for collection in LOCK_ORDER:
            of_collection = [each for each in written if each.change.subject.collection == collection]
            if of_collection:
                await self.collections.lock(collection)
                await self._put(collection, [each for each in of_collection if await self._still_says(each.change)])

    async def _put(self, collection: str, written: Sequence[Written]) -> None:
        vectors: dict[str, list[bytes]] = {}
        for each in written:
            for model, given in each.vectors.items():
                vectors.setdefault(model, []).extend(given)
        await self.collections.add(collection, [chunk for each in written for chunk in each.chunks], vectors)
        # Only then: what says the same as before keeps its vector, which is forgotten with the last that says so.
        await self.collections.remove(collection, [number for each in written for number in each.outdated])

    async def _still_says(self, change: ItemChange) -> bool:
        return await self.contents.said(change.subject) == change.said

    async def _through(self, position: IndexCursor, recorded: Sequence[StoredEvent], *, end: int) -> IndexingRound:
        if recorded and recorded[0].event.type == IMPORTED:
            return await self._sweep(position, recorded[0])
        changes: dict[IndexItem, ItemChange | None] = {}
        seq, texts = position.seq, 0
        for each in recorded:
            if each.event.type == IMPORTED or texts >= TEXTS_AT_ONCE:
                return IndexingRound(_made(changes), position.at(seq), more=True)
            subject = subject_of(each)
            if subject is not None and subject not in changes:
                changes[subject] = change = await self._change(subject, position.anew)
                texts += change.texts if change else 0
            seq = each.event.seq
        more = len(recorded) == EVENTS_AT_ONCE
        return IndexingRound(_made(changes), position.at(seq if more else end), more=more)

    async def _sweep(self, position: IndexCursor, imported: StoredEvent) -> IndexingRound:
        """Go through a session that came as a whole: it may say what no event tells of."""
        begun, number = position.sweep, imported.event.seq
        sweep = begun if begun is not None and begun.imported == number else Sweep(number)
        steps = await self._steps(sweep, imported.event.session_id or "")
        changes, texts, further = [], 0, _further(sweep)
        for subject, behind in steps:
            if texts >= TEXTS_AT_ONCE:
                break
            change, further = await self._change(subject, position.anew), behind
            changes += [] if change is None else [change]
            texts += change.texts if change else 0
        return IndexingRound(changes, position.at(number if further is None else position.seq, further), more=True)

    async def _steps(self, sweep: Sweep, session_id: str) -> list[tuple[IndexItem, Sweep]]:
        """Return the next items of a session, each with how far it was gone through behind it."""
        if sweep.after_message is None:
            keys = await self.contents.entries.keys_after(session_id, sweep.after_key, TEXTS_AT_ONCE)
            return [
                (IndexItem("board", session_id, item_of_key(key)), structs.replace(sweep, after_key=key))
                for key in keys
            ]
        part = TranscriptRange(limit=TEXTS_AT_ONCE, after=sweep.after_message)
        numbers = [message.message_id for message in await self.contents.messages.read_any(session_id, part)]
        return [
            (IndexItem("message", session_id, str(number)), structs.replace(sweep, after_message=number))
            for number in numbers
        ]

    async def _change(self, subject: IndexItem, anew: ReindexRange | None) -> ItemChange | None:
        """Return how an item stands otherwise than it should; None if it stands as it should."""
        said = await self.contents.said(subject)
        standing = await self.collections.of_item(subject.collection, subject.place, subject.item)
        stands = _stands(standing, said)
        if stands and not _is_old(standing, anew):
            return None
        return ItemChange(subject, said, [chunk.number for chunk in standing], stands)


def _further(sweep: Sweep) -> Sweep | None:
    """Return what comes when nothing is left of one kind: messages behind the board, and then nothing."""
    return structs.replace(sweep, after_message=0) if sweep.after_message is None else None


def _stands(standing: Sequence[Chunk], said: ItemText | None) -> bool:
    if said is None:
        return not standing
    return bool(standing) and all((chunk.version, chunk.scope) == (said.version, said.scope) for chunk in standing)


def _is_old(standing: Sequence[Chunk], anew: ReindexRange | None) -> bool:
    return anew is not None and any(anew.replaces(chunk.collection, chunk.number) for chunk in standing)


def _made(changes: Mapping[IndexItem, ItemChange | None]) -> list[ItemChange]:
    return [change for change in changes.values() if change is not None]
