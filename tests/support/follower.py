"""A process of its own that does nothing but put what is said on its shelves, until it is interrupted or killed.

Run as: follower.py DATABASE_URL [SECONDS]; its clock is so many seconds ahead.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Any

import weft.app.following
from support.courier import Ahead
from support.shelved import ScriptedEmbeddings
from weft.app.app import App
from weft.settings import Settings


async def main(url: str, seconds: float) -> None:
    weft.app.following._FIRST_LOOK_SECONDS = 0.0  # as if it had run for long
    app = App(Settings(database_url=url), clock=Ahead(seconds))
    embeddings: Any = ScriptedEmbeddings()
    app.following._embeddings = embeddings
    app.following.rest = 0
    await app.open()
    sys.stdout.write("open\n")
    sys.stdout.flush()
    try:
        await asyncio.Event().wait()
    finally:
        await app.close()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 0.0))
