"""A process of its own that does nothing but send events to webhooks, until it is interrupted or killed.

Run as: courier.py DATABASE_URL [SECONDS]; its clock is so many seconds ahead.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from datetime import UTC, datetime, timedelta

import weft.app.webhooks
from weft.app.app import App
from weft.settings import Settings


class Ahead:
    """A clock that is ahead of the machine's."""

    def __init__(self, seconds: float) -> None:
        self._ahead = timedelta(seconds=seconds)

    def now(self) -> datetime:
        return datetime.now(UTC) + self._ahead


async def main(url: str, seconds: float) -> None:
    weft.app.webhooks._FIRST_LOOK_SECONDS = 0.0  # as if it had run for long
    app = App(Settings(database_url=url, webhook_private_hosts="127.0.0.1", index_sessions="off"), clock=Ahead(seconds))
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
