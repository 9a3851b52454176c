"""What a contract suite asks of the backend under test: transactions, and the stores inside them."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from weft.capabilities.access.audit import AuditStore
from weft.capabilities.access.store import AccessStore
from weft.capabilities.board.store import ConventionStore, EntryStore
from weft.capabilities.events.model import EventStore
from weft.capabilities.history.store import LineStore
from weft.capabilities.sessions.store import SessionStore
from weft.kernel.events import Outbox


class Stores(Protocol):
    """Every store, inside one transaction of one tenant."""

    access: AccessStore
    audit: AuditStore
    conventions: ConventionStore
    entries: EntryStore
    events: EventStore
    lines: LineStore
    outbox: Outbox
    sessions: SessionStore


class Storage(Protocol):
    """A backend with one fresh tenant in it, and a second one that must stay out of sight."""

    def transaction(self) -> AbstractAsyncContextManager[Stores]:
        """Open a transaction of the first tenant; commit when it ends well, leave no trace when it raises."""
        ...

    def elsewhere(self) -> AbstractAsyncContextManager[Stores]:
        """Open a transaction of the second tenant."""
        ...
