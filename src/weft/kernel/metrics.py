"""Port for the counters of background work."""

from __future__ import annotations

from typing import Protocol


class JobMetrics(Protocol):
    """Counters and gauges of background work, of all tenants together."""

    def count_delivery(self, outcome: str, times: int = 1) -> None:
        """Count webhook requests by outcome; ``dead`` counts events that were given up."""
        ...

    def count_followed(self, items: int) -> None:
        """Count messages, keys and memories whose index entries were updated."""
        ...

    def count_passed_over(self, items: int) -> None:
        """Count messages, keys and memories that cannot be chunked or embedded, so searches do not find them."""
        ...

    def note_behind(self, events: int) -> None:
        """Set the index lag in events, of the tenant with the largest."""
        ...

    def count_document(self, outcome: str) -> None:
        """Count a document by how indexing it ended."""
        ...

    def count_chunks(self, chunks: int) -> None:
        """Count document chunks that were added."""
        ...

    def note_pending_documents(self, documents: int) -> None:
        """Set the number of documents waiting to be indexed."""
        ...
