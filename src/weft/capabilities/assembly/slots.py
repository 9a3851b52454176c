"""The limit of concurrent assemblies of a process."""

from __future__ import annotations

import asyncio

_MAX_IN_PROGRESS = 32


class AssemblySlots(asyncio.Semaphore):
    """Bounds the assemblies in progress, each of which holds hundreds of passages; further ones wait in order."""

    def __init__(self) -> None:
        super().__init__(_MAX_IN_PROGRESS)
