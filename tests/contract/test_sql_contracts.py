"""Weft's own storage keeps every contract, on both databases."""

from __future__ import annotations

from weft.testing import contracts


class TestSessionStore(contracts.SessionStoreContract):
    """Sessions in SQL."""


class TestLineStore(contracts.LineStoreContract):
    """History in SQL."""


class TestBranches(contracts.BranchContract):
    """Lines that go on from others, in SQL."""


class TestPruning(contracts.PruningContract):
    """Retention in SQL."""


class TestEntryStore(contracts.EntryStoreContract):
    """Board entries in SQL."""


class TestConventionStore(contracts.ConventionStoreContract):
    """Key conventions in SQL."""


class TestMessageStore(contracts.MessageStoreContract):
    """Messages in SQL."""


class TestEventStore(contracts.EventStoreContract):
    """Events in SQL."""


class TestAccessStore(contracts.AccessStoreContract):
    """Principals, keys and tokens in SQL."""


class TestAuditStore(contracts.AuditStoreContract):
    """The audit log in SQL."""


class TestMemoryStore(contracts.MemoryStoreContract):
    """Agents' memories in SQL."""


class TestObjectIndex(contracts.ObjectIndexContract):
    """The index of values outside the database, in SQL."""
