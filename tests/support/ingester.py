"""A process of its own that does nothing but index documents, until it is killed.

Run as: ingester.py DATABASE_URL DATA [SECONDS]; its clock is so many seconds ahead.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import weft.app.app
import weft.app.ingestion
from support.courier import Ahead
from support.knowledge import QuickEmbedder
from weft.settings import Settings


class SlowEmbedder(QuickEmbedder):
    """Takes a moment for each text, so that there is something to interrupt."""

    async def embed(self, texts, purpose):  # noqa: ANN001, ANN201 - as the one it is
        await asyncio.sleep(0.002 * len(texts))
        return await super().embed(texts, purpose)


async def main(url: str, data: str, seconds: float) -> None:
    weft.app.ingestion._FIRST_LOOK_SECONDS = 0.0  # as if it had run for long
    weft.app.ingestion._CHUNKS_AT_ONCE = 2
    weft.app.app.configured_embedders = lambda _settings: [SlowEmbedder()]
    app = weft.app.app.App(Settings(database_url=url, data=data, index_sessions="off"), clock=Ahead(seconds))
    await app.open()
    sys.stdout.write("open\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]) if len(sys.argv) > 3 else 0.0))
