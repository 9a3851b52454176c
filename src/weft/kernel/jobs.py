"""Work that goes on by itself, in steps: one process at a time does it, and another takes over if that one is gone."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Progress(NamedTuple):
    """How far a job got (``cursor``, empty at its beginning), and what it did on the way (``done``)."""

    cursor: str = ""
    done: str = ""


class JobStore(Protocol):
    """The jobs of a tenant. Whoever holds one until its lease ends is the only one who may go on with it."""

    async def claim(self, job: str, holder: str, now: int, until: int, *, due_by: int) -> Progress | None:
        """Take a job that is due and in nobody's hands, and return where it stands; None if it is not to be had."""
        ...

    async def renew(self, job: str, holder: str, until: int) -> Progress | None:
        """Hold on to a job, keeping others waiting until the transaction ends, and return where it stands.

        None if another took it over.
        """
        ...

    async def standing(self, job: str) -> Progress | None:
        """Return where a job stands, whoever has it in hand; None if nobody ever had."""
        ...

    async def save(self, job: str, progress: Progress) -> None:
        """Note how far the job got."""
        ...

    async def release(self, job: str, due_at: int) -> None:
        """Let go of a job; it goes on where it stands when it is due."""
        ...

    async def finish(self, job: str, due_at: int) -> None:
        """Let go of a job that is done; it begins anew when it is due."""
        ...

    async def drop(self, job: str) -> None:
        """Forget a job that will not come again."""
        ...
