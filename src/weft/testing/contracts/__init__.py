"""One suite for each storage port. A backend joins by giving each class a ``database`` and running it with pytest."""

from weft.testing.contracts.access import AccessStoreContract, AuditStoreContract
from weft.testing.contracts.board import ConventionStoreContract, EntryStoreContract
from weft.testing.contracts.events import EventStoreContract
from weft.testing.contracts.history import LineStoreContract
from weft.testing.contracts.sessions import SessionStoreContract

__all__ = [
    "AccessStoreContract",
    "AuditStoreContract",
    "ConventionStoreContract",
    "EntryStoreContract",
    "EventStoreContract",
    "LineStoreContract",
    "SessionStoreContract",
]
