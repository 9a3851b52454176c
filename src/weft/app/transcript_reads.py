"""Reading transcripts on behalf of a caller, for operations that need more than one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from weft.capabilities.messages.transcript import Transcripts
from weft.storage.sql.database import Scope
from weft.storage.sql.messages import SqlMessageStore
from weft.storage.sql.sessions import SqlSessionStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from weft.kernel.identity import Actor
    from weft.storage.sql.database import Database

T = TypeVar("T")


class SqlTranscriptReads:
    """Transcripts, each time as the database holds them at that moment."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, actor: Actor, work: Callable[[Transcripts], Awaitable[T]]) -> T:
        return await self._database.read(
            Scope(actor.tenant, actor.epoch),
            lambda tx: work(Transcripts(actor, SqlSessionStore(tx), SqlMessageStore(tx))),
        )
