"""A process that writes, branches, merges and rolls back, and prints everything that was acknowledged.

Run as: history_writer_process.py DATABASE_URL API_KEY SESSION_ID; it runs until it is killed.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from typing import Any

from weftline.app.app import App
from weftline.app.dispatch import CallContext
from weftline.settings import Settings

TASKS = 6


async def main(url: str, credential: str, session: str) -> None:
    app = App(Settings(database_url=url, rate_limits="off"))
    await app.open()
    board = f"board:{session}"

    async def call(operation: str, **raw: Any) -> Any:
        return await app.call(app.registry[operation], raw, CallContext(credential))

    async def write(line: str, branch: str, key: str, value: str) -> None:
        await call("board.write", session_id=session, key=key, value=value, branch=branch)
        os.write(1, f"wrote {line} {value}\n".encode())

    async def keep_going(task: int) -> None:
        for turn in itertools.count():
            branch = f"b{task}-{turn}"
            line = f"{board}@{branch}"
            await call("history.branch", context_id=board, branch=branch)
            os.write(1, f"at {line} 0\n".encode())
            for number in range(3):
                await write(line, branch, f"k{task}", f"{task}-{turn}-{number}")
            await write(board, "main", f"m{task}", f"{task}-{turn}")
            merged = await call("history.merge", context_id=board, from_context_id=line)
            if merged.merged:
                os.write(1, f"at {board} {merged.version}\n".encode())
            if turn % 3 == task % 3:
                back = await call("history.rollback", context_id=board, target_version=str(max(merged.version - 1, 0)))
                os.write(1, f"at {board} {back.version}\n".encode())

    await asyncio.gather(*map(keep_going, range(TASKS)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
