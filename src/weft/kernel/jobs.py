"""Port for the state of background work: leases, cursors and due times."""

from __future__ import annotations

from typing import NamedTuple, Protocol

# A process that does not renew a lease for this long is taken for dead, and another takes the work over.
LEASE_MICROS = 60_000_000


class Progress(NamedTuple):
    """How far a job got (``cursor``, empty at its beginning), and what it did on the way (``done``)."""

    cursor: str = ""
    done: str = ""


class JobStore(Protocol):
    """The jobs of a tenant. Until its lease ends, only the holder of a job may continue it."""

    async def claim(self, job: str, holder: str, now: int, until: int, *, due_by: int) -> Progress | None:
        """Take the lease of a job that is due by then and return its progress; None if it is not due or leased."""
        ...

    async def renew(self, job: str, holder: str, until: int) -> Progress | None:
        """Extend a lease and lock the job until the transaction ends; return its progress, None if it is lost."""
        ...

    async def progress(self, job: str) -> Progress | None:
        """Return the progress of a job, whoever holds it; None if it was never claimed."""
        ...

    async def save(self, job: str, progress: Progress) -> None: ...

    async def release(self, job: str, due_at: int) -> None:
        """End a lease; the job resumes from its progress when it is due."""
        ...

    async def finish(self, job: str, due_at: int) -> None:
        """End a lease and reset the progress: the job starts over when it is due."""
        ...

    async def drop(self, job: str) -> None:
        """Delete a job that is not repeated."""
        ...
