"""A process that writes to a board from many tasks and prints every acknowledged write.

Run as: board_writer_process.py DATABASE_URL API_KEY SESSION_ID [WRITES]; without a number it runs until it is killed.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys

from weftline.app.app import App
from weftline.app.dispatch import CallContext
from weftline.settings import Settings
from weftline.storage.sql.dialects import postgres

# The server has 100 connections for all tests that run at once.
postgres._POOL_SIZE = 4

TASKS = 20
KEYS = 6


async def main(url: str, credential: str, session: str, writes: int | None) -> None:
    app = App(Settings(database_url=url, rate_limits="off"))
    await app.open()
    numbers = itertools.count() if writes is None else iter(range(writes))

    async def keep_writing() -> None:
        for number in numbers:
            key, value = f"k{number % KEYS}", f"{os.getpid()}-{number}"
            raw = {"session_id": session, "key": key, "value": value}
            answer = await app.call(app.registry["board.write"], raw, CallContext(credential))
            os.write(1, f"{key} {answer.version} {value}\n".encode())

    await asyncio.gather(*(keep_writing() for _ in range(TASKS)))
    await app.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4], int(sys.argv[4]) if len(sys.argv) > 4 else None))
