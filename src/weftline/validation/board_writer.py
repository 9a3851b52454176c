"""A process that writes to a board until it is killed, and prints each acknowledged write: ``board_writer FOLDER``."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys

from weftline.settings import Settings
from weftline.validation.temporary_weftline import TenantCaller, opened, temporary_settings

SESSION = "writing"
_KEYS = 6
_TASKS = 10


async def write_until_killed(folder: str) -> None:
    numbers = itertools.count()

    async def keep_writing(caller: TenantCaller) -> None:
        for number in numbers:
            key = f"k{number % _KEYS}"
            written = await caller.call("board.write", session_id=SESSION, key=key, value=str(number))
            os.write(1, f"{key} {written['version']} {number}\n".encode())

    async with opened(temporary_settings(Settings(), folder)) as app:
        await asyncio.gather(*(keep_writing(TenantCaller(app)) for _ in range(_TASKS)))


if __name__ == "__main__":
    asyncio.run(write_until_killed(sys.argv[1]))
